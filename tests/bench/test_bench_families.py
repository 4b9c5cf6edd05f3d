"""bench_families.py of bench/report: its page, and the bytes that a step reads."""

import pathlib
import tempfile
import unittest
from typing import Any

import numpy as np

import bench_families
from runnel_client import bundle

# A step of one sequence reads 400 MB in 10 ms, and its states in 1 ms.
FIGURES: dict[str, Any] = {
    "machine": {"cpu": "a processor", "cores": 2, "flags": ["avx512f"], "load_average": 0.1, "disturbed": 0.02},
    "numerics": "cpu/avx512bf16/bf16/step/state-fp32",
    "rounds": 3,
    "models": {"gla-340m": {"bytes": 480_000_000, "step_bytes": 400_000_000, "state_bytes": 25_000_000}},
    "limits": [{"threads": 2, "bf16_gflops": 800.0, "dram_gbps": 40.0, "dram_update_gbps": 50.0}],
    "medians": {"gla-340m": {"runnel": {"1": 80.0, "16": 400.0}}},
    "runs": {},
}


class FamiliesTest(unittest.TestCase):
    def test_the_page_has_a_row_for_each_family(self):
        page = bench_families.page(FIGURES)
        self.assertIn("| GLA | 240 M | 400 MB | 25.0 MB | **80.0** | 88% | **400.0** | 65% |", page)
        self.assertNotIn("Other processes used", page)

    def test_an_embedding_is_counted_only_if_it_is_the_head(self):
        with tempfile.TemporaryDirectory() as holder:
            folder = pathlib.Path(holder)
            for head, expected in (("lm_head.weight", 24), ("head.weight", 24), ("other.weight", 48)):
                shapes: dict[str, tuple[int, ...]] = {"model.embeddings.weight": (3, 4), head: (3, 4)}
                path = str(folder / "model.safetensors")
                bundle.write_safetensors(path, shapes, lambda name: np.zeros((3, 4), np.float32), "bf16", {})
                sizes = bench_families.tensor_bytes(folder)
                self.assertEqual(bench_families.step_bytes(sizes), expected, head)


if __name__ == "__main__":
    unittest.main()
