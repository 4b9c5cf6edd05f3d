#!/usr/bin/env python3
"""Checks the machine code of every CUDA kernel, for every architecture of a build, and prints all faults.

    cuda_code.py BUILD CUOBJDUMP NVDISASM            the test
    cuda_code.py BUILD CUOBJDUMP NVDISASM --write    writes the sizes of the build to the budget, cuda_budget.json
    cuda_code.py --table                             prints the budget as docs/internals/cuda.md has it

A compiler can silently drop code, spill registers or lose track of the memory that a pointer points to. So this test
checks that:
- no kernel uses local memory (except the few bytes in SPILLS), loads or stores by a pointer of unknown kind, or calls
  anything but the toolkit's arithmetic;
- every phase in the source (launch.h) has instructions;
- registers and instructions stay within the budget, which is per kernel and architecture.
BUILD has the object files, compiled with -lineinfo. CUOBJDUMP and NVDISASM are the programs of the toolkit or of PyPI.
"""

import collections
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels" / "cuda"
BUDGET = pathlib.Path(__file__).resolve().with_name("cuda_budget.json")
REGISTERS_DEALT = 8  # a multiprocessor allocates registers in this unit
INSTRUCTIONS_DEALT = 64
# nvcc may compile the same source differently each time: we measured up to 2 registers and 1.4% of the instructions.
MORE_REGISTERS = 4
MORE_INSTRUCTIONS = 0.05  # fraction of the budget
FEWEST = 0.75  # of the instruction budget: a kernel with fewer has lost code, or needs a new budget

# Bytes of stack that a kernel may use to spill registers outside its inner loops. Its speed on an H100 was measured
# with these spills.
SPILLS = {"WholeKernel<256, 8, 1024, (runnel::HeadKind)1>": 32}

# Philox's multipliers, as nvdisasm prints them.
PHILOX = {"0xd2511f53": "-0x2daee0ad", "0xcd9e8d57": "-0x326172a9"}
SAMPLING = ("SampleKernel", "PenalizedKernel", "WholeKernel")

# The instruction that arrives at another block's mbarrier, and the source code of that arrival for a meeting.
ARRIVAL = "SYNCS.ARRIVE.TRANS64.RED"
MEETING = "arrive_at(in_block(peer"
# The kernel for a whole network also copies weights for its own block, weights for several blocks, and logs.
COPIES = ("UBLKCP.S.G", "UBLKCP.S.G.MULTICAST", "LDGSTS")
# Clusters begin with compute capability 9.0: kernels that use clusters have no code for earlier ones.
IN_CLUSTERS = ("whole", "tile")
# A release or an acquire of global memory compiles to one of these. A meeting uses only shared memory.
FENCES = ("MEMBAR", "ERRBAR", "CGAERRBAR", "CCTL")

USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+)")
SECTION = re.compile(r"^\.text\.(\S+):$")
LABEL = re.compile(r"^(\.L_x_\d+):$")
LINE = re.compile(r'//## File "([^"]+)", line (\d+)')
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]+)\*/\s+(?:@!?U?P\w+ )?\s*([A-Z][\w.]*)\s*(.*?) *;")
BRANCH_TARGET = re.compile(r"`\((.*?)\)")
# A call of a function of the block that begins a phase or is part of one.
PHASE = re.compile(
    r"\bblock_?\.(?:template )?"
    r"(?:each|phase|meet|sum|largest|add|mma|fold|fold_largest|send|expect|arrive|fetch|bring|brought|await)(?:<.*>)?\("
)


@dataclasses.dataclass(frozen=True)
class Instruction:
    address: int
    opcode: str
    operands: str
    target: int | None = None  # of a branch
    lines: tuple[tuple[str, int], ...] = ()  # (file, line) of its source, the innermost first

    def meets(self, meeting_lines):
        """Whether it arrives at another block's mbarrier for a meeting, at one of these source lines."""
        return self.opcode.startswith(ARRIVAL) and any(line in meeting_lines for line in self.lines)


@dataclasses.dataclass
class Code:
    """The code of a kernel, or of a function that was not inlined."""

    registers: int = 0
    stack: int = 0  # bytes
    instructions: list[Instruction] = dataclasses.field(default_factory=list)
    lines: set[tuple[str, int]] = dataclasses.field(default_factory=set)  # (file, line) of these instructions

    def having(self, *operations):
        return [one for one in self.instructions if one.opcode.split(".")[0] in operations]


def demangled(names):
    """`entry<runnel::cuda::MatmulBf16<1, 1> >(...)` as "MatmulBf16<1, 1>"; other functions keep their full name."""
    told = subprocess.run(["c++filt"], input="\n".join(names), text=True, stdout=subprocess.PIPE, check=True).stdout
    plain = [
        re.sub(r".*?entry<(.*)>\(.*", r"\1", line).strip().replace("runnel::cuda::", "").replace("> >", ">>")
        for line in told.splitlines()
    ]
    return dict(zip(names, plain))


def parse_usage(text):
    """name -> (registers, bytes of stack)."""
    return {name: (int(registers), int(stack)) for name, registers, stack in USAGE.findall(text)}


def parse_code(text):
    """name -> Code, from the output of nvdisasm -gi -c."""
    found: dict[str, Code] = {}
    labels: dict[str, int] = {}
    lines: list[tuple[str, int]] = []
    code = None
    for line in text.splitlines():
        if match := SECTION.match(line):
            code = found[match.group(1)] = Code()
            labels = {}
            line_is_first = True
        elif code is None:
            continue
        elif match := LABEL.match(line):
            labels[match.group(1)] = code.instructions[-1].address + 16 if code.instructions else 0
        elif "//## File" in line and (match := LINE.search(line)):
            if line_is_first:
                lines = []
            line_is_first = False
            lines.append((match.group(1).rpartition("/")[2], int(match.group(2))))
            code.lines.add(lines[-1])
        elif match := INSTRUCTION.match(line):
            address, opcode, operands = match.groups()
            to = BRANCH_TARGET.search(operands)
            # A label after the branch is not known yet, so only backward branches have a target.
            target = labels.get(to.group(1)) if to and opcode.startswith("BRA") else None
            code.instructions.append(Instruction(int(address, 16), opcode, operands, target, tuple(lines)))
            line_is_first = True
    return found


def said_of(build, cuobjdump, *commands, only=None):
    """Yields (architecture, the output of each command) for the machine code of all objects of a build.

    `only`: skip all other architectures.
    """
    for path in sorted(build.rglob("*.cu.o")):
        with tempfile.TemporaryDirectory() as place:
            subprocess.run([cuobjdump, "-xelf", "all", path], cwd=place, check=True, stdout=subprocess.DEVNULL)
            for cubin in sorted(pathlib.Path(place).iterdir()):
                architecture = cubin.name.split(".sm_")[-1].removesuffix(".cubin")
                if only not in (None, architecture):
                    continue
                yield (
                    architecture,
                    [
                        subprocess.run([*command, cubin], text=True, stdout=subprocess.PIPE, check=True).stdout
                        for command in commands
                    ],
                )


def read(build, cuobjdump, nvdisasm):
    """architecture -> kernel -> Code, from all objects of a build."""
    built: dict[str, dict[str, Code]] = collections.defaultdict(dict)
    for architecture, told in said_of(build, cuobjdump, [cuobjdump, "-res-usage"], [nvdisasm, "-gi", "-c"]):
        usage, codes = parse_usage(told[0]), parse_code(told[1])
        for name, plain in demangled(sorted(codes)).items():
            codes[name].registers, codes[name].stack = usage.get(name, (0, 0))
            built[architecture][plain] = codes[name]
    return dict(built)


def memory_faults(code, stack):
    """Forbidden uses of memory in a kernel, which may use `stack` bytes of stack to spill registers."""
    loads, stores = len(code.having("LDL")), len(code.having("STL"))
    if code.stack > stack or (loads or stores) and not stack:
        yield f"has {code.stack} bytes of stack, {loads} loads from local memory and {stores} stores to it"
    if generic := code.having("LD", "ATOM", "QSPC"):
        yield f"has {len(generic)} loads by generic pointers: the compiler does not know the kind of memory"
    if generic := code.having("ST"):
        yield f"has {len(generic)} stores by generic pointers: the compiler does not know the kind of memory"
    for one in code.having("CALL"):
        to = BRANCH_TARGET.search(one.operands)
        if to and not to.group(1).startswith((".L_x_", "$__internal")):
            yield f"calls {to.group(1)}, which should be part of it"


def steps(code):
    """The instructions of the loop that contains products and sampling, or [] if the code has no such loop."""
    products = [one.address for one in code.having("HMMA")]
    draws = [one.address for one in code.instructions if PHILOX["0xd2511f53"] in one.operands]
    for loop in code.instructions:
        if (
            loop.target is not None
            and any(loop.target <= at <= loop.address for at in draws)
            and any(loop.target <= at <= loop.address for at in products)
        ):
            return [one for one in code.instructions if loop.target <= one.address <= loop.address]
    return []


def has_clusters(architecture):
    """Whether an architecture, such as "80", "90a" or "120", has clusters."""
    return int(re.match(r"\d+", architecture).group()) >= 90


def meeting_lines(folder=KERNELS):
    """(file, line) of each arrival at another block's mbarrier for a meeting, in the source of a block."""
    return {
        (path.name, number)
        for path in folder.glob("*.cu")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MEETING in line
    }


def kernel_faults(kernel, architecture, code, meetings):
    """The faults in the code of one kernel, whose source has `meetings` meetings."""
    yield from memory_faults(code, SPILLS.get(kernel, 0))
    if kernel.startswith("WholeKernel<") and not has_clusters(architecture):
        return
    if kernel.split("<")[0] in SAMPLING:
        for constant, written in PHILOX.items():
            if not any(written in one.operands or constant in one.operands for one in code.instructions):
                yield f"lacks Philox's multiplier {constant}: it samples nothing"
    if kernel.startswith("WholeKernel<"):
        loop = steps(code)
        if not loop:
            yield "has no loop over steps that has products and sampling"
        if fences := [one.opcode for one in loop if one.opcode.split(".")[0] in FENCES]:
            yield f"has memory fences in its loop over steps: {', '.join(fences)}"
        at = meeting_lines()
        arrivals = sum(one.meets(at) for one in code.instructions)
        if arrivals < meetings:
            yield f"has {arrivals} meetings of blocks, and its source has {meetings}"
        for copy in COPIES:
            if not any(one.opcode == copy or one.opcode.startswith(f"{copy}.E") for one in code.instructions):
                yield f"lacks {copy}: some data is not copied ahead"


def phases(folder=KERNELS):
    """(file, line) of every phase in the source of the kernels, with the text of the line."""
    return {
        (path.name, number): line.strip()
        for path in sorted(folder.glob("*.h"))
        if path.name != "launch.h"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if PHASE.search(line.split("//")[0])
    }


def budget_faults(kernel, code, budget):
    if budget is None:
        yield "has no budget: --write gives it one"
        return
    more = {"registers": MORE_REGISTERS, "instructions": int(MORE_INSTRUCTIONS * budget["instructions"])}
    for what, used in (("registers", code.registers), ("instructions", len(code.instructions))):
        if used > budget[what] + more[what]:
            yield f"has {used} {what}, and its budget is {budget[what]} and at most {more[what]} more"
    if len(code.instructions) < FEWEST * (budget["instructions"] - INSTRUCTIONS_DEALT):
        yield (
            f"has {len(code.instructions)} instructions of a budget of {budget['instructions']}: code is missing, "
            "or --write gives it a new one"
        )


def faults(built, budget, sources):
    """All faults, one a line. `sources`: phases()."""
    meetings = sum(name.startswith(IN_CLUSTERS) and ".meet(" in line for (name, _), line in sources.items())
    for architecture, codes in sorted(built.items()):
        for kernel, code in sorted(codes.items()):
            allowed = budget.get(kernel, {}).get(architecture)
            for fault in (*kernel_faults(kernel, architecture, code, meetings), *budget_faults(kernel, code, allowed)):
                yield f"{kernel} on sm_{architecture} {fault}"
        done = set().union(*(code.lines for code in codes.values()))
        for (name, number), line in sorted(sources.items()):
            if not has_clusters(architecture) and name.startswith(IN_CLUSTERS):
                continue
            if (name, number) not in done:
                yield f"sm_{architecture} has no instructions for {name}:{number}: {line}"
    for kernel, on in sorted(budget.items()):
        for architecture in sorted(set(on) & set(built)):
            if kernel not in built[architecture]:
                yield f"{kernel} on sm_{architecture} has a budget, but the build lacks it: --write removes the budget"


def budget_of(built):
    budget: dict[str, dict[str, dict[str, int]]] = collections.defaultdict(dict)
    for architecture, codes in sorted(built.items()):
        for kernel, code in codes.items():
            budget[kernel][architecture] = {
                "registers": -(-code.registers // REGISTERS_DEALT) * REGISTERS_DEALT,
                "instructions": -(-len(code.instructions) // INSTRUCTIONS_DEALT) * INSTRUCTIONS_DEALT,
            }
    return dict(sorted(budget.items()))


def write_budget(budget):
    rows = [
        f" {json.dumps(kernel)}: {{\n" + ",\n".join(f"  {json.dumps(a)}: {json.dumps(on[a])}" for a in on) + "\n }"
        for kernel, on in budget.items()
    ]
    BUDGET.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def table(budget):
    """The budget as a Markdown table with a row per kernel."""
    architectures = sorted({architecture for on in budget.values() for architecture in on})
    names = [f"sm_{architecture}: registers, instructions" for architecture in architectures]
    rows = []
    for kernel, on in budget.items():
        cells = [f"{on[a]['registers']}, {on[a]['instructions']:,}" if a in on else "none" for a in architectures]
        rows.append([f"`{kernel}`", *cells])
    return markdown(["kernel", *names], rows)


def main():
    if sys.argv[1:] == ["--table"]:
        print(table(json.loads(BUDGET.read_text(encoding="utf-8"))), end="")
        return
    if len(sys.argv) not in (4, 5) or sys.argv[4:] not in ([], ["--write"]):
        sys.exit("usage: cuda_code.py BUILD CUOBJDUMP NVDISASM [--write]")
    build, cuobjdump, nvdisasm = (pathlib.Path(at).resolve() for at in sys.argv[1:4])
    for program in (cuobjdump, nvdisasm):
        if not program.is_file():
            sys.exit("cuobjdump and nvdisasm are missing: scripts/setup test installs them, then configure again")
    built = read(build, cuobjdump, nvdisasm)
    if not built:
        sys.exit(f"{build} has no object with CUDA kernels")
    if sys.argv[4:]:
        write_budget(budget_of(built))
        return
    wrong = list(faults(built, json.loads(BUDGET.read_text(encoding="utf-8")), phases()))
    kernels = sum(map(len, built.values()))
    print("\n".join(wrong) or f"{kernels} kernels of {len(built)} architectures are complete and keep to their budgets")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
