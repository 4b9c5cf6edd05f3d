"""bench_fleet.py of bench/report: its page, and the numbers of sessions that it measures."""

import os
import unittest
from typing import Any

import bench_fleet
import fleet_costs

COST = {"store": "Redis", "speed": 1234.0, "share": 0.97, "call": 0.0004, "more": 0.0001}


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
        "loads": 1234.5,
        "rounds": 5,
        "costs": [{"size": "66 KB", "streams": 32, "values": 64, "rows": [COST]}],
        "kills": {"directory": [0.1, 0.2, 0.9]},
        "replicas": 0.94,
    }


class FleetTest(unittest.TestCase):
    def test_few_sessions_are_measured_too(self) -> None:
        self.assertEqual(bench_fleet.counts_to(100_000), [1000, 10_000, 100_000])
        self.assertEqual(bench_fleet.counts_to(50), [1, 5, 50])
        self.assertEqual(bench_fleet.counts_to(1), [1])

    def test_the_page_holds_memory_and_times_by_the_number_of_sessions(self) -> None:
        page = bench_fleet.page(figures(0.0045))
        self.assertIn("has 256 states of 4,096 bytes", page)
        self.assertIn("| 1,000 | 50 MB | 1.00 ms, 2.00 ms | 0.50 ms, 0.75 ms |\n| 100,000 | 60 MB |", page)
        self.assertIn("grows by 100 bytes for each additional session. At least 99% of the first calls", page)
        self.assertIn("Fewer than 99% of the first calls", bench_fleet.page(figures(0.0055)))

    def test_the_page_says_what_a_store_costs(self) -> None:
        page = bench_fleet.page(figures(0.0045))
        self.assertIn("| 66 KB a state, 32 clients, 64 values a call | values/s |", page)
        self.assertIn("| Redis | 1,234 | 97% | 0.40 ms | 0.10 ms |", page)
        self.assertIn("Of 1 rows, 1 reach the share and 1 reach the time.", page)
        self.assertIn("16\nclients at the same time load 1,234 sessions a second", page)

    def test_the_page_says_what_a_fleet_loses(self) -> None:
        page = bench_fleet.page(figures(0.0045))
        self.assertIn("Leases last 3 s. 3 kills with each store", page)
        self.assertIn("| directory | 200 ms | 900 ms |", page)
        self.assertIn("sample 94% of the values", page)

    def test_shares_are_computed_within_each_round(self) -> None:
        found = {"without": [100.0, 200.0, 50.0], "with": [90.0, 160.0, 50.0]}
        self.assertEqual(fleet_costs.against(found, "without", "with"), 0.9)

    def test_percentiles_are_of_all_calls(self) -> None:
        self.assertEqual(bench_fleet.spread([0.001] * 999 + [1.0]), {"p50": 0.001, "p99": 0.001})

    def test_the_memory_of_a_process_is_read(self) -> None:
        self.assertGreater(bench_fleet.resident_bytes(os.getpid()), 1 << 20)


if __name__ == "__main__":
    unittest.main()
