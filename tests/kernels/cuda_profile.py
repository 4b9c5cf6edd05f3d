#!/usr/bin/env python3
"""Prints where the whole-model kernel spends time: Nsight Compute's samples by part of a step, or by line of a part.

    cuda_profile.py BUILD CUOBJDUMP NVDISASM SAMPLES [PART]

SAMPLES is a file (.gz is allowed) with the output of `ncu -i REPORT --page source --csv --print-source sass` for one
launch of the kernel for the paper's images. REPORT must come from a program with the kernels of BUILD, compiled with
-lineinfo. A sample belongs to the part of kernels/cuda/whole.h that has the source line of its instruction. whole.h is
read from this checkout, so it must be the source of BUILD. docs/internals/cuda.md has the table.
"""

import collections
import csv
import gzip
import pathlib
import re
import sys

import cuda_code

KERNEL = "WholeKernel<256, 8, 1024"
ARCHITECTURE = "90a"
SAMPLES = "Warp Stall Sampling (All Samples)"
EXECUTED = "Instructions Executed"
# A line of whole.h belongs to the first part whose pattern it matches. In nested calls the innermost line decides.
PARTS = (
    (r"products_\.run\(qkv", "queries, keys, values"),
    (r"recurrence_\.(fetch|run)\(", "recurrence"),
    (r"products_\.run\(out", "output projection"),
    (r"products_\.run\(own", "first linear layer"),
    (r"products_\.run\(linear2", "second linear layer"),
    (r"norm_\.(fetch|run)\(", "LayerNorms"),
    (r"send_(pairs|projected)\(", "sends to other blocks"),
    (r"products_\.turn_to\(", "copies of the next weights"),
    (r"block_\.meet\(", "meetings"),
    (r" (embed|predict|sampling_\.sample)\(step\);", "outside of the layers"),
)


def part_of(line):
    """The part of a line of whole.h, or None."""
    return next((name for pattern, name in PARTS if re.search(pattern, line)), None)


def part(lines, whole):
    """The part of an instruction with these source lines, the innermost first. A line outside of the layers wins."""
    found = [part_of(whole[number - 1]) for file, number in lines if file == "whole.h"]
    if PARTS[-1][1] in found:
        return PARTS[-1][1]
    return next((name for name in found if name), "rest")


def read_samples(path):
    """[(samples, instructions executed)], one per instruction."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    head = next(i for i, row in enumerate(rows) if SAMPLES in row)
    samples, executed = rows[head].index(SAMPLES), rows[head].index(EXECUTED)
    return [(int(row[samples]), int(row[executed])) for row in rows[head + 1 :]]


def shares(instructions, samples, whole, only=None):
    """{part: [samples, instructions executed]}, or the same by (file, line) for the part `only`."""
    sums: dict[object, list[int]] = collections.defaultdict(lambda: [0, 0])
    for one, (count, executed) in zip(instructions, samples):
        key: object = part(one.lines, whole)
        if only is not None:
            if key != only:
                continue
            # The innermost source line in a header of the tile or in whole.h.
            key = next((line for line in one.lines if line[0].startswith(("tile", "whole"))), one.lines[:1])
        sums[key][0] += count
        sums[key][1] += executed
    return dict(sums)


def main():
    if len(sys.argv) not in (5, 6):
        sys.exit("usage: cuda_profile.py BUILD CUOBJDUMP NVDISASM SAMPLES [PART]")
    build, cuobjdump, nvdisasm, path = (pathlib.Path(at).resolve() for at in sys.argv[1:5])
    only = sys.argv[5] if len(sys.argv) == 6 else None
    if only not in (None, "rest", *(name for _, name in PARTS)):
        sys.exit(f"there is no part {only!r}: the table without PART names them")
    texts = cuda_code.said_of(build, cuobjdump, [nvdisasm, "-gi", "-c"], only=ARCHITECTURE)
    codes = {name: code for _, (text,) in texts for name, code in cuda_code.parse_code(text).items()}
    name = next(n for n, kernel in cuda_code.demangled(sorted(codes)).items() if kernel.startswith(KERNEL))
    instructions, samples = codes[name].instructions, read_samples(path)
    if len(instructions) != len(samples):
        sys.exit(f"{path} has {len(samples)} instructions, and the kernel of {build} {len(instructions)}")
    whole = (cuda_code.KERNELS / "whole.h").read_text(encoding="utf-8").splitlines()
    found = sorted(shares(instructions, samples, whole, only).items(), key=lambda item: -item[1][0])
    total = sum(count for count, _ in samples)
    rows = [[str(key), f"{100 * count / total:.1f}%", f"{executed:,}"] for key, (count, executed) in found]
    print(cuda_code.markdown(["part" if only is None else "line", "samples", "instructions executed"], rows))


if __name__ == "__main__":
    main()
