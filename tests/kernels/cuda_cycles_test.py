#!/usr/bin/env python3
"""What cuda_cycles.py finds in machine code: stalls, and the parts of a step between meetings and around its layers."""

import pathlib
import unittest

import cuda_code
import cuda_cycles

ROOT = pathlib.Path(__file__).resolve().parents[2]
WHOLE = "_ZN6runnel4cuda51_GLOBAL__N__0df9b4a3_15_cuda_backend_cu_d2e4b1d2_125entryINS0_11WholeKernelEEEvNT_4ArgsE"
MEETING = ("SYNCS.ARRIVE.TRANS64.RED.A1T0 RZ, [R4], RZ", 2)
# A step: a meeting, a loop over layers of two meetings, one more, and a draw. Instructions with their stalls.
STEP = [
    ("S2R R1, SR_TID.X", 1),
    "step",
    ("LDG.E R2, [R4.64]", 4),
    MEETING,
    ("IADD3 R2, R2, 0x1, RZ", 3),
    "layer",
    ("HMMA.16816.F32.BF16 R4, R8, R2, R4", 5),
    MEETING,
    "inner",
    ("LDG.E R3, [R4.64]", 6),
    ("@P0 BRA `(.L_x_inner)", 0),
    MEETING,
    ("@P0 BRA `(.L_x_layer)", 7),
    MEETING,
    ("IMAD.WIDE.U32 R12, R96, -0x2daee0ad, RZ", 8),
    ("@!P0 BRA `(.L_x_step)", 9),
    ("EXIT", 5),
]
LABELS = {"step": 1, "layer": 2, "inner": 3}


def listing(code, name=WHOLE):
    ((_, meets),) = cuda_code.meeting_lines()
    lines = [f".text.{name}:", f'	//## File "/a/cuda_backend.cu", line {meets}']
    address = 0
    for one in code:
        if isinstance(one, str):
            lines.append(f".L_x_{LABELS[one]}:")
            continue
        text, stall = one
        for label, number in LABELS.items():
            text = text.replace(f".L_x_{label}", f".L_x_{number}")
        lines.append(f"        /*{address:04x}*/                   {text} ;    /* 0x0000000000017802 */")
        lines.append(f"                                               /* 0x{stall << 41 | 0xF << 52:016x} */")
        address += 16
    return "\n".join(lines) + "\n"


class CudaCycles(unittest.TestCase):
    def parts(self, code):
        (parts,) = cuda_cycles.walk(listing(code)).values()
        return {one.name: one for one in parts}

    def test_a_step_is_cut_at_meetings_and_around_its_layers(self):
        parts = self.parts(STEP)
        self.assertEqual(
            list(parts), ["all", "before 1", "before 2", "layer 1", "layer 2", "layer 3", "behind 1", "behind 2"]
        )
        self.assertEqual([one.instructions for one in parts.values()], [14, 2, 1, 2, 3, 1, 1, 2])
        self.assertEqual([one.cycles for one in parts.values()], [57, 6, 3, 7, 9, 7, 2, 17])
        self.assertEqual((parts["layer 1"].products, parts["layer 2"].products), (1, 0))
        self.assertEqual((parts["before 1"].loads, parts["layer 2"].loads), (1, 1))
        self.assertEqual((parts["layer 1"].in_loops, parts["layer 2"].in_loops), (0, 2))

    def test_layers_that_are_unrolled_are_parts_of_the_step(self):
        flat = [one for one in STEP if one not in ("layer", ("@P0 BRA `(.L_x_layer)", 7))]
        self.assertEqual(list(self.parts(flat))[1:], [f"behind {i}" for i in range(1, 6)])

    def test_a_kernel_without_steps_is_one_part(self):
        self.assertEqual(list(self.parts([("EXIT", 5)])), ["all"])

    def test_what_is_built_is_compared_with_what_is_known(self):
        walked = cuda_cycles.walk(listing(STEP))
        self.assertEqual(list(cuda_cycles.faults(walked, walked)), [])
        self.assertIn("WholeKernel is new", next(cuda_cycles.faults(walked, {})))
        self.assertIn("WholeKernel is not built", next(cuda_cycles.faults({}, walked)))
        slower = cuda_cycles.walk(listing([*STEP, *[("NOP", 15)] * 3]))
        self.assertEqual(
            list(cuda_cycles.faults(slower, walked)), ["WholeKernel, all, takes 102 cycles, not 57: --write"]
        )
        other = cuda_cycles.walk(listing(STEP[:-4]))
        self.assertIn("WholeKernel has other parts", next(cuda_cycles.faults(other, walked)))

    def test_the_documentation_has_the_tables(self):
        page = (ROOT / "docs" / "internals" / "cuda.md").read_text(encoding="utf-8")
        self.assertIn(cuda_cycles.cycles_table(cuda_cycles.load()), page)
        self.assertIn(cuda_cycles.floors_table(), page)


if __name__ == "__main__":
    unittest.main(verbosity=1)
