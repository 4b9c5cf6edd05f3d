#!/usr/bin/env python3
"""Walks the machine code of the CUDA kernels by the stalls that the compiler wrote down, for docs/internals/cuda.md.

    cuda_cycles.py BUILD CUOBJDUMP NVDISASM            the test: cuda_cycles.json is about what is built
    cuda_cycles.py BUILD CUOBJDUMP NVDISASM --write    makes what is built cuda_cycles.json
    cuda_cycles.py --table                             the tables of the documentation

An instruction says for how many cycles the warp issues nothing after it. Their sum is what a warp takes that waits for
nothing else, neither memory nor other warps, and goes through each instruction once: loops and both sides of a branch
count once. Of the whole-model kernel each step is cut at the meetings of its cluster, and at the loop over layers.
"""

import dataclasses
import json
import pathlib
import re
import sys

import cuda_code

ARCHITECTURE = "90a"
CYCLES = pathlib.Path(__file__).resolve().with_name("cuda_cycles.json")
NEAR = 0.1  # compilers differ by a few
WHOLE = "WholeKernel"

# The second half of an instruction's code, on a line of its own; the stall is four bits of it.
HALF = re.compile(r"^\s+/\* 0x([0-9a-f]{16}) \*/\s*$")
STALL_AT = 41

# Of the paper's models: layers, and numbers of each of their weights.
WIDTH, HEADS, HEAD, FFN = 256, 8, 32, 1024
MODELS = {"MNIST": 8, "CIFAR-10": 16}
CLUSTERS = {1: 1, 64: 8, 1024: 32}  # that read all weights, by rows, as whole_launch.h chooses
REPLAY = 8  # positions from one write of a state to the next (replay.h)
# Taken, not measured: bytes a second of an H200's memory, and of its cache where 132 multiprocessors get 32 a cycle at
# 1.755 GHz; and how much the cache holds.
MEMORY, CACHE, CACHE_BYTES = 4.3e12, 7.4e12, 60 << 20


@dataclasses.dataclass(frozen=True)
class Part:
    """Some of a kernel's instructions."""

    name: str
    instructions: int
    cycles: int  # that they stall
    in_loops: int  # instructions that stand in loops of the part
    products: int  # on tensor cores
    loads: int  # from memory


def parse_stalls(text):
    """name -> the stall of each instruction, of what nvdisasm -gi -c -hex prints."""
    found: dict[str, list[int]] = {}
    stalls: list[int] = []
    for line in text.splitlines():
        if match := cuda_code.SECTION.match(line):
            stalls = found[match.group(1)] = []
        elif match := HALF.match(line):
            stalls.append(int(match.group(1), 16) >> STALL_AT & 15)
    return found


def loops(code):
    """(first, last) index of every loop, the outer ones first."""
    at = {one.address: i for i, one in enumerate(code.instructions)}
    found = [(at[one.target], i) for i, one in enumerate(code.instructions) if one.target in at and at[one.target] < i]
    return sorted(found, key=lambda loop: loop[0] - loop[1])


def part(name, code, stalls, begin, end):
    inside = [loop for loop in loops(code) if begin <= loop[0] and loop[1] < end and loop != (begin, end - 1)]
    looped = set().union(*(range(first, last + 1) for first, last in inside))
    these = code.instructions[begin:end]
    return Part(
        name,
        len(these),
        sum(max(1, stall) for stall in stalls[begin:end]),
        len(looped),
        sum(one.opcode.startswith("HMMA") for one in these),
        sum(one.opcode.startswith("LDG") for one in these),
    )


def layer_loop(code, arrivals, first, last):
    """Of the loops within the one over steps, the largest around meetings and products; None: there is none."""
    for begin, end in loops(code):
        meetings = sum(begin <= at <= end for at in arrivals)
        if (begin, end) != (first, last) and first <= begin and end <= last and 1 < meetings < len(arrivals):
            return begin, end
    return None


def parts_of_whole(code, stalls):
    """The parts of a step, in the order of the code; none where no loop over steps is found."""
    step = cuda_code.steps(code)
    if not step:
        return []
    first = code.instructions.index(step[0])
    last = first + len(step) - 1
    at = cuda_code.meeting_lines()
    arrivals = [i for i, one in enumerate(code.instructions) if first <= i <= last and one.meets(at)]
    layers = layer_loop(code, arrivals, first, last)
    around = {layers[0], layers[1] + 1} if layers else set()
    begins = sorted(at for at in {first, *(at + 1 for at in arrivals)} | around if at <= last)
    found: list[Part] = []
    for begin, end in zip(begins, [*begins[1:], last + 1]):
        where = "before" if layers and begin < layers[0] else "layer" if layers and begin <= layers[1] else "behind"
        number = 1 + sum(one.name.startswith(where) for one in found)
        found.append(part(f"{where} {number}", code, stalls, begin, end))
    return found


def read(build, cuobjdump, nvdisasm):
    """kernel -> Parts, of what a build has for ARCHITECTURE."""
    walked: dict[str, list[Part]] = {}
    command = [nvdisasm, "-gi", "-c", "-hex"]
    for _, (text,) in cuda_code.said_of(build, cuobjdump, command, only=ARCHITECTURE):
        walked |= walk(text)
    return dict(sorted(walked.items()))


def walk(text):
    """kernel -> Parts, all of it first, of what nvdisasm -gi -c -hex prints."""
    codes, stalls = cuda_code.parse_code(text), parse_stalls(text)
    walked = {}
    for name, kernel in cuda_code.demangled(sorted(codes)).items():
        code, of_code = codes[name], stalls[name]
        walked[kernel] = [part("all", code, of_code, 0, len(code.instructions))]
        if kernel.startswith(WHOLE):
            walked[kernel] += parts_of_whole(code, of_code)
    return walked


def faults(walked, known):
    """What is known of the kernels and is not about what is built, a line each."""
    for kernel in sorted(set(walked) | set(known)):
        if kernel not in walked or kernel not in known:
            yield f"{kernel} is {'not built' if kernel in known else 'new'}: --write"
            continue
        if [one.name for one in walked[kernel]] != [one.name for one in known[kernel]]:
            yield f"{kernel} has other parts: --write"
            continue
        for built, one in zip(walked[kernel], known[kernel]):
            if abs(built.cycles - one.cycles) > NEAR * one.cycles + 16:
                yield f"{kernel}, {one.name}, takes {built.cycles} cycles, not {one.cycles}: --write"


def load():
    known = json.loads(CYCLES.read_text(encoding="utf-8"))
    return {kernel: [Part(*values) for values in parts] for kernel, parts in known.items()}


def write(walked):
    rows = [
        f" {json.dumps(kernel)}: [\n"
        + ",\n".join(f"  {json.dumps(list(dataclasses.astuple(one)))}" for one in parts)
        + "\n ]"
        for kernel, parts in walked.items()
    ]
    CYCLES.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in lines)


def cycles_table(known):
    def row(name, one):
        return [name, *(f"{value:,}" for value in dataclasses.astuple(one)[1:])]

    head = ["kernel, part", "instructions", "cycles", "in loops", "`HMMA`", "`LDG`"]
    rows = []
    for kernel, (whole, *parts) in known.items():
        rows += [row(f"`{kernel}`", whole), *(row(f"... {one.name}", one) for one in parts)]
    return table(head, rows)


def floors_table():
    """Bytes a step of the whole-model kernel, and how long they take at least."""
    rows = []
    for model, layers in MODELS.items():
        weights = 2 * layers * WIDTH * (4 * HEADS * HEAD + 2 * FFN)
        state = 4 * layers * HEADS * (HEAD + 1) * HEAD
        entry = 4 * layers * HEADS * 2 * HEAD  # of a log, which is half full at a time
        replayed = state + entry * (REPLAY - 1) / 2 + (state + entry * (REPLAY - 1)) / REPLAY
        for batch, clusters, replay in [*((*one, False) for one in CLUSTERS.items()), (*max(CLUSTERS.items()), True)]:
            states = batch * (replayed if replay else 2 * state)  # read and written
            stays = weights + batch * state <= CACHE_BYTES
            memory = 0 if stays else states
            cache = clusters * weights + states
            times = memory / MEMORY * 1e6, cache / CACHE * 1e6
            rows.append(
                [
                    f"{model}, replay" if replay else model,
                    f"{batch:,}",
                    clusters,
                    f"{memory / 1e6:,.0f}",
                    f"{cache / 1e6:,.0f}",
                ]
                + [f"{time:,.1f}" for time in times]
                + [f"{batch / max(times) * 1e6 / (783 if model == 'MNIST' else 3071):,.0f}"]
            )
    return table(
        ["paper's size", "rows", "clusters", "MB, memory", "MB, cache", "us, memory", "us, cache", "images/s, at most"],
        rows,
    )


def main():
    if sys.argv[1:] == ["--table"]:
        print(cycles_table(load()) + "\n" + floors_table(), end="")
        return
    if len(sys.argv) not in (4, 5) or sys.argv[4:] not in ([], ["--write"]):
        sys.exit("usage: cuda_cycles.py BUILD CUOBJDUMP NVDISASM [--write]")
    build, cuobjdump, nvdisasm = (pathlib.Path(at).resolve() for at in sys.argv[1:4])
    walked = read(build, cuobjdump, nvdisasm)
    if not walked:
        print(f"skipped: {build} has no kernels for sm_{ARCHITECTURE}")
        sys.exit(77)
    if sys.argv[4:]:
        write(walked)
        return
    wrong = list(faults(walked, load()))
    print("\n".join(wrong) or f"the walk through {len(walked)} kernels is about what is built")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
