#!/usr/bin/env python3
"""Write the golden files of published recurrent families from their equations, in float64 with numpy alone.

    build/python/bin/python tests/golden/make_recurrences.py [--check] [--only NAME]

NAME/{config.json,model.safetensors,golden.bin}: small models of random weights, with published configs and names.
make_published.py describes golden.bin. Together the models have every option that runnel serves. The equations have
been compared with the original code of each family; this script is an independent second implementation.
--check compares the results with the stored files and writes nothing.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "python"))

from runnel_client import bundle

STEPS = 48
VOCABULARY = 37

Array = npt.NDArray[np.float64]
Config = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]


def sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def identity(x: Array) -> Array:
    return x


def elu1(x: Array) -> Array:
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


MAPS: dict[str | None, Callable[[Array], Array]] = {
    None: identity,
    "identity": identity,
    "relu": relu,
    "swish": silu,
    "silu": silu,
    "sigmoid": sigmoid,
    "elu": elu1,
    "sqrelu": lambda x: relu(x) ** 2,
}


def rms_norm(x: Array, weight: Array | float, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def l2_norm(x: Array) -> Array:
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def rotate(x: Array, position: int) -> Array:
    """Rotates the whole last axis by the angles of GPT-NeoX."""
    size = x.shape[-1]
    angle = position * 10000.0 ** (-np.arange(0, size, 2) / size)
    low, high = x[..., : size // 2], x[..., size // 2 :]
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.concatenate([low * cosine - high * sine, high * cosine + low * sine], -1)


class Tensors:
    """Tensors by name, under a prefix. Shapes are noted when a model asks for a tensor for the first time."""

    def __init__(self, tensors: dict[str, Array], prefix: str = ""):
        self.tensors, self.prefix = tensors, prefix

    def __getitem__(self, name: str) -> Array:
        return self.tensors[self.prefix + name]

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.tensors

    def get(self, name: str, fallback: Array | float) -> Array | float:
        return self.tensors.get(self.prefix + name, fallback)

    def under(self, prefix: str) -> "Tensors":
        return Tensors(self.tensors, self.prefix + prefix)


class State(dict[str, Array]):
    """The state of a layer, initially zeros."""

    def part(self, name: str, *shape: int) -> Array:
        return self.setdefault(name, np.zeros(shape))

    def convolve(self, name: str, x: Array, weight: Array, bias: Array | float = 0.0) -> Array:
        """A convolution with weight [channels, 1, taps], whose last tap is for x."""
        before = self.part(name, weight.shape[-1] - 1, len(x))
        taps = np.concatenate([before, x[None]])
        self[name] = taps[1:]
        return (weight[:, 0].T * taps).sum(0) + bias

    def advance(
        self,
        q: Array,
        k: Array,
        v: Array,
        w: Array,
        correct: tuple[Array, Array] | None = None,
        bonus: Array | None = None,
    ) -> Array:
        """S = diag(w) S + b (a^T S) + k v^T and y = S^T q, for all heads. With a bonus, y uses S from before."""
        s = self.part("S", *k.shape, v.shape[-1])
        new = w[..., None] * s + k[:, :, None] * v[:, None, :]
        if correct is not None:
            a, b = correct
            new += b[:, :, None] * np.einsum("hkv,hk->hv", s, a)[:, None, :]
        self["S"] = new
        if bonus is None:
            return np.einsum("hkv,hk->hv", new, q)
        return np.einsum("hkv,hk->hv", s, q) + (q * bonus * k).sum(-1, keepdims=True) * v


class GatedLinear:
    """GLA, RetNet, DeltaNet, Gated DeltaNet, KDA and HGRN2 as flash-linear-attention has them."""

    def __init__(self, config: Config):
        self.config = config
        self.kind = config["model_type"]
        self.width = config["hidden_size"]
        heads = config["num_heads"]
        self.keys = self.heads = heads
        self.delta = "delta" in self.kind or self.kind == "kda"
        if self.kind == "hgrn2":
            self.dk = config["expand_ratio"]
            self.dv = self.width // heads
        elif self.kind in ("gated_deltanet", "kda"):
            self.heads = config.get("num_v_heads") or heads
            self.dk = config["head_dim"]
            self.dv = int(self.dk * config["expand_v"])
        else:
            self.keys = config.get("num_kv_heads") or heads
            self.dk = int(self.width * config["expand_k"]) // heads
            self.dv = int(self.width * config["expand_v"]) // heads

    def shapes(self) -> Shapes:
        c, width, ffn = self.config, self.width, self.config["intermediate_size"]
        shapes: Shapes = {"model.embeddings.weight": (c["vocab_size"] + 2, width), "model.norm.weight": (width,)}
        if not c.get("tie_word_embeddings"):
            shapes["lm_head.weight"] = shapes["model.embeddings.weight"]
        if self.kind == "hgrn2":
            shapes["model.lower_bounds"] = (c["num_hidden_layers"], width)
        for layer in range(c["num_hidden_layers"]):
            name = f"model.layers.{layer}."
            shapes |= {f"{name}attn.{key}": shape for key, shape in self.mixer_shapes().items()}
            shapes |= {name + "attn_norm.weight": (width,), name + "mlp_norm.weight": (width,)}
            shapes[name + "mlp.down_proj.weight"] = (width, ffn)
            if c.get("joined"):
                shapes[name + "mlp.gate_proj.weight"] = (2 * ffn, width)
            else:
                shapes |= {f"{name}mlp.{half}_proj.weight": (ffn, width) for half in ("gate", "up")}
        return shapes

    def mixer_shapes(self) -> Shapes:
        c, width, out = self.config, self.width, self.heads * self.dv
        of_q = (self.keys if self.delta else self.heads) * self.dk
        of_v = (self.heads if self.delta else self.keys) * self.dv
        names = dict(zip("qfi" if self.kind == "hgrn2" else "qkv", (of_q, self.keys * self.dk, of_v)))
        shapes: Shapes = {f"{name}_proj.weight": (columns, width) for name, columns in names.items()}
        if c.get("use_short_conv") and self.kind != "retnet":
            shapes |= {f"{name}_conv1d.weight": (columns, 1, c["conv_size"]) for name, columns in names.items()}
            if c.get("bias"):
                shapes |= {f"{name}_conv1d.bias": (columns,) for name, columns in names.items()}
        shapes["o_proj.weight"] = (width, out)
        norm = "o_norm" if self.delta else c.get("norm_name", "g_norm")
        shapes[norm + ".weight"] = (out if self.kind == "hgrn2" else self.dv,)
        if self.kind == "kda":
            low = self.dv
            shapes |= {"g_proj.0.weight": (low, width), "g_proj.1.weight": (out, low), "g_proj.1.bias": (out,)}
            shapes |= {"f_proj.0.weight": (low, width), "f_proj.1.weight": (self.heads * self.dk, low)}
            shapes |= {"A_log": (self.heads,), "dt_bias": (self.heads * self.dk,)}
        elif c.get("use_gate" if self.delta else "use_output_gate", self.kind != "hgrn2"):
            shapes["g_proj.weight"] = (out, width)
        if self.delta and c.get("use_beta", True):
            shapes["b_proj.weight"] = (self.heads, width)
        if self.kind == "gla":
            columns = self.keys * self.dk
            shapes |= {"gk_proj.0.weight": (5, width), "gk_proj.1.weight": (columns, 5), "gk_proj.1.bias": (columns,)}
        if self.kind == "gated_deltanet":
            shapes |= {"a_proj.weight": (self.heads, width)}
            shapes |= dict.fromkeys(("A_log", "dt_bias", "D"), (self.heads,))
        return shapes

    def logits(self, tensors: dict[str, Array], values: npt.NDArray[np.int64]) -> Array:
        w, c = Tensors(tensors), self.config
        eps = c["norm_eps"]
        states = [State() for _ in range(c["num_hidden_layers"])]
        rows = []
        for position, value in enumerate(values):
            x = w["model.embeddings.weight"][value]
            for layer, state in enumerate(states):
                p = w.under(f"model.layers.{layer}.")
                h = rms_norm(x, p["attn_norm.weight"], eps)
                x = x + self.mix(p.under("attn."), h, state, position, self.lower_bound(w, layer))
                h = rms_norm(x, p["mlp_norm.weight"], eps)
                gate = p["mlp.gate_proj.weight"] @ h
                gate, up = np.split(gate, 2) if c.get("joined") else (gate, p["mlp.up_proj.weight"] @ h)
                x = x + p["mlp.down_proj.weight"] @ (silu(gate) * up)
            head = w["model.embeddings.weight" if c.get("tie_word_embeddings") else "lm_head.weight"]
            rows.append(head @ rms_norm(x, w["model.norm.weight"], eps))
        return np.stack(rows)

    def lower_bound(self, w: Tensors, layer: int) -> Array:
        if self.kind != "hgrn2":
            return np.zeros(0)
        e = np.exp(w["model.lower_bounds"])
        share = e / e.sum(0)
        return (share.cumsum(0) - share[0])[layer]

    def project(self, p: Tensors, h: Array, state: State, name: str, activation: Callable[[Array], Array]) -> Array:
        y = p[name + "_proj.weight"] @ h
        if name + "_conv1d.weight" in p:
            biased = name + "_conv1d.bias" in p
            bias = p[name + "_conv1d.bias"] if biased else 0.0
            y = state.convolve(name, y, p[name + "_conv1d.weight"], bias)
        return activation(y)

    def grouped(self, x: Array, size: int) -> Array:
        """Repeats the x of each group of heads for every head of the group."""
        x = x.reshape(-1, size)
        return np.repeat(x, self.heads // len(x), 0)

    def decay(self, p: Tensors, h: Array) -> Array:
        ones = np.ones((self.heads, self.dk))
        if self.kind == "gla":
            log = -softplus(-(p["gk_proj.1.weight"] @ (p["gk_proj.0.weight"] @ h) + p["gk_proj.1.bias"])) / 16
            least = self.config.get("clamp_min")
            return self.grouped(np.exp(log if least is None else np.maximum(log, least)), self.dk)
        if self.kind == "retnet":
            return (1 - 2.0 ** (-5.0 - np.arange(self.heads)))[:, None] * ones
        if self.kind == "gated_deltanet":
            return np.exp(-np.exp(p["A_log"]) * softplus(p["a_proj.weight"] @ h + p["dt_bias"]))[:, None] * ones
        if self.kind == "kda":
            z = p["f_proj.1.weight"] @ (p["f_proj.0.weight"] @ h) + p["dt_bias"]
            return np.exp(-np.exp(p["A_log"])[:, None] * softplus(z.reshape(self.heads, self.dk)))
        return ones

    def mix(self, p: Tensors, h: Array, state: State, position: int, bound: Array) -> Array:
        c = self.config
        if self.kind == "hgrn2":
            q = silu(self.project(p, h, state, "q", identity)).reshape(self.heads, self.dk)
            f = sigmoid(self.project(p, h, state, "f", identity))
            f = (bound + (1 - bound) * f).reshape(self.heads, self.dk)
            v = self.project(p, h, state, "i", identity).reshape(self.heads, self.dv)
            y = state.advance(q * self.dk**-0.5, 1 - f, v, f)
            return p["o_proj.weight"] @ rms_norm(y.reshape(-1), p["g_norm.weight"], 1e-5)
        if self.delta:
            y = self.correct(p, h, state)
        else:
            through = silu if "q_conv1d.weight" in p else identity
            q, k, v = (self.project(p, h, state, name, through) for name in "qkv")
            feature = MAPS[c.get("feature_map")]
            q, k = (self.grouped(feature(x), self.dk) for x in (q, k))
            if self.kind == "retnet":
                q, k = rotate(q, position), rotate(k, position)
            y = state.advance(q * self.dk**-0.5, k, self.grouped(v, self.dv), self.decay(p, h))
        norm = "o_norm" if self.delta else c.get("norm_name", "g_norm")
        y = rms_norm(y, p[norm + ".weight"], c["norm_eps"]).reshape(-1)
        if self.kind == "kda":
            y = y * sigmoid(p["g_proj.1.weight"] @ (p["g_proj.0.weight"] @ h) + p["g_proj.1.bias"])
        elif "g_proj.weight" in p:
            y = y * silu(p["g_proj.weight"] @ h)
        return p["o_proj.weight"] @ y

    def correct(self, p: Tensors, h: Array, state: State) -> Array:
        c = self.config
        through = MAPS[c.get("qk_activation", "silu")]
        q, k = (self.grouped(self.project(p, h, state, name, through), self.dk) for name in "qk")
        v = self.project(p, h, state, "v", silu).reshape(self.heads, self.dv)
        if c.get("qk_norm") == "sum":
            q, k = q / q.sum(-1, keepdims=True), k / k.sum(-1, keepdims=True)
        else:
            q, k = l2_norm(q), l2_norm(k)
        beta = sigmoid(p["b_proj.weight"] @ h) if "b_proj.weight" in p else np.ones(self.heads)
        beta = beta[:, None] * (2 if c.get("allow_neg_eigval") else 1)
        w = self.decay(p, h)
        return state.advance(q * self.dk**-0.5, k, beta * v, w, (w * k, -beta * k))


def layer_norm(x: Array, weight: Array, bias: Array, eps: float = 1e-5) -> Array:
    d = x - x.mean(-1, keepdims=True)
    return (d / np.sqrt((d * d).mean(-1, keepdims=True) + eps)).reshape(weight.shape) * weight + bias


class Rwkv56:
    """RWKV-6 and 5.2 with BlinkDL's names."""

    def __init__(self, config: Config):
        self.config, self.six = config, config["model_type"] == "rwkv6"
        self.width, self.heads = config["hidden_size"], config["num_heads"]

    def shapes(self) -> Shapes:
        c, width, heads = self.config, self.width, self.heads
        mix, rank = "time_maa_" if self.six else "time_mix_", 4
        shapes: Shapes = {f"{name}.weight": (c["vocab_size"], width) for name in ("emb", "head")}
        norms = ["blocks.0.ln0", "ln_out"]
        for layer in range(c["num_hidden_layers"]):
            block = f"blocks.{layer}."
            att, ffn = block + "att.", block + "ffn."
            norms += [block + "ln1", block + "ln2", att + "ln_x"]
            shapes |= {f"{att}{mix}{to}": (1, 1, width) for to in ("wkvrgx" if self.six else "kvrg")}
            shapes |= {f"{ffn}{mix}{to}": (1, 1, width) for to in "kr"}
            for name in ("receptance", "key", "value", "gate", "output"):
                shapes[f"{att}{name}.weight"] = (width, width)
            shapes[att + "time_faaaa"] = (heads, width // heads)
            if self.six:
                shapes |= {att + "time_maa_w1": (width, 5 * rank), att + "time_maa_w2": (5, rank, width)}
                shapes |= {att + "time_decay_w1": (width, rank), att + "time_decay_w2": (rank, width)}
            shapes[att + "time_decay"] = (1, 1, width) if self.six else (heads, width // heads)
            hidden = c["intermediate_size"]
            shapes |= {ffn + "key.weight": (hidden, width), ffn + "value.weight": (width, hidden)}
            shapes[ffn + "receptance.weight"] = (width, width)
        return shapes | {f"{name}.{part}": (width,) for name in norms for part in ("weight", "bias")}

    def mixes(self, p: Tensors, x: Array, before: Array, names: str) -> dict[str, Array]:
        if not self.six:  # in version 5.2 the weight is the new input's
            return {to: before + (x - before) * p["time_mix_" + to].reshape(-1) for to in names}
        d = before - x
        mu = {to: p["time_maa_" + to].reshape(-1) for to in names}
        if "time_maa_w1" in p:
            low = np.tanh((x + d * p["time_maa_x"].reshape(-1)) @ p["time_maa_w1"]).reshape(5, -1)
            for row, (to, matrix) in enumerate(zip("wkvrg", p["time_maa_w2"])):
                mu[to] = p["time_maa_" + to].reshape(-1) + low[row] @ matrix
        return {to: x + d * weight for to, weight in mu.items()}

    def logits(self, tensors: dict[str, Array], values: npt.NDArray[np.int64]) -> Array:
        w, rows = Tensors(tensors), []
        states = [State() for _ in range(self.config["num_hidden_layers"])]
        for value in values:
            x = layer_norm(w["emb.weight"][value], w["blocks.0.ln0.weight"], w["blocks.0.ln0.bias"])
            for layer, state in enumerate(states):
                p = w.under(f"blocks.{layer}.")
                x = x + self.time_mix(p.under("att."), layer_norm(x, p["ln1.weight"], p["ln1.bias"]), state)
                x = x + self.channel_mix(p.under("ffn."), layer_norm(x, p["ln2.weight"], p["ln2.bias"]), state)
            rows.append(w["head.weight"] @ layer_norm(x, w["ln_out.weight"], w["ln_out.bias"]))
        return np.stack(rows)

    def time_mix(self, p: Tensors, x: Array, state: State) -> Array:
        mixed = self.mixes(p, x, state.part("x", self.width), "kvrg")
        state["x"] = x
        r, k, v = (
            (p[name + ".weight"] @ mixed[to]).reshape(self.heads, -1)
            for name, to in (("receptance", "r"), ("key", "k"), ("value", "v"))
        )
        decay = p["time_decay"].reshape(-1)
        if self.six:
            decay = decay + np.tanh(mixed["w"] @ p["time_decay_w1"]) @ p["time_decay_w2"]
        y = state.advance(r, k, v, np.exp(-np.exp(decay)).reshape(r.shape), bonus=p["time_faaaa"])
        weight, bias = (p["ln_x." + part].reshape(self.heads, -1) for part in ("weight", "bias"))
        y = layer_norm(y, weight, bias, 64e-5).reshape(-1)
        return p["output.weight"] @ (y * silu(p["gate.weight"] @ mixed["g"]))

    def channel_mix(self, p: Tensors, x: Array, state: State) -> Array:
        mixed = self.mixes(p, x, state.part("ffn", self.width), "kr")
        state["ffn"] = x
        hidden = relu(p["key.weight"] @ mixed["k"]) ** 2
        return sigmoid(p["receptance.weight"] @ mixed["r"]) * (p["value.weight"] @ hidden)


class Mamba1:
    """Mamba-1 and Falcon-Mamba as in transformers, and Mamba-1 with state-spaces' names."""

    def __init__(self, config: Config):
        self.config = config
        self.width, self.inner = config["hidden_size"], config["intermediate_size"]
        self.states, self.rank = config["state_size"], config["time_step_rank"]
        self.embedding = f"backbone.embedding{'' if config.get('state_spaces') else 's'}.weight"

    def shapes(self) -> Shapes:
        c, width, inner = self.config, self.width, self.inner
        rows = c["vocab_size"] + (3 if c.get("state_spaces") else 0)
        shapes: Shapes = {self.embedding: (rows, width), "backbone.norm_f.weight": (width,)}
        if not c["tie_word_embeddings"]:
            shapes["lm_head.weight"] = shapes[self.embedding]
        for layer in range(c["num_hidden_layers"]):
            mixer = f"backbone.layers.{layer}.mixer."
            shapes[f"backbone.layers.{layer}.norm.weight"] = (width,)
            shapes |= {mixer + "in_proj.weight": (2 * inner, width), mixer + "out_proj.weight": (width, inner)}
            shapes |= {mixer + "conv1d.weight": (inner, 1, c["conv_kernel"]), mixer + "A_log": (inner, self.states)}
            shapes |= {mixer + "x_proj.weight": (self.rank + 2 * self.states, inner), mixer + "D": (inner,)}
            shapes |= {mixer + "dt_proj.weight": (inner, self.rank), mixer + "dt_proj.bias": (inner,)}
            if c["use_conv_bias"]:
                shapes[mixer + "conv1d.bias"] = (inner,)
            if c["use_bias"]:
                shapes |= {mixer + "in_proj.bias": (2 * inner,), mixer + "out_proj.bias": (width,)}
        return shapes

    def logits(self, tensors: dict[str, Array], values: npt.NDArray[np.int64]) -> Array:
        w, c, rows = Tensors(tensors), self.config, []
        states = [State() for _ in range(c["num_hidden_layers"])]
        eps = c["layer_norm_epsilon"]
        for value in values:
            x = w[self.embedding][value]
            for layer, state in enumerate(states):
                p = w.under(f"backbone.layers.{layer}.")
                x = x + self.mix(p.under("mixer."), rms_norm(x, p["norm.weight"], eps), state)
            head = w[self.embedding if c["tie_word_embeddings"] else "lm_head.weight"]
            rows.append(head @ rms_norm(x, w["backbone.norm_f.weight"], eps))
        return np.stack(rows)

    def mix(self, p: Tensors, u: Array, state: State) -> Array:
        def linear(name: str, x: Array) -> Array:
            y = p[name + ".weight"] @ x
            return y + p[name + ".bias"] if name + ".bias" in p else y

        x, z = np.split(linear("in_proj", u), 2)
        bias = p["conv1d.bias"] if self.config["use_conv_bias"] else 0.0
        x = silu(state.convolve("x", x, p["conv1d.weight"], bias))
        parts = np.split(linear("x_proj", x), [self.rank, self.rank + self.states])
        if self.config["model_type"] == "falcon_mamba":
            parts = [rms_norm(part, 1.0, self.config["mixer_rms_eps"]) for part in parts]
        dt, b, c = parts
        dt = softplus(linear("dt_proj", dt))
        w = np.exp(-dt[:, None] * np.exp(p["A_log"]))
        b, c = (np.broadcast_to(part, w.shape) for part in (b, c))
        y = state.advance(c, b, (dt * x)[:, None], w)[:, 0]
        return linear("out_proj", (y + p["D"] * x) * silu(z))


BLOCK = {"hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 28, "norm_eps": 1e-6, "num_heads": 4}
MODELS: dict[str, tuple[type[GatedLinear | Rwkv56 | Mamba1], str, Config]] = {
    "gla_grouped": (
        GatedLinear,
        "f32",
        {"model_type": "gla", "num_kv_heads": 2, "expand_k": 1.0, "expand_v": 1.0, "use_short_conv": True}
        | {"conv_size": 4, "clamp_min": -0.02, "feature_map": "elu", "tie_word_embeddings": True, "bias": True}
        | {"norm_name": "g_norm_swish_gate", "joined": True},
    ),
    "gla_plain": (
        GatedLinear,
        "bf16",
        {"model_type": "gla", "expand_k": 1.0, "expand_v": 0.5, "feature_map": "swish", "use_output_gate": False},
    ),
    "retnet": (
        GatedLinear,
        "f32",
        {"model_type": "retnet", "expand_k": 1.0, "expand_v": 2.0, "use_short_conv": True, "num_kv_heads": 1}
        | {"norm_eps": 1e-5},
    ),
    "delta_net": (
        GatedLinear,
        "f32",
        {"model_type": "delta_net", "expand_k": 1.0, "expand_v": 0.5, "use_short_conv": True, "conv_size": 4}
        | {"use_gate": False},
    ),
    "delta_net_sum": (
        GatedLinear,
        "f32",
        {"model_type": "delta_net", "expand_k": 1.0, "expand_v": 1.0, "qk_norm": "sum", "qk_activation": "elu"}
        | {"use_short_conv": False, "use_gate": True, "allow_neg_eigval": True},
    ),
    "delta_net_raw": (
        GatedLinear,
        "f32",
        {"model_type": "delta_net", "expand_k": 0.5, "expand_v": 1.0, "qk_activation": "relu", "use_beta": False}
        | {"use_short_conv": True, "conv_size": 2, "use_gate": False},
    ),
    "gated_deltanet": (
        GatedLinear,
        "f32",
        {"model_type": "gated_deltanet", "num_heads": 2, "num_v_heads": 4, "head_dim": 12, "expand_v": 1.5}
        | {"use_short_conv": True, "conv_size": 3, "use_gate": True, "allow_neg_eigval": True},
    ),
    "kda": (
        GatedLinear,
        "f32",
        {"model_type": "kda", "num_heads": 2, "num_v_heads": 4, "head_dim": 6, "expand_v": 2.0, "use_short_conv": True}
        | {"conv_size": 4, "allow_neg_eigval": True},
    ),
    "hgrn2": (
        GatedLinear,
        "f32",
        {"model_type": "hgrn2", "num_hidden_layers": 3, "expand_ratio": 6, "use_short_conv": True, "conv_size": 4}
        | {"norm_eps": 1e-3},
    ),
    "rwkv6": (Rwkv56, "bf16", {"model_type": "rwkv6"}),
    "rwkv5": (Rwkv56, "f32", {"model_type": "rwkv5"}),
    "mamba1": (
        Mamba1,
        "f32",
        {"model_type": "mamba", "intermediate_size": 48, "state_size": 8, "time_step_rank": 3, "conv_kernel": 4}
        | {"use_bias": False, "use_conv_bias": True, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True},
    ),
    "falcon_mamba": (
        Mamba1,
        "f32",
        {"model_type": "falcon_mamba", "intermediate_size": 38, "state_size": 5, "time_step_rank": 4}
        | {"conv_kernel": 3, "use_bias": True, "use_conv_bias": False, "layer_norm_epsilon": 1e-4}
        | {"mixer_rms_eps": 1e-3, "tie_word_embeddings": False},
    ),
    "mamba1_state_spaces": (
        Mamba1,
        "f32",
        {"model_type": "mamba", "intermediate_size": 48, "state_size": 16, "time_step_rank": 2, "conv_kernel": 4}
        | {"use_bias": False, "use_conv_bias": True, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
        | {"state_spaces": True},
    ),
}


def published_config(config: Config) -> Config:
    """state-spaces' file has only these keys, for a model whose sizes are the defaults of its code."""
    if not config.get("state_spaces"):
        return {key: item for key, item in config.items() if key not in ("joined", "norm_name", "bias")}
    sizes = {"d_model": config["hidden_size"], "n_layer": config["num_hidden_layers"]}
    options = {"rms_norm": True, "residual_in_fp32": True, "fused_add_norm": True, "pad_vocab_size_multiple": 8}
    return sizes | {"vocab_size": VOCABULARY, "ssm_cfg": {}} | options


def random_tensor(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Random numbers of such sizes that every part of a network affects its outputs."""
    if "norm" in name and name.endswith("weight"):
        return rng.normal(1, 0.2, shape)
    if name.endswith("A_log"):
        return rng.uniform(-1, 1, shape)
    if name.endswith("gk_proj.1.bias"):
        return rng.normal(-2, 2, shape)
    if len(shape) == 2 and "embedding" not in name and name.endswith("weight"):
        return rng.normal(0, 1 / np.sqrt(shape[1]), shape)
    return rng.normal(0, 0.5, shape)


def make(name: str, compare: bool) -> None:
    kind, dtype, options = MODELS[name]
    config = BLOCK | {"vocab_size": VOCABULARY, "use_cache": True} | options
    model = kind(config)
    rng = np.random.Generator(np.random.PCG64(list(MODELS).index(name)))
    made = {key: random_tensor(rng, key, shape) for key, shape in sorted(model.shapes().items())}
    tensors = {key: bundle.rounded(key, array.astype(np.float32), dtype) for key, array in made.items()}
    values = rng.integers(0, VOCABULARY, STEPS + 1)
    wide = {key: array.astype(np.float64) for key, array in tensors.items()}
    head = model.logits(wide, values[:-1])[:, :VOCABULARY]
    log_prob = (head - np.log(np.exp(head).sum(-1, keepdims=True)))[np.arange(STEPS), values[1:]]
    golden = {"values": values, "head": head, "log_prob": log_prob}
    stored = {key: np.asarray(array, np.float32) for key, array in golden.items()}
    folder = os.path.join(HERE, name)
    if compare:
        for key, array in bundle.read_safetensors(os.path.join(folder, "golden.bin")).items():
            worst = np.abs(array - stored[key]).max()
            assert worst < 1e-5, f"{name}: '{key}' differs by {worst}"
        return
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(published_config(config), indent=2) + "\n")
    for file_name, arrays, kept in (("model.safetensors", tensors, dtype), ("golden.bin", stored, "f32")):
        shapes = {key: array.shape for key, array in arrays.items()}
        bundle.write_safetensors(os.path.join(folder, file_name), shapes, arrays.__getitem__, kept)
    print(f"{name}: logits up to {float(np.abs(head).max()):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    for name in [args.only] if args.only else MODELS:
        make(name, args.check)


if __name__ == "__main__":
    main()
