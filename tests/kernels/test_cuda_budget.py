#!/usr/bin/env python3
"""What tests/kernels/cuda_budget.py says of a compiler's words, and that kernels/cuda/keep_resources keeps them."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "kernels"))

import cuda_budget

ENTRY = (
    "_ZN6runnel4cuda51_GLOBAL__N__0df9b4a3_15_cuda_backend_cu_d2e4b1d2_125entryINS0_10MatmulBf16ILi1ELi4EEEEEvNT_4ArgsE"
)


def told(registers, spilled=0, architecture="80"):
    return (
        f"ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function '{ENTRY}' for 'sm_{architecture}'\n"
        f"ptxas info    : Function properties for {ENTRY}\n"
        f"    40 bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads\n"
        f"ptxas info    : Used {registers} registers, used 1 barriers, 80 bytes smem\n"
    )


class CudaBudget(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)

    def kernels(self, *texts):
        for i, text in enumerate(texts):
            (self.place / f"{i}.o.resources").write_text(text)
        return cuda_budget.used(self.place)

    def faults(self, budget, *texts):
        return list(cuda_budget.faults(self.kernels(*texts), budget))

    def test_kernels_are_known_by_their_names_in_the_code(self):
        self.assertEqual(
            self.kernels(told(66), told(70, architecture="90a"), told(90, architecture="120")),
            {"MatmulBf16<1, 4>": {"80": (66, 0), "90a": (70, 0)}},
        )

    def test_says_which_kernel_is_over_which_limit_by_how_much(self):
        self.assertEqual(self.faults({"MatmulBf16<1, 4>": {"80": 72}}, told(72)), [])
        self.assertEqual(
            self.faults({"MatmulBf16<1, 4>": {"80": 64}}, told(66)),
            ["MatmulBf16<1, 4> on sm_80 uses 66 registers, 2 more than its budget of 64"],
        )

    def test_no_kernel_spills(self):
        self.assertIn("on sm_80 spills 16 bytes", self.faults({"MatmulBf16<1, 4>": {"80": 72}}, told(72, 16))[0])

    def test_budget_and_kernels_are_the_same(self):
        self.assertIn("MatmulBf16<1, 4> on sm_80 uses 66 registers and has no budget", self.faults({}, told(66))[0])
        self.assertIn(
            "Gone has a budget and is no kernel",
            self.faults({"MatmulBf16<1, 4>": {"80": 72}, "Gone": {"80": 8}}, told(66))[0],
        )

    def test_the_launcher_keeps_them_and_tells_the_rest(self):
        compiler = self.place / "compiler"
        compiler.write_text(f"#!/bin/sh\ncat <<'END' >&2\na warning\n{told(66)}END\nexit 3\n")
        compiler.chmod(0o755)
        command: list[str | pathlib.Path] = [
            ROOT / "kernels" / "cuda" / "keep_resources",
            compiler,
            "-c",
            "x.cu",
            "-o",
            self.place / "x.o",
        ]
        done = subprocess.run(command, text=True, stderr=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, done.stderr), (3, "a warning\n"))
        self.assertEqual((self.place / "x.o.resources").read_text(), told(66))


if __name__ == "__main__":
    unittest.main(verbosity=1)
