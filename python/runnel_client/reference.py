"""The model of a bundle in numpy and fp64, one value at a time, written from the paper.

It is slow and shares no code with the server. runnel-convert --verify and the tests compare other results with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel_client import bundle
from runnel_client.bundle import Config

Array = npt.NDArray[np.float64]
Tensors = Mapping[str, Array]

erf = np.vectorize(math.erf)


def gelu(x: Array) -> Array:
    return np.asarray(x * (1 + erf(x / math.sqrt(2))) / 2)


def norm(x: Array, tensors: Tensors, name: str, eps: float) -> Array:
    centred = x - x.mean()
    return centred / np.sqrt((centred**2).mean() + eps) * tensors[name + ".weight"] + tensors[name + ".bias"]


def linear(x: Array, tensors: Tensors, name: str) -> Array:
    return tensors[name + ".weight"] @ x + tensors[name + ".bias"]


class Reference:
    """One sequence through a bundle: step(value) returns the head's outputs."""

    def __init__(self, config: Config, tensors: Mapping[str, npt.NDArray[Any]]):
        self.config, self.model = config, config["model"]
        self.tensors = {name: values.astype(np.float64) for name, values in tensors.items()}
        sizes = self.model["layers"], self.model["heads"], bundle.feature_size(self.model)
        self.S, self.z, self.position = (
            np.zeros((*sizes, self.model["value_size"])),
            np.zeros(sizes),
            0,
        )
        self.past: list[list[tuple[Array, Array]]] = [[] for _ in range(sizes[0])]  # of softmax: keys and values

    def embed(self, value: int) -> Array:
        x = self.tensors["value_embedding.weight"][value]
        kind = self.model["position"]["kind"]
        if kind == "none":
            return x
        if kind == "table":
            position = self.tensors["pos_embedding.pe"][0, self.position]
        else:
            width = bundle.position_width(self.model)
            angles = [self.position * 10000.0 ** (-2 * (i // 2) / width) for i in range(width)]
            position = np.array([math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(angles)])
        return x + position if self.model["embedding"]["combine"] == "add" else np.concatenate([x, position])

    def features(self, x: Array, layer: str) -> Array:
        """Queries or keys [heads, query_size] as features [heads, feature_size]."""
        attention = self.model["attention"]
        kind = attention["feature_map"]
        if kind == "elu":
            return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))
        if kind == "relu":
            return np.maximum(x, 0)
        inner = layer + bundle.INNER_MAP
        if attention.get("normalize"):
            x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
            x = x * self.tensors[inner + "sigma"]
        usual = 1.0 if kind == "generalized" else 1 / math.sqrt(self.model["query_size"])
        x = x * math.sqrt(attention.get("temperature", usual))
        u = x @ self.tensors[inner + "omega"]
        count = attention["features"]
        if kind == "generalized":
            return np.maximum(u, 0) if attention["kernel"] == "relu" else gelu(u)
        if kind == "favor":
            offset = (x * x).sum(1, keepdims=True) / 2 + math.log(count) / 2
            return np.concatenate([np.exp(u - offset), np.exp(-u - offset)], axis=1)
        smoothed = kind == "smoothed_fourier"
        phi = np.concatenate([np.cos(u), np.sin(u)], axis=1) * math.sqrt(2 / (count - smoothed))
        if not smoothed:
            return phi
        return np.concatenate([phi, np.full((len(x), 1), attention.get("smoothing", 1.0))], axis=1)

    def attend(self, x: Array, index: int, layer: str) -> Array:
        heads = self.model["heads"]

        def project(what: str) -> Array:
            return linear(x, self.tensors, f"{layer}attention.{what}_projection").reshape(heads, -1)

        if bundle.is_softmax(self.model):
            self.past[index].append((project("key"), project("value")))
            y = self.softmax(project("query"), self.past[index])
            return linear(y.reshape(-1), self.tensors, layer + "attention.out_projection")
        q, k = (self.features(project(what), layer) for what in ("query", "key"))
        v = project("value")
        if self.model["attention"].get("gate"):
            gate = 1 / (1 + np.exp(-linear(x, self.tensors, layer + "attention.gate")))[:, None]
            self.S[index] *= gate[:, :, None]
            self.z[index] *= gate
            k = k * (1 - gate)
        self.S[index] += k[:, :, None] * v[:, None, :]
        self.z[index] += k
        above = (q[:, :, None] * self.S[index]).sum(1)
        below = (q * self.z[index]).sum(1, keepdims=True) + self.model["attention"]["eps"]
        return linear((above / below).reshape(-1), self.tensors, layer + "attention.out_projection")

    def softmax(self, q: Array, past: list[tuple[Array, Array]]) -> Array:
        """The means [heads, value_size] of all values so far, weighted by softmax(scale q . k)."""
        keys, values = (np.stack(each, axis=1) for each in zip(*past))  # [heads, positions, size]
        scale = self.model["attention"].get("scale", 1 / math.sqrt(self.model["query_size"]))
        scores = scale * (keys @ q[:, :, None])
        weights = np.exp(scores - scores.max(1, keepdims=True))
        return np.asarray((weights * values).sum(1) / weights.sum(1))

    def step(self, value: int) -> Array:
        """The head's outputs [outputs] after one more value."""
        x, eps = self.embed(value), self.model["norm"]["eps"]
        for index in range(self.model["layers"]):
            layer = f"transformer.layers.{index}."
            x = norm(x + self.attend(x, index, layer), self.tensors, layer + "norm1", eps)
            y = linear(x, self.tensors, layer + "linear1")
            y = np.maximum(y, 0) if self.model["activation"] == "relu" else gelu(y)
            x = norm(x + linear(y, self.tensors, layer + "linear2"), self.tensors, layer + "norm2", eps)
        if self.model["norm"]["final"]:
            x = norm(x, self.tensors, "transformer.norm", eps)
        self.position += 1
        return linear(x, self.tensors, "predictor")

    def log_prob(self, head: Array, value: int) -> float:
        """The natural log-probability of a value under the head's outputs."""
        if self.model["head"]["kind"] == "categorical":
            return head[value] - np.logaddexp.reduce(head)
        logits, means, raw = np.split(head, 3)
        terms = [logistic_log_prob(mean, max(scale, -7.0), value) for mean, scale in zip(means, raw)]
        return np.logaddexp.reduce(logits + terms) - np.logaddexp.reduce(logits)


def logistic_log_prob(mean: float, log_scale: float, value: int) -> float:
    """The training form for one component."""
    y = value / 127.5 - 1
    plus, minus = ((y - mean + side / 255) / math.exp(log_scale) for side in (1, -1))
    if value == 0:
        return -np.logaddexp(0, -plus)
    if value == 255:
        return -np.logaddexp(0, minus)
    mass = math.exp(-np.logaddexp(0, -plus)) - math.exp(-np.logaddexp(0, -minus))
    if mass > 1e-5:
        return math.log(mass)
    mid = (y - mean) / math.exp(log_scale)
    return mid - log_scale - 2 * np.logaddexp(0, mid) - math.log(127.5)
