"""scripts/runnel-convert: every kind of checkpoint that it reads, and every error."""

import collections
import hashlib
import importlib.util
import io
import json
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
import unittest
import unittest.mock
from typing import Any

import support
from support import ROOT, ToolTest, bundle, np

support.require("torch")

import torch

import heads as heads_of
from network import Network
from runnel_client import assemble, checkpoint, convert, state_dict, verify
from runnel_client.errors import BundleError

HEADS, QUERY, VALUE, FFN, LAYERS = 3, 5, 4, 7, 2
WIDTH, POSITIONS = 10, 11


def encoder(prefix="transformer.", width=WIDTH, layers=LAYERS, final_norm=True):
    """A random state dict of the encoder, in the order in which torch saves it."""
    state = collections.OrderedDict()

    def linear(name, out, inputs):
        state[name + ".weight"], state[name + ".bias"] = torch.randn(out, inputs), torch.randn(out)

    def norm(name):
        state[name + ".weight"], state[name + ".bias"] = torch.randn(width), torch.randn(width)

    for index in range(layers):
        layer = f"{prefix}layers.{index}."
        for what, out in (
            ("query", HEADS * QUERY),
            ("key", HEADS * QUERY),
            ("value", HEADS * VALUE),
        ):
            linear(f"{layer}attention.{what}_projection", out, width)
        linear(layer + "attention.out_projection", width, HEADS * VALUE)
        linear(layer + "linear1", FFN, width)
        linear(layer + "linear2", width, FFN)
        norm(layer + "norm1")
        norm(layer + "norm2")
    if final_norm:
        norm(prefix + "norm")
    return state


def model(values=256, outputs=6, value_width=6, table=(1, POSITIONS, 4), **sizes):
    """A whole model with the names of the authors' code."""
    state = collections.OrderedDict()
    state["pos_embedding.pe"] = torch.randn(*table)
    state["value_embedding.weight"] = torch.randn(values, value_width)
    state.update(encoder(**sizes))
    state["predictor.weight"], state["predictor.bias"] = (
        torch.randn(outputs, WIDTH),
        torch.randn(outputs),
    )
    return state


def without(state, *names):
    return collections.OrderedDict((name, tensor) for name, tensor in state.items() if name not in names)


def renamed(state, **names):
    """Replaces the starts of names. '__' in a keyword means '.'."""
    pairs = [(old.replace("__", "."), new) for old, new in names.items()]
    out = collections.OrderedDict()
    for name, tensor in state.items():
        for old, new in pairs:
            if name.startswith(old):
                name = new + name[len(old) :]
        out[name] = tensor
    return out


def changed(name, tensor):
    return collections.OrderedDict(model(), **{name: tensor})


class ConvertTest(ToolTest):
    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        self.flags = ["--heads", "3", "--image", "4x3x1"]

    def save(self, content, name="checkpoint.pth"):
        torch.save(content, self.path(name))
        return self.path(name)

    def convert(self, *argv):
        """The config and the tensors of the bundle that the tool writes with these flags."""
        code, out, err = self.run_tool(convert, [*argv, "--out", self.path("bundle")])
        self.assertEqual((code, err), (0, ""))
        self.assertIn(self.path("bundle"), out)
        with open(self.path("bundle", "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        tensors = bundle.read_safetensors(self.path("bundle", "model.safetensors"))
        self.assertEqual(
            {name: values.shape for name, values in tensors.items()},
            bundle.expected_tensors(config),
        )
        return config, tensors

    def refuse(self, argv, *parts):
        self.assert_refused(convert, [*argv, "--out", self.path("bundle")], *parts)

    def card(self):
        with open(self.path("bundle", "README.md"), encoding="utf-8") as file:
            return file.read()

    def assert_same(self, tensors, state):
        self.assertEqual(set(tensors), set(state))
        for name, tensor in state.items():
            np.testing.assert_array_equal(tensors[name], tensor.numpy(), err_msg=name)


def with_omega(state, projections, query=QUERY):
    state = state.copy()
    for index in range(LAYERS):
        name = f"transformer.layers.{index}.{assemble.OMEGA}"
        state[name] = torch.randn(query, projections)
    return state


class GateTest(ConvertTest):
    def gated(self):
        state = model()
        for index in range(LAYERS):
            name = f"transformer.layers.{index}.attention.gate."
            state[name + "weight"], state[name + "bias"] = torch.randn(HEADS, WIDTH), torch.randn(HEADS)
        return state

    def test_a_gate_is_taken_over(self):
        state = self.gated()
        config, tensors = self.convert(self.save(state), *self.flags)
        self.assertTrue(config["model"]["attention"]["gate"])
        self.assert_same(tensors, state)

    def test_refuses(self):
        name = "transformer.layers.1.attention.gate.bias"
        self.refuse([self.save(without(self.gated(), name)), *self.flags], f"'{name}' is missing", "every layer")
        self.refuse([self.save(self.gated()), *self.flags, "--verify"], "has no gate", "give a FILE")


class FeatureMapTest(ConvertTest):
    def test_random_features(self):
        for projections, flags, expected in (
            (2, "--feature-map favor", {"features": 5}),
            (2, "--feature-map favor --features 4", {"features": 4}),
            (
                9,
                "--feature-map fourier --features 18 --temperature 0.25",
                {"features": 18, "temperature": 0.25},
            ),
            (2, "--feature-map smoothed_fourier", {"features": 5}),
            (
                7,
                "--feature-map smoothed_fourier --features 16 --smoothing 0.5",
                {"features": 16, "smoothing": 0.5},
            ),
            (9, "--feature-map generalized", {"features": 9, "kernel": "relu"}),
            (
                9,
                "--feature-map generalized --features 9 --kernel gelu",
                {"features": 9, "kernel": "gelu"},
            ),
        ):
            with self.subTest(flags):
                state = with_omega(model(), projections)
                config, tensors = self.convert(self.save(state), *self.flags, *flags.split())
                self.assert_same(tensors, state)
                expected = {"feature_map": flags.split()[1], "eps": 1e-6, **expected}
                self.assertEqual(config["model"]["attention"], expected)

    def test_relu_needs_no_tensors_of_its_own(self):
        config, _ = self.convert(self.save(model()), *self.flags, "--feature-map", "relu")
        self.assertEqual(config["model"]["attention"], {"feature_map": "relu", "eps": 1e-6})

    def test_refuses(self):
        state = with_omega(model(), 9)
        zero = with_omega(model(), 9)
        zero[f"transformer.layers.1.{assemble.OMEGA}"].zero_()
        for given, flags, *parts in (
            (state, "--feature-map favor", "--features 5", "9 columns", "18 or 19 features"),
            (state, "--feature-map smoothed_fourier --features 18", "9 columns", "19 or 20"),
            (state, "--feature-map generalized --features 8", "9 columns", "with 9 features"),
            (state, "--feature-map favor --features 18 --kernel relu", "--kernel", "favor"),
            (state, "--feature-map favor --features 18 --stabilize", "whole sequence"),
            (state, "--feature-map relu", "omega'", "--feature-map favor"),
            (model(), "--features 8", "--features", "elu"),
            (model(), "--feature-map favor", "omega' is missing"),
            (zero, "--feature-map generalized", "layers.1.", "zeros only"),
            (state, "--feature-map favor --features 18 --temperature 0", "temperature", "above 0"),
            (with_omega(model(), 9, 4), "--feature-map generalized", "[5, 9]", "[4, 9]"),
        ):
            with self.subTest(flags):
                self.refuse([self.save(given), *self.flags, *flags.split()], *parts)


class ReadsTest(ConvertTest):
    def test_image_generation(self):
        state = model()
        path = self.save({"model_state": state, "optimizer_state": {}, "iteration": 1234})
        config, tensors = self.convert(path, *self.flags, "--name", "digits")
        self.assert_same(tensors, state)
        self.assertEqual(
            config,
            {
                "runnel_bundle": 1,
                "name": "digits",
                "model": {
                    "layers": 2,
                    "width": 10,
                    "heads": 3,
                    "query_size": 5,
                    "value_size": 4,
                    "ffn": 7,
                    "attention": {"feature_map": "elu", "eps": 1e-6},
                    "norm": {"kind": "layer", "placement": "post", "eps": 1e-5, "final": True},
                    "activation": "relu",
                    "embedding": {"combine": "concat", "value_width": 6},
                    "position": {"kind": "table", "length": 11},
                    "head": {"kind": "mixture_of_logistics", "components": 2},
                },
                "values": 256,
                "begin": {"value": 0},
                "image": {"height": 4, "width": 3, "channels": 1},
            },
        )
        with open(path, "rb") as file:
            self.assertIn(hashlib.sha256(file.read()).hexdigest(), self.card())
        self.assertIn("1,234", self.card())
        self.assertIn(f"{bundle.state_bytes(config):,} bytes", self.card())
        self.assertNotIn("## ", self.card())

    def test_a_checkpoint_with_the_state_of_its_optimizer(self):
        state = model(values=11, outputs=11)
        weights = [torch.nn.Parameter(tensor.clone()) for tensor in state.values()]
        optimizer = torch.optim.Adam(weights)
        sum(weight.sum() for weight in weights).backward()
        optimizer.step()
        path = self.save({"model_state": state, "optimizer_state": optimizer.state_dict(), "iteration": 3})
        config, tensors = self.convert(path, "--heads", "3", "--symbols", "_0123456789")
        self.assert_same(tensors, state)
        self.assertEqual(config["model"]["head"], {"kind": "categorical"})
        self.assertEqual(config["symbols"], list("_0123456789"))
        self.assertNotIn("begin", config)
        self.assertNotIn("image", config)
        tokenizer = self.write("tokenizer.json", "{}")
        config, _ = self.convert(path, "--heads", "3", "--tokenizer", tokenizer)
        self.assertEqual(config["text"], "tokenizer")

    def test_old_file_format(self):
        state = model()
        path = self.path("old.pth")
        torch.save({"model_state": state, "lr": 0.5}, path, _use_new_zipfile_serialization=False)
        self.assert_same(self.convert(path, *self.flags)[1], state)

    def test_wrappers(self):
        state = model()
        for wrap in (
            lambda s: s,
            lambda s: {"state_dict": s},
            lambda s: {"model": {"state_dict": s}},
            lambda s: {"model_state": renamed(s, **{"": "module."})},
            lambda s: renamed(s, **{"": "_orig_mod."}),
            lambda s: renamed(s, **{"": "module._orig_mod."}),
            lambda s: renamed(s, **{"": "model._forward_module.module."}),
            lambda s: {"module": renamed(s, **{"transformer.": "transformer._orig_mod."})},
            lambda s: {name: tensor.double() for name, tensor in s.items()},
        ):
            self.assert_same(self.convert(self.save(wrap(state)), *self.flags)[1], state)

    def test_an_encoder_with_the_rest_in_another_file(self):
        state = model(values=9, outputs=9)
        rest = without(state, *encoder())
        for prefix in ("", "encoder.", "a.b.c."):
            bare = renamed(without(state, *rest), transformer__=prefix)
            config, tensors = self.convert(self.save(bare), self.save(rest, "rest.pth"), "--heads", "1")
            self.assert_same(tensors, state)
            self.assertEqual((config["model"]["heads"], config["model"]["query_size"]), (1, 15))
            self.assertIn("rest.pth", self.card())

    def test_other_names(self):
        state = renamed(
            model(values=9, outputs=9),
            value_embedding="tokens",
            predictor="to_logits",
            pos_embedding__pe="where",
        )
        config, _ = self.convert(
            self.save(state),
            "--heads",
            "3",
            "--embedding",
            "tokens",
            "--predictor",
            "to_logits",
            "--position",
            "where",
        )
        self.assertEqual(config["values"], 9)
        nested = renamed(model(values=9, outputs=9), **{"": "net."})
        self.assertEqual(len(self.convert(self.save(nested), "--heads", "3")[1]), 38)

    def test_a_tied_output_layer_without_bias(self):
        state = without(model(values=9, value_width=10, table=(1, 11, 10)), "predictor.weight", "predictor.bias")
        config, tensors = self.convert(self.save(state), "--heads", "3", "--predictor", "value_embedding")
        np.testing.assert_array_equal(tensors["predictor.weight"], state["value_embedding.weight"].numpy())
        self.assertFalse(tensors["predictor.bias"].any())
        self.assertEqual(config["model"]["embedding"], {"combine": "add", "value_width": 10})

    def test_positions(self):
        def position(state, *flags):
            config, _ = self.convert(self.save(state), "--heads", "3", *flags)
            return config["model"]["position"], config["model"]["embedding"]["combine"]

        table = {"kind": "table", "length": 11}
        self.assertEqual(position(model(9, 9, table=(11, 4))), (table, "concat"))
        self.assertEqual(position(model(9, 9, value_width=10, table=(1, 11, 10))), (table, "add"))
        bare = without(model(9, 9), "pos_embedding.pe")
        wide = without(model(9, 9, value_width=10), "pos_embedding.pe")
        sinusoidal = ("--position-kind", "sinusoidal")
        self.assertEqual(position(bare, *sinusoidal), ({"kind": "sinusoidal"}, "concat"))
        self.assertEqual(
            position(wide, *sinusoidal, "--length", "5"),
            ({"kind": "sinusoidal", "length": 5}, "add"),
        )
        self.assertEqual(position(wide, "--position-kind", "none")[0], {"kind": "none"})
        image = without(model(), "pos_embedding.pe")
        self.assertEqual(position(image, *sinusoidal, "--image", "4x3")[0], {"kind": "sinusoidal", "length": 11})

    def test_choices(self):
        state = model(final_norm=False)
        histogram = self.write("begin.json", json.dumps([1] * 256))
        config, tensors = self.convert(
            self.save(state),
            "--heads",
            "3",
            "--image",
            "2x2x3",
            "--activation",
            "gelu",
            "--attention-eps",
            "1e-4",
            "--norm-eps",
            "1e-3",
            "--begin-histogram",
            histogram,
            "--dtype",
            "bf16",
        )
        self.assertEqual(config["model"]["activation"], "gelu")
        self.assertEqual(config["model"]["attention"]["eps"], 1e-4)
        self.assertEqual(
            config["model"]["norm"],
            {"kind": "layer", "placement": "post", "eps": 1e-3, "final": False},
        )
        self.assertEqual(config["begin"], {"histogram": [1] * 256})
        np.testing.assert_array_equal(tensors["predictor.weight"], state["predictor.weight"].bfloat16().float().numpy())
        np.testing.assert_array_equal(tensors["pos_embedding.pe"], state["pos_embedding.pe"].numpy())
        config, tensors = self.convert(self.save(state), *self.flags, "--dtype", "f16", "--begin", "7")
        np.testing.assert_array_equal(tensors["predictor.weight"], state["predictor.weight"].half().float().numpy())
        self.assertEqual(config["begin"], {"value": 7})

    def test_begin_by_default(self):
        path = self.save(model())
        self.assertEqual(self.convert(path, "--heads", "3", "--image", "4x3")[0]["begin"], {"value": 0})
        self.assertNotIn("begin", self.convert(path, "--heads", "3", "--image", "2x2x3")[0])
        self.assertNotIn("begin", self.convert(path, *self.flags, "--begin", "none")[0])

    def test_other_precisions_and_ignored_tensors(self):
        state = model()
        state["predictor.weight"] = state["predictor.weight"].double()
        state["predictor.bias"] = state["predictor.bias"].half()
        state["classifier.weight"] = torch.randn(2, 2)
        state["steps"] = torch.tensor(5)
        _, tensors = self.convert(self.save(state), *self.flags, "--ignore", "classifier.*", "--ignore", "steps")
        np.testing.assert_array_equal(tensors["predictor.bias"], state["predictor.bias"].float().numpy())

    def test_several_encoders(self):
        state = model()
        state.update(encoder("other."))
        config, _ = self.convert(self.save(state), *self.flags, "--encoder", "transformer", "--ignore", "other.*")
        self.assertEqual(config["model"]["layers"], 2)

    def test_card(self):
        card = self.write("card.md", "## Figures\n\n1.5 bits\n")
        self.convert(
            self.save(model()),
            *self.flags,
            "--card",
            card,
            "--card-note",
            "One.",
            "--card-note",
            "Two.",
        )
        text = self.card()
        self.assertTrue(text.startswith("# bundle\n"))
        self.assertLess(text.index("One."), text.index("Two."))
        self.assertTrue(text.endswith("## Figures\n\n1.5 bits\n"))
        self.assertIn("| iteration |", text)
        self.assertIn("not stored", text)

    def test_the_tool_writes_the_shipped_model(self):
        shipped = os.path.join(ROOT, "zoo/mnist-small")
        with open(os.path.join(shipped, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        tensors = bundle.read_safetensors(os.path.join(shipped, "model.safetensors"))
        path = self.save(
            {
                "model_state": {name: torch.from_numpy(v) for name, v in tensors.items()},
                "iteration": 1,
            }
        )
        again, _ = self.convert(
            path, "--heads", "4", "--image", "28x28x1", "--begin", "0", "--name", "mnist-small", "--dtype", "bf16"
        )
        self.assertEqual(again, config)
        for name in ("model.safetensors", "config.json"):
            with (
                open(os.path.join(shipped, name), "rb") as old,
                open(self.path("bundle", name), "rb") as new,
            ):
                self.assertEqual(old.read(), new.read(), name)


class RefusesTest(ConvertTest):
    def test_flags(self):
        good = self.save(model())
        symbols = self.write("symbols.json", json.dumps([1]))
        broken = self.write("broken.json", "[1,")
        few = self.write("few.json", "[1, 2]")
        nothing = self.path("nothing")
        for flags, *parts in (
            (
                ["--image", "4x3"],
                "--heads is needed",
                "15 (query_projection)",
                "12 (value_projection)",
                "1, 3",
            ),
            (["--heads", "2", "--image", "4x3"], "--heads 2 is impossible", "one of 1, 3"),
            (["--heads", "0", "--image", "4x3"], "--heads 0 is impossible"),
            (["--heads", "-3", "--image", "4x3"], "--heads -3 is impossible"),
            (["--heads", "four"], "--heads", "four"),
            (
                ["--heads", "3", "--image", "4x4"],
                "--image 4x4x1 is impossible",
                "16 bytes",
                "must be 12",
                "2x2x3",
            ),
            (["--heads", "3", "--image", "big"], "--image", "'big'"),
            (["--heads", "3"], "6 outputs", "256 values", "mixture of 2 logistics", "--image"),
            (self.flags + ["--symbols", "ab"], "--image and --symbols"),
            (self.flags + ["--symbols-file", symbols], "symbols.json", "JSON array of strings"),
            (self.flags + ["--symbols-file", broken], "broken.json", "expected JSON"),
            (self.flags + ["--symbols-file", nothing], "--symbols-file", "No such file"),
            (self.flags + ["--text"], "text and image", "exclude each other"),
            (self.flags + ["--text", "--tokenizer", "x"], "--text and --tokenizer"),
            (self.flags + ["--begin", "256"], "begin.value", "found 256"),
            (self.flags + ["--begin", "x"], "--begin", "'x'"),
            (self.flags + ["--begin", "-1"], "--begin", "'-1'"),
            (
                self.flags + ["--begin", "1", "--begin-histogram", few],
                "--begin and --begin-histogram",
            ),
            (self.flags + ["--begin-histogram", few], "begin.histogram", "256 numbers", "found 2"),
            (
                self.flags + ["--begin-histogram", self.write("d.json", "{}")],
                "d.json",
                "array of numbers",
            ),
            (self.flags + ["--attention-eps", "0"], "model.attention.eps"),
            (self.flags + ["--norm-eps", "nan"], "model.norm.eps"),
            (self.flags + ["--name", "No Good"], "name", "'No Good'", "--name"),
            (self.flags + ["--length", "5"], "--length"),
            (self.flags + ["--position", "p"], "--position", "'p'"),
            (self.flags + ["--position", "p", "--position-kind", "none"], "--position", "excludes"),
            (self.flags + ["--embedding", "emb"], "--embedding", "'emb'"),
            (self.flags + ["--predictor", "out"], "--predictor", "'out'"),
            (self.flags + ["--encoder", "decoder"], "--encoder", "'transformer'", "'decoder'"),
            (self.flags + ["--card", nothing], "--card", "No such file"),
            (self.flags + ["--card", self.write("card", b"\xff")], "--card", "UTF-8"),
            (self.flags + ["--dtype", "int8"], "--dtype", "int8"),
            (self.flags + ["--colour"], "--colour", "--help"),
        ):
            with self.subTest(flags):
                self.refuse([good, *flags], *parts)

    def test_out_is_a_file(self):
        out = self.write("file", "")
        self.assert_refused(convert, [self.save(model()), *self.flags, "--out", out], "--out", "file")

    def test_no_arguments(self):
        self.assert_refused(convert, [], "CHECKPOINT", "--out", "--help")

    def refuse_each(self, *cases):
        for state, *parts in cases:
            with self.subTest(parts):
                self.refuse([self.save(state), *self.flags], *parts)

    def test_missing_tensors(self):
        layer = "transformer.layers.1."
        self.refuse_each(
            (without(model(), layer + "norm2.bias"), f"'{layer}norm2.bias' is missing"),
            (without(model(), *encoder()), "expected an encoder", "'pos_embedding.pe'"),
            (
                renamed(model(), transformer__layers__1="transformer.layers.2"),
                "layers.1",
                "missing",
                "3 layers",
            ),
            (
                renamed(model(), transformer__layers__1="transformer.layers.999999999"),
                "at most 256 layers",
            ),
            (without(model(), "transformer.norm.bias"), "transformer.norm.bias", "missing"),
            (
                without(model(), "value_embedding.weight"),
                "no value embedding",
                "--embedding",
                "further CHECKPOINT",
            ),
            (without(model(), "predictor.weight"), "no output layer", "--predictor"),
            (
                without(model(), "pos_embedding.pe"),
                "no position table",
                "--position",
                "--position-kind",
            ),
            (
                renamed(model(), predictor="to_logits"),
                "no output layer",
                "it could be 'to_logits.weight' [6, 10]",
            ),
        )

    def test_shapes_and_types_of_tensors(self):
        nan = torch.zeros(6)
        nan[4] = float("nan")
        layer = "transformer.layers.1."
        self.refuse_each(
            (changed("predictor.weight", torch.randn(7, 10)), "7 outputs", "256 values"),
            (
                changed("predictor.weight", torch.randn(6, 9)),
                "'predictor.weight'",
                "[outputs, 10]",
                "[6, 9]",
            ),
            (changed("predictor.bias", torch.randn(5)), "'predictor.bias'", "[6]", "[5]"),
            (changed("predictor.bias", nan), "'predictor.bias'", "nan", "[4]"),
            (
                changed("predictor.bias", torch.zeros(6, dtype=torch.int64)),
                "floating-point",
                "torch.int64",
            ),
            (changed("predictor.bias", torch.zeros(6).to_sparse()), "floating-point", "sparse"),
            (changed("predictor.bias", torch.tensor(1.0)), "1 dimension", "[]"),
            (changed("value_embedding.weight", torch.randn(256, 11)), "11 wide", "at most 10"),
            (changed("value_embedding.weight", torch.randn(255, 6)), "6 outputs", "255 values"),
            (changed("value_embedding.weight", torch.randn(256)), "2 dimensions", "[256]"),
            (
                changed("pos_embedding.pe", torch.randn(1, 11, 5)),
                "'pos_embedding.pe'",
                "width of 4",
                "found 5",
            ),
            (changed("pos_embedding.pe", torch.randn(2, 11, 4)), "[1, length, width]", "[2, 11, 4]"),
            (changed("pos_embedding.pe", torch.randn(4)), "3 dimensions", "[4]"),
            (
                changed(layer + "linear1.weight", torch.randn(8, 10)),
                "linear1.weight",
                "[7, 10]",
                "[8, 10]",
            ),
        )

    def test_unexpected_tensors(self):
        layer = "transformer.layers.1."
        self.refuse_each(
            (
                changed("extra.weight", torch.randn(1)),
                "no place in a bundle",
                "'extra.weight'",
                "--ignore",
            ),
            (
                collections.OrderedDict(model(), **encoder("second.")),
                "several",
                "'second'",
                "--encoder",
            ),
            (
                collections.OrderedDict(
                    without(model(), "predictor.weight"),
                    **{
                        "a.predictor.weight": torch.randn(6, 10),
                        "b.predictor.weight": torch.randn(6, 10),
                    },
                ),
                "one output layer",
                "'a.predictor.weight', 'b.predictor.weight'",
                "--predictor",
            ),
            (
                changed(layer + "attention.inner_attention.feature_map.omega", torch.randn(5, 5)),
                "omega",
                "random feature map",
            ),
            (
                changed(layer + "attention.inner_attention.u", torch.randn(5)),
                "an attention other than linear",
            ),
            (changed(layer + "attention.softmax_temp", torch.randn(1)), "softmax attention"),
            (changed(layer + "self_attn.in_proj_weight", torch.randn(5)), "torch.nn"),
            (changed(layer + "cross_attention.query_projection.weight", torch.randn(5)), "decoder"),
        )

    def test_unusable_dtype(self):
        state = model()
        state["predictor.bias"][2] = 1e6
        self.refuse(
            [self.save(state), *self.flags, "--dtype", "f16"],
            "'predictor.bias'",
            "[2]",
            "does not fit f16",
        )

    def test_two_files_that_disagree(self):
        self.refuse(
            [self.save(model()), self.save(model(), "b.pth"), *self.flags],
            "'pos_embedding.pe'",
            "b.pth",
        )

    def test_files(self):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (marker,)

        marker = self.path("ran")
        good = self.save(model())
        with open(good, "rb") as file:
            content = file.read()
        for path, *parts in (
            (self.path("none.pth"), "none.pth", "no such file"),
            (self.dir, "expected a file"),
            (self.write("empty", b""), "empty", "torch.save"),
            (self.write("text", b"hello"), "text", "torch.save"),
            (self.write("cut", content[: len(content) // 2]), "cut", "torch.save"),
            (self.write("evil", pickle.dumps(Evil())), "evil", "torch.save"),
            (self.save([1, 2], "list"), "expected a dict, found list"),
            (self.save({}, "nothing"), "expected tensors", "model_state", "nothing"),
            (self.save({"epoch": 3}, "epoch"), "expected tensors", "'epoch'"),
            (
                self.save({"model_state": {"a": 1}}, "inner"),
                "model_state",
                "expected tensors",
                "'a'",
            ),
            (self.save({3: torch.randn(1)}, "number"), "tensor names", "a key of type int"),
            (self.save(torch.randn(2), "tensor"), "expected a dict, found Tensor"),
        ):
            with self.subTest(path):
                self.refuse([path, *self.flags], *parts)
        for name, extra in (
            ("evil2", {}),
            ("evil3", {"lr": 1e-4}),
        ):  # torch 1.13 handles a float in its own way
            torch.save({"model_state": Evil(), **extra}, self.path(name))
            self.refuse([self.path(name), *self.flags], name, "torch.save", "mkdir")
            legacy = {"model_state": Evil(), **extra}
            torch.save(legacy, self.path(name), _use_new_zipfile_serialization=False)
            self.refuse([self.path(name), *self.flags], name, "torch.save", "mkdir")
        self.assertFalse(os.path.exists(marker))

    def test_keys_in_errors_are_short(self):
        nested: tuple[Any, ...] = ()
        for _ in range(2000):
            nested = (nested,)
        name = "x" * 1000
        for data, expected in (
            ({name: 1}, f"found '{'x' * 200}'$"),
            ({nested: 1}, "found a key of type tuple$"),
            ({nested: torch.ones(1)}, "expected tensor names, found a key of type tuple$"),
            ({name: torch.ones(1), f"_orig_mod.{name}": torch.ones(1)}, f"another as '_orig_mod.{'x' * 190}'$"),
        ):
            with self.assertRaisesRegex(BundleError, expected):
                state_dict.find_weights("model.pth", data, torch.Tensor)

    def test_no_code_of_a_torchscript_archive_is_run(self):
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), self.path("script.pt"))
        with unittest.mock.patch.object(torch.jit, "load") as run:
            self.refuse([self.path("script.pt"), *self.flags], "a TorchScript archive, which holds code")
        run.assert_not_called()

    def test_only_plain_pickles_are_read(self):
        class_with_state = b"ctorch\nTensor\n}X\x01\x00\x00\x00aK\x01sb."
        for content in (class_with_state, pickle.dumps(os.getcwd, 2), pickle.dumps(torch.load, 2)):
            with self.assertRaisesRegex(pickle.UnpicklingError, "Unsupported"):
                checkpoint.load_plain(io.BytesIO(content))
        plain = {"lr": 0.5, "betas": (0.9, 0.999), "steps": [1, None, True]}
        self.assertEqual(checkpoint.load_plain(io.BytesIO(pickle.dumps(plain, 2))), plain)


class ProgramTest(ConvertTest):
    def run_program(self, *argv):
        return subprocess.run(
            [sys.executable, "-B", os.path.join(ROOT, "scripts/runnel-convert"), *argv],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.dir,
        )

    def test_runs_from_any_directory(self):
        self.save(model())
        done = self.run_program("checkpoint.pth", *self.flags, "--out", "b")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = self.run_program("checkpoint.pth", "--out", "b")
        self.assertEqual(done.returncode, 2)
        self.assertNotIn("Traceback", done.stderr)

    def test_help(self):
        done = self.run_program("--help")
        self.assertEqual(done.returncode, 0)
        for part in ("--heads", "--image", "causal-linear", "examples:"):
            self.assertIn(part, done.stdout)


class VerifyTest(ConvertTest):
    """--verify, with outputs of training/network.py, which is independent of the reference that --verify runs."""

    def setUp(self):
        super().setUp()
        self.state = model()
        self.checkpoint = self.save(self.state)

    def recording(self, heads=3, activation="relu", flags=(), **renamed):
        """Writes a .npz with the checkpoint's outputs for these flags."""
        argv = ["--heads", str(heads), "--image", "4x3x1", "--activation", activation, *flags]
        config, _ = self.convert(self.checkpoint, *argv)
        network = Network(config).double()
        network.load_state_dict(self.state)
        values = np.random.default_rng(5).integers(256, size=(2, 12), dtype=np.uint8)
        tensor = torch.from_numpy(values).long()
        with torch.no_grad():
            outputs = network(tensor[:, :-1])
            log_probs = heads_of.log_probs(config["model"]["head"], outputs, tensor[:, 1:])
        shutil.rmtree(self.path("bundle"))
        arrays = {"values": values, "outputs": outputs[:, :7].float().numpy(), "log_probs": log_probs.float().numpy()}
        np.savez(self.path("outputs.npz"), **{renamed.get(name, name): array for name, array in arrays.items()})
        return self.path("outputs.npz")

    def test_the_output_and_the_card_report_agreement(self):
        for renamed in ({}, {"values": "images", "outputs": "head", "log_probs": "logprob"}):
            recording = self.recording(**renamed)
            argv = [self.checkpoint, *self.flags, "--verify", recording, "--out", self.path("bundle")]
            code, out, err = self.run_tool(convert, argv)
            self.assertEqual((code, err), (0, ""))
            difference = float(
                re.search(r"verified: the largest difference from .*outputs.npz is (\S+),", out).group(1)
            )
            self.assertLess(difference, 1e-5)
            self.assertIn("over 22 positions", out)
            self.assertNotIn("do not tell", out)
            self.assertIn("Verified: the largest difference from outputs.npz", self.card())

    def test_narrower_weights_may_differ_by_rounding(self):
        recording = self.recording()
        for dtype in ("f16", "bf16"):
            self.convert(self.checkpoint, *self.flags, "--verify", recording, "--dtype", dtype)

    def test_the_right_value_is_suggested(self):
        recording = self.recording(heads=3)
        wrong = [self.checkpoint, "--image", "4x3x1", "--verify", recording]
        self.refuse([*wrong, "--heads", "1"], "not those of this model", "with --heads 1", "they fit --heads 3")
        self.refuse([*wrong, "--heads", "3", "--activation", "gelu"], "they fit --activation relu")
        self.refuse([*wrong, "--heads", "1", "--activation", "gelu"], "they fit --heads 3 --activation relu")
        self.refuse([*wrong, "--heads", "3", "--feature-map", "relu"], "--feature-map or the checkpoint may be wrong")

    def test_softmax_attention(self):
        for flags in (["--attention", "softmax"], ["--attention", "softmax", "--softmax-temp", "0.3"]):
            recording = self.recording(flags=flags)
            self.convert(self.checkpoint, *self.flags, *flags, "--verify", recording)
            self.assertIn("A transformer with softmax attention", self.card())
        recording = self.recording(flags=["--attention", "softmax"])
        self.refuse([self.checkpoint, *self.flags, "--verify", recording], "they fit --attention softmax")
        other = [self.checkpoint, "--image", "4x3x1", "--heads", "1", "--verify", recording]
        self.refuse(other, "they fit --attention softmax --heads 3")
        recording = self.recording()
        softmax = [self.checkpoint, *self.flags, "--attention", "softmax"]
        self.refuse([*softmax, "--verify", recording], "they fit --attention linear")
        for flag in ("--features=4", "--temperature=1", "--feature-map=relu", "--attention-eps=1e-5", "--stabilize"):
            self.refuse([*softmax, flag], flag.split("=")[0], "goes with --attention linear")
        self.refuse([self.checkpoint, *self.flags, "--softmax-temp", "1"], "goes with --attention softmax")
        self.refuse([*softmax, "--softmax-temp", "0"], "model.attention.scale", "found 0")

    def test_an_invalid_recording_is_refused(self):
        values = np.zeros((2, 12), np.uint8)
        for arrays, *parts in (
            ({"values": values}, "'outputs' or 'log_probs'"),
            ({"outputs": np.zeros((2, 5, 6))}, "'values'"),
            ({"values": values[0], "log_probs": np.zeros((2, 5))}, "values", "[sequences, n]", "found [12] of uint8"),
            ({"values": values * 1.0, "log_probs": np.zeros((2, 5))}, "integers from 0 to 255", "float64"),
            ({"values": values.astype(int) - 1, "log_probs": np.zeros((2, 5))}, "integers from 0 to 255"),
            ({"values": values, "outputs": np.zeros((1, 5, 6))}, "outputs", "2 sequences of 1 to 11", "[1, 5, 6]"),
            ({"values": values, "outputs": np.zeros((2, 12, 6))}, "outputs", "1 to 11 positions"),
            ({"values": values, "outputs": np.zeros((2, 5, 4))}, "outputs", "expected 6 of each position, found [4]"),
            ({"values": values, "log_probs": np.zeros((2, 12))}, "log_probs", "1 to 11 positions"),
            ({"values": values, "outputs": np.full((2, 5, 6), np.nan)}, "outputs: expected finite numbers"),
            ({"values": values, "log_probs": np.full((2, 5), "x")}, "log_probs: expected finite numbers"),
        ):
            with self.subTest(parts):
                np.savez(self.path("wrong.npz"), **arrays)
                self.refuse([self.checkpoint, *self.flags, "--verify", self.path("wrong.npz")], "--verify", *parts)
        self.refuse([self.checkpoint, *self.flags, "--verify", self.path("none.npz")], "none.npz", "numpy.savez")
        text = self.write("text.npz", "values")
        self.refuse([self.checkpoint, *self.flags, "--verify", text], "expected a file of numpy.savez")
        with open(self.path("wrong.npz"), "rb") as file:
            content = file.read()
        np.save(self.path("one.npy"), values)
        for other in (self.write("cut.npz", content[: len(content) // 2]), self.path("one.npy")):
            self.refuse([self.checkpoint, *self.flags, "--verify", other], other, "expected a file of numpy.savez")

    def test_a_model_without_numbers_agrees_with_nothing(self):
        class Broken:
            def __init__(self):
                self.heads = iter((np.zeros(4), np.full(4, np.nan)))

            def step(self, value):
                return next(self.heads)

            def log_prob(self, head, value):
                return float(head[value])

        for recorded in ({"outputs": np.zeros((1, 2, 4))}, {"log_probs": np.zeros((1, 2))}):
            recording = verify.Recording("broken", np.zeros((1, 3), np.int64), **recorded)
            self.assertEqual([found for found, _, _ in verify.differences(Broken, recording)], [0, math.inf])

    def test_without_a_recording_the_tool_notes_unverified_options(self):
        _, out, _ = self.run_tool(convert, [self.checkpoint, *self.flags, "--out", self.path("bundle")])
        self.assertIn("note: tensors do not tell whether --heads 3, --activation relu and --feature-map elu", out)
        self.assertIn("--verify FILE", out)

    def test_without_a_file_it_asks_for_the_authors_classes(self):
        if importlib.util.find_spec("fast_transformers"):
            _, out, _ = self.run_tool(convert, [self.checkpoint, *self.flags, "--out", self.path("b"), "--verify"])
            self.assertRegex(out, r"verified: the largest difference from fast-transformers is \S+, over 22 positions")
        else:
            self.refuse(
                [self.checkpoint, *self.flags, "--verify"],
                "no module 'fast_transformers'",
                f"{sys.executable} -m pip install",
                "or give a FILE",
            )


if __name__ == "__main__":
    unittest.main()
