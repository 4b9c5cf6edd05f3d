"""bench_fleet.py of bench/report: its page."""

import os
import unittest
from typing import Any

import bench_fleet


def row(sessions: int, memory: int, p99: float) -> dict[str, Any]:
    again = {"p50": 0.0005, "p99": 0.00075}
    return {"sessions": sessions, "memory": memory, "load": {"p50": 0.001, "p99": p99}, "again": again}


def figures(slowest: float) -> dict[str, Any]:
    rows = [row(1000, 50_000_000, 0.002), row(100_000, 59_900_000, slowest)]
    return {
        "date": "a day",
        "machine": "a processor",
        "slots": 256,
        "calls": 1000,
        "state_bytes": 4096,
        "rows": rows,
    }


class FleetTest(unittest.TestCase):
    def test_the_page_holds_memory_and_times_by_the_number_of_sessions(self) -> None:
        page = bench_fleet.page(figures(0.0045))
        self.assertIn("with 256 states of 4,096 bytes", page)
        self.assertIn("| 1,000 | 50 MB | 1.00 ms, 2.00 ms | 0.50 ms, 0.75 ms |\n| 100,000 | 60 MB |", page)
        self.assertIn("grows by 100 bytes for each session more. 99 of 100 calls", page)
        self.assertIn("Not all of 99 in 100 calls", bench_fleet.page(figures(0.0055)))

    def test_a_spread_is_of_all_calls(self) -> None:
        self.assertEqual(bench_fleet.spread([0.001] * 999 + [1.0]), {"p50": 0.001, "p99": 0.001})

    def test_memory_is_that_of_a_process(self) -> None:
        self.assertGreater(bench_fleet.resident_bytes(os.getpid()), 1 << 20)


if __name__ == "__main__":
    unittest.main()
