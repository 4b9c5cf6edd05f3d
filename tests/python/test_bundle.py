"""runnel_client.bundle: its limits, the safetensors files that it writes, and its refusals."""

import copy
import json
import math
import os
import re
import unittest
from typing import Any

from runnel_client import cards
from runnel_client.errors import BundleError
from support import ROOT, ToolTest, bundle, np

CONFIG = {
    "runnel_bundle": 1,
    "name": "small",
    "model": {
        "layers": 2,
        "width": 12,
        "heads": 3,
        "query_size": 5,
        "value_size": 4,
        "ffn": 7,
        "attention": {"feature_map": "elu", "eps": 1e-6},
        "norm": {"kind": "layer", "placement": "post", "eps": 1e-5, "final": True},
        "activation": "relu",
        "embedding": {"combine": "concat", "value_width": 5},
        "position": {"kind": "table", "length": 11},
        "head": {"kind": "mixture_of_logistics", "components": 2},
    },
    "values": 256,
    "begin": {"value": 0},
    "image": {"height": 4, "width": 3, "channels": 1},
}


def constant(path, name):
    """The value of a C++ constant such as `int64_t{1} << 31` or `1 << 20`."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        match = re.search(rf"constexpr \w+ {name} = ([^;]+);", file.read())
    return eval(re.sub(r"(\d)F\b", r"\1", re.sub(r"int64_t\{(\d+)\}", r"\1", match.group(1))), {})


def changed(**changes):
    """CONFIG with replaced keys: model__heads=4 sets model.heads, and None removes a key."""
    config: dict[str, Any] = copy.deepcopy(CONFIG)
    for path, value in changes.items():
        *parents, key = path.split("__")
        node = config
        for parent in parents:
            node = node.setdefault(parent, {})
        if value is None:
            node.pop(key)
        else:
            node[key] = value
    return config


def favor(**changes):
    return {"feature_map": "favor", "eps": 1e-6, "features": 8, **changes}


class LimitsTest(unittest.TestCase):
    def test_equal_those_of_the_server(self):
        for name, path, theirs in (
            ("MAX_LAYERS", "base/limits.h", "kMaxLayers"),
            ("MAX_WIDTH", "base/limits.h", "kMaxWidth"),
            ("MAX_VOCABULARY", "base/limits.h", "kMaxVocabulary"),
            ("MAX_POSITIONS", "base/limits.h", "kMaxPositions"),
            ("MAX_CONTEXT", "base/limits.h", "kMaxContext"),
            ("PAGE_POSITIONS", "kernels/backend.h", "kPagePositions"),
            ("MAX_CONFIG_BYTES", "base/limits.h", "kMaxConfigBytes"),
            ("MAX_HEADER_BYTES", "base/limits.h", "kMaxSafetensorsHeaderBytes"),
            ("MAX_NAME_LENGTH", "base/limits.h", "kMaxNameLength"),
            ("MAX_COMPONENTS", "models/linear_transformer/config.cc", "kMaxComponents"),
            ("MAX_IMAGE_SIDE", "models/bundle/config.cc", "kMaxImageSide"),
            ("MAX_SYMBOL_BYTES", "models/bundle/config.cc", "kMaxSymbolBytes"),
            ("MAX_FEATURE_NUMBER", "models/linear_transformer/config.cc", "kMaxFeatureNumber"),
        ):
            self.assertEqual(getattr(bundle, name), constant(path, theirs), name)


class ConfigTest(unittest.TestCase):
    def test_accepts(self):
        for changes in (
            {},
            {"begin": None},
            {"begin": {"histogram": [0, 1] * 128}},
            {"image": None},
            {
                "image": None,
                "values": 3,
                "model__head": {"kind": "categorical"},
                "symbols": ["a", "b", "é"],
            },
            {"image": None, "model__position": {"kind": "sinusoidal"}},
            {
                "image": None,
                "model__position": {"kind": "none"},
                "model__embedding__value_width": 12,
            },
            {"model__embedding": {"combine": "add", "value_width": 12}},
        ):
            with self.subTest(changes):
                bundle.check_config(changed(**changes))

    def test_sizes_of_random_features(self):
        for attention, projections, size in (
            (favor(), 4, 8),
            (favor(features=9), 4, 8),
            (favor(feature_map="smoothed_fourier", features=9, smoothing=0.5), 4, 9),
            (favor(feature_map="smoothed_fourier", features=8), 3, 7),
            (favor(feature_map="generalized", features=9, kernel="gelu"), 9, 9),
        ):
            config = changed(model__attention={**attention, "normalize": True, "gate": True})
            bundle.check_config(config)
            shapes = bundle.expected_tensors(config)
            layer = "transformer.layers.1."
            self.assertEqual(shapes[layer + bundle.INNER_MAP + "omega"], (5, projections))
            self.assertEqual(shapes[layer + bundle.INNER_MAP + "sigma"], (3, 5))
            self.assertEqual(shapes[layer + "attention.gate.weight"], (3, 12))
            self.assertEqual(bundle.state_bytes(config), 4 * 2 * 3 * size * 5)

    def test_softmax_attention_has_pages_for_all_positions(self):
        for attention in ({"kind": "softmax"}, {"kind": "softmax", "scale": 0.25}):
            config = changed(model__attention=attention, model__position__length=65, image=None)
            bundle.check_config(config)
            self.assertEqual(bundle.expected_tensors(config).keys(), bundle.expected_tensors(CONFIG).keys())
            self.assertEqual(bundle.position_bytes(config), 4 * 2 * 3 * (5 + 4))
            self.assertEqual(bundle.state_bytes(config), 128 * bundle.position_bytes(config))
            self.assertIn(
                f"| {128 * 216:,} bytes (fp32), 216 for each of 65 positions", cards.card_table(config, "f32")
            )
        self.assertEqual(bundle.position_bytes(CONFIG), 0)

    def test_accepts_text(self):
        text = {"image": None, "model__head": {"kind": "categorical"}}
        bundle.check_config(changed(**text, text="bytes"))
        bundle.check_config(changed(**text, text="tokenizer", values=50257))

    def test_refuses_fields_that_softmax_attention_does_not_have(self):
        for changes, *parts in (
            ({"model__attention__scale": 1.0}, "scale", "'elu' has no such key"),
            ({"model__attention__kind": "full"}, "linear or softmax", "'full'"),
            ({"model__attention": {"kind": "softmax", "eps": 1e-6}}, "attention.eps", "'softmax' has no such key"),
            ({"model__attention": {"kind": "softmax", "scale": 0.0}}, "attention.scale", "above 0", "found 0.0"),
            (
                {
                    "model__attention": {"kind": "softmax"},
                    "model__position": {"kind": "none"},
                    "model__embedding__value_width": 12,
                    "image": None,
                },
                "model.position.length",
                "--length",
            ),
        ):
            with self.subTest(changes):
                with self.assertRaises(BundleError) as caught:
                    bundle.check_config(changed(**changes))
                for part in parts:
                    self.assertIn(part, str(caught.exception))

    def test_refuses(self):
        symbols = {"image": None, "values": 2, "model__head": {"kind": "categorical"}}
        for changes, *parts in (
            ({"name": "M/NIST"}, "name", "a-z", "'M/NIST'", "--name"),
            ({"name": ""}, "name"),
            ({"name": "a" * 129}, "128"),
            ({"name": "a\n"}, "name"),
            ({"model__layers": 0}, "model.layers", "1 to 256", "found 0"),
            ({"model__layers": 257}, "found 257"),
            ({"model__width": 16385}, "model.width", "found 16385"),
            ({"model__ffn": 0}, "model.ffn"),
            ({"model__query_size": 16384}, "model.heads * model.query_size", "found 49152"),
            ({"model__attention__eps": 0.0}, "model.attention.eps"),
            ({"model__attention__eps": 1e-60}, "model.attention.eps"),
            ({"model__norm__eps": 1.5}, "model.norm.eps", "1.5"),
            ({"model__norm__eps": math.nan}, "model.norm.eps", "nan"),
            ({"model__attention__feature_map": "cosine"}, "feature_map", "elu, relu", "'cosine'"),
            ({"model__attention": favor(features=1)}, "features", "2 to 16384", "found 1"),
            ({"model__attention": favor(features=5462)}, "heads * features", "found 16386"),
            ({"model__attention": favor(kernel="relu")}, "kernel", "'favor' has no such key"),
            ({"model__attention": favor(temperature=0.0)}, "temperature", "above 0", "found 0.0"),
            ({"model__attention": favor(feature_map="smoothed_fourier", features=2)}, "3 to 16384"),
            (
                {"model__attention": favor(feature_map="generalized", kernel="tanh")},
                "relu or gelu",
                "'tanh'",
            ),
            ({"model__attention__normalize": True}, "normalize", "'elu' has no such key"),
            ({"values": 0}, "values", "found 0"),
            ({"values": 255}, "256 bytes", "found 255"),
            ({"model__head__components": 0}, "model.head.components", "1 to 256"),
            ({"model__embedding__value_width": 12}, "value_width", "1 to 11", "found 12"),
            ({"model__embedding__combine": "add"}, "value_width", "expected 12", "found 5"),
            ({"model__position": {"kind": "none"}}, "expected 12", "found 5"),
            ({"model__position": {"kind": "table"}}, "model.position.length"),
            ({"model__position__length": 0, "image": None}, "model.position.length", "found 0"),
            (
                {"model__position__length": 1 << 31, "image": None},
                "model.position.length",
                "found 2147483648",
            ),
            ({"model__position__length": 12}, "expected 11", "found 12"),
            ({"begin": {"value": 256}}, "begin.value", "0 to 255", "found 256"),
            ({"begin": {"histogram": [1]}}, "begin.histogram", "256 numbers", "found 1"),
            ({"begin": {"histogram": [0] * 256}}, "above 0"),
            ({"begin": {"histogram": [1e-60] * 256}}, "above 0"),
            ({"begin": {"histogram": [1] * 255 + [-1]}}, "begin.histogram[255]", "-1"),
            ({"begin": {"histogram": [1] * 255 + [math.nan]}}, "nan"),
            ({"begin": {"histogram": [1] * 255 + ["1"]}}, "'1'"),
            ({"begin": {"histogram": [1] * 255 + [True]}}, "True"),
            ({"symbols": ["a"] * 256}, "exclude each other"),
            (symbols | {"symbols": ["a"]}, "symbols", "expected 2", "found 1"),
            (symbols | {"symbols": ["a", ""]}, "symbols[1]", "found 0"),
            (symbols | {"symbols": ["é" * 33, "a"]}, "symbols[0]", "found 66"),
            (symbols | {"symbols": ["a", "a"]}, "symbols[1]", "second time"),
            (symbols | {"symbols": ["a", "\ud800"]}, "symbols[1]", "surrogate"),
            ({"text": "bytes"}, "text and image", "exclude each other"),
            ({"text": "bytes", "image": None}, "model.head.kind", "mixture_of_logistics"),
            (symbols | {"text": "bytes"}, "values", "256", "found 2"),
            (symbols | {"text": "utf-8"}, "text", "'bytes' or 'tokenizer'", "'utf-8'"),
            ({"values": 300, "model__head": {"kind": "categorical"}}, "at most 256", "found 300"),
        ):
            with self.subTest(changes), self.assertRaises(BundleError) as caught:
                bundle.check_config(changed(**changes))
            for part in parts:
                self.assertIn(part, str(caught.exception))

    def test_counts(self):
        config = changed()
        shapes = bundle.expected_tensors(config)
        self.assertEqual(len(shapes), 2 + 2 * 16 + 2 + 2)
        self.assertEqual(shapes["pos_embedding.pe"], (1, 11, 7))
        self.assertEqual(shapes["transformer.layers.1.attention.out_projection.weight"], (12, 12))
        layer = 2 * (15 * 12 + 15) + (12 * 12 + 12) * 2 + (7 * 12 + 7) + (12 * 7 + 12) + 4 * 12
        self.assertEqual(bundle.parameters(config), 2 * layer + 256 * 5 + 2 * 12 + 6 * 12 + 6)
        self.assertEqual(bundle.state_bytes(config), 2 * 3 * (5 * 4 + 5) * 4)

    def test_image_flag(self):
        self.assertEqual(bundle.parse_image("28x27"), {"height": 28, "width": 27, "channels": 1})
        self.assertEqual(bundle.parse_image("2x3x3"), {"height": 2, "width": 3, "channels": 3})
        for text in ("", "28", "28x28x2", "0x4", "28x28x1x1", "-1x4", "16385x1", "٣x٣", "4 x 4"):
            with self.subTest(text), self.assertRaisesRegex(BundleError, "--image"):
                bundle.parse_image(text)


class SafetensorsTest(ToolTest):
    def write_and_read(self, tensors, dtype):
        path = self.path("t.safetensors")
        bundle.write_safetensors(
            path,
            {name: values.shape for name, values in tensors.items()},
            tensors.__getitem__,
            dtype,
            {"format": "pt"},
        )
        return path, bundle.read_safetensors(path)

    def test_layout(self):
        tensors = {
            "b": np.ones((2, 3), np.float32),
            "a.long.name": np.zeros(5, np.float32),
            "pos_embedding.pe": np.ones((1, 3, 1), np.float32),
        }
        path, _ = self.write_and_read(tensors, "bf16")
        with open(path, "rb") as file:
            content = file.read()
        size = int.from_bytes(content[:8], "little")
        self.assertEqual(size % 8, 0)
        header = json.loads(content[8 : 8 + size])
        self.assertEqual(header.pop("__metadata__"), {"format": "pt"})
        spans = sorted(entry["data_offsets"] for entry in header.values())
        self.assertEqual(spans[0][0], 0)
        self.assertEqual([end for _, end in spans[:-1]], [begin for begin, _ in spans[1:]])
        self.assertEqual(spans[-1][1], len(content) - 8 - size)
        self.assertEqual(
            {name: entry["dtype"] for name, entry in header.items()},
            {"b": "BF16", "a.long.name": "BF16", "pos_embedding.pe": "F32"},
        )
        for entry in header.values():
            self.assertEqual(entry["data_offsets"][0] % {"F32": 4, "BF16": 2}[entry["dtype"]], 0)

    def test_round_trip(self):
        rng = np.random.default_rng(1)
        values = (rng.standard_normal((37, 5)) * 10.0 ** rng.integers(-6, 4, (37, 5))).astype(np.float32)
        values[0] = [0.0, -0.0, 1.0, 65504.0, -1e-7]
        for dtype, relative, absolute in (
            ("f32", 0, 0),
            ("f16", 2**-11, 2**-25),
            ("bf16", 2**-8, 0),
        ):
            with self.subTest(dtype):
                _, read = self.write_and_read({"t": values}, dtype)
                np.testing.assert_allclose(read["t"], values, rtol=relative, atol=absolute)
                np.testing.assert_array_equal(np.signbit(read["t"]), np.signbit(values))

    def test_bf16_rounds_to_the_nearest_even(self):
        bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF], np.uint32)
        _, read = self.write_and_read({"t": bits.view(np.float32)}, "bf16")
        np.testing.assert_array_equal(read["t"].view(np.uint32), [0x3F800000, 0x3F820000, 0x3F810000, 0x3F800000])

    def test_refuses(self):
        for value, dtype, *parts in (
            (math.nan, "f32", "'t'", "nan", "[1, 2]"),
            (-math.inf, "bf16", "-inf"),
            (65520.0, "f16", "65520", "f16", "--dtype f32"),
            (3.4e38, "bf16", "bf16"),
        ):
            values = np.zeros((2, 3), np.float32)
            values[1, 2] = value
            with self.subTest(value=value), self.assertRaises(BundleError) as caught:
                self.write_and_read({"t": values}, dtype)
            for part in parts:
                self.assertIn(part, str(caught.exception))

    def test_refuses_another_shape(self):
        with self.assertRaisesRegex(BundleError, r"'t': expected shape \[2\], found \[3\]"):
            bundle.write_safetensors(self.path("t"), {"t": (2,)}, lambda name: np.zeros(3, np.float32))


class BundleTest(ToolTest):
    def test_a_failure_does_not_change_the_old_bundle(self):
        def make(name):
            return np.zeros(bundle.expected_tensors(CONFIG)[name], np.float32)

        def fail(name):
            return make(name) + (np.nan if name == "predictor.bias" else 0)

        bundle.write_bundle(self.dir, CONFIG, make, card="first")
        before = sorted(os.listdir(self.dir))
        with self.assertRaisesRegex(BundleError, "predictor.bias"):
            bundle.write_bundle(self.dir, changed(name="second"), fail, card="second")
        self.assertEqual(sorted(os.listdir(self.dir)), before)
        with open(self.path("config.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["name"], "small")

    def test_sinusoids(self):
        for width in (1, 6, 7):
            table = bundle.sinusoids(5, width)
            self.assertEqual(table.shape, (1, 5, width))
            for position in range(5):
                for column in range(width):
                    angle = position * 10000 ** (-2 * (column // 2) / width)
                    expected = math.cos(angle) if column % 2 else math.sin(angle)
                    self.assertAlmostEqual(table[0, position, column], expected, places=6)


if __name__ == "__main__":
    unittest.main()
