"""bench/report/bench_peer.py: it has the server's model, it measures, and it names peers that it cannot use."""

import json
import os
import unittest

import support
from support import ROOT, ToolTest, bundle

support.require("torch")

import torch

import bench_peer
import compiled_peer

GOLDEN = os.path.join(ROOT, "tests", "golden")


class BenchPeerTest(ToolTest):
    def golden_differences(self, peer, golden):
        stored = bundle.read_safetensors(os.path.join(GOLDEN, golden, "golden.bin"))
        log_prob = torch.from_numpy(stored["log_prob"].copy())
        values = torch.from_numpy(stored["values"].copy()).long()
        if values.dim() == 1:
            values, log_prob = values.unsqueeze(0), log_prob.unsqueeze(0)
        return bench_peer.differences(peer, values, log_prob)

    def golden_difference(self, model, golden):
        return self.golden_differences(bench_peer.Peer(model), golden)[0]

    def test_a_step_compiled_as_one_function_agrees_with_the_model(self):
        for name in ("image_gelu_rgb", "symbols_gelu_sinusoidal", "symbols_relu_none", "values_add_table"):
            with self.subTest(name):
                peer = compiled_peer.CompiledPeer(os.path.join(GOLDEN, name), "fp32", compiles=False)
                self.assertLess(self.golden_differences(peer, name)[0], 1e-3)
        zoo = os.path.join(ROOT, "zoo", "mnist-small")
        fp32, bf16 = (
            self.golden_differences(compiled_peer.CompiledPeer(zoo, precision, compiles=False), "zoo_mnist")
            for precision in ("fp32", "bf16")
        )
        self.assertLess(fp32[0], 1e-3)
        self.assertTrue(fp32[1] < bf16[1] < bench_peer.BF16_TOLERANCE, bf16)

    @unittest.skipIf(hasattr(torch, "compiler"), "this PyTorch compiles")
    def test_says_that_a_pytorch_cannot_compile(self):
        model = os.path.join(ROOT, "zoo", "mnist-small")
        self.assert_refused(bench_peer, [model, "--form", "compiled-bf16"], "compiles nothing; use 2 or later")

    def test_equals_fast_transformers_on_zoo_mnist(self):
        self.assertLess(self.golden_difference(os.path.join(ROOT, "zoo", "mnist-small"), "zoo_mnist"), 1e-3)

    def test_equals_fast_transformers_on_other_shapes(self):
        for name in ("image_gelu_rgb", "symbols_gelu_sinusoidal", "symbols_relu_none", "values_add_table"):
            with self.subTest(name):
                self.assertLess(self.golden_difference(os.path.join(GOLDEN, name), name), 1e-3)

    def generated(self, shift=0.0, precision="fp32"):
        """The output of runnel generate --json for the first bytes of two test images."""
        stored = bundle.read_safetensors(os.path.join(GOLDEN, "zoo_mnist", "golden.bin"))
        samples = []
        for values, log_prob in zip(stored["values"][:2, :50], stored["log_prob"][:2, :49]):
            samples.append(
                {
                    "position": 0,
                    "values": [int(value) for value in values],
                    "log_probs": [0.0, *(float(one) + shift for one in log_prob)],
                }
            )
        return json.dumps({"numerics": f"cpu/avx512/{precision}/step/state-fp32", "samples": samples})

    def test_checks_against_generated_sequences(self):
        model = os.path.join(ROOT, "zoo", "mnist-small")
        code, out, err = self.run_tool(bench_peer, [model, "--check", self.write("a.json", self.generated())])
        self.assertEqual((code, err), (0, ""))
        self.assertEqual((json.loads(out)["sequences"], json.loads(out)["values"]), (2, 50))
        self.assert_refused(
            bench_peer, [model, "--check", self.write("b.json", self.generated(0.01))], "not the same model", "0.01"
        )
        self.assertEqual(
            self.run_tool(bench_peer, [model, "--check", self.write("d.json", self.generated(0.005, "bf16"))])[0], 0
        )
        self.assert_refused(
            bench_peer,
            [model, "--check", self.write("e.json", self.generated(0.05, "bf16"))],
            "bits per value",
            "0.072",
        )
        self.assert_refused(bench_peer, [model, "--check", self.write("c.json", "{}")], "runnel generate --json")

    def test_measures(self):
        model = os.path.join(GOLDEN, "image_relu_table")
        code, out, err = self.run_tool(bench_peer, [model, "--batch", "1,3", "--steps", "16", "--threads", "1,2"])
        self.assertEqual((code, err), (0, ""))
        first, second = json.loads(out)["peer"]
        self.assertEqual((first["batch"], second["batch"], first["steps"]), (1, 3, 16))
        self.assertIn(first["threads"], (1, 2))
        self.assertGreater(first["values_per_s"], 0)

    def test_refuses(self):
        model = os.path.join(ROOT, "zoo", "mnist-small")
        self.assert_refused(bench_peer, [self.path("none")], "config.json")
        self.assert_refused(bench_peer, [model, "--steps", "0"], "--steps", "found 0")


if __name__ == "__main__":
    unittest.main()
