#!/usr/bin/env python3
"""Holds what the compiler gave each CUDA kernel against tests/kernels/cuda_budget.json: registers, and no spills.

    cuda_budget.py BUILD            the test
    cuda_budget.py BUILD --write    makes what is built the budget

A budget is a number of registers a thread, by kernel and architecture: a multiple of 8, in which a multiprocessor deals
them out. Kernels must be in it, and what is in it must be a kernel. BUILD holds the *.resources of its objects.
"""

import json
import pathlib
import re
import subprocess
import sys

BUDGET = pathlib.Path(__file__).resolve().with_name("cuda_budget.json")
ARCHITECTURES = ("80", "90a")
DEALT = 8
KERNEL = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def demangled(names):
    """`entry<runnel::cuda::MatmulBf16<1, 1> >(...)` as "MatmulBf16<1, 1>"."""
    told = subprocess.run(["c++filt"], input="\n".join(names), text=True, stdout=subprocess.PIPE, check=True).stdout
    plain = [
        re.sub(r".*?entry<(.*)>\(.*", r"\1", line).strip().replace("runnel::cuda::", "") for line in told.splitlines()
    ]
    return dict(zip(names, plain))


def read(text):
    """(mangled kernel, architecture) -> (registers, bytes spilled)."""
    found, at, spilled = {}, None, 0
    for line in text.splitlines():
        if match := KERNEL.search(line):
            at, spilled = match.groups(), 0
        elif at and (match := SPILLS.search(line)):
            spilled = max(map(int, match.groups()))
        elif at and (match := REGISTERS.search(line)):
            found[at] = (int(match.group(1)), spilled)
            at = None
    return found


def used(build):
    """kernel -> architecture -> (registers, bytes spilled), of all objects of a build."""
    found = {}
    for path in sorted(pathlib.Path(build).rglob("*.resources")):
        found.update(read(path.read_text(encoding="utf-8")))
    names = demangled(sorted({name for name, _ in found}))
    kernels: dict[str, dict[str, dict[str, int]]] = {}
    for (name, architecture), figures in found.items():
        if architecture in ARCHITECTURES:
            kernels.setdefault(names[name], {})[architecture] = figures
    return kernels


def faults(kernels, budget):
    """What is wrong, a line each."""
    for kernel, on in sorted(kernels.items()):
        for architecture, (registers, spilled) in sorted(on.items()):
            where = f"{kernel} on sm_{architecture}"
            allowed = budget.get(kernel, {}).get(architecture)
            if spilled:
                yield f"{where} spills {spilled} bytes a thread"
            if allowed is None:
                yield f"{where} uses {registers} registers and has no budget: cuda_budget.py BUILD --write gives it one"
            elif registers > allowed:
                yield f"{where} uses {registers} registers, {registers - allowed} more than its budget of {allowed}"
    built = {architecture for on in kernels.values() for architecture in on}
    for kernel, on in sorted(budget.items()):
        if kernel not in kernels and built & set(on):
            yield f"{kernel} has a budget and is no kernel: cuda_budget.py BUILD --write drops it"


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--write"]):
        sys.exit("usage: cuda_budget.py BUILD [--write]")
    kernels = used(sys.argv[1])
    if not kernels:
        sys.exit(f"{sys.argv[1]} has no *.resources for sm_80 or sm_90a: build it with CUDA")
    if sys.argv[2:]:
        budget = {
            kernel: {
                architecture: -(-registers // DEALT) * DEALT for architecture, (registers, _) in sorted(on.items())
            }
            for kernel, on in sorted(kernels.items())
        }
        BUDGET.write_text(json.dumps(budget, indent=1) + "\n", encoding="utf-8")
        return
    wrong = list(faults(kernels, json.loads(BUDGET.read_text(encoding="utf-8"))))
    print("\n".join(wrong) or f"{len(kernels)} kernels keep to their budgets")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
