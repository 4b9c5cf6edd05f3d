#!/usr/bin/env python3
"""Estimates from the machine code how many cycles a layer of the whole-model kernel takes, for docs/internals/cuda.md.

    cuda_layer.py BUILD CUOBJDUMP NVDISASM

Of the kernel for the paper's images, the stalls that the compiler wrote down are added up for each function of
kernels/cuda/tile_product.h and for the rest of a part, and counted as often as a warp goes through them; TAKEN has what
no machine code tells. It prints a Markdown table.
"""

import collections
import dataclasses
import pathlib
import re
import sys

import cuda_code
import cuda_cycles

KERNEL = "WholeKernel<256, 8, 1024"
# Taken, not measured, in cycles:
# - from the start of a load of shared memory to its use, and from a product on tensor cores to the next of its sum;
# - a barrier of the block, and a wait for a barrier in shared memory that is over;
# - a meeting, from its arrival to the end of the wait, in which the block's own work is hidden;
# - what shuffles and divisions wait for, of a LayerNorm and of one head's recurrence.
TAKEN = {"load": 33, "product": 33, "barrier": 30, "wait": 25, "meeting": 700, "norm": 400, "recurrence": 200}
CLOCK = 1.9e9  # cycles a second
END = 8000  # cycles of a step outside of its layers: embedding, head and drawing
LAYERS, WIDTH, HEADS, FFN, VALUES = 8, 256, 8, 1024, 783
SHARED_TILES, WARPS, AT_ONCE = 4, 8, 16
SHARED_BYTES = 128  # a cycle from shared memory, of a multiprocessor
MEMORY_BLOCK, MEMORY = 40, 2400  # bytes a cycle: to one block, to all
STATE = 2 * 33 * 32 * 4  # bytes of a head, read and written


@dataclasses.dataclass(frozen=True)
class Shape:
    rows: int  # of a tile
    ranks: int  # blocks of a tile
    tiles: int  # of all clusters at work at once


SHAPES = {1: Shape(1, 16, 1), 64: Shape(8, 16, 8), 1024: Shape(16, 2, 64)}


def functions(name):
    """(first line, last line, function) of a header's member functions."""
    lines = (cuda_code.KERNELS / name).read_text(encoding="utf-8").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        head = re.match(r"  (?:template <.*> )?RUNNEL_DEVICE [\w:<>&* ]*?(\w+)\(", line)
        if head:
            ends = (n for n in range(number, len(lines) + 1) if re.search("^  }$|; }$|{}$", lines[n - 1]))
            found.append((number, next(ends), head.group(1)))
    return found


class Walk:
    """Stalls of the loop over layers by (part, path of functions)."""

    def __init__(self, text):
        codes, stalls = cuda_code.parse_code(text), cuda_cycles.parse_stalls(text)
        name = next(n for n, kernel in cuda_code.demangled(sorted(codes)).items() if kernel.startswith(KERNEL))
        self.whole = (cuda_code.KERNELS / "whole.h").read_text(encoding="utf-8").splitlines()
        self.weights = (cuda_code.KERNELS / "tile_weights.h").read_text(encoding="utf-8").splitlines()
        self.parts = {n: self.part(line) for n, line in enumerate(self.whole, 1)}
        self.functions = {name: functions(name) for name in ("tile_product.h", "tile_recur.h")}
        self.sums: collections.Counter[tuple[str, str]] = collections.Counter()
        self.on_tensor_cores: collections.Counter[tuple[str, str]] = collections.Counter()
        self.code = codes[name]
        arrivals = [i for i, one in enumerate(self.code.instructions) if one.meets(cuda_code.meeting_lines())]
        step = cuda_code.steps(self.code)
        first = self.code.instructions.index(step[0])
        begin, end = cuda_cycles.layer_loop(self.code, arrivals, first, first + len(step) - 1)
        for one, stall in zip(self.code.instructions[begin : end + 1], stalls[name][begin : end + 1]):
            self.sums[self.key(one)] += max(1, stall)
            self.on_tensor_cores[self.key(one)] += one.opcode.startswith("HMMA")

    @staticmethod
    def part(line):
        """What a line of whole.h is about, or None."""
        for pattern, name in (
            (r"products_\.run\(qkv", "qkv"),
            (r"products_\.run\(out", "out"),
            (r"products_\.run\(own", "linear1"),
            (r"products_\.run\(linear2_last", "linear2_last"),
            (r"products_\.run\(linear2\(", "linear2"),
            (r"recurrence_\.(fetch|run)\(", "recurrence"),
            (r"norm_\.run\(true", "norm"),
            (r"block_\.meet\(", "meet"),
        ):
            if re.search(pattern, line):
                return name
        return None

    def key(self, one):
        part = next((self.parts[n] for f, n in reversed(one.lines) if f == "whole.h" and self.parts.get(n)), "rest")
        path: list[str] = []
        for file, number in reversed(one.lines):
            if file in self.functions:
                inside = next((name for first, last, name in self.functions[file] if first <= number <= last), "")
                if inside and (not path or path[-1] != inside):
                    path.append(inside)
            # Copies for other blocks too, and of either the same product or the next one, are parts of a path.
            if file == "tile_weights.h" and re.search(r"fill\(now|issuer|free\[", self.weights[number - 1]):
                path.append("unusual")
        return part, "/".join(path)

    def stalls(self, part, *names, without=()):
        """Of a part's functions; those within others too."""
        return sum(
            cycles
            for (of, path), cycles in self.sums.items()
            if of == part
            and (not names or any(name in path.split("/") for name in names))
            and not any(name in path.split("/") for name in without)
        )

    def products(self, part, name):
        """On tensor cores, in a function of a part."""
        return sum(
            count for (of, path), count in self.on_tensor_cores.items() if of == part and name in path.split("/")
        )


def taken_by_warp(walk, part, tiles, groups, rows):
    """A warp to one or two tiles."""
    total = 0
    for first in range(0, tiles, AT_ONCE):
        of_warp = 2 if min(tiles - first, AT_ONCE) > WARPS else 1
        share = of_warp / 2
        each = walk.stalls(part, "await", "load_inputs") + TAKEN["wait"] + TAKEN["load"]
        each += walk.stalls(part, "multiply") * share + of_warp * (TAKEN["load"] + 2 * TAKEN["product"])
        each += walk.stalls(part, "make_room", without=("unusual", "take_shared")) / 2
        total += groups * each
        total += (walk.stalls(part, "finish") * rows + walk.stalls(part, "read_biases")) * share + TAKEN["load"]
    return total


def taken_by_four(walk, part, tiles, groups, rows):
    """Four warps to a tile, which have one or two of them. The code has both, and may have several groups of chunks."""
    of_warp = 2 if tiles > 2 else 1
    in_code = walk.products(part, "multiply_shared") / 4
    total = groups * of_warp * (walk.stalls(part, "await_shared") / 2 + TAKEN["wait"])
    total += groups * of_warp * walk.stalls(part, "multiply_shared") / (2 * in_code)
    total += groups * (TAKEN["load"] + of_warp * 2 * TAKEN["product"])
    total += TAKEN["barrier"] + TAKEN["load"] + walk.stalls(part, "give", without=("take",)) * rows
    total += walk.stalls(part, "take_shared", without=("make_room", "await_shared", "multiply_shared", "give"))
    total += (walk.stalls(part, "make_room", without=("unusual", "take"))) / 2
    return total


def product(walk, part, tiles, inputs, rows):
    """Outputs of rows from 8 on are computed after those before."""
    groups, rows = inputs // 128, 1 if rows > 8 else 0.5
    if tiles > SHARED_TILES:
        return taken_by_warp(walk, part, tiles, groups, rows)
    return taken_by_four(walk, part, tiles, groups, rows)


def recurrence(walk, items):
    """Of a warp's items. Loads are in the code four times, the rest twice; a plain state has no log."""
    each = walk.stalls("recurrence", "load") / 4
    each += walk.stalls("recurrence", without=("load", "catch_up")) / 2
    return items * (each + TAKEN["recurrence"])


def layer(walk, shape):
    """part -> cycles."""
    heads = max(1, HEADS // shape.ranks)
    share = {"qkv": 12 * heads, "out": WIDTH // 8 // shape.ranks, "linear1": FFN // 8 // shape.ranks}
    found = {
        "queries, keys, values": product(walk, "qkv", share["qkv"], WIDTH, shape.rows),
        "output projection": product(walk, "out", share["out"], WIDTH, shape.rows),
        "first linear layer": product(walk, "linear1", share["linear1"], WIDTH, shape.rows),
        "second linear layer": product(walk, "linear2", share["out"], FFN, shape.rows),
    }
    products = sum(found.values())
    found["recurrence"] = recurrence(walk, -(-shape.rows * heads // WARPS))
    found["two LayerNorms"] = -(-shape.rows // WARPS) * (walk.stalls("norm") + 2 * TAKEN["norm"])
    # What is sent goes out before the wait; what comes next is set out in it.
    found["four meetings"] = 4 * TAKEN["meeting"] + walk.stalls("meet", without=("turn_to",)) / 2
    others = found["two LayerNorms"] + found["four meetings"]
    # The limits of shared memory and memory.
    weights = 2 * WIDTH * (4 * WIDTH + 2 * FFN) / shape.ranks
    inputs = sum(2 * 16 * n * -(-t // 2) for n, t in zip((WIDTH, WIDTH, WIDTH, FFN), [*share.values(), share["out"]]))
    by_shared = (2 * weights + inputs) / SHARED_BYTES
    alone = shape.rows * heads * STATE / MEMORY_BLOCK
    together = shape.tiles * shape.rows * HEADS * STATE / MEMORY
    found["products, by bytes of shared memory"] = by_shared
    found["states, by bytes of memory, clusters in step"] = together
    products, states = max(products, by_shared), max(found["recurrence"], alone)
    found["a layer, clusters in step"] = products + others + max(states, together)
    found["a layer, clusters apart"] = max(products + others + states, together)
    return found


def images(batch, cycles):
    """A second."""
    return batch * CLOCK / (LAYERS * cycles + END) / VALUES


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: cuda_layer.py BUILD CUOBJDUMP NVDISASM")
    build, cuobjdump, nvdisasm = (pathlib.Path(at).resolve() for at in sys.argv[1:])
    texts = cuda_code.said_of(build, cuobjdump, [nvdisasm, "-gi", "-c", "-hex"])
    walk = Walk(next(text for architecture, (text,) in texts if architecture == cuda_cycles.ARCHITECTURE))
    layers = {batch: layer(walk, shape) for batch, shape in SHAPES.items()}
    rows = [[name, *(f"{layers[batch][name]:,.0f}" for batch in SHAPES)] for name in layers[1]]
    for name in ("a layer, clusters in step", "a layer, clusters apart"):
        rows.append([f"images/s, {name.split(', ')[1]}", *(f"{images(b, layers[b][name]):,.0f}" for b in SHAPES)])
    print(cuda_cycles.table(["cycles of a layer", *(f"{batch:,} rows" for batch in SHAPES)], rows))


if __name__ == "__main__":
    main()
