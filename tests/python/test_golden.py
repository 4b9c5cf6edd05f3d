"""The golden files of the fast-transformers classes agree with a second implementation in numpy."""

import json
import os
import unittest

from support import ROOT, Reference, bundle, np

GOLDEN = os.path.join(ROOT, "tests/golden")


def load(directory):
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    return config, bundle.read_safetensors(os.path.join(directory, "model.safetensors"))


def linear_transformers():
    """The names of golden models for which fast-transformers has classes."""
    names = []
    for name in os.listdir(GOLDEN):
        path = os.path.join(GOLDEN, name, "config.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                model = json.load(file).get("model")  # None: the config of a published model
            if model is not None and "family" not in model:
                names.append(name)
    return names


def golden(name):
    return bundle.read_safetensors(os.path.join(GOLDEN, name, "golden.bin"))


def read_idx(name):
    with open(os.path.join(GOLDEN, name), "rb") as file:
        content = file.read()
    count = int.from_bytes(content[4:8], "big")
    return np.frombuffer(content, np.uint8, offset=16).reshape(count, 28 * 28)


class GoldenTest(unittest.TestCase):
    def assert_same_run(self, config, tensors, values, head, log_prob):
        values = values.astype(np.int64)
        reference = Reference(config, tensors)
        for index, expected in enumerate(head):
            outputs = reference.step(values[index])
            np.testing.assert_allclose(outputs, expected, rtol=2e-6, atol=2e-6, err_msg=f"position {index}")
            found = reference.log_prob(outputs, values[index + 1])
            np.testing.assert_allclose(found, log_prob[index], rtol=2e-6, atol=2e-6, err_msg=f"position {index}")

    def test_every_small_model(self):
        names = linear_transformers()
        self.assertGreaterEqual(len(names), 6)
        for name in sorted(names):
            with self.subTest(name):
                config, tensors = load(os.path.join(GOLDEN, name))
                bundle.check_config(config)
                stored = golden(name)
                steps = 256 if name.startswith(("map_", "gated")) else 200
                self.assertEqual(stored["head"].shape, (steps, bundle.head_width(config)))
                self.assertEqual(stored["values"].shape, (steps + 1,))
                self.assert_same_run(config, tensors, stored["values"], stored["head"], stored["log_prob"])

    def test_the_models_cover_every_choice_of_the_format(self):
        seen = set()
        for name in linear_transformers():
            model = load(os.path.join(GOLDEN, name))[0]["model"]
            seen |= {
                model["activation"],
                model["embedding"]["combine"],
                model["position"]["kind"],
                model["head"]["kind"],
                model["norm"]["final"],
                model["attention"].get("feature_map", "softmax"),
                "gate" if model["attention"].get("gate") else "no gate",
                "dk != dv" if model["query_size"] != model["value_size"] else "dk == dv",
            }
        self.assertEqual(
            seen,
            {
                "relu",
                "gelu",
                "concat",
                "add",
                "table",
                "sinusoidal",
                "none",
                "categorical",
                "mixture_of_logistics",
                *bundle.FEATURE_MAPS,
                "softmax",
                "gate",
                "no gate",
                True,
                False,
                "dk != dv",
                "dk == dv",
            },
        )

    def test_one_digit_of_the_shipped_model(self):
        config, tensors = load(os.path.join(ROOT, "zoo/mnist-small"))
        stored = golden("zoo_mnist")
        self.assert_same_run(config, tensors, stored["values"][0], stored["head"][0], stored["log_prob"][0])

    def test_figures_of_the_shipped_model_are_consistent(self):
        stored = golden("zoo_mnist")
        images = read_idx("mnist_test_100.idx3-ubyte")
        self.assertEqual(images.shape, (100, 784))
        np.testing.assert_array_equal(stored["values"], images[:8])
        bits = -stored["log_prob"].astype(np.float64).mean(1) / np.log(2)
        np.testing.assert_allclose(bits, stored["bits_per_dim"][:8], atol=1e-6)
        with open(os.path.join(GOLDEN, "zoo_mnist/bits_per_dim.json"), encoding="utf-8") as file:
            figures = json.load(file)
        np.testing.assert_allclose(figures["bits_per_dim"], stored["bits_per_dim"], atol=1e-6)
        self.assertAlmostEqual(figures["mean"], 1.03202, places=4)

    def test_figures_of_the_sampled_digits(self):
        digits = read_idx("zoo_mnist/samples.idx3-ubyte")
        with open(os.path.join(GOLDEN, "zoo_mnist/samples.json"), encoding="utf-8") as file:
            figures = json.load(file)
        self.assertEqual(digits.shape, (64, 784))
        self.assertTrue((digits[:, 0] == 0).all())
        self.assertLess(figures["standard_error"], 0.01)
        self.assertAlmostEqual(figures["standard_error"], figures["deviation"] / figures["digits"] ** 0.5, places=5)
        few = np.array(figures["bits_per_dim"])
        self.assertLess(abs(few.mean() - figures["mean"]), 4 * figures["deviation"] / len(few) ** 0.5)
        config, tensors = load(os.path.join(ROOT, "zoo/mnist-small"))
        reference = Reference(config, tensors)
        total = sum(reference.log_prob(reference.step(value), after) for value, after in zip(digits[0], digits[0][1:]))
        self.assertAlmostEqual(-total / 783 / np.log(2), few[0], places=6)


if __name__ == "__main__":
    unittest.main()
