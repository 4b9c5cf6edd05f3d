"""Sizes and tensors of the gated linear family, RWKV-5, RWKV-6 and Mamba-1, as in their published files.

If a model of about 340 million parameters has been published, its sizes are used. Other sizes are our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runnel_client.bundle import Shapes

Config = dict[str, Any]

RWKV_HEAD = 64
GLA_RANK = 16
MIX_RANK, DECAY_RANK = 32, 64  # of RWKV-6


@dataclass(frozen=True)
class Gated:
    layers: int
    values: int
    config: Config  # the keys of its config.json, without the numbers of layers and values


BLOCK: Config = {"hidden_size": 1024, "intermediate_size": 2816, "norm_eps": 1e-6, "tie_word_embeddings": False}
RWKV: Config = {"hidden_size": 1024, "attention_hidden_size": 1024, "intermediate_size": 3584, "head_size": RWKV_HEAD}
PRESETS = {
    "gla-340m": Gated(
        24,
        32000,
        {**BLOCK, "model_type": "gla", "num_heads": 4, "expand_k": 0.5, "expand_v": 1.0},
    ),
    "retnet-340m": Gated(
        24,
        32000,
        {**BLOCK, "model_type": "retnet", "num_heads": 4, "expand_k": 1.0, "expand_v": 2.0, "intermediate_size": 1536},
    ),
    "delta-net-340m": Gated(
        24,
        32000,
        {**BLOCK, "model_type": "delta_net", "num_heads": 8, "expand_k": 1.0, "expand_v": 1.0}
        | {"use_short_conv": True, "conv_size": 4, "use_gate": False},
    ),
    "gated-deltanet-340m": Gated(
        21,
        32000,
        {**BLOCK, "model_type": "gated_deltanet", "num_heads": 4, "head_dim": 256, "expand_v": 2.0}
        | {"use_short_conv": True, "conv_size": 4, "use_gate": True},
    ),
    "kda-340m": Gated(
        24,
        32000,
        {**BLOCK, "model_type": "kda", "num_heads": 8, "head_dim": 128, "expand_v": 1.0}
        | {"use_short_conv": True, "conv_size": 4},
    ),
    "hgrn2-340m": Gated(24, 32000, {**BLOCK, "model_type": "hgrn2", "num_heads": 8, "expand_ratio": 128}),
    "rwkv6-0.4b": Gated(24, 65536, {**RWKV, "model_type": "rwkv6"}),
    "rwkv5-0.4b": Gated(24, 65536, {**RWKV, "model_type": "rwkv5"}),
    "mamba-370m": Gated(
        48,
        50280,
        {"model_type": "mamba", "hidden_size": 1024, "intermediate_size": 2048, "state_size": 16}
        | {"time_step_rank": 64, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True}
        | {"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True},
    ),
}


def config_of(preset: str, layers: int, values: int) -> Config:
    return {**PRESETS[preset].config, "num_hidden_layers": layers, "vocab_size": values}


def shapes_of(preset: str, layers: int, values: int) -> Shapes:
    """The shape of every tensor, by the names of flash-linear-attention, BlinkDL or Hugging Face."""
    config = config_of(preset, layers, values)
    kind = config["model_type"]
    if kind in ("rwkv5", "rwkv6"):
        return rwkv_shapes(config)
    return mamba_shapes(config) if kind == "mamba" else linear_shapes(config)


def linear_shapes(c: Config) -> Shapes:
    width, ffn = c["hidden_size"], c["intermediate_size"]
    table = (c["vocab_size"], width)
    shapes: Shapes = {"model.embeddings.weight": table, "lm_head.weight": table, "model.norm.weight": (width,)}
    if c["model_type"] == "hgrn2":
        shapes["model.lower_bounds"] = (c["num_hidden_layers"], width)
    for layer in range(c["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        shapes[name + "attn_norm.weight"] = shapes[name + "mlp_norm.weight"] = (width,)
        shapes[name + "mlp.gate_proj.weight"] = shapes[name + "mlp.up_proj.weight"] = (ffn, width)
        shapes[name + "mlp.down_proj.weight"] = (width, ffn)
        shapes |= {f"{name}attn.{key}": shape for key, shape in mixer_shapes(c).items()}
    return shapes


def head_sizes(c: Config) -> tuple[int, int]:
    """Of keys and values."""
    heads, width = c["num_heads"], c["hidden_size"]
    if c["model_type"] == "hgrn2":
        return c["expand_ratio"], width // heads
    if "head_dim" in c:
        return c["head_dim"], int(c["head_dim"] * c["expand_v"])
    return int(width * c["expand_k"]) // heads, int(width * c["expand_v"]) // heads


def mixer_shapes(c: Config) -> Shapes:
    kind, heads, width = c["model_type"], c["num_heads"], c["hidden_size"]
    dk, dv = head_sizes(c)
    keys, out = heads * dk, heads * dv
    corrected = kind in ("delta_net", "gated_deltanet", "kda")
    columns = dict(zip("qfi" if kind == "hgrn2" else "qkv", (keys, keys, out)))
    shapes: Shapes = {f"{name}_proj.weight": (size, width) for name, size in columns.items()}
    if c.get("use_short_conv"):
        shapes |= {f"{name}_conv1d.weight": (size, 1, c["conv_size"]) for name, size in columns.items()}
    shapes["o_proj.weight"] = (width, out)
    shapes[f"{'o' if corrected else 'g'}_norm.weight"] = (out if kind == "hgrn2" else dv,)
    if corrected:
        shapes["b_proj.weight"] = (heads, width)
    if kind in ("gla", "retnet", "gated_deltanet"):
        shapes["g_proj.weight"] = (out, width)
    if kind == "gla":
        shapes |= {"gk_proj.0.weight": (GLA_RANK, width), "gk_proj.1.weight": (keys, GLA_RANK)}
        shapes["gk_proj.1.bias"] = (keys,)
    if kind == "gated_deltanet":
        shapes["a_proj.weight"] = (heads, width)
        shapes["A_log"] = shapes["dt_bias"] = shapes["D"] = (heads,)
    if kind == "kda":
        shapes |= {"g_proj.0.weight": (dv, width), "g_proj.1.weight": (out, dv), "g_proj.1.bias": (out,)}
        shapes |= {"f_proj.0.weight": (dv, width), "f_proj.1.weight": (keys, dv)}
        shapes |= {"A_log": (heads,), "dt_bias": (keys,)}
    return shapes


def rwkv_shapes(c: Config) -> Shapes:
    width, ffn, six = c["hidden_size"], c["intermediate_size"], c["model_type"] == "rwkv6"
    heads = (width // RWKV_HEAD, RWKV_HEAD)
    shapes: Shapes = {f"{name}.weight": (c["vocab_size"], width) for name in ("emb", "head")}
    norms = ["blocks.0.ln0", "ln_out"]
    mix = "time_maa_" if six else "time_mix_"
    for layer in range(c["num_hidden_layers"]):
        block = f"blocks.{layer}."
        norms += [block + name for name in ("ln1", "ln2", "att.ln_x")]
        shapes |= {f"{block}att.{mix}{to}": (1, 1, width) for to in ("xwkvrg" if six else "kvrg")}
        shapes |= {f"{block}ffn.{mix}{to}": (1, 1, width) for to in "kr"}
        for name in ("att.receptance", "att.key", "att.value", "att.gate", "att.output", "ffn.receptance"):
            shapes[f"{block}{name}.weight"] = (width, width)
        shapes |= {block + "ffn.key.weight": (ffn, width), block + "ffn.value.weight": (width, ffn)}
        shapes |= {block + "att.time_faaaa": heads, block + "att.time_decay": (1, 1, width) if six else heads}
        if six:
            shapes[block + "att.time_maa_w1"] = (width, 5 * MIX_RANK)
            shapes[block + "att.time_maa_w2"] = (5, MIX_RANK, width)
            shapes[block + "att.time_decay_w1"] = (width, DECAY_RANK)
            shapes[block + "att.time_decay_w2"] = (DECAY_RANK, width)
    return shapes | {f"{name}.{part}": (width,) for name in norms for part in ("weight", "bias")}


def mamba_shapes(c: Config) -> Shapes:
    width, inner, states, rank = c["hidden_size"], c["intermediate_size"], c["state_size"], c["time_step_rank"]
    shapes: Shapes = {"backbone.embeddings.weight": (c["vocab_size"], width), "backbone.norm_f.weight": (width,)}
    for layer in range(c["num_hidden_layers"]):
        name = f"backbone.layers.{layer}."
        mixer = name + "mixer."
        shapes[name + "norm.weight"] = (width,)
        shapes |= {mixer + "in_proj.weight": (2 * inner, width), mixer + "out_proj.weight": (width, inner)}
        shapes |= {mixer + "conv1d.weight": (inner, 1, c["conv_kernel"]), mixer + "conv1d.bias": (inner,)}
        shapes |= {mixer + "x_proj.weight": (rank + 2 * states, inner), mixer + "dt_proj.weight": (inner, rank)}
        shapes |= {mixer + "dt_proj.bias": (inner,), mixer + "A_log": (inner, states), mixer + "D": (inner,)}
    return shapes
