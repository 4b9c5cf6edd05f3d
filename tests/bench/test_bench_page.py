"""bench_page.py of bench/report: the order of its rounds, the figures of a server's process, and its page."""

import os
import unittest
from typing import Any

import bench_page

FIGURES: dict[str, Any] = {
    "machine": {"cpu": "a processor", "cores": 2, "load_average": 0.1},
    "bundle": "text-endless-small",
    "streams": 16,
    "seconds": 3.0,
    "server_ms_per_s": 0.1,
    "values_per_s": {bench_page.ALONE: [900.0, 1000.0, 5000.0], bench_page.WATCHED: [980.0, 985.0, 990.0]},
}


class PageTest(unittest.TestCase):
    def test_the_medians_are_compared(self):
        self.assertAlmostEqual(bench_page.change(FIGURES["values_per_s"]), -0.015)
        gain = {bench_page.ALONE: [100.0], bench_page.WATCHED: [101.0]}
        self.assertAlmostEqual(bench_page.change(gain), 0.01)

    def test_the_page_names_the_change_and_the_goal(self):
        page = bench_page.page(FIGURES)
        self.assertIn("| alone | 1,000 | 900 to 5,000 |", page)
        self.assertIn("| with a page | 985 | 980 to 990 |", page)
        self.assertIn("the median changes by -1.5% (goal: more than -2%)", page)
        self.assertIn("in 3 rounds of 3 s", page)
        self.assertIn("uses 0.10 ms of processor time a second", page)

    def test_rounds_alternate_which_case_comes_first(self):
        alone, watched = bench_page.ALONE, bench_page.WATCHED
        self.assertEqual(bench_page.in_turns(3), [alone, watched, watched, alone, alone, watched])


class MeasureTest(unittest.TestCase):
    def test_processor_time_includes_user_and_kernel_mode(self):
        ticks = os.sysconf("SC_CLK_TCK")
        before = "4711 (a (strange) name) S " + " ".join(["0"] * 10)
        self.assertAlmostEqual(bench_page.processor_seconds(f"{before} {2 * ticks} {ticks} 9 9 0"), 3.0)

    def test_the_flags_have_defaults(self):
        given = bench_page.make_parser().parse_args([])
        self.assertEqual((given.rounds, given.streams, given.bundle.name), (9, 16, "text-endless-small"))
        self.assertEqual(given.docs.parts[-2:], ("docs", "benchmarks"))


if __name__ == "__main__":
    unittest.main()
