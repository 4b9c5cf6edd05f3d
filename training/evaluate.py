#!/usr/bin/env python3
"""Compute a model card's figures through a server: the mean of what the Score RPC says of data held out.

The data are those that training/train.py holds out, read from --data. What is printed is what the card says, within
what fp32 leaves open; a server that is named with --server has a precision of its own. For `copy` also how many
sequences the model says again without a fault, when it goes on greedily from the first half.

A model of text without a last position can also be measured far from the beginning: --after N scores the first 32 KiB
of the held-out book in one sequence that starts with N bytes of the other books.
"""

import json
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))

from runnel_client import command
from runnel_client.errors import check

try:
    import numpy as np

    import card
    import datasets
    from runnel_client import serving
    from runnel_client.bundle import read_json
except ImportError as error:
    command.exit_missing("evaluate.py", error, "")

EXAMPLES = """examples:
  evaluate.py --runnel build/release/runnel --dataset mnist --data data --first 100 zoo/mnist-small
  evaluate.py --server 127.0.0.1:50051 --dataset text --data data zoo/text
  evaluate.py --runnel build/release/runnel --dataset text --data data --after 1000000 zoo/text-endless-small
"""


def parse_arguments(argv):
    parser = command.Parser("evaluate.py", __doc__, EXAMPLES)
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="the bundle's directory")
    add("--dataset", required=True, choices=tuple(datasets.LOADERS))
    add("--data", default="data", metavar="DIR", help="directory of the data (default: data)")
    add("--work", default="build/train", metavar="DIR", help="for decoded images (default: build/train)")
    add("--first", type=int, default=1 << 30, metavar="N", help="sequences of each held-out set (default: all)")
    add("--length", type=int, metavar="N", help="of held-out sequences, where the model sets none (default: 1024)")
    add("--after", type=int, metavar="N", help="score a text from position N on, after N bytes of others")
    add("--runnel", metavar="PROGRAM", help="serves the bundle while this runs")
    add("--server", metavar="ADDRESS", help="in place of --runnel: a server that has the bundle")
    add("--threads", type=int, default=0, metavar="N", help="of the server (default: one per core)")
    add("--json", action="store_true", help="print figures as JSON, unrounded")
    args = parser.parse_args(argv)
    check(args.first >= 1, f"--first: expected at least 1, found {args.first}")
    check(args.length is None or args.length >= 1, f"--length: expected at least 1, found {args.length}")
    check(args.after is None or args.after >= 0, f"--after: expected at least 0, found {args.after}")
    check(args.after is None or args.dataset == "text", "--after goes with --dataset text")
    return args


def sequence_length(config, args):
    """Inputs of a held-out sequence, or None for the data set's own."""
    length = config.get("model", {}).get("position", {}).get("length")  # a published model has no "model"
    for flag, value in (("--length", args.length), ("--after", args.after)):
        check(length is None or value is None, f"{flag}: sequences of {args.bundle} have {length} inputs at most")
    return length or args.length


def evaluate(client, sequences):
    """Bits and counted values of each sequence."""
    ends = [np.flatnonzero(row)[-1] + 2 for row in sequences.counted]  # later values are not counted
    scored = client.score(row[:end] for row, end in zip(sequences.values, ends))
    bits, items = [], []
    for log_probs, counted in zip(scored, sequences.counted):
        check(len(log_probs) == np.flatnonzero(counted)[-1] + 1, "the server scored another number of values")
        counted = counted[: len(log_probs)]
        bits.append(-float(np.sum(np.asarray(log_probs, np.float64)[counted])) / math.log(2))
        items.append(int(counted.sum()))
    return bits, items


def said_again(client, sequences):
    """The shares of the counted values, and of whole sequences, that greedy sampling predicts."""
    places = [np.flatnonzero(row) + 1 for row in sequences.counted]
    prompts = [row[: place[0]] for row, place in zip(sequences.values, places)]
    found = client.generate(prompts, greedy=True)
    same = [
        np.asarray(samples[0])[: len(place)] == row[place]
        for row, place, samples in zip(sequences.values, places, found)
    ]
    return float(np.concatenate(same).mean()), float(np.mean([row.all() for row in same]))


def run(argv):
    args = parse_arguments(argv)
    config = read_json(os.path.join(args.bundle, "config.json"), "BUNDLE")
    data = datasets.load(args.dataset, args.data, args.work, sequence_length(config, args))
    held_out_sets = data.held_out
    if args.after is not None:
        held_out_sets = {f"a book held out, from position {args.after:,} on": data.after(args.after)}
    flags = ("--threads", str(args.threads), "--precision", "fp32")  # the precision of the card
    report = {}
    with serving.connect(args.bundle, args.runnel, args.server, flags) as client:
        for name, held_out in held_out_sets.items():
            sequences = held_out.first(args.first)
            bits, items = evaluate(client, sequences)
            report[name] = card.figure(len(held_out), bits, items, 0)
            if args.dataset == "copy":
                report[name]["said_again"], report[name]["without_fault"] = said_again(client, sequences)
    if args.json:
        print(json.dumps(report))
        return
    model = config.get("name") or os.path.basename(os.path.abspath(args.bundle))
    for name, found in report.items():
        print(f"{model}: {name}: {card.figure_text(found, data.unit)}")
        if args.dataset == "copy":
            print(
                f"{model}: {name}: going on greedily, {100 * found['said_again']:.2f}% of the symbols and "
                f"{100 * found['without_fault']:.1f}% of the sequences are said again without a fault"
            )


def main(argv=None):
    return command.run("evaluate.py", run, argv)


if __name__ == "__main__":
    sys.exit(main())
