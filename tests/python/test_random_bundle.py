"""scripts/runnel-random-bundle: presets, flags, errors, and weights that keep long runs in range."""

import json
import os
import re
import sys
import unittest
from typing import Any

import support
from support import Reference, ToolTest, bundle, np

support.require("numpy")

sys.path.insert(0, os.path.join(support.ROOT, "tests/golden"))
import make_hybrids
import make_recurrences

from runnel_client import random_bundle, random_gated, random_hybrids, random_published


class RandomBundleTest(ToolTest):
    def generate(self, *argv, name="bundle"):
        code, _, err = self.run_tool(random_bundle, ["--out", self.path(name), *argv])
        self.assertEqual((code, err), (0, ""))
        with open(self.path(name, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        bundle.check_config(config)
        return config, bundle.read_safetensors(self.path(name, "model.safetensors"))

    def content(self, name):
        with open(self.path(name, "model.safetensors"), "rb") as file:
            return file.read()

    def test_the_papers_sizes(self):
        for preset, layers, parameters, state in (
            ("mnist", 8, 6_359_070, 270_336),
            ("cifar10", 16, 12_677_150, 540_672),
        ):
            config, _ = self.generate("--preset", preset, "--dtype", "bf16")
            self.assertEqual(config["model"]["layers"], layers)
            self.assertEqual(bundle.parameters(config), parameters)
            self.assertEqual(bundle.state_bytes(config), state)
            self.assertEqual(config["begin"], {"value": 0})

    def test_the_language_models_sizes(self):
        args = random_bundle.parse_arguments(["--preset", "lm", "--out", "x"])
        config = random_bundle.build_config(args)
        bundle.check_config(config)
        embedding = config["values"] * config["model"]["width"]
        self.assertAlmostEqual((bundle.parameters(config) - embedding) / 1.31e9, 1.0, places=2)
        self.assertAlmostEqual(bundle.state_bytes(config) / 25.4e6, 1.0, places=2)
        self.assertEqual(config["model"]["position"], {"kind": "sinusoidal"})
        self.assertEqual(args.dtype, "bf16")

    def test_seeds(self):
        for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
            self.generate("--seed", seed, name=name)
        self.assertEqual(self.content("a"), self.content("b"))
        self.assertNotEqual(self.content("a"), self.content("c"))

    def test_feature_maps(self):
        for flags, attention in (
            ("--feature-map relu --gate", {"feature_map": "relu", "gate": True}),
            ("--feature-map favor", {"feature_map": "favor", "features": 8}),
            (
                "--feature-map smoothed_fourier --features 12 --smoothing 0.5 --normalize",
                {
                    "feature_map": "smoothed_fourier",
                    "features": 12,
                    "smoothing": 0.5,
                    "normalize": True,
                },
            ),
            (
                "--feature-map generalized --temperature 0.5 --kernel gelu",
                {
                    "feature_map": "generalized",
                    "features": 8,
                    "kernel": "gelu",
                    "temperature": 0.5,
                },
            ),
        ):
            config, tensors = self.generate(*flags.split())
            self.assertEqual(config["model"]["attention"], {"eps": 1e-6, **attention})
            self.assertEqual(
                {name: values.shape for name, values in tensors.items()},
                bundle.expected_tensors(config),
            )

    def test_softmax_attention(self):
        for flags, attention in (("", {}), ("--scale 0.5", {"scale": 0.5})):
            config, tensors = self.generate("--attention", "softmax", *flags.split())
            self.assertEqual(config["model"]["attention"], {"kind": "softmax", **attention})
            self.assertEqual(
                {name: values.shape for name, values in tensors.items()},
                bundle.expected_tensors(config),
            )

    def test_flags_replace_the_preset(self):
        config, tensors = self.generate(
            "--layers",
            "1",
            "--width",
            "15",
            "--heads",
            "2",
            "--query-size",
            "3",
            "--value-size",
            "4",
            "--ffn",
            "5",
            "--activation",
            "gelu",
            "--no-final-norm",
            "--value-width",
            "6",
            "--image",
            "2x2x3",
            "--components",
            "1",
            "--begin",
            "9",
            "--name",
            "odd",
            "--dtype",
            "f16",
        )
        self.assertEqual(config["model"]["position"], {"kind": "table", "length": 11})
        self.assertEqual(config["model"]["head"], {"kind": "mixture_of_logistics", "components": 1})
        self.assertEqual(tensors["pos_embedding.pe"].shape, (1, 11, 9))
        self.assertNotIn("transformer.norm.weight", tensors)
        self.assertEqual((config["name"], config["begin"]), ("odd", {"value": 9}))

    def test_sequences_other_than_images(self):
        config, _ = self.generate("--endless")
        self.assertEqual(config["model"]["position"], {"kind": "sinusoidal"})
        self.assertEqual(config["model"]["head"]["kind"], "mixture_of_logistics")
        self.assertNotIn("image", config)
        config, _ = self.generate("--symbols", "abc", "--length", "70", "--begin", "none")
        self.assertEqual(config["model"]["head"], {"kind": "categorical"})
        self.assertEqual((config["values"], config["symbols"]), (3, ["a", "b", "c"]))
        self.assertEqual(config["model"]["position"], {"kind": "table", "length": 70})
        self.assertNotIn("begin", config)
        config, _ = self.generate("--text", "--endless")
        self.assertEqual((config["values"], config["text"]), (256, "bytes"))
        self.assertEqual(config["model"]["head"], {"kind": "categorical"})
        path = self.write("s.json", json.dumps(["<end>", "\n"]))
        config, _ = self.generate("--symbols-file", path, "--endless", "--combine", "add")
        self.assertEqual(config["symbols"], ["<end>", "\n"])
        config, _ = self.generate("--values", "40", "--position-kind", "none", "--image", "none")
        self.assertEqual((config["values"], config["model"]["position"]), (40, {"kind": "none"}))

    def test_activations_of_a_long_run_stay_bounded(self):
        for flags in ((), ("--symbols", "0123456789", "--combine", "add")):
            config, tensors = self.generate("--endless", *flags)
            reference = Reference(config, tensors)
            rng = np.random.default_rng(1)
            run = np.array([reference.step(rng.integers(config["values"])) for _ in range(5000)])
            early, late = np.abs(run[100:1000]).mean(), np.abs(run[-900:]).mean()
            self.assertTrue(0.1 < early < 5, early)
            self.assertTrue(0.7 < late / early < 1.4, (early, late))
            self.assertTrue((run[-900:].std(0) > 1e-3).all(), "the output still follows the input")

    def test_refuses(self):
        for argv, *parts in (
            (["--endless", "--image", "4x4"], "--endless and --image"),
            (["--endless", "--length", "4"], "--endless and --length"),
            (["--symbols", "ab"], "--length is needed"),
            (["--symbols", "ab", "--symbols-file", "x"], "--symbols and --symbols-file"),
            (["--symbols", "aa", "--endless"], "symbols[1]", "second time"),
            (["--symbols", "ab", "--endless", "--text"], "text and symbols", "exclude each other"),
            (["--text", "--image", "4x4x1"], "text and image", "exclude each other"),
            (["--symbols", "ab", "--head", "mixture", "--endless"], "values", "256 bytes"),
            (
                ["--image", "4x4", "--length", "9"],
                "model.position.length",
                "expected 15",
                "found 9",
            ),
            (["--values", "0", "--endless"], "values", "found 0"),
            (["--layers", "0"], "model.layers", "found 0"),
            (["--width", "1"], "value_width", "found 0"),
            (["--combine", "add", "--value-width", "3"], "value_width", "expected 24", "found 3"),
            (["--seed", "-1"], "--seed", "-1"),
            (["--seed", str(1 << 63)], "--seed"),
            (["--begin", "256"], "begin.value", "found 256"),
            (["--begin", "x"], "--begin", "'x'"),
            (["--name", "A/B"], "name", "'A/B'"),
            (["--preset", "huge"], "--preset", "huge"),
            (["--preset", "rwkv7", "--width", "100"], "--width", "multiple of 64", "100"),
            (["--preset", "mamba2", "--layers", "1"], "--layers", "from 2", "1"),
            (["--preset", "lfm2-350m", "--layers", "17"], "--layers", "16", "17"),
            (["--preset", "lfm2-350m", "--width", "512"], "--width", "1024", "leave the flag out"),
            (["--preset", "mamba2", "--layers", "0"], "--layers", "from 2", "0"),
            (["--preset", "rwkv7", "--values", "0"], "--values", "found 0"),
            (["--preset", "rwkv7", "--text", "--value-size", "8"], "--value-size and --text: for bundles of linear"),
            (["--preset", "qwen3.5-0.8b", "--name", "a"], "--name: for bundles of linear transformers", "qwen3.5-0.8b"),
            (["--layers", "many"], "--layers", "many"),
            (["--image", "4"], "--image", "'4'"),
        ):
            with self.subTest(argv):
                self.assert_refused(random_bundle, [*argv, "--out", self.path("bundle")], *parts)
        self.assert_refused(random_bundle, [], "--out")

    def test_published_models_have_the_tensor_names_of_their_makers(self):
        for family, tensor, files in (
            ("rwkv7", "model.layers.1.attn.v_lora.lora.0.weight", ["rwkv_vocab_v20230424.txt"]),
            ("mamba2", "backbone.layers.1.mixer.A_log", []),
        ):
            argv = ["--preset", family, "--layers", "2", "--width", "64", "--values", "300", "--out"]
            self.run_tool(random_bundle, [*argv, self.path(family)])
            self.assertEqual(
                sorted(os.listdir(self.path(family))), sorted(["config.json", "model.safetensors", *files])
            )
            with open(self.path(family, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            self.assertEqual((config["model_type"], config["vocab_size"]), (family, 300))
            tensors = bundle.read_safetensors(self.path(family, "model.safetensors"))
            self.assertIn(tensor, tensors)
            self.assertTrue(all(np.isfinite(values).all() for values in tensors.values()))
            first = self.content(family)
            self.run_tool(random_bundle, [*argv, self.path(family)])
            self.assertEqual(self.content(family), first)

    def test_hybrids_have_the_tensors_of_their_makers(self):
        """The shapes agree with the equations of make_hybrids.py, which are compared with transformers."""
        for preset, hybrid in random_hybrids.PRESETS.items():
            size = (preset, len(hybrid.layers), hybrid.values)
            config = random_hybrids.config_of(*size)
            expected = make_hybrids.Hybrid({"intermediate_size": 4608, **config}).shapes()  # LFM2 has no key for it
            self.assertEqual(random_hybrids.shapes_of(*size), expected, preset)

    def test_the_gated_family_has_the_tensors_of_its_makers(self):
        """The shapes agree with the equations of make_recurrences.py, except for the ranks of small products."""
        for preset, gated in random_gated.PRESETS.items():
            config = random_gated.config_of(preset, gated.layers, gated.values)
            kind = config["model_type"]
            model: Any
            if kind in ("rwkv5", "rwkv6"):
                model = make_recurrences.Rwkv56({**config, "num_heads": config["hidden_size"] // 64})
            elif kind == "mamba":
                model = make_recurrences.Mamba1(config)
            else:  # its tables have two rows more than the vocabulary
                model = make_recurrences.GatedLinear({**config, "vocab_size": gated.values - 2})
            expected = model.shapes()
            found = random_gated.shapes_of(preset, gated.layers, gated.values)
            self.assertEqual(found.keys(), expected.keys(), preset)
            differ = {name for name in found if found[name] != expected[name]}
            self.assertTrue(all(re.search(r"_w[12]$|gk_proj\.", name) for name in differ), differ)

    def test_only_shares_of_neighbouring_inputs_are_all_positive(self):
        for name in ("attn.x_r", "ffn.x_k", "att.time_maa_x", "att.time_mix_k"):
            self.assertGreaterEqual(random_published.random_tensor("blocks.0." + name, (64, 64), 1).min(), 0, name)
        for name in ("mixer.x_proj.weight", "att.time_maa_w1"):
            numbers = random_published.random_tensor("layers.0." + name, (64, 64), 1)
            self.assertLess(abs(numbers.mean()), 0.01, name)
            self.assertLess(abs(numbers.std() - 1 / 8), 0.01, name)

    def test_a_hybrid_is_written(self):
        argv = ["--preset", "qwen3.5-0.8b", "--layers", "1", "--values", "300"]
        self.assertEqual(self.run_tool(random_bundle, [*argv, "--out", self.path("qwen")])[0], 0)
        with open(self.path("qwen", "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual((config["layer_types"], config["vocab_size"]), (["linear_attention"], 300))
        tensors = bundle.read_safetensors(self.path("qwen", "model.safetensors"))
        self.assertEqual(tensors["model.norm.weight"].max(), 0, "transformers adds 1")
        self.assertEqual(tensors["model.layers.0.linear_attn.norm.weight"].min(), 1)
        self.assertTrue(all(np.isfinite(values).all() for values in tensors.values()))


if __name__ == "__main__":
    unittest.main()
