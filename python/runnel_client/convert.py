"""Turn a PyTorch checkpoint into a directory that runnel serves.

Of RWKV (.pth) and Mamba (pytorch_model.bin) the tensors become safetensors under their own names; no flag but --out is
needed, and --vocab or --tokenizer where there is to be text. --config and the flags of the model card work too.
Every other flag is refused.

Of a linear transformer it makes a bundle. Read are: checkpoints of idiap/linear-transformer-experiments
(image-generation and causal-copy), and state dicts of a fast-transformers encoder, alone or as part of a larger model.
Sizes are read off the tensors. What tensors do not tell is a flag: the number of heads, the shape of an image, the
activation, the kind of attention, the feature map and what it was made with. A wrong one of these converts as well, and
is only a little worse: --verify finds it. The attention is taken to be linear ("linear" or "causal-linear"; feature map
elu(x) + 1 unless said otherwise). A checkpoint of softmax attention ("full") has the same tensors: say --attention
softmax.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runnel_client import command
from runnel_client.errors import BundleError, check

try:
    from runnel_client import bundle, cards, publish, verify
    from runnel_client.bundle import Config, Floats
except ImportError as error:
    command.exit_missing("runnel-convert", error, "convert")

if TYPE_CHECKING:
    from runnel_client.checkpoint import Checkpoint

Add = Callable[..., object]

PUBLISHED = ("checkpoint", "out", "vocab", "tokenizer", "config", "card", "card_note")  # used for RWKV and Mamba

EXAMPLES = """examples:
  RWKV-7:              runnel-convert rwkv7-g1-0.1b.pth --vocab rwkv_vocab_v20230424.txt --out rwkv7-0.1b
  Mamba-2:             runnel-convert mamba2-130m/pytorch_model.bin --tokenizer tokenizer.json --out mamba2
  an image model:      runnel-convert mnist.pth --heads 8 --image 28x28x1 --out zoo/mnist
  the copy task:       runnel-convert copy.pth --heads 4 --begin none --out copy
  text, 65 letters:    runnel-convert lm.pth --heads 16 --symbols-file letters.json --out shakespeare
  text, by tokens:     runnel-convert lm.pth --heads 16 --tokenizer tokenizer.json --out lm
  random features:     runnel-convert lm.pth --heads 8 --feature-map favor --features 256 --out lm
  softmax attention:   runnel-convert mnist_softmax.pth --heads 8 --attention softmax --image 28x28x1 --out zoo/softmax
  held against outputs that were recorded where it was trained (NumPy arrays values, outputs or log_probs):
                       runnel-convert mnist.pth --heads 8 --image 28x28x1 --verify outputs.npz --out zoo/mnist
  an encoder alone:    runnel-convert encoder.pth head.pth --heads 4 --out lm \\
                         --embedding tokens --predictor to_logits --position-kind sinusoidal
"""


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser()
    args = parser.parse_args(argv)
    without_defaults = parser.parse_args(argv, argparse.Namespace(**dict.fromkeys(vars(args))))
    args.given = [name for name, value in vars(without_defaults).items() if value is not None]
    args.image = bundle.parse_image(args.image) if args.image is not None else None
    args.name = default_name(args.out) if args.name is None else args.name
    return args


def make_parser() -> argparse.ArgumentParser:
    parser = command.Parser("runnel-convert", __doc__, EXAMPLES)
    add_model_flags(parser.add_argument)
    add_value_flags(parser.add_argument)
    add_name_flags(parser.add_argument_group("names, where they are not those of the authors' code").add_argument)
    add_published_flags(parser.add_argument_group("RWKV and Mamba").add_argument)
    add_card_flags(parser.add_argument_group("model card (README.md)").add_argument)
    return parser


def add_model_flags(add: Add) -> None:
    add(
        "checkpoint",
        nargs="+",
        metavar="CHECKPOINT",
        help="file written by torch.save: a dict of tensors, or one that holds it as model_state; "
        "the tensors of several files are taken together",
    )
    add("--out", required=True, metavar="DIR", help="the bundle's directory; its files are replaced")
    add(
        "--heads",
        type=int,
        metavar="N",
        help="attention heads; the error without it lists what is possible",
    )
    add("--name", help="the model's name (default: the last part of --out)")
    add(
        "--activation",
        choices=("relu", "gelu"),
        default="relu",
        help="of the feed-forward part (default: relu)",
    )
    add_feature_flags(add)
    add(
        "--verify",
        nargs="?",
        const="",
        metavar="FILE",
        help="compare with the outputs in a .npz FILE, and refuse what does not agree; without FILE: with those of "
        "the classes of fast-transformers, which also have to be told --heads and the other flags",
    )
    add(
        "--attention-eps",
        type=float,
        default=1e-6,
        metavar="X",
        help="added to the normalizer (default: 1e-6)",
    )
    add("--norm-eps", type=float, default=1e-5, metavar="X", help="of LayerNorm (default: 1e-5)")
    add(
        "--dtype",
        choices=tuple(bundle.DTYPES),
        default="f32",
        help="of the stored weights (default: f32)",
    )


def add_feature_flags(add: Add) -> None:
    add(
        "--attention",
        choices=("linear", "softmax"),
        default="linear",
        help="what the model was trained with (default: linear); softmax is fast-transformers' full attention",
    )
    add(
        "--softmax-temp",
        type=float,
        metavar="X",
        help="softmax_temp of --attention softmax, by which scores are multiplied (default: as in "
        "fast-transformers: 1 over the square root of the size of a query)",
    )
    add(
        "--feature-map",
        choices=bundle.FEATURE_MAPS,
        default="elu",
        help="of the attention (default: elu, which is elu(x) + 1)",
    )
    add(
        "--features",
        type=int,
        metavar="N",
        help="n_dims of a random feature map (default: the size of a query, as in fast-transformers)",
    )
    add(
        "--temperature",
        type=float,
        metavar="X",
        help="softmax_temp of a random feature map (default: as in fast-transformers: 1 over the "
        "square root of the size of a query; generalized: 1)",
    )
    add("--smoothing", type=float, metavar="X", help="of smoothed_fourier (default: 1)")
    add(
        "--kernel",
        choices=bundle.KERNELS,
        help="kernel_fn of generalized features (default: relu)",
    )
    add(
        "--stabilize",
        action="store_true",
        help="FAVOR+ was trained with stabilize: refused, with the reason",
    )


def add_value_flags(add: Add) -> None:
    add(
        "--image",
        metavar="HxWxC",
        help="values are the bytes of an image, in raster order: 28x28x1, 32x32x3",
    )
    add("--symbols", metavar="TEXT", help="how each value is written: one character per value")
    add(
        "--symbols-file",
        metavar="FILE",
        help="the same as a JSON array of strings, for longer ones",
    )
    add("--text", action="store_true", help="values are the bytes of text")
    add("--tokenizer", metavar="FILE", help="values are text by this tokenizer.json, copied as it is")
    add(
        "--begin",
        metavar="VALUE",
        help="first value of a fresh sequence, or 'none' (default: 0 for a grey image, else none, "
        "and then a fresh sequence needs a prompt)",
    )
    add(
        "--begin-histogram",
        metavar="FILE",
        help="draw the first value: a JSON array, one number per value",
    )


def add_name_flags(add: Add) -> None:
    add(
        "--encoder",
        metavar="PREFIX",
        help="where the encoder is, if there are several: PREFIX.layers.0...",
    )
    add("--embedding", metavar="NAME", help="the value embedding (default: value_embedding)")
    add(
        "--predictor",
        metavar="NAME",
        help="the output layer (default: predictor); without a bias it gets zeros",
    )
    add("--position", metavar="NAME", help="the position table (default: pos_embedding.pe)")
    add(
        "--position-kind",
        choices=("table", "sinusoidal", "none"),
        default="table",
        help="sinusoidal: computed, no table needed; none: no positions (default: table)",
    )
    add(
        "--length",
        type=int,
        metavar="N",
        help="inputs that a sequence can have, without a table (default: the image's, or no end)",
    )
    add(
        "--ignore",
        action="append",
        default=[],
        metavar="PATTERN",
        help="tensors that take no part in the forward pass, as a shell pattern; may be repeated",
    )


def add_published_flags(add: Add) -> None:
    add("--vocab", metavar="FILE", help="RWKV's vocabulary, rwkv_vocab_v20230424.txt, which its .pth does not hold")
    add("--config", metavar="FILE", help="the model's config.json (default: the one beside the checkpoint)")


def add_card_flags(add: Add) -> None:
    add(
        "--card-note",
        action="append",
        default=[],
        metavar="TEXT",
        help="a paragraph; may be repeated",
    )
    add(
        "--card",
        metavar="FILE",
        help="Markdown to append, such as training data, licence and figures",
    )


def default_name(out: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", os.path.basename(os.path.abspath(out)).lower())


def read_text(flag: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except OSError as error:
        raise BundleError(f"{flag}: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BundleError(f"{flag}: {path}: expected text in UTF-8") from None


def card_text(config: Config, sources: Sequence[Checkpoint], args: argparse.Namespace) -> str:
    lines = [f"# {config['name']}\n"]
    kind = "images, byte by byte" if "image" in config else "sequences"
    what = "A transformer with softmax attention" if bundle.is_softmax(config["model"]) else "A linear transformer"
    how = "with a cache of keys and values" if bundle.is_softmax(config["model"]) else "as a recurrent network"
    lines.append(f"{what} that generates {kind}, run {how}.\n")
    lines += [note.strip() + "\n" for note in args.card_note]
    lines.append(cards.card_table(config, args.dtype))
    lines.append("Converted from:\n")
    lines.append("| checkpoint | iteration | SHA-256 |\n| --- | --- | --- |")
    for source in sources:
        iteration = "not stored" if source.iteration is None else f"{source.iteration:,}"
        lines.append(f"| `{os.path.basename(source.path)}` | {iteration} | `{source.digest}` |")
    return "\n".join(lines) + "\n" + card_end(args)


def card_end(args: argparse.Namespace) -> str:
    return "" if args.card is None else "\n" + read_text("--card", args.card).strip() + "\n"


def unknown_text(config: Config, args: argparse.Namespace) -> str:
    """A note about the facts that the tensors do not have, and how to check them."""
    kind = "--attention softmax" if args.attention == "softmax" else f"--feature-map {args.feature_map}"
    flags = f"--heads {args.heads}, --activation {args.activation} and {kind}"
    return f"tensors do not tell whether {flags} are right; --verify FILE compares with outputs of the model"


def record_authors(config: Config, tensors: Mapping[str, Any]) -> verify.Recording:
    """Records the outputs of fast-transformers' classes for random values, in fp64."""
    check(not config["model"]["attention"].get("gate"), "--verify: fast-transformers has no gate; give a FILE")
    try:
        from runnel_client import authors
    except ImportError as error:
        raise BundleError(
            f"--verify without a FILE: {sys.executable} has no module '{error.name}'; install it with: "
            f"{sys.executable} -m pip install --no-build-isolation pytorch-fast-transformers; or give a FILE"
        ) from None
    network = authors.Recurrent(config, {name: tensor.double() for name, tensor in tensors.items()})
    return verify.record("fast-transformers", lambda: authors.Sequence(network), config)


def open_published(paths: Sequence[str]) -> tuple[publish.Published | None, str]:
    """The checkpoint, if it is of a published family. Otherwise the reason, if the files exist."""
    try:
        found = publish.Published(paths)
    except BundleError as error:
        return None, str(error) if all(map(os.path.isfile, paths)) else ""
    if publish.family_of(list(found.place)):
        return found, ""
    return None, publish.nearest(list(found.place)) or ""


def convert_published(published: publish.Published, args: argparse.Namespace) -> None:
    flags = " and ".join(f"--{name.replace('_', '-')}" for name in args.given if name not in PUBLISHED)
    family = publish.family_of(list(published.place))
    check(
        not flags,
        f"{flags}: for linear transformers, found {family}, which is written as it was published and "
        "has the name of its directory",
    )
    card = publish.Card(args.card_note, card_end(args))
    notes = publish.publish(published, args.out, card, args.config, args.vocab, args.tokenizer)
    print(command.printable(f"{args.out}: {len(published.place)} tensors; 'runnel info {args.out}' checks them"))
    for note in notes:
        print(f"note: {command.printable(note)}")


def convert(argv: Sequence[str] | None) -> None:
    args = parse_arguments(argv)
    args.checkpoint = publish.files_of(args.checkpoint)
    for path in args.checkpoint:
        check(os.path.exists(path), f"{path}: no such file")
    published, fault = open_published(args.checkpoint)
    if published is not None:
        return convert_published(published, args)
    flags = [flag for flag in ("vocab", "config") if getattr(args, flag) is not None]
    if fault and (flags or importlib.util.find_spec("torch") is None):
        raise BundleError(fault)
    check(not flags, f"--{' and --'.join(flags)}: for RWKV and Mamba, found neither")
    try:
        return convert_linear(args)
    except BundleError as error:
        if not fault:
            raise
        raise BundleError(f"{error}; read as RWKV or Mamba: {fault}") from None


def convert_linear(args: argparse.Namespace) -> None:
    try:
        import torch

        from runnel_client import assemble, checkpoint
    except ImportError as error:
        raise command.missing(error, "convert") from None
    notes: list[str] = []
    sources = [checkpoint.Checkpoint(path) for path in args.checkpoint]
    config, tensors = assemble.build(checkpoint.merge(sources), args, notes)
    bundle.check_config(config)

    def make(name: str) -> Floats:
        values: Floats = tensors[name].to(torch.float32).numpy()
        return values

    if args.verify is None:
        notes.append(unknown_text(config, args))
    else:
        stored = {name: bundle.rounded(name, make(name), args.dtype) for name in bundle.expected_tensors(config)}
        recording = verify.read(args.verify, config) if args.verify else record_authors(config, tensors)
        agreement = verify.verify(config, stored, recording, args.dtype)
        notes.append(f"verified: {agreement}")
        args.card_note.append(f"Verified: {agreement}.")
    card = card_text(config, sources, args)
    tokenizer = None if args.tokenizer is None else read_text("--tokenizer", args.tokenizer)
    bundle.write_bundle(args.out, config, make, args.dtype, card, tokenizer)
    print(command.printable(cards.summary(args.out, config)))
    for note in notes:
        print(f"note: {command.printable(note)}")


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("runnel-convert", convert, argv)


if __name__ == "__main__":
    sys.exit(main())
