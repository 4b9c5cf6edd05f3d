"""bench_report.py and bench_cpu.py of bench/report: the listed figures, the limits from them, the page, the plots."""

import copy
import importlib.util
import json
import os
import pathlib
import re
import unittest
import unittest.mock
from typing import Any

import bench_cpu
import bench_report
from support import ROOT, ToolTest

LIMITS = {
    "threads": 2,
    "fp32_gflops": 200.0,
    "bf16_gflops": 400.0,
    "l2_gbps": 200.0,
    "l3_gbps": 100.0,
    "dram_gbps": 30.0,
    "dram_update_gbps": 40.0,
}
MODEL = {
    "layers": 8,
    "width": 256,
    "heads": 8,
    "query_size": 32,
    "value_size": 32,
    "ffn": 1024,
    "outputs": 30,
    "head": {"kind": "categorical"},
}
RATES = {
    ("engine", 1): 4000.0,
    ("engine", 128): 20000.0,
    ("streams", 1): 3900.0,
    ("streams", 128): 19000.0,
    ("samples", 1): 3950.0,
    ("samples", 128): 19500.0,
    ("peer", 1): 200.0,
    ("peer", 128): 4000.0,
    ("compiled", 1): 800.0,
    ("compiled", 128): 3000.0,
}
FIGURES: dict[str, Any] = {
    "machine": {
        "cpu": "a processor",
        "cores": 2,
        "flags": ["avx512f"],
        "l2_bytes": 2 << 20,
        "l3_bytes": 32 << 20,
        "load_average": 0.1,
        "busy": 0.01,
    },
    "model": MODEL,
    "numerics": "cpu/avx512/bf16/step/state-fp32",
    "torch": {"peer": "1.13.1", "compiled": "2.15.0"},
    "forms": {"compiled-bf16": 0.002},
    "missing": {},
    "rounds": 3,
    "peer_steps": 256,
    "equal": {"sequences": 4, "values": 784, "largest_difference": 2e-5, "bits_per_value_difference": 3e-4},
    "limits": [{**LIMITS, "threads": 1}, LIMITS],
    "throughput": [
        {"what": what, "batch": batch, "values_per_s": rate, "runs": [rate], "form": "compiled-bf16", "threads": 1}
        for (what, batch), rate in RATES.items()
    ],
    "operations": [
        {
            "batch": batch,
            "steps": 9,
            "threads": 2.0,
            "step_us": 1000.0 * batch,
            "operations": [
                {"name": name, "us": 100.0 * batch}
                for name in ("embed", "qkv", "recur", "out", "norm", "ffn1", "ffn2", "head", "sample")
            ],
        }
        for batch in (1, 128)
    ],
    "memory": {"state_bytes": 270336, "sessions": 1024, "resident_bytes_per_session": 271000},
    "positions": {
        "values": 256,
        "prompt_values_per_s": 40000.0,
        "resident_growth_bytes": 4096,
        "points": [
            {"position": 1000, "us_per_value": 250.0, "ratio": 1.0},
            {"position": 1000000, "us_per_value": 251.0, "ratio": 1.004},
        ],
    },
}


class BenchReportTest(ToolTest):
    def test_the_limits_match_the_design(self):
        limits = bench_report.Limits(FIGURES)
        self.assertEqual(limits.state_bytes(), 270336)
        self.assertAlmostEqual(limits.weight_bytes() / 12.6e6, 1, places=2)
        self.assertAlmostEqual(limits.operations_per_value() / 12.9e6, 1, places=2)
        # One sequence reads the weights from the L3 cache. Its state stays in L2.
        seconds, resource = limits.step(1)
        self.assertEqual(resource, "L3")
        self.assertAlmostEqual(seconds, limits.weight_bytes() / 100e9)
        # The states of 128 sequences exceed the L3 cache, but arithmetic takes longer.
        self.assertEqual(limits.step(128)[1], "arithmetic")
        self.assertAlmostEqual(limits.seconds("recur", 128)["DRAM"], 2 * 128 * 270336 / 40e9)

    def test_without_bf16_all_limits_are_those_of_fp32(self):
        figures = copy.deepcopy(FIGURES)
        figures["numerics"] = "cpu/avx512/fp32/step/state-fp32"
        limits, bf16 = bench_report.Limits(figures), bench_report.Limits(FIGURES)
        self.assertEqual(limits.weight_bytes(), 2 * bf16.weight_bytes())
        self.assertAlmostEqual(limits.seconds("ffn1", 8)["arithmetic"], 2 * bf16.seconds("ffn1", 8)["arithmetic"])

    def test_tiles_set_the_limit_only_of_batches_that_use_them(self):
        figures = copy.deepcopy(FIGURES)
        figures["limits"][1].update(bf16_gflops=100.0, tile_gflops=3200.0)
        limits, before = bench_report.Limits(figures), bench_report.Limits(FIGURES)
        self.assertAlmostEqual(limits.arithmetic("ffn1", 8) * 8, before.arithmetic("ffn1", 8))
        self.assertAlmostEqual(limits.arithmetic("ffn1", 1), 2 * before.arithmetic("ffn1", 1))  # as fast as fp32
        self.assertIn("| 3,200 |", bench_report.limits_table(figures))
        self.assertIn("| - |", bench_report.limits_table(FIGURES))
        self.assertIn("AMX's tiles", bench_report.section(figures))
        self.assertNotIn("AMX's tiles", bench_report.section(FIGURES))

    def test_lists_every_measurement_in_one_form(self):
        listed = bench_report.entries(FIGURES)
        keys = ["what", "batch", "values_per_s", "strongest_peer_values_per_s", "ratio_to_strongest_peer"]
        keys.append("share_of_limit")
        for one in listed:
            self.assertEqual(list(one), keys)
        self.assertEqual(len(listed), 8)
        first = listed[0]
        self.assertEqual((first["what"], first["batch"], first["values_per_s"]), ("engine alone", 1, 4000.0))
        self.assertEqual((first["strongest_peer_values_per_s"], first["ratio_to_strongest_peer"]), (800.0, 5.0))
        self.assertTrue(0 < first["share_of_limit"] < 1)
        self.assertEqual((listed[-1]["what"], listed[-1]["values_per_s"]), ("position 1000000", 3984.1))

    def test_the_page_has_every_figure(self):
        page = bench_report.section(FIGURES)
        for text in (
            "**20,000**",
            "19,000 (95%)",
            "4,000 (1)",
            "800 (bf16, 1)",
            "**5.0x**",
            "compiled by PyTorch 2.15.0",
            "| 1 | 7,938 (L3) | 50% | 7,771 | 51% |",
            "| recur |",
            "| between them |",
            "271,000",
            "1,000,000",
            "1.004",
            "10.0 times as fast",
            "| 2 | 200 | 400 |",
        ):
            self.assertIn(text, page)
        self.assertNotIn("measure again", page)
        noisy = copy.deepcopy(FIGURES)
        noisy["machine"]["busy"] = 0.2
        self.assertIn("20% busy: measure again", bench_report.section(noisy))

    def test_a_peer_that_is_missing_is_named_with_its_reason(self):
        figures = copy.deepcopy(FIGURES)
        figures["throughput"] = [one for one in figures["throughput"] if one["what"] != "compiled"]
        figures["torch"], figures["missing"] = {"peer": "1.13.1"}, {"compiled-bf16": "PyPI cannot be reached"}
        page = bench_report.section(figures)
        self.assertIn("compiled-bf16 is missing: PyPI cannot be reached.", page)
        self.assertIn("| 200 (1) | - | **20.0x** |", page)

    def test_the_last_products_of_a_mixture_are_in_fp32(self):
        figures = copy.deepcopy(FIGURES)
        figures["model"] = {**MODEL, "head": {"kind": "mixture_of_logistics"}}
        mixture, plain = bench_report.Limits(figures), bench_report.Limits(FIGURES)
        self.assertAlmostEqual(mixture.least("ffn2", 512), plain.least("ffn2", 512) * 9 / 8)
        self.assertAlmostEqual(mixture.least("head", 512), plain.least("head", 512) * 2)
        self.assertEqual(mixture.least("ffn1", 512), plain.least("ffn1", 512))

    def test_losses_are_sorted_from_the_largest(self):
        page = bench_report.losses_table(FIGURES)
        self.assertRegex(page, r"\| 1 \| \w+[ \w]* \d+ us, \d+% \|")
        lost = [int(one) for one in re.findall(r"(\d+) us", page.splitlines()[2])]
        self.assertEqual(lost, sorted(lost, reverse=True))

    def test_a_model_for_text_has_tables_of_its_own(self):
        figures, steps = copy.deepcopy(FIGURES), copy.deepcopy(FIGURES["operations"])
        steps[0]["operations"].append({"name": "features", "us": 200.0})
        model = {**MODEL, "attention": {"feature_map": "favor"}, "position": {"kind": "sinusoidal"}}
        figures["texts"] = {"text-favor": {"model": model, "operations": steps}}
        plain, page = bench_report.section(FIGURES), bench_report.section(figures)
        self.assertNotIn("step of text", plain)
        told = page.split("### Where the time of a step of text-favor goes")[1].split("###")[0]
        self.assertIn("8 layers of width 256, favor features", told)
        self.assertIn("made anew: no last position", told)
        self.assertIn("| features | 200.0 | - |", told)
        self.assertIn("| 1 | features 200 us, 20% |", told)

    def test_the_page_gives_the_difference_of_each_compiled_form(self):
        self.assertIn("compiled-bf16 by 0.002", bench_report.section(FIGURES))

    def test_the_readme_quotes_a_run(self):
        """If it fails, README needs one of the tables that it prints."""
        root = pathlib.Path(ROOT)
        families = json.loads((root / "docs/benchmarks/cpu_figures.json").read_text(encoding="utf-8"))
        tables = [bench_report.readme_rows(figures) for figures in families.values()]
        readme = (root / "README.md").read_text(encoding="utf-8")
        self.assertTrue(any(one in readme for one in tables), "\n".join(tables))

    def test_an_unavailable_compiled_form_is_skipped(self):
        plan = {**bench_cpu.QUICK, "forms": ("compiled-bf16",)}
        bench = bench_cpu.Bench(None, pathlib.Path(self.dir), plan)
        fault = bench_cpu.BenchError("pip: no network")
        with (
            unittest.mock.patch.object(bench, "sample", return_value="file"),
            unittest.mock.patch.object(bench, "say"),
            unittest.mock.patch.object(bench_cpu, "install_peers", side_effect=fault),
        ):
            bench.prove_compiled("address")
        self.assertEqual((bench.forms, bench.missing), ({}, {"compiled-bf16": "pip: no network"}))

    def test_a_batch_that_fails_in_a_compiled_form_is_left_out(self):
        bench = bench_cpu.Bench(None, pathlib.Path(self.dir), {**bench_cpu.QUICK, "batches": [8]})
        bench.forms = {"compiled-bf16": 0.0}
        with (
            unittest.mock.patch.object(bench, "say"),
            unittest.mock.patch.object(bench, "measure_runnel", return_value=(2.0, "id")),
            unittest.mock.patch.object(bench, "measure_peer", return_value=1.0),
            unittest.mock.patch.object(bench, "measure_compiled", side_effect=bench_cpu.BenchError("out of memory")),
        ):
            self.assertEqual(bench.measure_round(0, "address"), "id")
        self.assertEqual({way for way, _ in bench.runs}, {"engine", "streams", "samples", "peer"})
        self.assertEqual(bench.missing, {"compiled, batch 8": "out of memory"})

    def test_without_pypi_the_reason_names_it(self):
        told = [None, bench_cpu.BenchError("python -m: ERROR: No matching distribution found")]
        folder = pathlib.Path(self.dir) / "peers"
        with (
            unittest.mock.patch.object(bench_cpu, "run", side_effect=told),
            unittest.mock.patch("builtins.print"),
            self.assertRaisesRegex(bench_cpu.BenchError, "from PyPI: python -m: ERROR: No matching"),
        ):
            bench_cpu.install_peers(folder)
        self.assertFalse((folder / "installed").exists())

    def test_the_fastest_compiled_form_counts(self):
        bench = bench_cpu.Bench(None, pathlib.Path(self.dir), bench_cpu.FULL)
        bench.forms = dict.fromkeys(bench_cpu.FORMS, 0.0)

        def told(form, *words):
            named = dict(zip(words[::2], words[1::2]))
            rate = {"compiled-bf16": 10.0, "compiled-fp32": 20.0}[form] + named["--threads"]
            return {"torch": "2", "peer": [{"values_per_s": rate}]}

        with unittest.mock.patch.object(bench, "peer", side_effect=told):
            rate = bench.measure_compiled(8)
        self.assertEqual((bench.compiled[8][0], rate), ("compiled-fp32", 20.0 + bench.compiled[8][1]))

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "there is no matplotlib")
    def test_writes_the_list_the_page_and_the_pictures(self):
        families = {FIGURES["machine"]["cpu"]: FIGURES}
        figures = self.write("cpu_figures.json", json.dumps(families))
        code, _, err = self.run_tool(bench_report, [figures, "--docs", self.path("docs")])
        self.assertEqual((code, err), (0, ""))
        name = bench_report.slug(FIGURES["machine"]["cpu"])
        self.assertEqual(
            sorted(os.listdir(self.path("docs"))),
            ["cpu-" + name + ".png", "cpu.json", "cpu.md", "cpu_figures.json", "position-" + name + ".png"],
        )
        with open(self.path("docs", "cpu.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), bench_report.entries(FIGURES))
        self.assertEqual(
            self.run_tool(bench_report, [self.write("x", '{"a family": {}}'), "--docs", self.path("docs")])[0], 2
        )

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "there is no matplotlib")
    def test_a_run_on_another_cpu_overwrites_no_figures(self):
        elsewhere = copy.deepcopy(FIGURES)
        elsewhere["machine"]["cpu"] = "Another CPU (family 6, model 143)"
        docs = pathlib.Path(self.path("docs"))
        for figures in (FIGURES, elsewhere, FIGURES):
            bench_report.write(figures, docs / "cpu.json", docs)
        page = (docs / "cpu.md").read_text(encoding="utf-8")
        for figures in (FIGURES, elsewhere):
            self.assertEqual(page.count(f"## {figures['machine']['cpu']}\n"), 1)
            self.assertIn(bench_report.section(figures), page)
        self.assertIn("(cpu-another-cpu-family-6-model-143.png)", page)
        self.assertTrue((docs / "cpu-another-cpu-family-6-model-143.png").exists())

    def test_names_missing_programs(self):
        code, _, err = self.run_tool(bench_cpu, ["--runnel", self.path("none"), "--folder", self.path("bench")])
        self.assertEqual((code, err.count("\n")), (1, 1))
        self.assertRegex(err, "run make build|scripts/setup bench")
        self.assertEqual(os.listdir(self.dir), [])

    def test_the_best_measurement_of_each_limit_counts(self):
        bench = bench_cpu.Bench(None, None, None)
        for first, second in ((1.0, 9.0), (3.0, 4.0)):
            told = [{"threads": 1, "l3_gbps": first}, {"threads": 2, "l3_gbps": second}]
            with unittest.mock.patch.object(bench, "bench", return_value={"limits": told}):
                bench.measure_limits()
        self.assertEqual(list(bench.limits.values()), [{"threads": 1, "l3_gbps": 3.0}, {"threads": 2, "l3_gbps": 9.0}])

    def test_a_failing_command_is_reported_with_its_last_line(self):
        with self.assertRaisesRegex(bench_cpu.BenchError, "sh -c: it is broken"):
            bench_cpu.run(["sh", "-c", "echo first >&2; echo it is broken >&2; exit 3"])
        self.assertTrue(0 <= bench_cpu.busy_share(0.05) <= 1)


if __name__ == "__main__":
    unittest.main()
