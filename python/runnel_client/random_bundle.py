"""Write a bundle with random weights: any spec, for tests and benchmarks.

A preset gives every size; flags replace single ones. The same seed and sizes give the same weights.
They are scaled so that activations stay of order one however long the sequence runs, and so that
sampled bytes spread over their range.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import zlib
from collections.abc import Callable, Sequence

from runnel_client import command
from runnel_client.errors import check

try:
    import numpy as np

    from runnel_client import bundle, cards, random_published
    from runnel_client.bundle import Config, Floats, Shapes
except ImportError as error:
    command.exit_missing("runnel-random-bundle", error)

Add = Callable[..., object]

PUBLISHED = ("out", "preset", "seed", "layers", "width", "values", "dtype")  # used for models of other families

EXAMPLES = """examples:
  runnel-random-bundle --preset mnist --out bundles/mnist
  runnel-random-bundle --preset lm --layers 2 --dtype f32 --out bundles/lm
  runnel-random-bundle --preset tiny --endless --symbols 01 --out bundles/bits
  runnel-random-bundle --preset tiny --endless --text --out bundles/noise
  runnel-random-bundle --preset rwkv7 --layers 2 --out bundles/rwkv7
  runnel-random-bundle --preset qwen3.5-0.8b --out bundles/qwen
"""

# The paper's image models, a language model of 1.4 billion parameters, and one for tests.
PRESETS = {
    "mnist": {
        "layers": 8,
        "width": 256,
        "heads": 8,
        "query_size": 32,
        "value_size": 32,
        "ffn": 1024,
        "image": "28x28x1",
        "head": "mixture",
        "components": 10,
    },
    "cifar10": {
        "layers": 16,
        "width": 256,
        "heads": 8,
        "query_size": 32,
        "value_size": 32,
        "ffn": 1024,
        "image": "32x32x3",
        "head": "mixture",
        "components": 10,
    },
    "lm": {
        "layers": 24,
        "width": 2048,
        "heads": 16,
        "query_size": 128,
        "value_size": 128,
        "ffn": 8192,
        "values": 50000,
        "head": "categorical",
        "activation": "gelu",
        "combine": "add",
        "position_kind": "sinusoidal",
        "dtype": "bf16",
    },
    "tiny": {
        "layers": 2,
        "width": 24,
        "heads": 3,
        "query_size": 8,
        "value_size": 8,
        "ffn": 40,
        "image": "6x5x1",
        "head": "mixture",
        "components": 3,
    },
}
DEFAULTS = {
    "activation": "relu",
    "combine": "concat",
    "head": "mixture",
    "components": 10,
    "dtype": "f32",
    "position_kind": "table",
}


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = command.Parser("runnel-random-bundle", __doc__, EXAMPLES)
    add_size_flags(parser.add_argument)
    add_value_flags(parser.add_argument)
    args = parser.parse_args(argv)
    if args.preset in PRESETS:
        fill_in(args)
        return args
    without_defaults = parser.parse_args(argv, argparse.Namespace(**dict.fromkeys(vars(args))))
    others = [name for name, value in vars(without_defaults).items() if value is not None and name not in PUBLISHED]
    check(
        not others,
        f"{' and '.join('--' + name.replace('_', '-') for name in others)}: for bundles of linear transformers; "
        f"--preset {args.preset} writes the files of a published model",
    )
    return args


def add_size_flags(add: Add) -> None:
    add("--out", required=True, metavar="DIR", help="the bundle's directory; its files are replaced")
    add(
        "--preset",
        choices=(*PRESETS, *random_published.PRESETS),
        default="tiny",
        help="mnist, cifar10: the paper's sizes; lm: 1.4 billion parameters; tiny (default); rwkv7, mamba2: "
        "the files of a published model of the smallest size, with --layers, --width, --values, --dtype alone; the "
        "others: the files of a model of another family, of which --layers takes the first layers, with --values, "
        "--dtype alone",
    )
    add("--name", help="the model's name (default: random-PRESET)")
    add("--seed", type=int, default=0, help="of the weights (default: 0)")
    add("--layers", type=int)
    add("--width", type=int, help="of the residual stream")
    add("--heads", type=int)
    add("--query-size", type=int, help="of each head's queries and keys")
    add("--value-size", type=int, help="of each head's values")
    add("--ffn", type=int, help="width of the feed-forward part")
    add("--activation", choices=("relu", "gelu"))
    add(
        "--attention",
        choices=("linear", "softmax"),
        default="linear",
        help="(default: linear); softmax has a last position and none of the flags of feature maps",
    )
    add("--scale", type=float, help="of softmax attention (default: 1 over the square root of --query-size)")
    add("--feature-map", choices=bundle.FEATURE_MAPS, default="elu", help="(default: elu)")
    add("--features", type=int, help="of a random feature map (default: --query-size)")
    add("--temperature", type=float, help="of a random feature map (default: as the server's)")
    add("--smoothing", type=float, help="of smoothed Fourier features (default: 1)")
    add("--kernel", choices=bundle.KERNELS, help="of generalized features (default: relu)")
    add("--normalize", action="store_true", help="queries and keys of unit length, then scaled")
    add("--gate", action="store_true", help="the state forgets")
    add("--no-final-norm", action="store_true", help="no LayerNorm after the last layer")


def add_value_flags(add: Add) -> None:
    add("--combine", choices=("concat", "add"), help="of the embeddings of value and position")
    add(
        "--value-width",
        type=int,
        help="of the value embedding, with concat (default: half of --width)",
    )
    add("--position-kind", choices=("table", "sinusoidal", "none"))
    add(
        "--length",
        type=int,
        metavar="N",
        help="inputs that a sequence can have (default: the image's)",
    )
    add(
        "--endless",
        action="store_true",
        help="no last position; a table becomes sinusoidal, an image goes",
    )
    add("--head", choices=("mixture", "categorical"))
    add("--components", type=int, help="logistics in the mixture")
    add("--values", type=int, help="how many values there are (default: one per symbol, else 256)")
    add("--image", metavar="HxWxC", help="values are bytes of an image; 'none' drops the preset's")
    add("--symbols", metavar="TEXT", help="how each value is written: one character per value")
    add("--symbols-file", metavar="FILE", help="the same as a JSON array of strings")
    add("--text", action="store_true", help="values are the bytes of text")
    add(
        "--begin",
        metavar="VALUE",
        default="0",
        help="first value of a fresh sequence, or 'none' (default: 0)",
    )
    add("--dtype", choices=tuple(bundle.DTYPES), help="of the stored weights")


def fill_in(args: argparse.Namespace) -> None:
    """Fills in the values of the preset, and the defaults, for flags that are not given."""
    is_categorical = args.symbols or args.symbols_file or args.text
    if args.head is None and (is_categorical or args.values not in (None, 256)):
        args.head = "categorical"  # a mixture of logistics is over bytes
    for key, value in {**DEFAULTS, **PRESETS[args.preset]}.items():
        is_no_image = args.endless or args.symbols or args.symbols_file or args.length or args.text
        if key == "image" and is_no_image:
            continue
        if getattr(args, key) is None:
            setattr(args, key, value)
    check(
        args.image in (None, "none") or not args.endless,
        "--endless and --image exclude each other: an image ends",
    )
    check(args.length is None or not args.endless, "--endless and --length exclude each other")
    args.image = None if args.image in (None, "none") else bundle.parse_image(args.image)
    if args.endless and args.position_kind == "table":
        args.position_kind = "sinusoidal"


def position_config(args: argparse.Namespace) -> Config:
    length = args.length
    if args.image is not None:
        length = bundle.image_bytes(args.image) - 1 if length is None else length
    check(
        args.position_kind != "table" or length is not None,
        "--length is needed: a position table ends; or say --endless",
    )
    position: Config = {"kind": args.position_kind}
    if length is not None:
        position["length"] = length
    return position


def softmax_config(args: argparse.Namespace) -> Config:
    for key in ("features", "temperature", "smoothing", "kernel", "normalize", "gate"):
        check(not getattr(args, key), f"--{key}: it goes with --attention linear")
    check(args.feature_map == "elu", "--feature-map: it goes with --attention linear")
    check(not args.endless, "--endless: softmax attention has a last position; give --length")
    return {"kind": "softmax"} | ({} if args.scale is None else {"scale": args.scale})


def attention_config(args: argparse.Namespace) -> Config:
    if args.attention == "softmax":
        return softmax_config(args)
    check(args.scale is None, "--scale: it goes with --attention softmax")
    attention: Config = {"feature_map": args.feature_map, "eps": 1e-6}
    if args.feature_map in bundle.RANDOM_FEATURES:
        attention["features"] = args.query_size if args.features is None else args.features
    if args.feature_map == "generalized":
        attention["kernel"] = args.kernel or "relu"
    for key in ("features", "temperature", "smoothing", "kernel"):
        if getattr(args, key) is not None:
            attention[key] = getattr(args, key)
    for key in ("normalize", "gate"):
        if getattr(args, key):
            attention[key] = True
    return attention


def build_config(args: argparse.Namespace) -> Config:
    symbols = bundle.parse_symbols(args.symbols, args.symbols_file)
    values = args.values if args.values is not None else len(symbols) if symbols else 256
    alone = args.combine == "add" or args.position_kind == "none"
    value_width = args.value_width
    if value_width is None:
        value_width = args.width if alone else args.width // 2
    head: Config = {"kind": "categorical"}
    if args.head == "mixture":
        head = {"kind": "mixture_of_logistics", "components": args.components}
    config: Config = {
        "runnel_bundle": bundle.FORMAT,
        "name": args.name if args.name is not None else f"random-{args.preset}",
        "model": {
            "layers": args.layers,
            "width": args.width,
            "heads": args.heads,
            "query_size": args.query_size,
            "value_size": args.value_size,
            "ffn": args.ffn,
            "attention": attention_config(args),
            "norm": {
                "kind": "layer",
                "placement": "post",
                "eps": 1e-5,
                "final": not args.no_final_norm,
            },
            "activation": args.activation,
            "embedding": {"combine": args.combine, "value_width": value_width},
            "position": position_config(args),
            "head": head,
        },
        "values": values,
    }
    if args.begin != "none":
        check(
            args.begin.isascii() and args.begin.isdigit() and len(args.begin) < 8,
            f"--begin: expected a value or 'none', found '{args.begin}'",
        )
        config["begin"] = {"value": int(args.begin)}
    if args.image is not None:
        config["image"] = args.image
    if symbols is not None:
        config["symbols"] = symbols
    if args.text:
        config["text"] = "bytes"
    return config


def mixture_bias(rng: np.random.Generator, components: int) -> Floats:
    """The bias of a mixture: equal weights, means over [-1, 1] and narrow scales, so that samples differ and spread."""
    bias = np.empty(3 * components, np.float32)
    bias[:components] = rng.normal(0, 0.5, components)
    bias[components : 2 * components] = np.linspace(-0.9, 0.9, components) if components > 1 else 0
    bias[2 * components :] = rng.normal(-3, 0.3, components)
    return bias


def random_tensor(config: Config, shapes: Shapes, seed: int, name: str) -> Floats:
    """One tensor, from its own stream: it depends on the seed, its name and its shape alone.

    Every layer ends in a LayerNorm and attention returns averages of values, so weights of unit
    variance keep a run of any length of order one.
    """
    shape = shapes[name]
    model = config["model"]
    if name == bundle.POSITION_TABLE:
        return bundle.sinusoids(shape[1], shape[2])
    rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    if name == "predictor.bias" and model["head"]["kind"] == "mixture_of_logistics":
        return mixture_bias(rng, model["head"]["components"])
    tensor = rng.standard_normal(shape, dtype=np.float32)
    is_mixture = name == "predictor.weight" and model["head"]["kind"] == "mixture_of_logistics"
    if name.endswith(".omega"):
        return tensor
    if "norm" in name or name.endswith(".sigma"):
        return tensor * np.float32(0.05) + np.float32(not name.endswith("bias"))
    if len(shape) == 1:
        return tensor * np.float32(0.05)
    if name != "value_embedding.weight":
        tensor *= np.float32((0.3 if is_mixture else 1.0) / np.sqrt(shape[1]))
    return tensor


def card_text(config: Config, args: argparse.Namespace) -> str:
    return (
        f"# {config['name']}\n\n"
        f"Random weights (seed {args.seed}), for tests and benchmarks: it has learned nothing. "
        "Written by `scripts/runnel-random-bundle`.\n\n" + cards.card_table(config, args.dtype)
    )


def generate_published(args: argparse.Namespace) -> None:
    usual = random_published.PRESETS[args.preset]
    given = {key: getattr(args, key) for key in ("layers", "width", "values")}
    sizes = dataclasses.replace(usual, **{key: number for key, number in given.items() if number is not None})
    if args.preset in random_published.FIXED_WIDTH:
        check(args.width is None, f"--width: that of {args.preset} is {usual.width}; leave the flag out")
        bundle.check_range("--layers", sizes.layers, 1, usual.layers)
    else:
        check(sizes.width % random_published.HEAD_SIZE == 0, f"--width: expected a multiple of 64, found {sizes.width}")
        bundle.check_range("--layers", sizes.layers, 2, bundle.MAX_LAYERS)
        bundle.check_range("--width", sizes.width, 64, bundle.MAX_WIDTH // 4)
    bundle.check_range("--values", sizes.values, random_published.FIRST_WORDS, bundle.MAX_VOCABULARY)
    parameters = random_published.write(args.preset, args.out, sizes, args.seed, args.dtype or "bf16")
    print(f"{args.out}: {args.preset} as it is published, {sizes.layers} layers, {parameters:,} parameters")


def generate(argv: Sequence[str] | None) -> None:
    args = parse_arguments(argv)
    check(0 <= args.seed < 1 << 63, f"--seed: expected 0 to 2^63 - 1, found {args.seed}")
    if args.preset in random_published.PRESETS:
        generate_published(args)
        return
    config = build_config(args)
    bundle.check_config(config)
    shapes = bundle.expected_tensors(config)
    bundle.write_bundle(
        args.out,
        config,
        lambda name: random_tensor(config, shapes, args.seed, name),
        args.dtype,
        card_text(config, args),
    )
    print(cards.summary(args.out, config))


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("runnel-random-bundle", generate, argv)


if __name__ == "__main__":
    sys.exit(main())
