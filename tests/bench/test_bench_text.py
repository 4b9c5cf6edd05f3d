"""bench_text.py of bench/report and its page: the peers, the bytes that a step reads, and the text about them."""

import json
import os
import pathlib
import shutil
import struct
import tempfile
import unittest
import unittest.mock
from typing import Any

import bench_text
import gguf_sizes
import logit_distance
import text_page

LIMITS = {"threads": 2, "bf16_gflops": 800.0, "dram_gbps": 40.0, "dram_update_gbps": 50.0}
FIGURES: dict[str, Any] = {
    "machine": {"cpu": "a processor", "cores": 2, "flags": ["avx512f"], "load_average": 0.1, "disturbed": 0.02},
    "versions": {"torch": "2", "rwkv": "0.8", "llama-cpp-python": "0.3"},
    "numerics": "cpu/avx512bf16/bf16/step/state-fp32",
    "missing": {},
    "rounds": 3,
    "prompt": 512,
    "batches": [1, 16],
    "models": {"RWKV-7 0.1B": {"step_bytes": 400_000_000, "head_bytes": 100_000_000, "state_bytes": 6_250_000}},
    "limits": [LIMITS, {**LIMITS, "dram_gbps": 30.0}, {**LIMITS, "dram_gbps": 70.0}],
    "medians": {
        "RWKV-7 0.1B": {
            "runnel": {"1": 80.0, "16": 500.0, "prompt": 2000.0},
            "runnel, gRPC": {"1": 79.0, "16": 480.0, "load_s": 1.5},
            "llama.cpp": {"1": 40.0, "16": 250.0, "prompt": 1000.0},
            "llama-server": {"1": 30.0, "16": 240.0, "load_s": 0.5},
            "rwkv": {"1": 10.0, "prompt": 500.0, "load_s": 2.5},
        }
    },
    "runs": {},
}


def without(way):
    """The figures of a run in which a peer was missing."""
    rates = {name: rate for name, rate in FIGURES["medians"]["RWKV-7 0.1B"].items() if name != way}
    return {**FIGURES, "medians": {"RWKV-7 0.1B": rates}, "missing": {way: "no compiler"}}


class PageTest(unittest.TestCase):
    def test_runnel_is_compared_with_every_peer(self):
        page = text_page.page(FIGURES)
        self.assertIn("| RWKV-7 0.1B | 1 | **80.0** | 40.0 | **2.00x** | 79.0 | 30.0 | 2.63x | 10.0 |", page)
        self.assertIn("| RWKV-7 0.1B | 16 | **500.0** | 250.0 | **2.00x** | 480.0 | 240.0 | 2.00x | - |", page)
        self.assertIn("| RWKV-7 0.1B | 1.5 | 0.5 | 2.5 |", page)

    def test_a_step_is_compared_with_its_limits_of_memory_and_arithmetic(self):
        """10 ms of memory, and 0.25 ms or 0.5 ms of arithmetic for each sequence: 98 values/s for one, 1,143 for 16,
        667 if two threads each read all weights."""
        page = text_page.page(FIGURES)
        self.assertIn("| RWKV-7 0.1B | 400 MB | 6.2 MB | 82% | 41% | 44% | 22% | 75% |", page)

    def test_a_prompt_is_compared_with_arithmetic_without_the_head(self):
        self.assertIn("| RWKV-7 0.1B | **2,000** | 1,000 | **2.00x** | 500 | 75% |", text_page.page(FIGURES))

    def test_the_limit_of_arithmetic_is_that_of_the_fastest_way(self):
        """A processor that computes fp32 faster than bf16 halves the share of a prompt, which was 75%."""
        figures = {**FIGURES, "limits": [{**LIMITS, "fp32_gflops": 1600.0}]}
        self.assertEqual(text_page.gflops(figures), 1600)
        self.assertIn("| **2,000** | 1,000 | **2.00x** | 500 | 38% |", text_page.page(figures))

    def test_a_missing_peer_is_named_with_its_reason(self):
        page = text_page.page(without("llama-server"))
        self.assertIn("- llama-server is missing: no compiler", page)
        self.assertIn("| RWKV-7 0.1B | 1 | **80.0** | 40.0 | **2.00x** | 79.0 | - | - | 10.0 |", page)

    def test_the_page_reports_a_disturbed_run(self):
        self.assertNotIn("Other processes used", text_page.page(FIGURES))
        figures = {**FIGURES, "machine": {**FIGURES["machine"], "disturbed": 0.3}}
        self.assertIn("**Other processes used up to 30% of the machine", text_page.page(figures))


QUANTIZED: dict[str, Any] = {
    **FIGURES,
    "models": {
        "RWKV-7 0.4B Q4_0": {
            **FIGURES["models"]["RWKV-7 0.1B"],
            "kind": "Q4_0",
            "distances": {"runnel": 0.00012, "llama.cpp": 0.034},
        }
    },
    "medians": {
        "RWKV-7 0.4B Q4_0": {
            "runnel": {"1": 80.0, "16": 500.0, "prompt": 2000.0},
            "runnel, gRPC": {"1": 79.0, "16": 480.0, "load_s": 0.25, "memory_gb": 0.75},
            "llama.cpp": {"1": 40.0, "16": 250.0, "prompt": 1000.0},
            "llama-server": {"1": 30.0, "16": 240.0, "load_s": 0.5, "memory_gb": 0.5},
        }
    },
}


class QuantizedPageTest(unittest.TestCase):
    def setUp(self):
        self.page = text_page.page(QUANTIZED)

    def test_runnel_is_compared_with_llama_on_the_same_file(self):
        self.assertIn("| RWKV-7 0.4B Q4_0 | 1 | **80.0** | 40.0 | **2.00x** | 79.0 | 30.0 | 2.63x | - |", self.page)
        self.assertIn("| RWKV-7 0.4B Q4_0 | 0.40 | 0.75 | 0.50 |", self.page)

    def test_its_limit_is_only_memory(self):
        """A step of one sequence takes 10.25 ms. One of 16 takes 14 ms, or 24 if two threads each read all weights."""
        self.assertIn("| RWKV-7 0.4B Q4_0 | 400 MB | 6.2 MB | 82% | 41% | 44% | 22% | 75% |", self.page)
        self.assertIn("| RWKV-7 0.4B Q4_0 | **2,000** | 1,000 | **2.00x** | - | - |", self.page)

    def test_distances_are_shown_only_if_they_were_measured(self):
        self.assertIn("| RWKV-7 0.4B Q4_0 | 1.2e-04 | 3.4e-02 |", self.page)
        self.assertNotIn("RMS of log probabilities", text_page.page(FIGURES))


class BenchTextTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.setup = bench_text.Setup(pathlib.Path(folder.name))

    def test_missing_peers_are_skipped(self):
        bench = bench_text.Bench("runnel", self.setup)
        self.assertEqual(bench.ways_of("RWKV-7 0.1B"), list(bench_text.WAYS))
        self.assertNotIn("rwkv", bench.ways_of("Mamba-2 130m"))
        self.setup.missing["llama.cpp"] = "no compiler"
        self.assertEqual(bench.ways_of("RWKV-7 0.1B"), ["runnel", "runnel, gRPC", "rwkv"])

    def test_quantized_files_are_for_runnel_and_llama(self):
        arguments = bench_text.make_parser().parse_args(["--models", "0.1B,0.4B", "--kinds", "bf16,Q4_K"])
        self.assertEqual(bench_text.chosen(arguments, {}), ["RWKV-7 0.1B", "RWKV-7 0.4B", "RWKV-7 0.4B Q4_K"])
        self.assertEqual(bench_text.chosen(arguments, {"llama-quantize": ""}), ["RWKV-7 0.1B", "RWKV-7 0.4B"])
        self.assertEqual(bench_text.chosen(bench_text.make_parser().parse_args([]), {}), list(bench_text.MODELS))
        self.assertNotIn("rwkv", bench_text.Bench("runnel", self.setup).ways_of("RWKV-7 0.4B Q4_K"))

    def test_a_step_of_a_gguf_file_reads_all_but_the_embedding(self):
        files = bench_text.QuantizedFiles(self.setup, "RWKV-7 0.4B Q4_0")
        os.makedirs(files.gguf.parent)
        shutil.copy(bench_text.ROOT / "tests/golden/gguf/rwkv7.gguf", files.gguf)
        sizes = gguf_sizes.tensor_sizes(files.gguf)
        self.assertEqual(len(sizes), 90)
        self.assertEqual(sizes["output.weight"], 37 * 48 * 2)
        found = files.weight_bytes()
        self.assertEqual(found["head_bytes"], sizes["output.weight"])
        self.assertEqual(found["step_bytes"], sum(sizes.values()) - sizes["token_embd.weight"])

    def test_the_memory_of_a_process(self):
        with unittest.mock.patch("builtins.open", unittest.mock.mock_open(read_data="VmRSS: 1 kB\nVmHWM: 2000 kB\n")):
            self.assertEqual(bench_text.peak_gb(unittest.mock.Mock(pid=1)), 2048e3 / 1e9)

    def test_distances_use_fixed_prompts(self):
        self.assertEqual([len(prompt) for prompt in logit_distance.prompts()], list(range(4, 65, 4)))
        self.assertEqual(logit_distance.prompts()[1][:4], logit_distance.prompts()[0])
        self.assertAlmostEqual(logit_distance.rms([1.0, 2.0], [1.0, 4.0]), 2**0.5)

    def test_the_least_disturbed_attempt_counts(self):
        bench = bench_text.Bench("runnel", self.setup)
        tries = iter([1, 2, 3])
        shares = iter([0.5, 0.2, 0.4])

        class Others:
            def __enter__(self):
                self.share = next(shares)
                return self

            def __exit__(self, *_):
                pass

        with unittest.mock.patch.object(bench_text, "Others", Others):
            self.assertEqual(bench.undisturbed(lambda: next(tries)), 2)
        self.assertEqual(bench.disturbed, 0.2)

    def test_added_rounds_follow_those_of_the_same_machine_and_models(self):
        about = {"cpu": "a processor", "cores": 2, "flags": ["avx2"]}
        earlier = {
            "machine": {**about, "disturbed": 0.05},
            "numerics": "cpu/a, cpu/b",
            "rounds": 2,
            "models": {"RWKV-7 0.1B": {}},
            "limits": [LIMITS],
            "runs": {"RWKV-7 0.1B": {"runnel": {"1": [80.0, 81.0]}}},
        }
        (self.setup.folder / "text_figures.json").write_text(json.dumps(earlier), encoding="utf-8")
        words = ["--docs", str(self.setup.folder), "--rounds", "3"]
        parse = bench_text.make_parser().parse_args
        bench = bench_text.Bench("runnel", self.setup)
        self.assertEqual(list(bench.rounds(parse(words), "text", about, ["RWKV-7 0.1B"])), [0, 1, 2])
        self.assertEqual(bench.runs, {})
        added = parse([*words, "--add"])
        self.assertEqual(list(bench.rounds(added, "text", about, ["RWKV-7 0.1B"])), [2, 3, 4])
        self.assertEqual((bench.runs, bench.limits), (earlier["runs"], [LIMITS]))
        self.assertEqual((bench.disturbed, list(bench.numerics)), (0.05, ["cpu/a", "cpu/b"]))
        with self.assertRaisesRegex(bench_text.BenchError, "of another machine: a processor"):
            bench.rounds(added, "text", {**about, "cores": 4}, ["RWKV-7 0.1B"])
        with self.assertRaisesRegex(bench_text.BenchError, "of other models: RWKV-7 0.1B"):
            bench.rounds(added, "text", about, ["Mamba-2 130m"])
        with self.assertRaisesRegex(bench_text.BenchError, "no .*hybrids_figures.json to add rounds to"):
            bench.rounds(added, "hybrids", about, [])

    def test_the_load_of_other_processes_is_a_share_of_the_machine(self):
        with bench_text.Others() as others:
            sum(range(1_000_000))
        self.assertGreaterEqual(others.share, 0.0)
        self.assertLessEqual(others.share, 1.0)

    def step_of(self, tensors):
        """The output of weight_bytes() for a file with these tensors and their sizes in bytes."""
        files = bench_text.Files(self.setup, "RWKV-7 0.1B")
        os.makedirs(files.bundle)
        ends = [sum(list(tensors.values())[: index + 1]) for index in range(len(tensors))]
        header = {
            name: {"dtype": "BF16", "shape": [size // 2], "data_offsets": [end - size, end]}
            for (name, size), end in zip(tensors.items(), ends)
        }
        text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
        (files.bundle / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
        return files.weight_bytes()

    def test_an_embedding_apart_from_the_head_is_not_counted(self):
        found = self.step_of({"lm_head.weight": 10, "model.embeddings.weight": 20, "model.layers.0.w": 4})
        self.assertEqual(found, {"head_bytes": 10, "step_bytes": 14})

    def test_an_embedding_that_is_the_head_is_counted(self):
        found = self.step_of({"backbone.embeddings.weight": 20, "backbone.layers.0.w": 4})
        self.assertEqual(found, {"head_bytes": 20, "step_bytes": 24})


if __name__ == "__main__":
    unittest.main()
