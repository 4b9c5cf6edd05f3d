"""bench_softmax.py of bench/report: its page, and the bytes of a session at a position."""

import unittest
from typing import Any

import bench_softmax

LINEAR = {"state_bytes": 270_336, "position_bytes": 0, "numerics": "cpu/avx512/bf16/step32/state-fp32"}
SOFTMAX = {
    "state_bytes": 13_631_488,
    "position_bytes": 16_384,
    "numerics": "cpu/avx512/fp32/step/state-fp32+cache-fp32",
}


def measured(kind, micros, images):
    return {
        **kind,
        "us_per_value": dict(zip(("100", "16000"), micros)),
        "images_per_s": {str(batch): images for batch in bench_softmax.BATCHES},
    }


FIGURES: dict[str, Any] = {
    "machine": {"cpu": "a processor", "cores": 2, "load_average": 0.1},
    "rounds": 3,
    "positions": [100, 16_000],
    "kinds": {"linear": measured(LINEAR, (101.0, 102.0), 30.0), "softmax": measured(SOFTMAX, (110.0, 4000.0), 20.0)},
    "bits_per_dim": {
        "MNIST small": {"linear": 1.03204, "softmax": None},
        "MNIST": {"linear": 0.91586, "softmax": None},
    },
}


class SoftmaxTest(unittest.TestCase):
    def test_a_session_has_whole_pages_in_the_type_of_the_cache(self):
        self.assertEqual([bench_softmax.session_bytes(LINEAR, at) for at in (1, 16_000)], [270_336] * 2)
        self.assertEqual([bench_softmax.session_bytes(SOFTMAX, at) for at in (1, 64, 65)], [1 << 20, 1 << 20, 2 << 20])
        narrow = {**SOFTMAX, "numerics": "cpu/avx512/bf16/step32/state-fp32+cache-bf16"}
        self.assertEqual(bench_softmax.session_bytes(narrow, 65), 1 << 20)

    def test_the_page_compares_both_kinds_of_attention(self):
        page = bench_softmax.page(FIGURES)
        self.assertIn("| 100 | 101 | 110 | 0.27 | 2.10 |", page)
        self.assertIn("| 16,000 | 102 | 4,000 | 0.27 | 262.14 |", page)
        self.assertIn("| 128 | 30.00 | 20.00 | 1.50x |", page)
        self.assertIn("| linear | 1.0320 | 0.9159 | 0.644 | 142.8 | 3.4 | 17.85 |", page)
        self.assertIn("| softmax | not trained yet | not trained yet | 0.621 | 0.45 | 3.47 | 0.004 |", page)

    def test_the_best_round_counts(self):
        rounds = [measured(LINEAR, (5.0, 9.0), 1.0), measured(LINEAR, (7.0, 8.0), 2.0)]
        best = bench_softmax.best_of(rounds)
        self.assertEqual(best["us_per_value"], {"100": 5.0, "16000": 8.0})
        self.assertEqual(best["images_per_s"]["8"], 2.0)


if __name__ == "__main__":
    unittest.main()
