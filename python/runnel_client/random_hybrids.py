"""Sizes and tensors of published hybrids, with recurrence and softmax attention in different layers or in parallel.

Sizes are as publicly described. `nemotron-h-tiny` has our own sizes, because the published models are large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runnel_client.bundle import Shapes

Config = dict[str, Any]


@dataclass(frozen=True)
class Hybrid:
    """A published model."""

    layers: str  # a letter for each: r recurrent, a attention, b both, f feed-forward alone
    values: int
    config: Config  # the keys of its config.json, without the layers


@dataclass(frozen=True)
class Names:
    """The names of tensors within a layer, in transformers."""

    norm: str
    ffn_norm: str
    recurrent: str
    ffn: str
    last_norm: str  # of the model


GRANITE_ATTENTION = (10, 13, 17, 27)
GRANITE_TINY_ATTENTION = (5, 15, 25, 35)
LFM2_ATTENTION = (2, 5, 8, 10, 12, 14)
LFM2_8B_ATTENTION = (2, 6, 10, 14, 18, 21)

PRESETS = {
    "lfm2-350m": Hybrid(
        "".join("a" if layer in LFM2_ATTENTION else "r" for layer in range(16)),
        65536,
        {
            "architectures": ["Lfm2ForCausalLM"],
            "model_type": "lfm2",
            "block_auto_adjust_ff_dim": True,
            "block_ff_dim": 6656,
            "block_ffn_dim_multiplier": 1.0,
            "block_multiple_of": 256,
            "conv_L_cache": 3,
            "conv_bias": False,
            "hidden_size": 1024,
            "max_position_embeddings": 128000,
            "norm_eps": 1e-5,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "rope_theta": 1000000.0,
            "tie_word_embeddings": True,
        },
    ),
    "granite-4.0-h-350m": Hybrid(
        "".join("a" if layer in GRANITE_ATTENTION else "r" for layer in range(32)),
        100352,
        {
            "architectures": ["GraniteMoeHybridForCausalLM"],
            "model_type": "granitemoehybrid",
            "attention_multiplier": 0.015625,
            "embedding_multiplier": 12.0,
            "hidden_act": "silu",
            "hidden_size": 768,
            "intermediate_size": 2048,
            "logits_scaling": 3.0,
            "mamba_conv_bias": True,
            "mamba_d_conv": 4,
            "mamba_d_head": 32,
            "mamba_d_state": 128,
            "mamba_expand": 2,
            "mamba_n_groups": 1,
            "mamba_n_heads": 48,
            "mamba_proj_bias": False,
            "max_position_embeddings": 32768,
            "num_attention_heads": 12,
            "num_experts_per_tok": 0,
            "num_key_value_heads": 4,
            "num_local_experts": 0,
            "position_embedding_type": "nope",
            "residual_multiplier": 0.246,
            "rms_norm_eps": 1e-5,
            "shared_intermediate_size": 2048,
            "tie_word_embeddings": True,
        },
    ),
    "granite-4.0-h-tiny": Hybrid(
        "".join("a" if layer in GRANITE_TINY_ATTENTION else "r" for layer in range(40)),
        100352,
        {
            "architectures": ["GraniteMoeHybridForCausalLM"],
            "model_type": "granitemoehybrid",
            "attention_multiplier": 0.0078125,
            "embedding_multiplier": 12.0,
            "hidden_act": "silu",
            "hidden_size": 1536,
            "intermediate_size": 512,
            "logits_scaling": 6.0,
            "mamba_conv_bias": True,
            "mamba_d_conv": 4,
            "mamba_d_head": 64,
            "mamba_d_state": 128,
            "mamba_expand": 2,
            "mamba_n_groups": 1,
            "mamba_n_heads": 48,
            "mamba_proj_bias": False,
            "max_position_embeddings": 131072,
            "num_attention_heads": 12,
            "num_experts_per_tok": 6,
            "num_key_value_heads": 4,
            "num_local_experts": 64,
            "position_embedding_type": "nope",
            "residual_multiplier": 0.22,
            "rms_norm_eps": 1e-5,
            "shared_intermediate_size": 1024,
            "tie_word_embeddings": True,
        },
    ),
    "lfm2-8b-a1b": Hybrid(
        "".join("a" if layer in LFM2_8B_ATTENTION else "r" for layer in range(24)),
        65536,
        {
            "architectures": ["Lfm2MoeForCausalLM"],
            "model_type": "lfm2_moe",
            "conv_L_cache": 3,
            "conv_bias": False,
            "hidden_size": 2048,
            "intermediate_size": 7168,
            "max_position_embeddings": 128000,
            "moe_intermediate_size": 1792,
            "norm_eps": 1e-5,
            "norm_topk_prob": True,
            "num_attention_heads": 32,
            "num_dense_layers": 2,
            "num_experts": 32,
            "num_experts_per_tok": 4,
            "num_key_value_heads": 8,
            "rope_theta": 1000000.0,
            "routed_scaling_factor": 1.0,
            "tie_word_embeddings": True,
            "use_expert_bias": True,
        },
    ),
    "qwen3.5-0.8b": Hybrid(
        6 * "rrra",
        248320,
        {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            "attn_output_gate": True,
            "full_attention_interval": 4,
            "head_dim": 256,
            "hidden_act": "silu",
            "hidden_size": 1024,
            "intermediate_size": 3584,
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 16,
            "linear_value_head_dim": 128,
            "max_position_embeddings": 262144,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000000.0, "rope_type": "default"},
            "tie_word_embeddings": True,
        },
    ),
    "falcon-h1-0.5b": Hybrid(
        36 * "b",
        32784,
        {
            "architectures": ["FalconH1ForCausalLM"],
            "model_type": "falcon_h1",
            "attention_in_multiplier": 1.0,
            "attention_out_multiplier": 0.9375,
            "embedding_multiplier": 5.656854249492381,
            "head_dim": 64,
            "hidden_act": "silu",
            "hidden_size": 1024,
            "intermediate_size": 2048,
            "key_multiplier": 0.39062499999999994,
            "lm_head_multiplier": 0.0390625,
            "mamba_conv_bias": True,
            "mamba_d_conv": 4,
            "mamba_d_head": 64,
            "mamba_d_ssm": 1536,
            "mamba_d_state": 128,
            "mamba_expand": 2,
            "mamba_n_groups": 1,
            "mamba_n_heads": 24,
            "mamba_norm_before_gate": False,
            "mamba_proj_bias": False,
            "mamba_rms_norm": False,
            "max_position_embeddings": 16384,
            "mlp_multipliers": [0.8838834764831844, 0.5859375],
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "projectors_bias": False,
            "rms_norm_eps": 1e-5,
            "rope_theta": 100000000000.0,
            "ssm_in_multiplier": 1.25,
            "ssm_multipliers": [0.3535533905932738, 0.5, 0.3535533905932738, 0.5, 0.7071067811865476],
            "ssm_out_multiplier": 0.23570226039551587,
            "tie_word_embeddings": False,
        },
    ),
    "nemotron-h-tiny": Hybrid(
        2 * "rfrfrfaf",
        131072,
        {
            "architectures": ["NemotronHForCausalLM"],
            "model_type": "nemotron_h",
            "conv_kernel": 4,
            "head_dim": 128,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "layer_norm_epsilon": 1e-5,
            "mamba_head_dim": 64,
            "mamba_num_heads": 32,
            "max_position_embeddings": 8192,
            "mlp_hidden_act": "relu2",
            "n_groups": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "ssm_state_size": 128,
            "tie_word_embeddings": False,
            "use_bias": False,
            "use_conv_bias": True,
        },
    ),
}

NAMES = {
    "lfm2": Names("operator_norm", "ffn_norm", "conv", "feed_forward", "model.embedding_norm"),
    "lfm2_moe": Names("operator_norm", "ffn_norm", "conv", "feed_forward", "model.embedding_norm"),
    "granitemoehybrid": Names("input_layernorm", "post_attention_layernorm", "mamba", "shared_mlp", "model.norm"),
    "qwen3_5_text": Names("input_layernorm", "post_attention_layernorm", "linear_attn", "mlp", "model.norm"),
    "falcon_h1": Names("input_layernorm", "pre_ff_layernorm", "mamba", "feed_forward", "model.final_layernorm"),
    "nemotron_h": Names("norm", "", "mixer", "mixer", "backbone.norm_f"),
}


def config_of(name: str, layers: int, values: int) -> Config:
    """config.json of a preset's first layers and values."""
    preset = PRESETS[name]
    kinds = preset.layers[:layers]
    config = {**preset.config, "num_hidden_layers": layers, "vocab_size": values}
    family = config["model_type"]
    if family == "lfm2":
        config["full_attn_idxs"] = [layer for layer, kind in enumerate(kinds) if kind == "a"]
    elif family == "nemotron_h":
        config["hybrid_override_pattern"] = "".join({"r": "M", "a": "*", "f": "-"}[kind] for kind in kinds)
    elif family != "falcon_h1":
        types = {"granitemoehybrid": ("mamba", "attention"), "lfm2_moe": ("conv", "full_attention")}
        names = types.get(family, ("linear_attention", "full_attention"))
        config["layer_types"] = [names[kind == "a"] for kind in kinds]
    return config


def attention_shapes(c: Config) -> Shapes:
    width, heads = c["hidden_size"], c["num_attention_heads"]
    size = c.get("head_dim", width // heads)
    queries, keys = heads * size, c["num_key_value_heads"] * size
    is_qwen, is_lfm2 = c["model_type"] == "qwen3_5_text", c["model_type"].startswith("lfm2")
    shapes: Shapes = {
        "q_proj.weight": (queries * (2 if is_qwen else 1), width),  # Qwen's have the output's gate, too
        "k_proj.weight": (keys, width),
        "v_proj.weight": (keys, width),
        "out_proj.weight" if is_lfm2 else "o_proj.weight": (width, queries),
    }
    norm = "layernorm" if is_lfm2 else "norm"
    return {**shapes, **{f"{x}_{norm}.weight": (size,) for x in "qk"}} if is_qwen or is_lfm2 else shapes


def convolution_shapes(c: Config) -> Shapes:
    width = c["hidden_size"]
    taps = (width, 1, c["conv_L_cache"])
    return {"in_proj.weight": (3 * width, width), "conv.weight": taps, "out_proj.weight": (width, width)}


def delta_shapes(c: Config) -> Shapes:
    width, heads = c["hidden_size"], c["linear_num_value_heads"]
    inner = heads * c["linear_value_head_dim"]
    channels = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + inner
    return {
        "in_proj_qkv.weight": (channels, width),
        "in_proj_z.weight": (inner, width),
        "in_proj_b.weight": (heads, width),
        "in_proj_a.weight": (heads, width),
        "conv1d.weight": (channels, 1, c["linear_conv_kernel_dim"]),
        "A_log": (heads,),
        "dt_bias": (heads,),
        "norm.weight": (c["linear_value_head_dim"],),
        "out_proj.weight": (width, inner),
    }


def mamba2_shapes(c: Config) -> Shapes:
    width = c["hidden_size"]
    keys = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel")
    if c["model_type"] != "nemotron_h":
        keys = ("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv")
    heads, size, state, groups, taps = (c[key] for key in keys)
    inner = heads * size
    channels = inner + 2 * groups * state
    norm: Shapes = {"norm.weight": (inner,)} if c.get("mamba_rms_norm", True) else {}
    return {
        "in_proj.weight": (inner + channels + heads, width),
        "conv1d.weight": (channels, 1, taps),
        "conv1d.bias": (channels,),
        "A_log": (heads,),
        "D": (heads,),
        "dt_bias": (heads,),
        **norm,
        "out_proj.weight": (width, inner),
    }


def swiglu_shapes(ffn: int, width: int) -> Shapes:
    """The shapes of a feed-forward's tensors, by the names of LFM2."""
    return {"w1.weight": (ffn, width), "w3.weight": (ffn, width), "w2.weight": (width, ffn)}


def has_experts(c: Config, layer: int) -> bool:
    if c["model_type"] == "lfm2_moe":
        return layer >= int(c["num_dense_layers"])
    return int(c.get("num_local_experts", 0)) > 0


def expert_shapes(c: Config) -> Shapes:
    """The shapes of a layer's router and experts, by their names within the layer."""
    width = c["hidden_size"]
    if c["model_type"] == "granitemoehybrid":
        count, ffn = c["num_local_experts"], c["intermediate_size"]
        return {
            "block_sparse_moe.router.layer.weight": (count, width),
            "block_sparse_moe.input_linear.weight": (count, 2 * ffn, width),
            "block_sparse_moe.output_linear.weight": (count, width, ffn),
        }
    count = c["num_experts"]
    shapes: Shapes = {"feed_forward.gate.weight": (count, width), "feed_forward.expert_bias": (count,)}
    for expert in range(count):
        for name, shape in swiglu_shapes(c["moe_intermediate_size"], width).items():
            shapes[f"feed_forward.experts.{expert}.{name}"] = shape
    return shapes


def feed_forward_shapes(c: Config) -> Shapes:
    width, family = c["hidden_size"], c["model_type"]
    if family == "lfm2":
        adjusted = int(2 * c["block_ff_dim"] / 3 * c["block_ffn_dim_multiplier"])
        return swiglu_shapes(math.ceil(adjusted / c["block_multiple_of"]) * c["block_multiple_of"], width)
    ffn = c["intermediate_size"]
    if family == "lfm2_moe":
        return swiglu_shapes(ffn, width)
    if family == "granitemoehybrid":
        ffn = c["shared_intermediate_size"]
        return {"input_linear.weight": (2 * ffn, width), "output_linear.weight": (width, ffn)}
    gate: Shapes = {} if family == "nemotron_h" else {"gate_proj.weight": (ffn, width)}
    return {**gate, "up_proj.weight": (ffn, width), "down_proj.weight": (width, ffn)}


def layer_shapes(c: Config, index: int, kind: str) -> Shapes:
    """The shapes of one layer's tensors, by their names within the layer."""
    names, width, is_nemotron = NAMES[c["model_type"]], c["hidden_size"], c["model_type"] == "nemotron_h"
    recurrent: Callable[[Config], Shapes] = mamba2_shapes
    if c["model_type"].startswith("lfm2"):
        recurrent = convolution_shapes
    elif c["model_type"] == "qwen3_5_text":
        recurrent = delta_shapes
    shapes: Shapes = {names.norm + ".weight": (width,)}
    if not is_nemotron:
        shapes[names.ffn_norm + ".weight"] = (width,)
    parts: list[tuple[str, Shapes]] = []
    if kind in "rb":
        parts.append((names.recurrent, recurrent(c)))
    if kind in "ab":
        parts.append(("mixer" if is_nemotron else "self_attn", attention_shapes(c)))
    mixes = has_experts(c, index)
    if kind == "f" or not (is_nemotron or (mixes and c["model_type"] == "lfm2_moe")):
        parts.append((names.ffn, feed_forward_shapes(c)))
    if mixes:
        shapes.update(expert_shapes(c))
    return {**shapes, **{f"{part}.{name}": shape for part, inside in parts for name, shape in inside.items()}}


def shapes_of(name: str, layers: int, values: int) -> Shapes:
    """The shape of every tensor of a preset's first layers and values, by the names of transformers."""
    config = config_of(name, layers, values)
    width, family = config["hidden_size"], config["model_type"]
    table = "backbone.embeddings.weight" if family == "nemotron_h" else "model.embed_tokens.weight"
    shapes: Shapes = {table: (values, width), NAMES[family].last_norm + ".weight": (width,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (values, width)
    prefix = table.split(".", maxsplit=1)[0]
    for index, kind in enumerate(PRESETS[name].layers[:layers]):
        for inside, shape in layer_shapes(config, index, kind).items():
            shapes[f"{prefix}.layers.{index}.{inside}"] = shape
    return shapes


def is_zero_centred(name: str, tensor: str) -> bool:
    """Whether a preset's tensor stores the scale of a norm minus 1."""
    is_norm = tensor.endswith("norm.weight") and not tensor.endswith("linear_attn.norm.weight")
    return is_norm and PRESETS[name].config["model_type"] == "qwen3_5_text"
