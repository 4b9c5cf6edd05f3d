#!/usr/bin/env python3
"""Write the golden files of models that mix recurrent layers with softmax attention.

    build/python/bin/python tests/golden/make_hybrids.py [--check] [--only NAME] [--given FOLDER]

NAME/{config.json,model.safetensors,golden.bin}, as make_recurrences.py describes. The models of MODELS are random, and
their outputs follow from the equations, in float64 with numpy alone. The outputs of GIVEN were computed by the classes
of transformers 5.23.0 in float32. --given FOLDER reads these models from FOLDER/NAME, with the logits of its
expected.npz. --check compares the equations with them, too.
"""

import argparse
import json
import os
import shutil
from typing import Any

import numpy as np
import numpy.typing as npt
from make_recurrences import (
    HERE,
    STEPS,
    VOCABULARY,
    Array,
    Config,
    Shapes,
    State,
    Tensors,
    bundle,
    l2_norm,
    random_tensor,
    rms_norm,
    sigmoid,
    silu,
    softplus,
)

GIVEN = {
    "hybrid_qwen3_5": "qwen3.5-a",
    "hybrid_lfm2": "lfm2-a",
    "hybrid_granite": "granite-h-a",
    "hybrid_granite_experts": "granite-h-moe",
    "hybrid_falcon_h1": "falcon-h1-a",
}
KINDS = {
    "M": "mamba",
    "*": "attention",
    "-": "mlp",
    "E": "moe",
    "linear_attention": "mamba",
    "full_attention": "attention",
}


def linear(p: Tensors, name: str, x: Array) -> Array:
    y = p[name + ".weight"] @ x
    return y + p[name + ".bias"] if name + ".bias" in p else y


def number(x: Any) -> float:
    return float(x["__float__"]) if isinstance(x, dict) else float(x)


class Hybrid:
    """Qwen3.5's text model, LFM2, Granite-4.0-H, Falcon-H1 and Nemotron-H, stepped one value at a time."""

    def __init__(self, config: Config):
        self.type = config["model_type"]
        self.c = c = config.get("text_config", config)
        self.width = c["hidden_size"]
        self.qwen, self.lfm2 = self.type.startswith("qwen"), self.type.startswith("lfm2")
        self.granite, self.falcon = (self.type == "granitemoehybrid", self.type == "falcon_h1")
        self.nemotron = self.type == "nemotron_h"
        self.eps = next((c[key] for key in ("rms_norm_eps", "norm_eps", "layer_norm_epsilon") if key in c), 1e-6)
        self.heads, self.kv = c["num_attention_heads"], c["num_key_value_heads"]
        self.size = c.get("head_dim") or self.width // self.heads
        rope = c.get("rope_parameters") or {}
        self.theta = rope.get("rope_theta") or c.get("rope_theta") or {"lfm2": 1e6}.get(self.type, 1e4)
        self.rotated = int(self.size * (rope.get("partial_rotary_factor") or (0.25 if self.qwen else 1.0)))
        if self.nemotron or (self.granite and c.get("position_embedding_type", "nope") != "rope"):
            self.rotated = 0
        self.kinds = self.layer_kinds()
        counts = {"granitemoehybrid": "num_local_experts", "nemotron_h": "n_routed_experts"}
        self.experts = c.get(counts.get(self.type, "num_experts"), 0)
        prefix = "backbone." if self.nemotron else "model."
        self.prefix = prefix + ("language_model." if self.type == "qwen3_5" else "")

    def layer_kinds(self) -> list[str]:
        c, count = self.c, self.c.get("num_hidden_layers", 0)
        if self.falcon:
            return ["both"] * count
        if "full_attn_idxs" in c and c["full_attn_idxs"] is not None:
            return ["attention" if i in c["full_attn_idxs"] else "conv" for i in range(count)]
        listed = c.get("layer_types") or c.get("hybrid_override_pattern")
        if listed is None:
            every = c.get("full_attention_interval", 4)
            listed = ["attention" if (i + 1) % every == 0 else "mamba" for i in range(count)]
        return [KINDS.get(kind, kind) for kind in listed]

    # ---- tensors ----------------------------------------------------------------------------------------------------

    def names(self) -> dict[str, str]:
        names = {"norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "last": "norm", "o": "o_proj"}
        names |= {"table": "embed_tokens", "attention": "self_attn.", "mamba": "mamba.", "ffn": "mlp."}
        if self.qwen:
            names["mamba"] = "linear_attn."
        if self.lfm2:
            names |= {"norm": "operator_norm", "ffn_norm": "ffn_norm", "last": "embedding_norm", "o": "out_proj"}
            names |= {"mamba": "conv.", "ffn": "feed_forward."}
        names["experts"] = names["ffn"]
        if self.granite:
            names |= {"ffn": "shared_mlp.", "experts": "block_sparse_moe."}
        if self.falcon:
            names |= {"ffn_norm": "pre_ff_layernorm", "last": "final_layernorm", "ffn": "feed_forward."}
        if self.nemotron:
            names |= {"norm": "norm", "last": "norm_f", "table": "embeddings"}
            names |= {"attention": "mixer.", "mamba": "mixer.", "ffn": "mixer.", "experts": "mixer."}
        return names

    def inner(self) -> int:
        c = self.c
        if self.nemotron:
            return int(c["mamba_num_heads"] * c["mamba_head_dim"])
        return int(c.get("mamba_d_ssm") or c.get("mamba_expand", 2) * self.width)

    def sizes(self) -> tuple[int, int, int]:
        """Mamba-2's heads, keys of a group, and groups."""
        c = self.c
        if self.nemotron:
            return c["mamba_num_heads"], c["ssm_state_size"], c["n_groups"]
        return c["mamba_n_heads"], c["mamba_d_state"], c["mamba_n_groups"]

    def shapes(self) -> Shapes:
        c, names, width = self.c, self.names(), self.width
        shapes: Shapes = {self.prefix + names["table"] + ".weight": (c["vocab_size"], width)}
        shapes[self.prefix + names["last"] + ".weight"] = (width,)
        if not c.get("tie_word_embeddings"):
            shapes["lm_head.weight"] = (c["vocab_size"], width)
        for layer, kind in enumerate(self.kinds):
            name = f"{self.prefix}layers.{layer}."
            shapes[name + names["norm"] + ".weight"] = (width,)
            if not self.nemotron:
                shapes[name + names["ffn_norm"] + ".weight"] = (width,)
            if kind in ("attention", "both"):
                shapes |= {name + names["attention"] + key: shape for key, shape in self.attention_shapes().items()}
            if kind in ("mamba", "both", "conv"):
                shapes |= {name + names["mamba"] + key: shape for key, shape in self.recurrent_shapes().items()}
            if (kind == "mlp" or not self.nemotron) and self.has_dense(layer):
                shapes |= {name + names["ffn"] + key: shape for key, shape in self.ffn_shapes().items()}
            if self.has_experts(layer):
                shapes |= {name + names["experts"] + key: shape for key, shape in self.expert_shapes().items()}
        return shapes

    @staticmethod
    def with_bias(shapes: Shapes, names: list[str], bias: bool) -> Shapes:
        biases = {key.replace(".weight", ".bias"): shape[:1] for key, shape in shapes.items()}
        return shapes | {key: shape for key, shape in biases.items() if bias and key.removesuffix(".bias") in names}

    def attention_shapes(self) -> Shapes:
        width, inner, keys = self.width, self.heads * self.size, self.kv * self.size
        o = self.names()["o"]
        shapes: Shapes = {"q_proj.weight": (2 * inner if self.qwen else inner, width), o + ".weight": (width, inner)}
        shapes |= {"k_proj.weight": (keys, width), "v_proj.weight": (keys, width)}
        shapes = self.with_bias(shapes, ["q_proj", "k_proj", "v_proj", o], self.c.get("attention_bias", False))
        if self.qwen:
            shapes |= {"q_norm.weight": (self.size,), "k_norm.weight": (self.size,)}
        if self.lfm2:
            shapes |= {"q_layernorm.weight": (self.size,), "k_layernorm.weight": (self.size,)}
        return shapes

    def recurrent_shapes(self) -> Shapes:
        c, width = self.c, self.width
        if self.lfm2:
            shapes: Shapes = {"in_proj.weight": (3 * width, width), "out_proj.weight": (width, width)}
            shapes["conv.weight"] = (width, 1, c["conv_L_cache"])
            return self.with_bias(shapes, ["in_proj", "out_proj", "conv"], c["conv_bias"])
        if self.qwen:
            keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
            heads, dv = c["linear_num_value_heads"], c["linear_value_head_dim"]
            if self.type == "qwen3_next":
                shapes = {"in_proj_qkvz.weight": (2 * keys + 2 * heads * dv, width)}
                shapes |= {"in_proj_ba.weight": (2 * heads, width)}
            else:
                shapes = {"in_proj_qkv.weight": (2 * keys + heads * dv, width), "in_proj_z.weight": (heads * dv, width)}
                shapes |= {"in_proj_b.weight": (heads, width), "in_proj_a.weight": (heads, width)}
            shapes |= {"conv1d.weight": (2 * keys + heads * dv, 1, c["linear_conv_kernel_dim"])}
            shapes |= {"A_log": (heads,), "dt_bias": (heads,), "norm.weight": (dv,)}
            return shapes | {"out_proj.weight": (width, heads * dv)}
        (heads, keys, groups), inner = self.sizes(), self.inner()
        channels = inner + 2 * groups * keys
        taps = c.get("conv_kernel") or c.get("mamba_d_conv")
        shapes = {"in_proj.weight": (inner + channels + heads, width), "conv1d.weight": (channels, 1, taps)}
        shapes |= {"A_log": (heads,), "dt_bias": (heads,), "D": (heads,), "out_proj.weight": (width, inner)}
        if not self.falcon or c.get("mamba_rms_norm"):
            shapes["norm.weight"] = (inner,)
        shapes = self.with_bias(shapes, ["conv1d"], c.get("use_conv_bias", c.get("mamba_conv_bias", True)))
        bias = c.get("use_bias", c.get("mamba_proj_bias", False))
        shapes = self.with_bias(shapes, ["in_proj"], bias)
        return self.with_bias(shapes, ["out_proj"], c.get("projectors_bias", False) if self.falcon else bias)

    def ffn_shapes(self) -> Shapes:
        c, width = self.c, self.width
        if self.granite:
            ffn = c["shared_intermediate_size"]
            return {"input_linear.weight": (2 * ffn, width), "output_linear.weight": (width, ffn)}
        ffn = c["intermediate_size"]
        if self.lfm2:
            return {"w1.weight": (ffn, width), "w3.weight": (ffn, width), "w2.weight": (width, ffn)}
        shapes: Shapes = {"up_proj.weight": (ffn, width), "down_proj.weight": (width, ffn)}
        if not self.nemotron:
            shapes["gate_proj.weight"] = (ffn, width)
        return self.with_bias(shapes, ["gate_proj", "up_proj", "down_proj"], c.get("mlp_bias", False))

    def has_experts(self, layer: int) -> bool:
        if self.nemotron:
            return self.kinds[layer] == "moe"
        return self.experts > 0 and layer >= (self.c["num_dense_layers"] if self.lfm2 else 0)

    def has_dense(self, layer: int) -> bool:
        return self.granite or not self.has_experts(layer)

    def expert_shapes(self) -> Shapes:
        count, width = self.experts, self.width
        if self.granite:
            ffn = self.c["intermediate_size"]
            shapes: Shapes = {"router.layer.weight": (count, width), "input_linear.weight": (count, 2 * ffn, width)}
            return shapes | {"output_linear.weight": (count, width, ffn)}
        ffn = self.c["moe_intermediate_size"]
        shapes = {"gate.weight": (count, width)}
        if self.nemotron:
            for expert in range(count):
                shapes[f"experts.{expert}.up_proj.weight"] = (ffn, width)
                shapes[f"experts.{expert}.down_proj.weight"] = (width, ffn)
            shared = self.c["moe_shared_expert_intermediate_size"]
            shapes |= {"shared_experts.up_proj.weight": (shared, width), "gate.e_score_correction_bias": (count,)}
            return shapes | {"shared_experts.down_proj.weight": (width, shared)}
        if self.lfm2:
            for expert in range(count):
                shapes |= {f"experts.{expert}.{key}.weight": (ffn, width) for key in ("w1", "w3")}
                shapes[f"experts.{expert}.w2.weight"] = (width, ffn)
            return shapes | {"expert_bias": (count,)}
        if self.type == "qwen3_next":
            for expert in range(count):
                shapes |= {f"experts.{expert}.{key}_proj.weight": (ffn, width) for key in ("gate", "up")}
                shapes[f"experts.{expert}.down_proj.weight"] = (width, ffn)
        else:
            shapes |= {"experts.gate_up_proj": (count, 2 * ffn, width), "experts.down_proj": (count, width, ffn)}
        shared = self.c["shared_expert_intermediate_size"]
        shapes |= {f"shared_expert.{key}_proj.weight": (shared, width) for key in ("gate", "up")}
        return shapes | {"shared_expert.down_proj.weight": (width, shared), "shared_expert_gate.weight": (1, width)}

    # ---- outputs ----------------------------------------------------------------------------------------------------

    def factor(self, key: str) -> float:
        return float(self.c.get(key, 1.0))

    def norm(self, x: Array, weight: Array) -> Array:
        return rms_norm(x, 1 + weight if self.qwen else weight, self.eps)

    def logits(self, tensors: dict[str, Array], values: npt.NDArray[np.int64]) -> Array:
        w, names, rows = Tensors(tensors), self.names(), []
        states = [State() for _ in self.kinds]
        table = w[self.prefix + names["table"] + ".weight"]
        head = w.get("lm_head.weight", table)
        for position, value in enumerate(values):
            x = table[value] * self.factor("embedding_multiplier")
            for layer in range(len(self.kinds)):
                x = self.layer(w.under(f"{self.prefix}layers.{layer}."), x, layer, states[layer], position)
            y = self.norm(x, w[self.prefix + names["last"] + ".weight"])
            rows.append(head @ y * self.factor("lm_head_multiplier") / self.factor("logits_scaling"))
        return np.stack(rows)

    def layer(self, p: Tensors, x: Array, index: int, state: State, position: int) -> Array:
        kind, names, residual = self.kinds[index], self.names(), self.factor("residual_multiplier")
        u = self.norm(x, p[names["norm"] + ".weight"])
        if kind == "mlp":
            return x + self.feed_forward(p.under(names["ffn"]), u)
        if kind == "moe":
            mixer = p.under(names["experts"])
            return x + self.mixture(mixer, u) + self.feed_forward(mixer.under("shared_experts."), u)
        if kind in ("attention", "both"):
            y = self.attend(p.under(names["attention"]), u * self.factor("attention_in_multiplier"), state, position)
            x = x + y * residual * self.factor("attention_out_multiplier")
        if kind != "attention":
            y = self.recurrent(p.under(names["mamba"]), u * self.factor("ssm_in_multiplier"), state)
            x = x + y * residual * self.factor("ssm_out_multiplier")
        if self.nemotron:
            return x
        u = self.norm(x, p[names["ffn_norm"] + ".weight"])
        y = self.feed_forward(p.under(names["ffn"]), u) if self.has_dense(index) else np.zeros_like(x)
        if self.has_experts(index):
            y = y + self.mixture(p.under(names["experts"]), u)
        return x + residual * y

    def mixture(self, p: Tensors, u: Array) -> Array:
        """The experts with the largest scores, each multiplied by its share."""
        scores = p["router.layer.weight" if self.granite else "gate.weight"] @ u
        if self.lfm2 or self.nemotron:
            bias = p["expert_bias" if self.lfm2 else "gate.e_score_correction_bias"]
            keys, shares = sigmoid(scores) + bias, sigmoid(scores)
        else:
            keys, shares = scores, np.exp(scores - scores.max())
        chosen = np.argsort(-keys, kind="stable")[: self.c["num_experts_per_tok"]]
        total = shares[chosen].sum() + (1e-6 if self.lfm2 else 0.0)
        y = sum(shares[e] / total * self.expert(p, e, u) for e in chosen) * self.factor("routed_scaling_factor")
        if self.qwen:
            shared = p.under("shared_expert.")
            hidden = silu(shared["gate_proj.weight"] @ u) * (shared["up_proj.weight"] @ u)
            y = y + sigmoid(p["shared_expert_gate.weight"] @ u) * (shared["down_proj.weight"] @ hidden)
        return y

    def expert(self, p: Tensors, index: int, u: Array) -> Array:
        if self.lfm2 or self.nemotron:
            return self.feed_forward(p.under(f"experts.{index}."), u)
        if self.type == "qwen3_next":
            of_expert = p.under(f"experts.{index}.")
            hidden = silu(of_expert["gate_proj.weight"] @ u) * (of_expert["up_proj.weight"] @ u)
            return of_expert["down_proj.weight"] @ hidden
        names = ("input_linear.weight", "output_linear.weight")
        if self.qwen:
            names = ("experts.gate_up_proj", "experts.down_proj")
        gate, up = np.split(p[names[0]][index] @ u, 2)
        return p[names[1]][index] @ (silu(gate) * up)

    def feed_forward(self, p: Tensors, u: Array) -> Array:
        if self.nemotron:
            return linear(p, "down_proj", np.maximum(linear(p, "up_proj", u), 0) ** 2)
        if self.granite:
            gate, up = np.split(p["input_linear.weight"] @ u, 2)
            return p["output_linear.weight"] @ (silu(gate) * up)
        if self.lfm2:
            return p["w2.weight"] @ (silu(p["w1.weight"] @ u) * (p["w3.weight"] @ u))
        of_gate, of_down = self.c.get("mlp_multipliers") or (1.0, 1.0)
        hidden = silu(of_gate * linear(p, "gate_proj", u)) * linear(p, "up_proj", u)
        return of_down * linear(p, "down_proj", hidden)

    def rotate(self, x: Array, position: int) -> Array:
        """Rotates the first `rotated` numbers of each head: number i pairs with number i + rotated / 2."""
        half = self.rotated // 2
        angle = position * self.theta ** (-np.arange(half) / max(half, 1))
        low, high, rest = x[:, :half], x[:, half : 2 * half], x[:, 2 * half :]
        cosine, sine = np.cos(angle), np.sin(angle)
        return np.concatenate([low * cosine - high * sine, high * cosine + low * sine, rest], -1)

    def attend(self, p: Tensors, u: Array, state: State, position: int) -> Array:
        q, k = (linear(p, "q_proj", u), linear(p, "k_proj", u) * self.factor("key_multiplier"))
        k, v = k.reshape(self.kv, -1), linear(p, "v_proj", u).reshape(self.kv, -1)
        q, gate = q.reshape(self.heads, -1), None
        if self.qwen:
            q, gate = np.split(q, 2, -1)
            q, k = self.norm(q, p["q_norm.weight"]), self.norm(k, p["k_norm.weight"])
        if self.lfm2:
            q, k = (self.norm(q, p["q_layernorm.weight"]), self.norm(k, p["k_layernorm.weight"]))
        q, k = self.rotate(q, position), self.rotate(k, position)
        keys = np.concatenate([state.part("K", 0, *k.shape), k[None]])
        values = np.concatenate([state.part("V", 0, *v.shape), v[None]])
        state["K"], state["V"] = keys, values
        scale = self.c["attention_multiplier"] if self.granite else self.size**-0.5
        group = np.repeat(np.arange(self.kv), self.heads // self.kv)
        scores = scale * np.einsum("hd,jhd->hj", q, keys[:, group])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        y = np.einsum("hj,jhd->hd", weights / weights.sum(-1, keepdims=True), values[:, group])
        if gate is not None:
            y = y * sigmoid(gate)
        return linear(p, self.names()["o"], y.reshape(-1))

    def recurrent(self, p: Tensors, u: Array, state: State) -> Array:
        if self.lfm2:
            b, c, x = np.split(linear(p, "in_proj", u), 3)
            bias = p.get("conv.bias", 0.0)
            return linear(p, "out_proj", c * state.convolve("inputs", b * x, p["conv.weight"], bias))
        return self.delta(p, u, state) if self.qwen else self.mamba(p, u, state)

    def delta_inputs(self, p: Tensors, u: Array) -> tuple[Array, Array, Array, Array]:
        """The projections [q k v], z, b and a. Qwen3-Next joins them key head by key head."""
        if self.type != "qwen3_next":
            qkv, z, b, a = (p[f"in_proj_{name}.weight"] @ u for name in ("qkv", "z", "b", "a"))
            return qkv, z, b, a
        c, heads = self.c, self.c["linear_num_key_heads"]
        dk, group = c["linear_key_head_dim"], c["linear_num_value_heads"] // heads
        values = group * c["linear_value_head_dim"]
        parts = (p["in_proj_qkvz.weight"] @ u).reshape(heads, -1)
        q, k, v, z = np.split(parts, [dk, 2 * dk, 2 * dk + values], 1)
        b, a = np.split((p["in_proj_ba.weight"] @ u).reshape(heads, -1), 2, 1)
        return np.concatenate([x.reshape(-1) for x in (q, k, v)]), z.reshape(-1), b.reshape(-1), a.reshape(-1)

    def delta(self, p: Tensors, u: Array, state: State) -> Array:
        c = self.c
        keys, heads = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk = c["linear_key_head_dim"]
        qkv, z, b, a = self.delta_inputs(p, u)
        qkv = silu(state.convolve("inputs", qkv, p["conv1d.weight"]))
        q, k, v = np.split(qkv, [keys * dk, 2 * keys * dk])
        q, k = (np.repeat(l2_norm(x.reshape(keys, dk)), heads // keys, 0) for x in (q, k))
        beta = sigmoid(b)[:, None]
        alpha = np.exp(-np.exp(p["A_log"]) * softplus(a + p["dt_bias"]))[:, None]
        alpha = np.broadcast_to(alpha, k.shape)
        y = state.advance(q * dk**-0.5, k, beta * v.reshape(heads, -1), alpha, (alpha * k, -beta * k))
        z = z.reshape(heads, -1)
        return p["out_proj.weight"] @ (rms_norm(y, p["norm.weight"], self.eps) * silu(z)).reshape(-1)

    def mamba(self, p: Tensors, u: Array, state: State) -> Array:
        c, inner = self.c, self.inner()
        heads, keys, groups = self.sizes()
        ends = np.cumsum([inner, inner, groups * keys, groups * keys])
        blocks = np.split(linear(p, "in_proj", u), ends)
        z, x, b, k, dt = (part * by for part, by in zip(blocks, c.get("ssm_multipliers") or [1.0] * 5, strict=True))
        bias = p.get("conv1d.bias", 0.0)
        mixed = silu(state.convolve("inputs", np.concatenate([x, b, k]), p["conv1d.weight"], bias))
        x, b, k = np.split(mixed, ends[1:3] - inner)
        x = x.reshape(heads, -1)
        b, k = (np.repeat(part.reshape(groups, -1), heads // groups, 0) for part in (b, k))
        least, most = (number(limit) for limit in c.get("time_step_limit") or (0.0, np.inf))
        dt = np.clip(softplus(dt + p["dt_bias"]), least, most)[:, None]
        w = np.broadcast_to(np.exp(-dt * np.exp(p["A_log"])[:, None]), b.shape)
        y = (state.advance(k, b, dt * x, w) + p["D"][:, None] * x).reshape(-1)
        first = self.falcon and c.get("mamba_norm_before_gate", True)
        if not first or not c.get("mamba_rms_norm"):
            y = y * silu(z)
        if "norm.weight" in p:
            y = rms_norm(y.reshape(groups, -1), 1.0, self.eps).reshape(-1) * p["norm.weight"]
        if first and c.get("mamba_rms_norm"):
            y = y * silu(z)
        return linear(p, "out_proj", y)


COMMON = {"hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCABULARY}
COMMON |= {"max_position_embeddings": 512}
MAMBA = {"mamba_n_heads": 6, "mamba_d_state": 5, "mamba_d_conv": 3, "mamba_n_groups": 2}
MODELS: dict[str, tuple[str, Config]] = {
    "hybrid_qwen3_5_image": (
        "bf16",
        {
            "model_type": "qwen3_5",
            "text_config": COMMON
            | {"model_type": "qwen3_5_text", "num_hidden_layers": 3, "full_attention_interval": 3, "head_dim": 16}
            | {"intermediate_size": 20, "rms_norm_eps": 1e-5, "linear_num_key_heads": 1, "linear_num_value_heads": 3}
            | {"linear_key_head_dim": 8, "linear_value_head_dim": 6, "linear_conv_kernel_dim": 3}
            | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}},
        },
    ),
    "hybrid_lfm2_bias": (
        "f32",
        COMMON
        | {"model_type": "lfm2", "num_hidden_layers": 3, "full_attn_idxs": [1], "intermediate_size": 28}
        | {"conv_L_cache": 4, "conv_bias": True, "norm_eps": 1e-4, "tie_word_embeddings": True, "rope_theta": 100.0},
    ),
    "hybrid_granite_rope": (
        "f32",
        COMMON
        | MAMBA
        | {"model_type": "granitemoehybrid", "num_hidden_layers": 3, "shared_intermediate_size": 20}
        | {"layer_types": ["mamba", "attention", "mamba"], "mamba_expand": 2, "position_embedding_type": "rope"}
        | {"attention_multiplier": 0.3, "attention_bias": True, "mamba_proj_bias": True, "rms_norm_eps": 1e-5}
        | {"embedding_multiplier": 2.5, "residual_multiplier": 0.7, "logits_scaling": 1.5}
        | {"time_step_limit": [0.2, 0.9], "tie_word_embeddings": True},
    ),
    "hybrid_falcon_h1_norm": (
        "f32",
        COMMON
        | MAMBA
        | {"model_type": "falcon_h1", "num_hidden_layers": 2, "intermediate_size": 20, "mamba_d_ssm": 18}
        | {"mamba_rms_norm": True, "rms_norm_eps": 1e-5, "attention_bias": True, "mlp_bias": True}
        | {"mamba_proj_bias": True, "projectors_bias": True, "head_dim": 10, "rope_theta": 1e5}
        | {"mlp_multipliers": [0.8, 1.3], "ssm_multipliers": [1.1, 0.9, 1.2, 0.8, 1.4], "ssm_in_multiplier": 0.9}
        | {"attention_out_multiplier": 1.2, "lm_head_multiplier": 0.5, "embedding_multiplier": 1.5},
    ),
    "hybrid_nemotron_h": (
        "f32",
        COMMON
        | {"model_type": "nemotron_h", "hybrid_override_pattern": "M-*-M", "intermediate_size": 30, "head_dim": 8}
        | {"mamba_num_heads": 4, "mamba_head_dim": 6, "ssm_state_size": 7, "n_groups": 2, "conv_kernel": 4}
        | {"layer_norm_epsilon": 1e-5, "use_bias": True, "mlp_bias": True, "attention_bias": True}
        | {"time_step_min": 0.1, "mlp_hidden_act": "relu2"},
    ),
    "hybrid_qwen3_next": (
        "f32",
        COMMON
        | {"model_type": "qwen3_next", "num_hidden_layers": 3, "full_attention_interval": 3, "head_dim": 8}
        | {"architectures": ["Qwen3NextForCausalLM"], "rms_norm_eps": 1e-5, "linear_num_key_heads": 2}
        | {"linear_num_value_heads": 4, "linear_key_head_dim": 12, "linear_value_head_dim": 5}
        | {"linear_conv_kernel_dim": 3, "rope_theta": 1e4, "partial_rotary_factor": 0.25, "num_experts": 7}
        | {"num_experts_per_tok": 3, "moe_intermediate_size": 9, "shared_expert_intermediate_size": 11}
        | {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "tie_word_embeddings": False}
        | {"layer_types": ["linear_attention", "linear_attention", "full_attention"], "intermediate_size": 20},
    ),
}


def golden_of(values: npt.NDArray[np.int64], head: Array) -> dict[str, npt.NDArray[np.float32]]:
    steps = len(values) - 1
    top = head.max(-1, keepdims=True)
    log_prob = (head - top - np.log(np.exp(head - top).sum(-1, keepdims=True)))[np.arange(steps), values[1:]]
    golden = {"values": values, "head": head, "log_prob": log_prob}
    return {key: np.asarray(array, np.float32) for key, array in golden.items()}


def write(path: str, arrays: dict[str, npt.NDArray[np.float32]], dtype: str) -> None:
    shapes = {key: array.shape for key, array in arrays.items()}
    bundle.write_safetensors(path, shapes, arrays.__getitem__, dtype)


def expect_near(name: str, found: dict[str, npt.NDArray[np.float32]], tolerance: float) -> None:
    for key, array in bundle.read_safetensors(os.path.join(HERE, name, "golden.bin")).items():
        worst = np.abs(array - found[key]).max()
        assert worst < tolerance, f"{name}: '{key}' differs by {worst}"


def make(name: str, compare: bool) -> None:
    dtype, config = MODELS[name]
    model = Hybrid(config)
    rng = np.random.Generator(np.random.PCG64(list(MODELS).index(name)))
    made = {key: random_tensor(rng, key, shape) for key, shape in sorted(model.shapes().items())}
    tensors = {key: bundle.rounded(key, array.astype(np.float32), dtype) for key, array in made.items()}
    values = rng.integers(0, VOCABULARY, STEPS + 1)
    head = model.logits({key: array.astype(np.float64) for key, array in tensors.items()}, values[:-1])
    golden = golden_of(values, head)
    if compare:
        expect_near(name, golden, 1e-5)
        return
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(config, indent=2) + "\n")
    if "text_config" in config:  # tensors of a published file outside the text model, which are not used
        tensors |= {key: np.zeros((2, 3), np.float32) for key in ("model.visual.patch.weight", "mtp.fc.weight")}
    write(os.path.join(folder, "model.safetensors"), tensors, dtype)
    write(os.path.join(folder, "golden.bin"), golden, "f32")
    print(f"{name}: logits up to {float(np.abs(head).max()):.1f}")


def take(name: str, given: str) -> None:
    source, folder = os.path.join(given, GIVEN[name]), os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    for file_name in ("config.json", "model.safetensors"):
        shutil.copyfile(os.path.join(source, file_name), os.path.join(folder, file_name))
    expected = np.load(os.path.join(source, "expected.npz"))
    write(os.path.join(folder, "golden.bin"), golden_of(expected["tokens"], expected["logits"][:-1]), "f32")


def check_given(name: str) -> None:
    folder = os.path.join(HERE, name)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        model = Hybrid(json.load(file))
    tensors = bundle.read_safetensors(os.path.join(folder, "model.safetensors"))
    values = bundle.read_safetensors(os.path.join(folder, "golden.bin"))["values"].astype(np.int64)
    head = model.logits({key: array.astype(np.float64) for key, array in tensors.items()}, values[:-1])
    expect_near(name, golden_of(values, head), 1e-4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*MODELS, *GIVEN])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--given", metavar="FOLDER")
    args = parser.parse_args()
    for name in [args.only] if args.only else [*MODELS, *GIVEN]:
        if name in MODELS:
            make(name, args.check)
        elif args.given is not None:
            take(name, args.given)
        elif args.check:
            check_given(name)


if __name__ == "__main__":
    main()
