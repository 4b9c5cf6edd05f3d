"""training: parallel and step-by-step Gated DeltaNet and RWKV-7 agree with each other and with the original code."""

import json
import math
import os
import tarfile
import unittest

import support
from support import ToolTest, bundle, np

support.require("torch")

import torch
from torch.nn import functional

import recipes
import train
from delta_rule import delta_rule
from recurrent_networks import FAMILIES, GatedDeltaNet, Rwkv7
from runnel_client.errors import BundleError

GOLDEN = os.path.join(support.ROOT, "tests", "golden")


def step_by_step(q, v, log_w, a, b, k):
    S = torch.zeros(*q.shape[:-2], q.shape[-1], v.shape[-1], dtype=q.dtype)
    outputs = []
    for t in range(q.shape[-2]):
        u = (a[..., t, :, None] * S).sum(-2)
        if k is None:
            u = u + v[..., t, :]
        S = log_w[..., t, :].exp()[..., None] * S + b[..., t, :, None] * u[..., None, :]
        if k is not None:
            S = S + k[..., t, :, None] * v[..., t, None, :]
        outputs.append((q[..., t, :, None] * S).sum(-2))
    return torch.stack(outputs, -2)


def inputs_of(family, length, lead=(2, 3), keys=5, values=7):
    """Inputs q, v, log_w, a, b and k in fp64, in the family's form. The decays range from strong to weak."""
    rng = torch.Generator().manual_seed(length)

    def random(*shape):
        return torch.randn(*lead, length, *shape, generator=rng, dtype=torch.float64)

    q, v, k = random(keys), random(values), random(keys)
    unit = functional.normalize(random(keys), dim=-1)
    if family == "gated_deltanet":
        log_w = -(2 * random(1)).exp()
        return [q, v, log_w, -log_w.exp() * unit, random(1).sigmoid() * unit, None]
    log_w = -math.exp(-0.5) * (3 * random(keys)).sigmoid()
    return [q, v, log_w, -unit, unit * random(keys).sigmoid(), k]


def differentiable(inputs):
    return [None if x is None else x.requires_grad_() for x in inputs]


class DeltaRuleTest(unittest.TestCase):
    def test_chunked_equals_step_by_step(self):
        for family in recipes.FFN:
            for length in (1, 2, 15, 16, 17, 64, 100):
                inputs = inputs_of(family, length)
                expected = step_by_step(*inputs)
                for chunk in (1, 3, 16, 32, 64):
                    found = delta_rule(*inputs, chunk=chunk)
                    self.assertEqual(found.dtype, torch.float64)
                    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)

    def test_a_single_decay_per_head_works_with_a_separate_k(self):
        q, v, log_w, a, b, k = inputs_of("rwkv7", 21)
        inputs = q, v, log_w[..., :1], a, b, k
        torch.testing.assert_close(delta_rule(*inputs, chunk=8), step_by_step(*inputs), rtol=1e-11, atol=1e-12)

    def test_gradients(self):
        for family in recipes.FFN:
            inputs = differentiable(inputs_of(family, 7, (1, 2), 3, 2))
            self.assertTrue(torch.autograd.gradcheck(lambda *x: delta_rule(*x, chunk=3), inputs))
            inputs = differentiable(inputs_of(family, 40))
            present = [x for x in inputs if x is not None]
            factors = torch.linspace(-1, 1, 7, dtype=torch.float64)
            expected = torch.autograd.grad((step_by_step(*inputs) * factors).sum(), present)
            found = torch.autograd.grad((delta_rule(*inputs, chunk=16) * factors).sum(), present)
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)

    def test_sums_are_fp32_and_finite_with_the_strongest_decays(self):
        for family in recipes.FFN:
            q, v, log_w, a, b, k = inputs_of(family, 200, keys=32, values=32)
            log_w = torch.full_like(log_w, -20 if family == "gated_deltanet" else -0.607)
            log_w[..., ::3, :] = -0.001
            inputs = [None if x is None else x.bfloat16() for x in (q, v, log_w, a, b, k)]
            expected = step_by_step(*(None if x is None else x.double() for x in inputs)).float()
            inputs = differentiable(inputs)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found = delta_rule(*inputs)
            self.assertEqual(found.dtype, torch.float32)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)
            for gradient in torch.autograd.grad(found.sum(), [x for x in inputs if x is not None]):
                self.assertTrue(torch.isfinite(gradient).all())


class NetworkTest(unittest.TestCase):
    def assert_as_the_original(self, name, network, model):
        """Compares with tests/golden, which has weights and logits from the family's own code."""
        folder = os.path.join(GOLDEN, name)
        stored = bundle.read_safetensors(os.path.join(folder, "model.safetensors"))
        golden = bundle.read_safetensors(os.path.join(folder, "golden.bin"))
        model["table_rows"] = golden["head"].shape[1]
        network = network({"model": model}).double()
        with torch.no_grad():
            for key, tensor in network.state_dict().items():
                tensor.copy_(torch.from_numpy(stored[key].copy()).view_as(tensor))
            found = network(torch.from_numpy(golden["values"][None, :-1]).long())
        np.testing.assert_allclose(found[0].numpy(), golden["head"], rtol=1e-4, atol=1e-4)

    def test_gated_deltanet_equals_flash_linear_attention(self):
        sizes = {"layers": 2, "width": 48, "heads": 2, "key_size": 20, "value_size": 40, "ffn": 80}
        self.assert_as_the_original("fla_gated_deltanet", GatedDeltaNet, sizes | {"taps": 4, "norm_eps": 1e-6})

    def test_rwkv7_equals_the_official_code(self):
        sizes = {"layers": 3, "width": 48, "heads": 3, "value_width": 48, "ffn": 80}
        ranks = {"decay": 5, "rate": 6, "value": 3, "gate": 7}
        options = {"ranks": ranks, "norm_eps": 1e-5, "head_norm_eps": 64e-5}
        self.assert_as_the_original("rwkv7_official", Rwkv7, sizes | options)

    def test_the_small_recipes_have_the_size_of_the_small_linear_transformer(self):
        class Data:
            image, values, begin, length, unit = None, 256, {"value": 10}, 512, "byte"

        sizes = recipes.RECIPES["text"]["small"]
        most = bundle.parameters(recipes.spec("t", Data, sizes["layers"], sizes["heads"]))
        for family in recipes.FFN:
            config = recipes.spec_of_family(family, "t", Data, sizes["layers"], sizes["heads"])
            bundle.check_config(config)
            network = FAMILIES[config["model"]["family"]](config)
            self.assertTrue(0.98 * most < network.parameter_count() <= most, network.parameter_count())

    def test_initial_decays_of_gated_deltanet_give_the_intended_memories(self):
        class Data:
            image, values, begin, length, unit = None, 256, {"value": 10}, 60, "byte"

        network = GatedDeltaNet(recipes.spec_of_family("gated_deltanet", "t", Data, 1, 4))
        kept = torch.exp(-functional.softplus(network.model.layers[0].attn.dt_bias))
        torch.testing.assert_close(1 / (1 - kept), torch.tensor([8.0, 32.0, 128.0, 512.0]), rtol=1e-3, atol=0)


class RunTest(ToolTest):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("data", "text"))
        with tarfile.open(self.path("data", "text", "gutenberg-english.tar.xz"), "w:xz") as tar:
            for name in ("time_machine.txt", "other.txt"):
                path = self.write(name, "*** START OF A BOOK ***\n" + "a b a b a b\n" * 300 + "*** END OF A BOOK ***\n")
                tar.add(path, name)
        self.common = ["text", "--size", "small", "--layers", "2", "--heads", "1", "--length", "40", "--batch", "4"]
        self.common += ["--data", self.path("data"), "--work", self.path("work"), "--out", self.path("tiny")]
        self.common += ["--device", "cpu", "--threads", "1", "--warmup", "5"]

    def train(self, *flags, expected=0):
        code, _, err = self.run_tool(train, [*self.common, *flags])
        self.assertEqual(code, expected, err)

    def weights(self):
        return bundle.read_safetensors(self.path("tiny", "model.safetensors"))

    def test_training_lowers_the_loss_and_the_card_reports_it(self):
        for family, title in (("gated_deltanet", "A Gated DeltaNet that writes"), ("rwkv7", "An RWKV-7 model that")):
            self.train("--family", family, "--steps", "40", "--lr", "1e-2", "--fresh")
            with open(self.path("work", "tiny.json"), encoding="utf-8") as file:
                report = json.load(file)
            self.assertLess(report["figures"]["a book held out"]["bits"], 2, family)
            with open(self.path("tiny", "README.md"), encoding="utf-8") as file:
                card = file.read()
            for text in (title, "| recurrence | a delta rule; a decay of each", "whatever its length", "--length 40 "):
                self.assertIn(text, card)

    def test_an_interrupted_run_ends_with_the_same_weights(self):
        flags = ("--family", "rwkv7", "--steps", "25")
        self.train(*flags)
        whole = self.weights()
        self.train(*flags, "--fresh", "--pause-after", "1e-9", expected=3)
        self.train(*flags, "--precision", "fp32")
        for name, tensor in self.weights().items():
            np.testing.assert_array_equal(tensor, whole[name], name)
        self.assert_refused(train, [*self.common, *flags[2:]], "another run", "family rwkv7, not None")

    def test_autocast_learns_too(self):
        for family in recipes.FFN:
            self.train("--family", family, "--steps", "40", "--lr", "1e-2", "--precision", "bf16", "--fresh")
            with open(self.path("work", "tiny.json"), encoding="utf-8") as file:
                self.assertLess(json.load(file)["figures"]["a book held out"]["bits"], 2, family)

    def test_refuses(self):
        for flags, *parts in (
            (["--endless"], "--family and --endless exclude each other"),
            (["--softmax"], "--family and --softmax exclude each other"),
        ):
            self.assert_refused(train, [*self.common, "--family", "rwkv7", *flags], *parts)
        self.assert_refused(train, ["copy", "--family", "rwkv7", "--out", "x"], "--family", "copy", "goes with text")
        self.assert_refused(train, [*self.common, "--family", "mamba"], "mamba")

    def test_the_first_value_of_a_bundle_must_be_in_its_vocabulary(self):
        class Data:
            image, values, begin, length, unit = None, 256, {"value": 256}, 60, "byte"

        config = recipes.spec_of_family("rwkv7", "t", Data, 1, 1)
        with self.assertRaisesRegex(BundleError, "begin.value: expected an integer from 0 to 255, found 256"):
            bundle.check_config(config)


if __name__ == "__main__":
    unittest.main()
