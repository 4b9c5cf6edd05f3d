#!/usr/bin/env python3
"""Train the whole zoo on one GPU: mnist, cifar10, text and copy, with one command.

Each gets its share of --minutes, at the sizes that the zoo has room for: the paper's for mnist and cifar10, 5 MiB for
text, 1 MiB for copy. The same command goes on where it was interrupted, skips what is done, and ends with every figure.
On a machine that ends commands after some time give --this-call, and call again: exit status 3 says that more is to do,
1 that nothing is but what failed.

Nothing but torch and numpy is needed; PIL decodes the JPEGs of cifar10, once. Where there is none, decode elsewhere and
bring cifar10_train.npy and cifar10_test.npy to --work (`all_on_gpu.py --decode-only`; 184 MB).
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))

from runnel_client import command
from runnel_client.errors import check

try:
    import card
    import datasets
except ImportError as error:
    command.exit_missing("all_on_gpu.py", error, "train")

HERE = os.path.dirname(os.path.abspath(__file__))
# The data sets, their sizes, and their shares of the time. The largest is last, so that it is cut if time is short.
PLAN = (("copy", "small", 0.06), ("mnist", "paper", 0.28), ("text", "paper", 0.16), ("cifar10", "paper", 0.50))
FAILED, MORE_TO_DO = 1, 3  # exit statuses; train.py also has MORE_TO_DO
PIECE_BYTES = 15 << 20
EXAMPLES = """examples:
  on a machine of one's own:      all_on_gpu.py --data data --minutes 60 --out zoo
  in calls of 10 minutes each:    all_on_gpu.py --data data --minutes 24 --this-call 9 --out build/zoo --pack $OUT
  there, what --pack wrote:       cat zoo.tar.* | tar x
"""


def parse_arguments(argv):
    parser = command.Parser("all_on_gpu.py", __doc__, EXAMPLES)
    add = parser.add_argument
    add("--data", default="data", metavar="DIR", help="directory of the data (default: data)")
    add("--out", required=True, metavar="DIR", help="directory of the bundles, each in a subdirectory")
    add("--work", default="build/train", metavar="DIR", help="for checkpoints (default: build/train)")
    add("--minutes", type=float, default=24, metavar="M", help="of training in all (default: 24)")
    add("--this-call", type=float, metavar="M", help="minutes after which this call pauses")
    add("--pack", metavar="DIR", help=f"write all bundles as zoo.tar.00, ... of at most {PIECE_BYTES >> 20} MiB")
    add("--only", metavar="DATASET", choices=[name for name, _, _ in PLAN], help="only this one, for all of the time")
    add("--decode-only", action="store_true", help="decode cifar10 into --work, and stop")
    add("--device", default="cuda", help="cuda (default) or cpu")
    add("rest", nargs="*", metavar="-- FLAG", help="further flags for every train.py, such as -- --compile")
    args = parser.parse_args(argv)
    for key in ("minutes", "this_call"):
        value, flag = getattr(args, key), "--" + key.replace("_", "-")
        check(value is None or value > 0, f"{flag}: expected a number above 0, found {value}")
    return args


def train(args, name, size, minutes, pause_after):
    """Trains one data set with train.py in its own process, so that all memory is freed. Returns the exit status."""
    command = [sys.executable, os.path.join(HERE, "train.py"), name, "--size", size, "--data", args.data]
    command += ["--work", args.work, "--out", os.path.join(args.out, name), "--device", args.device]
    command += ["--minutes", str(minutes), "--save-every", "1"]
    if pause_after is not None:
        command += ["--pause-after", str(pause_after)]
    return subprocess.run([*command, *args.rest]).returncode


def train_all(args):
    """Trains everything, even if one training fails. Reports all failures at the end, and returns the exit status."""
    start, failed = time.monotonic(), []
    plan = [(name, size, 1.0 if args.only else share) for name, size, share in PLAN if args.only in (None, name)]
    for name, size, share in plan:
        if os.path.exists(os.path.join(args.work, name + ".json")):
            continue
        left = None
        if args.this_call is not None:
            left = args.this_call - (time.monotonic() - start) / 60
            if left < 0.5:
                return MORE_TO_DO
        status = train(args, name, size, share * args.minutes, left)
        if status == MORE_TO_DO:
            return MORE_TO_DO
        if status != 0:
            failed.append(name)
    if failed:
        print(f"all_on_gpu.py: not trained: {', '.join(failed)}; see above; nothing else is to do", file=sys.stderr)
    return FAILED if failed else 0


def show(args):
    """Prints all figures that exist."""
    for name, _, _ in PLAN:
        path = os.path.join(args.work, name + ".json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
            for held_out, figure in report["figures"].items():
                print(
                    f"{name}: {report['seconds'] / 60:.1f} min, {report['run']['steps']:,} steps: "
                    f"{held_out}: {card.figure_text(figure, report['unit'])}"
                )


def pack(args):
    """Writes finished bundles and reports to one archive, cut into pieces."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, _, _ in PLAN:
            report = os.path.join(args.work, name + ".json")
            if os.path.exists(report):
                tar.add(os.path.join(args.out, name), name)
                tar.add(report, f"{name}.json")
    os.makedirs(args.pack, exist_ok=True)
    archive = content.getbuffer()
    for index, offset in enumerate(range(0, len(archive), PIECE_BYTES)):
        path = os.path.join(args.pack, f"zoo.tar.{index:02}")
        with open(path, "wb") as file:
            file.write(archive[offset : offset + PIECE_BYTES])
        print(f"wrote {path}")


def run(argv):
    args = parse_arguments(argv)
    if args.decode_only:
        datasets.load("cifar10", args.data, args.work)
        return 0
    status = train_all(args)
    show(args)
    if args.pack:
        pack(args)
    return status


def main(argv=None):
    return command.run("all_on_gpu.py", run, argv)


if __name__ == "__main__":
    sys.exit(main())
