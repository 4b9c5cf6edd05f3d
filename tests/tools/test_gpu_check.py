#!/usr/bin/env python3
"""tools/gpu_check with programs that only pretend: what it runs, what it takes for a failure, what it leaves behind."""

import json
import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = "[  PASSED  ] 5 tests."
STEP = ('{"numerics": "cuda/sm90/bf16/step/state-fp32", "batch": 64, "values_per_s": 5000.0, "step_us": 12.80, '
        '"p50_us": 12.7, "p99_us": 13.1, "state_gb_s": 2703.4}')
SAYS = {
    "nvidia-smi": "A GPU, 580.1, 143771 MiB, 1980 MHz",
    "test_kernels": TESTS,
    "test_models": TESTS,
    "test_golden": TESTS,
    "gpu_ceilings": '{"device": "A GPU", "copy_gb_s": 4300.0}',
    "gpu_steps": STEP,
}


class GpuCheck(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)
        self.programs = self.place / "programs"
        self.out = self.place / "out"
        self.programs.mkdir()
        for name, text in SAYS.items():
            self.program(name, f"cat <<'END'\n{text}\nEND")
        # The server of the demo, and its client.
        self.program("runnel", 'case $1 in serve) trap "exit 0" TERM; echo "ready address=127.0.0.1:1" >&2; '
                               'sleep 60 & wait ;; esac')
        for absent in ("compute-sanitizer", "python3"):
            self.program(absent, "exit 1")
        os.remove(self.programs / "compute-sanitizer")

    def program(self, name, body):
        path = self.programs / name
        path.write_text("#!/bin/sh\n" + body + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def check(self):
        environment = dict(os.environ, PATH=f"{self.programs}:/usr/bin:/bin")
        return subprocess.run([ROOT / "tools" / "gpu_check", self.programs, self.out], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)

    def parts(self):
        lines = (self.out / "parts.jsonl").read_text().splitlines()
        return {part["part"]: part for part in map(json.loads, lines)}

    def test_all_parts_run_and_a_table_ends_it(self):
        result = self.check()
        self.assertEqual(result.returncode, 0, result.stdout)
        parts = self.parts()
        for name in ("kernels", "models", "golden", "demo", "ceilings", "steps"):
            self.assertEqual(parts[name]["exit"], 0, name)
        self.assertIn("no PyTorch", parts["peers"]["skipped"])
        self.assertRegex((self.out / "table.txt").read_text(), r"(?m)^ +64 +bf16 +5000.0 +12.80 +2703.4$")
        self.assertIn("copies reach 4300.0 GB/s", result.stdout)

    def test_a_skipped_test_is_a_failure(self):
        self.program("test_models", "echo '[  SKIPPED ] CudaModelTest.EqualsTheCpu/GpuImageBf16'; echo '" + TESTS + "'")
        result = self.check()
        self.assertEqual(result.returncode, 1)
        self.assertIn("GpuImageBf16", result.stdout)

    def test_no_test_at_all_is_a_failure(self):
        self.program("test_golden", "echo '[  PASSED  ] 0 tests.'")
        result = self.check()
        self.assertEqual(result.returncode, 1)
        self.assertIn("test_golden ran nothing", result.stdout)

    def test_a_part_that_fails_leaves_the_others_their_turn(self):
        self.program("test_kernels", "echo '[  FAILED  ] Matmul'; exit 1")
        result = self.check()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.parts()["kernels"]["exit"], 1)
        self.assertEqual(self.parts()["steps"]["exit"], 0)

    def test_a_machine_without_a_driver_hears_why(self):
        os.remove(self.programs / "nvidia-smi")
        result = self.check()
        self.assertEqual(result.returncode, 1)
        self.assertIn("no NVIDIA driver", result.stdout)

    def test_a_missing_program_is_named(self):
        os.remove(self.programs / "gpu_steps")
        result = self.check()
        self.assertEqual(result.returncode, 1)
        self.assertIn("has no gpu_steps", result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=1)
