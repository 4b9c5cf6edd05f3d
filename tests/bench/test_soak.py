"""soak.py of bench/report: a run of nine seconds against the program, and which curves count as flat."""

import json
import os
import pathlib
import tempfile
import unittest
from typing import Any

from support import require

require("grpc", "google.protobuf", "matplotlib")

import soak
import soak_report


def figures_of(resident: list[float]) -> dict[str, Any]:
    samples = [{"second": float(at), "resident": taken, "files": 20.0} for at, taken in enumerate(resident)]
    return {"seconds": float(len(resident)), "samples": samples}


class FlatTest(unittest.TestCase):
    def test_growth_in_the_last_half_is_reported(self):
        flat = [50e6] * 20 + [100e6] * 20  # only the last half counts
        self.assertEqual(soak_report.grown(figures_of(flat)), [])
        leak = [100e6 + 1e6 * at for at in range(40)]
        told = soak_report.grown(figures_of(leak))
        self.assertEqual(len(told), 1)
        self.assertRegex(told[0], "^resident grew by 19000000 in the last half")

    def test_noise_is_flat(self):
        noisy = [100e6 + (5e6 if at % 2 else 0) for at in range(40)]
        self.assertEqual(soak_report.grown(figures_of(noisy)), [])


class SoakTest(unittest.TestCase):
    def test_a_short_run_finds_no_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            words = [os.environ["RUNNEL"], folder, "--seconds", "9", "--sessions", "200", "--any-growth"]
            self.assertEqual(soak.main(words), 0)
            figures = json.loads(pathlib.Path(folder, "soak.json").read_text(encoding="utf-8"))
            self.assertEqual(sorted(os.listdir(folder)), ["soak.json", "soak.md", "soak.png"])
        kinds = {kind.split(":")[0].split(",")[0] for kind in figures["calls"]}
        expected = {"attacks", "behaves", "cancels", "on models that turn", "retries", "stalls", "vanishes"}
        self.assertEqual(kinds, expected)
        self.assertTrue(figures["reloads"] and figures["rotations"])


if __name__ == "__main__":
    unittest.main(verbosity=1)
