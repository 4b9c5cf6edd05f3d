"""bench_floods.py of bench/report: its floods, the client that it measures, and its page."""

import unittest
from typing import Any

import bench_floods


def row(name: str, peak: float, before: float, during: float) -> dict[str, Any]:
    figures = {"name": name, "most_mib": 1000.0, "peak_mib": peak, "left_mib": 60.0, "calls": 12345, "failed": 2}
    return figures | {"p99_before_ms": before, "p99_during_ms": during, "longest_ms": 1234.0}


def page(*rows: dict[str, Any]) -> str:
    machine = {"cpu": "a processor", "cores": 2, "load_average": 0.1}
    return bench_floods.page({"machine": machine, "seconds": 60.0, "rows": list(rows)})


class FloodsTest(unittest.TestCase):
    def test_the_page_compares_each_flood_with_the_goal(self):
        told = page(row("reset", 400, 2.0, 6.0), row("continuation", 300, 2.0, 5.0))
        self.assertIn("| reset | 400 | 60 | 12,345 | 2 | 2.0 | 6.0 | 3.0 | 1.23 |", told)
        self.assertIn("3 times that without a flood. All floods are below it.", told)
        self.assertIn("at most 1,000.\nAll floods stay below it.", told)

    def test_the_page_names_what_misses_a_goal(self):
        told = page(row("reset", 1001, 2.0, 6.1), row("continuation", 1000, 2.0, 6.0))
        self.assertIn("Missed by: reset.", told)
        self.assertIn("Exceeded by: reset.", told)

    def test_the_name_of_a_case_says_what_is_special(self):
        self.assertEqual(bench_floods.Case("reset", has_keys=True).name, "reset, with keys")
        names = [case.name for case in bench_floods.CASES]
        self.assertEqual(len(set(names)), len(names))

    def test_one_percent_of_the_calls_are_slower_than_the_p99(self):
        self.assertGreater(bench_floods.p99([1.0] * 98 + [50.0] * 2), 40)
        self.assertEqual(bench_floods.p99([1.0] * 999 + [50.0]), 1.0)


if __name__ == "__main__":
    unittest.main()
