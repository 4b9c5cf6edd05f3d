#!/usr/bin/env python3
"""Train a network and write it as a bundle with its card: a linear transformer, a softmax transformer (--softmax), a
Gated DeltaNet or an RWKV-7 model (--family).

DATASET is one of
  mnist    handwritten digits, byte by byte                    DIR/mnist/*-images-idx3-ubyte.gz
  cifar10  small photographs, byte by byte (decoded JPEGs)     DIR/cifar10/CIFAR-10-images_jpg.tar.gz, ...
  text     books, byte by byte                                 DIR/text/gutenberg-english.tar.xz
  copy     the paper's copy task: say again what was said      needs no data
Data are read from --data DIR; nothing is downloaded.

A run saves itself to --work now and then, and the same command continues from there. Its steps follow from the seed
alone, so a run that was interrupted ends with the same weights (on one machine, bit by bit on a CPU). At the end the
weights are rounded as they are stored, figures are computed on data held out, and the bundle is written.

Runs on torch 1.13 or later: a GPU is used where there is one, with products in bf16. On a CPU set
OMP_WAIT_POLICY=PASSIVE, which is 1.4 times faster on two cores.
"""

import json
import math
import os
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))

from runnel_client import command, openblas
from runnel_client.errors import check

openblas.use_vectors()

try:
    import torch

    import card
    import datasets
    import recipes
    from runnel_client import bundle, checkpoint
    from trainer import Training, evaluate
except ImportError as error:
    command.exit_missing("train.py", error, "train")

EXAMPLES = """examples:
  the paper's MNIST model, on a GPU in 10 minutes:
      train.py mnist --data data --minutes 10 --out zoo/mnist
  a small text model on a CPU, in sittings of 8 minutes (repeat until it says that it is done):
      train.py text --size small --data data --pause-after 8 --out zoo/text
  the same network with softmax attention, to compare with:
      train.py mnist --softmax --size small --data data --out zoo/mnist-softmax-small
  an RWKV-7 model of the size and length of the small text model:
      train.py text --size small --family rwkv7 --data data --out zoo/text-rwkv7-small
  begin with the weights of a checkpoint, of this program or of the authors':
      train.py mnist --size small --start-from weights.pth --lr 5e-4 --data data --out digits
"""


def parse_arguments(argv):
    parser = command.Parser("train.py", __doc__, EXAMPLES)
    add_place_flags(parser.add_argument)
    add_recipe_flags(parser.add_argument_group("what is trained (defaults come with --size)").add_argument)
    add_running_flags(parser.add_argument_group("how it runs").add_argument)
    args = parser.parse_args(argv)
    check_arguments(args)
    return args


def add_place_flags(add):
    add("dataset", metavar="DATASET", choices=tuple(recipes.RECIPES))
    add("--data", default="data", metavar="DIR", help="directory of the data (default: data)")
    add("--out", required=True, metavar="DIR", help="the bundle's directory; its files are replaced")
    add(
        "--work",
        default="build/train",
        metavar="DIR",
        help="for checkpoints, curves and decoded images (default: build/train)",
    )
    add("--name", help="the model's name, and its checkpoint's (default: the last part of --out)")


def add_recipe_flags(add):
    add(
        "--size",
        choices=("paper", "small"),
        default="paper",
        help="paper (default): the paper's network, for a GPU; small: what a CPU can train",
    )
    add(
        "--endless",
        action="store_true",
        help="without positions and with a gate: sequences have no last value (text only)",
    )
    add(
        "--softmax",
        action="store_true",
        help="softmax attention in place of linear attention; time and memory grow with the square of the length",
    )
    add(
        "--family",
        choices=tuple(recipes.FFN),
        help="Gated DeltaNet or RWKV-7 in place of the linear transformer; sequences have no last value (text only)",
    )
    add("--layers", type=int, metavar="N")
    add("--heads", type=int, metavar="N", help="heads of 32 numbers each, which determine the width")
    add("--length", type=int, metavar="N", help="inputs of a sequence (only text and copy)")
    add("--batch", type=int, metavar="N", help="sequences in a step")
    add("--lr", type=float, metavar="X", help="peak learning rate of AdamW, which then decays like a cosine")
    add("--warmup", type=int, metavar="N", help="steps until the learning rate is at its peak")
    add("--steps", type=int, metavar="N", help="steps in all")
    add(
        "--minutes",
        type=float,
        metavar="M",
        help="in place of --steps: as many steps as fit in M minutes, by the speed of the first ones",
    )
    add("--seed", type=int, default=1, help="of the weights and of the order of data (default: 1)")
    add("--start-from", metavar="FILE", help="begin with the weights of this checkpoint")


def add_running_flags(add):
    add("--device", help="cpu or cuda (default: cuda where there is one)")
    add(
        "--precision",
        choices=("fp32", "bf16"),
        help="of matrix products in training (default: bf16 on a GPU, else fp32); states and losses are fp32",
    )
    add("--threads", type=int, metavar="N", help="of a CPU (default: torch's own choice)")
    add("--compile", action="store_true", help="compile the layers (torch 2.6 or later): slower to start, then faster")
    add("--save-every", type=float, default=3, metavar="M", help="minutes between two checkpoints (default: 3)")
    add(
        "--pause-after",
        type=float,
        default=math.inf,
        metavar="M",
        help="save and stop after M minutes, with exit status 3; the same command then continues",
    )
    add("--fresh", action="store_true", help="ignore the checkpoint in --work and start again")
    add(
        "--evaluate",
        type=int,
        metavar="N",
        help="sequences of each held-out set for the card's figures (default: all on a GPU, 500 on a CPU)",
    )
    add(
        "--dtype",
        choices=tuple(bundle.DTYPES),
        default="bf16",
        help="of the stored weights (default: bf16)",
    )


def check_arguments(args):
    check(args.steps is None or args.minutes is None, "--steps and --minutes exclude each other")
    for key in ("layers", "heads", "length", "batch", "warmup", "steps", "threads", "evaluate"):
        value = getattr(args, key)
        check(value is None or value >= 1, f"--{key}: expected at least 1, found {value}")
    for key in ("lr", "minutes", "save_every", "pause_after"):
        value, flag = getattr(args, key), "--" + key.replace("_", "-")
        check(value is None or value > 0, f"{flag}: expected a number above 0, found {value}")
    check(0 <= args.seed < 1 << 63, f"--seed: expected 0 to 2^63 - 1, found {args.seed}")
    check(
        args.length is None or args.dataset in datasets.LENGTHS,
        f"--length: {args.dataset} has a length of its own; it goes with text and copy",
    )
    check(
        not args.endless or args.dataset == "text",
        f"--endless: sequences of {args.dataset} have an end; it goes with text",
    )
    check(
        not (args.endless and args.softmax),
        "--endless and --softmax exclude each other: softmax attention has a last position",
    )
    check(
        args.family is None or args.dataset == "text",
        f"--family: networks of {args.dataset} are transformers; it goes with text",
    )
    for flag in ("endless", "softmax"):
        check(
            args.family is None or not getattr(args, flag),
            f"--family and --{flag} exclude each other: --{flag} goes with transformers",
        )
    if args.device is None:
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    check(
        args.device == "cpu" or (args.device.split(":")[0] == "cuda" and torch.cuda.is_available()),
        f"--device: expected cpu, or cuda where torch sees a GPU, found '{args.device}'",
    )
    if args.precision is None:
        args.precision = "fp32" if args.device == "cpu" else "bf16"
    if args.evaluate is None:
        args.evaluate = 500 if args.device == "cpu" else 1 << 30
    args.name = args.name or os.path.basename(os.path.abspath(args.out))


def make_run(args):
    """Everything that determines the weights, as plain values."""
    run: dict[str, Any] = dict(recipes.RECIPES[args.dataset][args.size])
    run.setdefault("length", datasets.LENGTHS.get(args.dataset))
    for key in run:
        if getattr(args, key) is not None:
            run[key] = getattr(args, key)
    if args.minutes is not None:
        run["steps"] = None
    for key in ("dataset", "seed", "precision", "start_from", "endless", "softmax", "family"):
        run[key] = getattr(args, key)
    return run


def prepare(args, run, data):
    """The training in its current state: new, or continued from the last checkpoint."""
    if run["family"]:
        config = recipes.spec_of_family(run["family"], args.name, data, run["layers"], run["heads"])
    else:
        config = recipes.spec(args.name, data, run["layers"], run["heads"], run["endless"], run["softmax"])
    bundle.check_config(config)
    training = Training(config, data, run, args.device)
    path = os.path.join(args.work, args.name + ".pth")
    if os.path.exists(path) and not args.fresh:
        training.resume(path)
        kept = f"; it keeps its {training.run['steps']:,} steps, whatever --minutes says" if args.minutes else ""
        print(f"train.py: continues at step {training.step:,} of {path}{kept}", file=sys.stderr)
    elif args.start_from:
        start_from(training, args.start_from)
    if args.compile:
        compile_layers(training.network)
    return training, path


def compile_layers(network):
    """Compiles each layer in place. All layers of one kind share the compiled code, so their number costs no time."""
    for part in network.modules():
        if isinstance(part, torch.nn.ModuleList):
            for layer in part:
                layer.compile()


def start_from(training, path):
    state = training.network.state_dict()
    tensors = checkpoint.Checkpoint(path).tensors
    for name, tensor in state.items():
        check(name in tensors, f"{path}: tensor '{name}' is missing")
        check(
            tensors[name].shape == tensor.shape,
            f"{path}: tensor '{name}': expected shape {bundle.shape_text(tensor.shape)}, "
            f"found {bundle.shape_text(tensors[name].shape)}",
        )
    training.network.load_state_dict({name: tensors[name] for name in state})


def figures(training, args):
    """The card's figures for each held-out set."""
    torch.set_float32_matmul_precision("highest")
    if args.compile:  # compiling again for other shapes and types would take longer than it saves
        torch.compiler.set_stance("force_eager")
    batch = max(1, training.run["batch"] // 2)
    found = {}
    for name, sequences in training.data.held_out.items():
        part = sequences.first(args.evaluate)
        bits, items, hits = evaluate(training.network, part, args.device, batch)
        found[name] = card.figure(len(sequences), bits, items, hits)
        print(f"{args.name}: {name}: {card.figure_text(found[name], training.data.unit)}")
    return found


def write_report(path, report):
    """Writes the figures and the curve as JSON, whole or not at all."""
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(report, file)
        file.write("\n")
    os.replace(path + ".tmp", path)


def train(argv):
    args = parse_arguments(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision("high")
    run = make_run(args)
    data = datasets.load(args.dataset, args.data, args.work, run["length"])
    training, path = prepare(args, run, data)
    if training.run["steps"] is None:
        training.calibrate(60 * args.minutes)
    if not training.train(path, 60 * args.save_every, 60 * args.pause_after):
        print(f"train.py: paused at step {training.step:,}; the same command continues", file=sys.stderr)
        return 3
    tensors = training.tensors(args.dtype)
    report = {
        "name": args.name,
        "run": training.run,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if args.device != "cpu" else "CPU",
        "seconds": round(training.seconds),
        "unit": data.unit,
        "length": data.length,
        "figures": figures(training, args),
        "curve": training.curve,
    }
    text = card.text(training.network, args.dtype, report, args.out)
    shapes = {name: tensor.shape for name, tensor in tensors.items()} if training.run["family"] else None
    bundle.write_bundle(args.out, training.network.config, tensors.__getitem__, args.dtype, text, shapes=shapes)
    write_report(os.path.join(args.work, args.name + ".json"), report)
    print(training.network.summary(args.out))
    return 0


def main(argv=None):
    interrupted = "interrupted; the same command continues from the last checkpoint"
    return command.run("train.py", train, argv, interrupted)


if __name__ == "__main__":
    sys.exit(main())
