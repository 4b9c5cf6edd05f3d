"""bench_hybrids.py of bench/report: its page, and the figures that it reads from llama.cpp's log."""

import unittest
from typing import Any

import bench_hybrids

LIMITS = {"threads": 2, "bf16_gflops": 800.0, "dram_gbps": 40.0, "dram_update_gbps": 50.0}
# One sequence's step reads 400 MB in 10 ms, its states in 1 ms, and at position 4,000 another 40 MB in 1 ms.
SIZES = {"step_bytes": 400_000_000, "head_bytes": 1, "state_bytes": 25_000_000, "position_bytes": 10_000}
FIGURES: dict[str, Any] = {
    "machine": {"cpu": "a processor", "cores": 2, "flags": ["avx512f"], "load_average": 0.1, "disturbed": 0.02},
    "versions": {"llama-cpp-python": "0.3"},
    "numerics": "cpu/avx512bf16/bf16/step/state-fp32+cache-bf16",
    "missing": {},
    "rounds": 3,
    "models": {"LFM2 350M": SIZES},
    "limits": [LIMITS],
    "medians": {
        "LFM2 350M": {
            "runnel": {"0/1": 80.0, "4000/1": 60.0, "prompt/512": 2000.0, "session_bytes": 66e6},
            "llama.cpp": {"0/1": 40.0, "4000/1": 20.0, "prompt/512": 1000.0, "session_bytes": 70e6},
        }
    },
    "runs": {},
}


class HybridsTest(unittest.TestCase):
    def test_every_position_is_compared_with_llama_and_the_limit(self):
        page = bench_hybrids.page(FIGURES)
        self.assertIn("| LFM2 350M | 0 | 1 | **80.0** | 40.0 | **2.00x** | 88% |", page)
        self.assertIn("| LFM2 350M | 4,000 | 1 | **60.0** | 20.0 | **3.00x** | 72% |", page)

    def test_prompts_and_memory(self):
        page = bench_hybrids.page(FIGURES)
        self.assertIn("| LFM2 350M | 512 | **2,000** | 1,000 | **2.00x** |", page)
        self.assertIn("| LFM2 350M | 25.0 | 10,000 | 66.0 | 70.0 |", page)

    def test_without_llama(self):
        alone = {"LFM2 350M": {"runnel": FIGURES["medians"]["LFM2 350M"]["runnel"]}}
        page = bench_hybrids.page({**FIGURES, "medians": alone, "missing": {"llama.cpp": "no compiler"}})
        self.assertIn("- llama.cpp is missing: no compiler", page)
        self.assertIn("| LFM2 350M | 0 | 1 | **80.0** | - | **-** | 88% |", page)

    def test_the_memory_of_llama_is_the_sum_of_caches_and_states(self):
        log = """llama_kv_cache:        CPU KV buffer size =    12.00 MiB
llama_memory_recurrent:        CPU RS buffer size =     0.50 MiB
sched_reserve:        CPU compute buffer size =   100.00 MiB"""
        self.assertEqual(bench_hybrids.memory_of(log), 12.5 * 2**20)


if __name__ == "__main__":
    unittest.main()
