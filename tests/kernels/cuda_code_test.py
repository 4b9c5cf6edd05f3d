#!/usr/bin/env python3
"""Tests cuda_code.py on the machine code of a correct kernel, and on code with each possible fault."""

import json
import pathlib
import re
import unittest

import cuda_code

ROOT = pathlib.Path(__file__).resolve().parents[2]
WHOLE = (
    "_ZN6runnel4cuda51_GLOBAL__N__0df9b4a3_15_cuda_backend_cu_d2e4b1d2_125entry"
    "INS0_11WholeKernelILi256ELi8ELi1024ELNS_8HeadKindE1EEEEEvNT_4ArgsE"
)
NAME = "WholeKernel<256, 8, 1024, (runnel::HeadKind)1>"
MATMUL = (
    "_ZN6runnel4cuda51_GLOBAL__N__0df9b4a3_15_cuda_backend_cu_d2e4b1d2_125entryINS0_10MatmulBf16ILi1ELi4EEEEEvNT_4ArgsE"
)

((_, MEETS),) = cuda_code.meeting_lines()
# A loop that contains a meeting, a product and the sampling.
BODY = (
    f""".L_x_0:
	//## File "/a/kernels/cuda/cuda_backend.cu", line {MEETS} inlined at "/a/kernels/cuda/whole.h", line 71
	//## File "/a/kernels/cuda/whole.h", line 71 inlined at "/a/kernels/cuda/whole.h", line 200
"""
    + """\
        {0}                   SYNCS.ARRIVE.TRANS64.RED.A1T0 RZ, [R4], RZ ;
        {1}                   HMMA.16816.F32.BF16 R4, R8, R2, R4 ;
	//## File "/a/kernels/cuda/head.h", line 7
        {2}                   IMAD.WIDE.U32 R12, R96, -0x2daee0ad, RZ ;
        {3}                   IMAD.WIDE.U32 R14, R14, -0x326172a9, RZ ;
        {4}              @!P0 BRA `(.L_x_0) ;
        {5}                   UBLKCP.S.G.MULTICAST [UR10], [UR8], UR4 ;
        {6}                   UBLKCP.S.G [UR10], [UR8], UR4 ;
        {7}                   LDGSTS.E.BYPASS.128 [R3], desc[UR4][R4.64] ;
        {8}                   EXIT ;
"""
)
SOURCES = {("whole.h", 71): "block_.meet(0, [](int) {});", ("head.h", 7): "block.each([&](int t) {"}


def listing(name=WHOLE, body=BODY):
    numbered = body.format(*(f"/*{16 * i:04x}*/" for i in range(body.count("{"))))
    return f"\t.section\t.text.{name}\n.text.{name}:\n{numbered}"


def numbered(*instructions):
    return "".join(f"        {{{i}}}                   {one} ;\n" for i, one in enumerate(instructions))


class CudaCode(unittest.TestCase):
    def faults(self, body=BODY, name=WHOLE, architecture="90a", sources=(), budget=(128, 64), registers=100, stack=0):
        codes = cuda_code.parse_code(listing(name, body))
        plain = cuda_code.demangled(sorted(codes))
        built = {architecture: {plain[n]: code for n, code in codes.items()}}
        for code in codes.values():
            code.registers, code.stack = registers, stack
        allowed = {
            kernel: {architecture: dict(zip(("registers", "instructions"), budget))} for kernel in built[architecture]
        }
        return list(cuda_code.faults(built, allowed, dict(sources)))

    def test_a_complete_kernel_has_no_faults(self):
        self.assertEqual(self.faults(sources=SOURCES), [])

    def test_reads_instructions_lines_and_branches(self):
        code = cuda_code.parse_code(listing())[WHOLE]
        self.assertEqual([one.opcode for one in code.instructions][1:3], ["HMMA.16816.F32.BF16", "IMAD.WIDE.U32"])
        self.assertEqual([one.target for one in code.instructions], [None, None, None, None, 0, None, None, None, None])
        self.assertEqual(code.lines, {("cuda_backend.cu", MEETS), ("whole.h", 71), ("head.h", 7)})
        self.assertEqual(code.instructions[1].lines, (("cuda_backend.cu", MEETS), ("whole.h", 71)))
        self.assertEqual(cuda_code.parse_usage(" Function k:\n  REG:44 STACK:16 SHARED:0 LOCAL:0\n"), {"k": (44, 16)})

    def test_a_kernel_that_is_cut_off_is_reported(self):
        [fault] = self.faults(BODY.replace("BRA", "NOP"))
        self.assertIn(f"{NAME} on sm_90a has no loop over steps", fault)
        [first, second] = self.faults(re.sub(r"-0x2daee0ad", "3", BODY))
        self.assertIn("lacks Philox's multiplier 0xd2511f53", first)
        self.assertIn("no loop over steps", second)

    def test_a_missing_barrier_or_phase_is_reported(self):
        more = SOURCES | {("whole.h", 90): "block_.meet(0, [&](int t) {"}
        self.assertEqual(
            self.faults(sources=more),
            [
                f"{NAME} on sm_90a has 1 meetings of blocks, and its source has 2",
                "sm_90a has no instructions for whole.h:90: block_.meet(0, [&](int t) {",
            ],
        )
        self.assertEqual(self.faults(sources=more, architecture="80"), [])  # no clusters, so this kernel has no code
        other = SOURCES | {("norm.h", 91): "block.phase([&](int t) {"}
        self.assertEqual(len(self.faults(sources=other, architecture="80")), 1)

    def test_missing_copies_are_reported(self):
        [fault] = self.faults(BODY.replace("UBLKCP.S.G [", "NOP ["))
        self.assertEqual(fault, f"{NAME} on sm_90a lacks UBLKCP.S.G: some data is not copied ahead")

    def test_use_of_local_memory_is_reported(self):
        [fault] = self.faults(numbered("STL [R1], R5", "LDL.64 R4, [R1]"), MATMUL, stack=8)
        self.assertEqual(
            fault, "MatmulBf16<1, 4> on sm_90a has 8 bytes of stack, 1 loads from local memory and 1 stores to it"
        )

    def test_only_named_kernels_may_spill_and_only_up_to_a_bound(self):
        spilled = BODY + numbered("STL [R1], R5", "LDL R4, [R1]")
        self.assertEqual(self.faults(spilled, stack=32), [])
        [fault] = self.faults(spilled, stack=40)
        self.assertIn("has 40 bytes of stack, 1 loads", fault)

    def test_generic_pointers_are_reported(self):
        self.assertEqual(
            self.faults(numbered("LDG.E R4, desc[UR36][R4.64]", "LDS R2, [R3]", "STS [R2], R1"), MATMUL), []
        )
        self.assertIn("has 1 loads by generic pointers", self.faults(numbered("LD.E R4, desc[UR36][R4.64]"), MATMUL)[0])
        self.assertIn("has 1 stores by generic pointers", self.faults(numbered("ST.E [R6], R51"), MATMUL)[0])

    def test_steps_wait_for_no_store(self):
        [fault] = self.faults(re.sub(r"HMMA[^;]*;", r"\g<0>\n        {1}                   MEMBAR.ALL.GPU ;", BODY))
        self.assertEqual(fault, f"{NAME} on sm_90a has memory fences in its loop over steps: MEMBAR.ALL.GPU")

    def test_calls_of_anything_but_arithmetic_are_reported(self):
        own = numbered("CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_rn_f64_full)", "CALL.REL.NOINC `(.L_x_3)")
        self.assertEqual(self.faults(own, MATMUL), [])
        self.assertIn(
            "calls _Z3run, which should be part of it", self.faults(numbered("CALL.REL.NOINC `(_Z3run)"), MATMUL)[0]
        )

    def test_kernels_keep_to_their_budgets(self):
        self.assertIn("has 101 registers, and its budget is 96", self.faults(budget=(96, 64), registers=101)[0])
        self.assertIn("has 9 instructions, and its budget is 8", self.faults(budget=(128, 8))[0])
        self.assertIn("has 9 instructions of a budget of 640: code is missing", self.faults(budget=(128, 640))[0])

    def test_compilations_may_differ_by_a_little(self):
        budget = {"registers": 96, "instructions": 100}
        instruction = cuda_code.Instruction(0, "NOP", "")
        differs = cuda_code.Code(registers=100, instructions=[instruction] * 105)
        self.assertEqual(list(cuda_code.budget_faults("Kernel", differs, budget)), [])
        larger = cuda_code.Code(registers=101, instructions=[instruction] * 106)
        self.assertEqual(len(list(cuda_code.budget_faults("Kernel", larger, budget))), 2)

    def test_the_budget_must_list_exactly_the_kernels(self):
        built = {"80": {"New": cuda_code.Code()}}
        self.assertEqual(
            list(cuda_code.faults(built, {"Gone": {"80": {}}}, {})),
            [
                "New on sm_80 has no budget: --write gives it one",
                "Gone on sm_80 has a budget, but the build lacks it: --write removes the budget",
            ],
        )

    def test_the_documentation_has_the_budget(self):
        page = (ROOT / "docs" / "internals" / "cuda.md").read_text(encoding="utf-8")
        self.assertIn(cuda_code.table(json.loads(cuda_code.BUDGET.read_text(encoding="utf-8"))), page)

    def test_finds_the_phases_of_the_kernels(self):
        lines = cuda_code.phases().values()
        self.assertGreater(len(lines), 100)
        self.assertEqual(sum(".meet(" in line for line in lines), 6)


if __name__ == "__main__":
    unittest.main(verbosity=1)
