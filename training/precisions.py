#!/usr/bin/env python3
"""Compute what each precision costs each model of zoo/: the table of docs/internals/numerics.md.

A line for each held-out set of each model: the bits of its first --first sequences in fp32, and how much they are more
in every other precision, by the Score RPC of a server that this starts. All score the same values. Models with a
categorical head are also quantized with `runnel quantize`.

A published model whose values are bytes, such as those of data/recurrences, scores Tiny Shakespeare in pieces of 512.
"""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))

from runnel_client import command
from runnel_client.errors import check

try:
    import numpy as np

    import datasets
    from evaluate import evaluate
    from runnel_client import serving
    from runnel_client.bundle import read_json
except ImportError as error:
    command.exit_missing("precisions.py", error, "")

EXAMPLES = """examples:
  precisions.py --runnel build/release/runnel --data data
  precisions.py --runnel build/release/runnel --first 10 zoo/copy
  precisions.py --runnel build/release/runnel data/recurrences/rwkv7-834K
  precisions.py --runnel build/release/runnel --encoding utf-16-le data/recurrences/rwkv6-1m
"""
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OTHERS = ("bf16", "int8")
TYPES = ("q8_0", "q4_0")
ENDLESS = 1024  # inputs of a sequence, where the model sets none
PIECE = 512  # the same, of a published model


def parse_arguments(argv):
    parser = command.Parser("precisions.py", __doc__, EXAMPLES)
    add = parser.add_argument
    add(
        "bundles",
        metavar="BUNDLE",
        nargs="*",
        help="directories of bundles, DATASET-SIZE, or of published models (default: all of zoo/)",
    )
    add("--data", default="data", metavar="DIR", help="directory of the data (default: data)")
    add("--work", default="build/train", metavar="DIR", help="for decoded images (default: build/train)")
    add("--first", type=int, default=100, metavar="N", help="sequences of each held-out set (default: 100)")
    encodings = ("utf-8", "utf-16-le")
    add("--encoding", choices=encodings, default="utf-8", help="of Tiny Shakespeare (default: utf-8)")
    add("--runnel", required=True, metavar="PROGRAM", help="serves the bundles while this runs")
    add("--isa", default="auto", help="instruction set of the server (default: auto)")
    args = parser.parse_args(argv)
    check(args.first >= 1, f"--first: expected at least 1, found {args.first}")
    if not args.bundles:
        zoo = os.path.join(ROOT, "zoo")
        args.bundles = sorted(entry.path for entry in os.scandir(zoo) if entry.is_dir())
    return args


def held_out_sets(bundle, config, name, args):
    if "model_type" in config:
        with open(datasets.find(args.data, "text", "tinyshakespeare.txt"), encoding="utf-8") as file:
            values = np.frombuffer(file.read().encode(args.encoding), np.uint8)
        pieces = np.lib.stride_tricks.sliding_window_view(values, PIECE + 1)[::PIECE]
        return {f"Tiny Shakespeare, {args.encoding}": datasets.Sequences(pieces)}
    kind = name.split("-")[0]
    check(kind in datasets.LOADERS, f"{bundle}: expected the name of a data set before '-', found '{kind}'")
    length = config["model"].get("position", {}).get("length") or ENDLESS
    return datasets.load(kind, args.data, args.work, length).held_out


def bits_of(bundle, sequences, precision, args):
    flags = ("--backend", "cpu", "--isa", args.isa, "--precision", precision)
    with serving.connect(bundle, args.runnel, None, flags) as client:
        bits, items = evaluate(client, sequences)
    return sum(bits) / sum(items)


def bits_quantized(bundle, sequences, kind, args):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, kind)
        line = [args.runnel, "quantize", bundle, "--type", kind, "--out", out]
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", check=False)
        check(done.returncode == 0, f"runnel quantize {bundle} --type {kind}: {done.stderr}")
        return bits_of(out, sequences, "blocks", args)


def run(argv):
    args = parse_arguments(argv)
    columns = OTHERS + TYPES
    print(f"| model | held out | fp32 | {' | '.join(columns)} |\n| --- | --- | --- |{' --- |' * len(columns)}")
    for bundle in args.bundles:
        config = read_json(os.path.join(bundle, "config.json"), "BUNDLE")
        name = os.path.basename(os.path.normpath(bundle))
        for held_out, sequences in held_out_sets(bundle, config, name, args).items():
            some = sequences.first(args.first)
            plain = bits_of(bundle, some, "fp32", args)
            found = [f"{bits_of(bundle, some, precision, args) - plain:+.4f}" for precision in OTHERS]
            head = config.get("model", {}).get("head", {"kind": "categorical"})
            can_quantize = head["kind"] == "categorical"
            for kind in TYPES:
                found.append(f"{bits_quantized(bundle, some, kind, args) - plain:+.4f}" if can_quantize else "")
            print(f"| {name} | {held_out} | {plain:.4f} | {' | '.join(found)} |", flush=True)


def main(argv=None):
    return command.run("precisions.py", run, argv)


if __name__ == "__main__":
    sys.exit(main())
