#!/usr/bin/env python3
"""Write the golden files of this folder with the real classes of fast-transformers, in float64.

    python3 -m venv --system-site-packages build/golden      # with torch, numpy and a C++ compiler
    build/golden/bin/pip install --no-build-isolation pytorch-fast-transformers==0.4.0
    build/golden/bin/python tests/golden/make_golden.py --mnist t10k-images-idx3-ubyte.gz

Without --mnist the 100 test images in mnist_test_100.idx3-ubyte do not change. --check compares the
results with the stored files and writes nothing. --only writes one of the parts:

  models    NAME/{config.json,model.safetensors,golden.bin}: small random models. golden.bin is a
            safetensors file: values [T + 1] (whole numbers as F32), head [T, outputs] (the head's
            outputs after value t), log_prob [T] (natural, of value t + 1 given values 0..t; the
            training form for mixtures).
  mnist     zoo_mnist/golden.bin, of zoo/mnist-small on test images: values [8, 784], head [8, 200, 30],
            log_prob [8, 783], bits_per_dim [100]; the last also in zoo_mnist/bits_per_dim.json.
  samples   zoo_mnist/samples.idx3-ubyte: the first 64 of the digits that the plain PyTorch loop
            samples from zoo/mnist-small in float32; zoo_mnist/samples.json: the bits per dimension of
            each of the 64 and, over all sampled digits, mean, deviation and standard error, scored
            in float64.
            Another version of torch may draw other digits.
"""

import argparse
import gzip
import json
import math
import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "python"))

from runnel_client import bundle, random_bundle
from runnel_client.authors import Recurrent, attention_layer, feature_map

STEPS = 200
FEATURE_STEPS = 256  # of models with a feature map other than elu(x) + 1
SCORED_IMAGES = 100
STORED_SAMPLES = 64

# One model for each way in which sizes or choices can break. No size is a power of two unnecessarily.
MODELS = {
    "image_relu_table": "--width 24 --heads 3 --query-size 8 --value-size 8 --ffn 40 --components 3 --image 19x11x1",
    "image_gelu_rgb": "--width 22 --heads 3 --query-size 5 --value-size 7 --ffn 37 --components 2 "
    "--image 9x8x3 --value-width 10 --activation gelu --dtype bf16",
    "symbols_gelu_sinusoidal": "--width 20 --heads 2 --query-size 6 --value-size 5 --ffn 33 "
    "--symbols 0123456789_ --endless --value-width 11 --activation gelu",
    "symbols_relu_none": "--width 18 --heads 1 --query-size 11 --value-size 9 --ffn 19 "
    "--symbols abcde --position-kind none --endless --no-final-norm --dtype f16",
    "values_add_table": "--width 33 --heads 3 --query-size 3 --value-size 13 --ffn 43 --values 70 "
    "--combine add --length 200",
    "values_add_sinusoidal": "--layers 3 --width 26 --heads 2 --query-size 17 --value-size 13 "
    "--ffn 30 --values 40 --combine add --endless --begin none",
    "map_relu": "--width 15 --heads 3 --query-size 7 --value-size 5 --ffn 18 --activation gelu --feature-map relu",
    "map_favor": "--width 14 --heads 2 --query-size 6 --value-size 5 --ffn 17 --feature-map favor --features 22",
    "map_favor_odd": "--width 13 --heads 1 --query-size 9 --value-size 7 --ffn 14 "
    "--feature-map favor --features 13 --temperature 0.2 --activation gelu",
    "map_fourier": "--width 14 --heads 2 --query-size 5 --value-size 6 --ffn 15 --activation gelu "
    "--feature-map fourier --features 46 --temperature 0.1",
    "map_smoothed": "--width 16 --heads 2 --query-size 9 --value-size 5 --ffn 15 "
    "--feature-map smoothed_fourier --features 12",
    "map_smoothed_odd": "--width 12 --heads 3 --query-size 5 --value-size 3 --ffn 14 "
    "--feature-map smoothed_fourier --features 33 --smoothing 0.6 --activation gelu",
    "map_generalized_relu": "--width 14 --heads 2 --query-size 5 --value-size 3 --ffn 16 "
    "--feature-map generalized --features 13 --activation gelu",
    "map_generalized_gelu": "--width 15 --heads 1 --query-size 6 --value-size 10 --ffn 15 "
    "--feature-map generalized --features 17 --kernel gelu --temperature 2.5",
    "gated": "--width 14 --heads 2 --query-size 5 --value-size 6 --ffn 15 --gate "
    "--feature-map fourier --features 40 --temperature 0.5 --normalize",
    "gated_elu": "--width 13 --heads 3 --query-size 6 --value-size 3 --ffn 15 --activation gelu --gate",
    "softmax": "--width 16 --heads 2 --query-size 6 --value-size 5 --ffn 17 --attention softmax --scale 0.7 "
    "--activation gelu --values 11 --combine add --position-kind sinusoidal --length 200",
    "softmax_image": "--width 18 --heads 3 --query-size 7 --value-size 9 --ffn 22 --attention softmax --components 2 "
    "--image 19x11x1 --value-width 10",
}
FEATURE_FLAGS = " --values 11 --endless --combine add"


class RandomFeatureAttention(torch.nn.Module):
    """Gated random feature attention (Peng et al. 2021), which fast-transformers lacks: its feature
    maps in our own recurrence."""

    def __init__(self, model):
        super().__init__()
        self.heads, self.eps = model["heads"], model["attention"]["eps"]
        queries, values = (self.heads * model[key] for key in ("query_size", "value_size"))
        width = model["width"]
        self.query_projection = torch.nn.Linear(width, queries)
        self.key_projection = torch.nn.Linear(width, queries)
        self.value_projection = torch.nn.Linear(width, values)
        self.out_projection = torch.nn.Linear(values, width)
        self.gate = torch.nn.Linear(width, self.heads)
        self.inner_attention = torch.nn.Module()
        self.inner_attention.feature_map = feature_map(model)(model["query_size"])
        self.normalize = model["attention"].get("normalize", False)
        if self.normalize:
            self.inner_attention.feature_map.sigma = torch.nn.Parameter(torch.zeros(self.heads, model["query_size"]))

    def features(self, x):
        x = x.view(len(x), self.heads, -1)
        inner = self.inner_attention.feature_map
        if self.normalize:
            x = torch.nn.functional.normalize(x, dim=-1) * inner.sigma
        return inner(x)

    def forward(self, query, key, value, state=None, memory=None):
        q = self.features(self.query_projection(query))
        k = self.features(self.key_projection(key))
        v = self.value_projection(value).view(len(value), self.heads, -1)
        s, z = (0.0, 0.0) if state is None else state
        gate = torch.sigmoid(self.gate(query)).unsqueeze(-1)
        z = gate * z + (1 - gate) * k
        s = gate.unsqueeze(-1) * s + (1 - gate).unsqueeze(-1) * torch.einsum("nhd,nhm->nhdm", k, v)
        y = torch.einsum("nhd,nhdm->nhm", q, s) / (torch.einsum("nhd,nhd->nh", q, z) + self.eps).unsqueeze(-1)
        return self.out_projection(y.reshape(len(y), -1)), [s, z]


def build_attention(model):
    return RandomFeatureAttention(model) if model["attention"].get("gate") else attention_layer(model)


def read_model(directory, dtype):
    """A bundle's model, with the recurrent classes of fast-transformers."""
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    stored = bundle.read_safetensors(os.path.join(directory, "model.safetensors"))
    tensors = {name: torch.from_numpy(values).to(dtype) for name, values in stored.items()}
    return Recurrent(config, tensors, build_attention)


def is_mixture(model):
    return model.config["model"]["head"]["kind"] == "mixture_of_logistics"


def mixture_log_prob(head, values):
    """Log-probabilities as in training: head [..., 3 K] and values [...] -> [...], natural."""
    logits, means, raw = head.chunk(3, dim=-1)
    log_scale = raw.clamp(min=-7.0)
    y = (values.to(head.dtype) / 255 * 2 - 1).unsqueeze(-1)
    plus = (y - means + 1 / 255) / log_scale.exp()
    minus = (y - means - 1 / 255) / log_scale.exp()
    mid = (y - means) / log_scale.exp()
    softplus = torch.nn.functional.softplus
    bin_mass = torch.sigmoid(plus) - torch.sigmoid(minus)
    density = mid - log_scale - 2 * softplus(mid)
    inner = torch.where(bin_mass > 1e-5, bin_mass.clamp(min=1e-12).log(), density - math.log(127.5))
    log_prob = torch.where(y < -0.999, plus - softplus(plus), torch.where(y > 0.999, -softplus(minus), inner))
    return torch.logsumexp(log_prob + torch.log_softmax(logits, dim=-1), dim=-1)


def threshold_distance(head, values):
    """The relative distance of the nearest bin mass from the threshold between the inner forms."""
    _, means, raw = head.chunk(3, dim=-1)
    y = (values.to(head.dtype) / 255 * 2 - 1).unsqueeze(-1)
    scale = raw.clamp(min=-7.0).exp()
    mass = torch.sigmoid((y - means + 1 / 255) / scale) - torch.sigmoid((y - means - 1 / 255) / scale)
    return float(((mass - 1e-5).abs() / 1e-5).min())


def sample(head, generator):
    """One byte per row of head [N, 3 K], drawn as in the code of the paper's authors."""
    logits, means, raw = head.chunk(3, dim=-1)
    component = torch.multinomial(torch.softmax(logits, dim=-1), 1, generator=generator)
    mean, scale = (
        means.gather(1, component),
        torch.nn.functional.elu(raw.gather(1, component)) + 1.0001,
    )
    u = torch.rand(mean.shape, generator=generator, dtype=head.dtype)
    x = mean + scale * (torch.log(u) - torch.log(1 - u))
    return torch.round((x + 1) / 2 * 255).clamp(0, 255).long().squeeze(1)


def run(model, values, keep):
    """values [N, L] -> heads at the first positions [N, keep, outputs], log-probs [N, L - 1]."""
    state, heads, log_probs = None, [], []
    with torch.no_grad():
        for index in range(values.shape[1] - 1):
            head, state = model(values[:, index], index, state)
            if index < keep:
                heads.append(head)
            target = values[:, index + 1]
            if is_mixture(model):
                log_probs.append(mixture_log_prob(head, target))
            else:
                log_probs.append(torch.log_softmax(head, dim=-1).gather(1, target.unsqueeze(1)).squeeze(1))
    return torch.stack(heads, dim=1), torch.stack(log_probs, dim=1)


class Output:
    """Writes the files, or compares them with the stored ones."""

    def __init__(self, compare):
        self.compare = compare

    def tensors(self, path, tensors):
        path = os.path.join(HERE, path)
        arrays = {name: np.asarray(tensor, dtype=np.float32) for name, tensor in tensors.items()}
        if not self.compare:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            bundle.write_safetensors(path, {name: array.shape for name, array in arrays.items()}, arrays.__getitem__)
            return
        stored = bundle.read_safetensors(path)
        assert stored.keys() == arrays.keys(), f"{path}: {sorted(stored)} stored, {sorted(arrays)} computed"
        for name, array in arrays.items():
            worst = np.max(np.abs(stored[name] - array) / (1 + np.abs(array)))
            assert worst < 1e-6, f"{path}: '{name}' differs by {worst}"

    def json(self, path, content):
        self.bytes(path, (json.dumps(content, indent=1) + "\n").encode())

    def bytes(self, path, content):
        path = os.path.join(HERE, path)
        if not self.compare:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
            return
        with open(path, "rb") as file:
            assert file.read() == content, f"{path} differs"


def make_models(output):
    for seed, (name, flags) in enumerate(MODELS.items()):
        directory = os.path.join(HERE, name)
        steps = STEPS
        if name.startswith(("map_", "gated")):
            steps, flags = FEATURE_STEPS, flags + FEATURE_FLAGS
        if not output.compare:
            random_bundle.generate(
                [
                    "--out",
                    directory,
                    "--name",
                    name.replace("_", "-"),
                    "--seed",
                    str(seed),
                    *flags.split(),
                ]
            )
        model = read_model(directory, torch.float64)
        vocabulary = model.config["values"]
        rng = np.random.Generator(np.random.PCG64(seed))
        values = rng.integers(0, vocabulary, steps + 1)
        values[5:9] = [
            0,
            vocabulary - 1,
            0,
            vocabulary - 1,
        ]  # the ends of the range have their own forms
        values = torch.from_numpy(values).unsqueeze(0)
        head, log_prob = run(model, values, steps)
        if is_mixture(model):
            distance = threshold_distance(head, values[:, 1:])
            print(f"{name}: nearest bin mass {distance:.1e} from its threshold")
            assert distance > 1e-4, f"{name}: a bin mass is so near its threshold that fp32 may fall on the other side"
        output.tensors(f"{name}/golden.bin", {"values": values[0], "head": head[0], "log_prob": log_prob[0]})


def read_idx(content):
    assert content[:4] == b"\0\0\x08\x03", "expected an idx file of bytes with three dimensions"
    count, height, width = (int.from_bytes(content[i : i + 4], "big") for i in (4, 8, 12))
    return np.frombuffer(content, np.uint8, count * height * width, 16).reshape(count, height * width)


def idx_bytes(images):
    sizes = b"".join(size.to_bytes(4, "big") for size in (len(images), 28, 28))
    return b"\0\0\x08\x03" + sizes + np.asarray(images, dtype=np.uint8).tobytes()


def bits_per_dim(log_prob):
    """The mean of each row over all predicted values, in bits."""
    return (-log_prob.mean(dim=1) / math.log(2)).numpy()


def make_mnist(output, mnist):
    fixture = "mnist_test_100.idx3-ubyte"
    if mnist is not None:
        with gzip.open(mnist) as file:
            output.bytes(fixture, idx_bytes(read_idx(file.read())[:SCORED_IMAGES]))
    with open(os.path.join(HERE, fixture), "rb") as file:
        images = torch.from_numpy(read_idx(file.read()).astype(np.int64))
    model = read_model(os.path.join(ROOT, "zoo/mnist-small"), torch.float64)
    head, log_prob = run(model, images, STEPS)
    bits = bits_per_dim(log_prob)
    output.tensors(
        "zoo_mnist/golden.bin",
        {"values": images[:8], "head": head[:8], "log_prob": log_prob[:8], "bits_per_dim": bits},
    )
    output.json(
        "zoo_mnist/bits_per_dim.json",
        {"mean": round(float(bits.mean()), 9), "bits_per_dim": [round(float(b), 9) for b in bits]},
    )
    print(f"zoo_mnist: {bits.mean():.6f} bits per dimension over {len(bits)} test images")


def sample_digits(model, count, seed):
    """Digits [count, 784] by the plain loop: it begins with 0, then draws each byte and feeds it back."""
    generator = torch.Generator().manual_seed(seed)
    values, state = torch.zeros(count, 784, dtype=torch.int64), None
    with torch.no_grad():
        for index in range(783):
            head, state = model(values[:, index], index, state)
            values[:, index + 1] = sample(head, generator)
    return values


def make_samples(output, count, batch=256):
    directory = os.path.join(ROOT, "zoo/mnist-small")
    plain, exact = read_model(directory, torch.float32), read_model(directory, torch.float64)
    first, batches = None, []
    for seed in range(count // batch):
        digits = sample_digits(plain, batch, seed)
        first = digits[:STORED_SAMPLES] if first is None else first
        batches.append(bits_per_dim(run(exact, digits, 1)[1]))
        print(f"samples: {(seed + 1) * batch} digits, mean {np.concatenate(batches).mean():.5f} bits per dimension")
    bits = np.concatenate(batches)
    output.bytes("zoo_mnist/samples.idx3-ubyte", idx_bytes(first))
    deviation = float(bits.std(ddof=1))
    output.json(
        "zoo_mnist/samples.json",
        {
            "digits": len(bits),
            "mean": round(float(bits.mean()), 6),
            "deviation": round(deviation, 6),
            "standard_error": round(deviation / math.sqrt(len(bits)), 6),
            "bits_per_dim": [round(float(b), 9) for b in bits[:STORED_SAMPLES]],
        },
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", metavar="FILE", help="t10k-images-idx3-ubyte.gz")
    parser.add_argument("--only", choices=("models", "mnist", "samples"))
    parser.add_argument("--digits", type=int, default=4096, help="to sample; a multiple of 256 (default: 4096)")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    output = Output(args.check)
    if args.only in (None, "models"):
        make_models(output)
    if args.only in (None, "mnist"):
        make_mnist(output, args.mnist)
    if args.only in (None, "samples"):
        make_samples(output, args.digits)


if __name__ == "__main__":
    main()
