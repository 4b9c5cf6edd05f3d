"""Makes models with random weights, in the files in which their families are published. runnel serves them directly."""

from __future__ import annotations

import json
import math
import os
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from runnel_client import bundle, random_gated, random_hybrids
from runnel_client.bundle import Floats, Shapes
from runnel_client.publish import VOCABULARY, write_all

HEAD_SIZE = 64
STATE_SIZE = 128  # of Mamba-2
TAPS = 4
FIRST_WORDS = 257  # of RWKV's vocabulary: the bytes, after 0
RWKV_NORM = re.compile(r"\bln(\d|_x|_out)\.weight$")
TIME_MIX = re.compile(r"(time_mix|time_maa|\.x)_[a-z]$")  # not Mamba-1's x_proj


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model. The defaults are those of the smallest published models."""

    layers: int
    width: int
    values: int


PRESETS = {
    "rwkv7": Sizes(12, 768, 65536),
    "mamba2": Sizes(24, 768, 50288),
    **{
        name: Sizes(len(hybrid.layers), hybrid.config["hidden_size"], hybrid.values)
        for name, hybrid in random_hybrids.PRESETS.items()
    },
    **{
        name: Sizes(gated.layers, gated.config["hidden_size"], gated.values)
        for name, gated in random_gated.PRESETS.items()
    },
}
FIXED_WIDTH = (*random_hybrids.PRESETS, *random_gated.PRESETS)


def rwkv7_ranks(width: int) -> dict[str, int]:
    """The ranks of the low-rank products in published models up to 1.5B."""
    return {"w": 64, "a": 64, "v": 32, "g": 128} if width < 2048 else {"w": 96, "a": 96, "v": 64, "g": 256}


def rwkv7_config(sizes: Sizes) -> dict[str, Any]:
    ranks = rwkv7_ranks(sizes.width)
    return {
        "architectures": ["RWKV7ForCausalLM"],
        "model_type": "rwkv7",
        "attn": None,
        "decay_low_rank_dim": ranks["w"],
        "a_low_rank_dim": ranks["a"],
        "v_low_rank_dim": ranks["v"],
        "gate_low_rank_dim": ranks["g"],
        "eos_token_id": 0,
        "fuse_norm": False,
        "head_dim": HEAD_SIZE,
        "hidden_act": "sqrelu",
        "hidden_size": sizes.width,
        "intermediate_size": 4 * sizes.width,
        "norm_bias": True,
        "norm_eps": 1e-5,
        "norm_first": True,
        "num_hidden_layers": sizes.layers,
        "tie_word_embeddings": False,
        "vocab_size": sizes.values,
    }


def rwkv7_shapes(sizes: Sizes) -> Shapes:
    """The shape of every tensor, by the names of flash-linear-attention."""
    width, ffn, ranks = sizes.width, 4 * sizes.width, rwkv7_ranks(sizes.width)
    shapes: Shapes = {"model.embeddings.weight": (sizes.values, width), "lm_head.weight": (sizes.values, width)}

    def norm(name: str) -> None:
        shapes[name + ".weight"] = shapes[name + ".bias"] = (width,)

    norm("model.norm")
    norm("model.layers.0.pre_norm")
    for index in range(sizes.layers):
        layer = f"model.layers.{index}."
        for name in ("attn_norm", "ffn_norm", "attn.g_norm"):
            norm(layer + name)
        for name in ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g"):
            shapes[f"{layer}attn.{name}"] = (1, 1, width)
        shapes[layer + "attn.k_k"] = shapes[layer + "attn.k_a"] = (width,)
        shapes[layer + "attn.r_k"] = (width // HEAD_SIZE, HEAD_SIZE)
        for name in "rkvo":
            shapes[f"{layer}attn.{name}_proj.weight"] = (width, width)
        for name in "wavg" if index > 0 else "wag":  # the first layer does not mix its values
            lora = f"{layer}attn.{name}_lora.lora."
            shapes[lora + "0.weight"], shapes[lora + "2.weight"] = (ranks[name], width), (width, ranks[name])
            if name != "g":
                shapes[lora + "2.bias"] = (width,)
        shapes[layer + "ffn.x_k"] = (width,)
        shapes[layer + "ffn.key.weight"], shapes[layer + "ffn.value.weight"] = (ffn, width), (width, ffn)
    return shapes


def mamba2_config(sizes: Sizes) -> dict[str, Any]:
    return {
        "architectures": ["Mamba2ForCausalLM"],
        "model_type": "mamba2",
        "conv_kernel": TAPS,
        "expand": 2,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "hidden_size": sizes.width,
        "layer_norm_epsilon": 1e-5,
        "n_groups": 1,
        "num_heads": 2 * sizes.width // HEAD_SIZE,
        "num_hidden_layers": sizes.layers,
        "rms_norm": True,
        "state_size": STATE_SIZE,
        "tie_word_embeddings": True,
        "time_step_limit": [0.0, math.inf],
        "use_bias": False,
        "use_conv_bias": True,
        "vocab_size": sizes.values,
    }


def mamba2_shapes(sizes: Sizes) -> Shapes:
    """The shape of every tensor, by the names of Hugging Face."""
    inner = 2 * sizes.width
    heads, channels = inner // HEAD_SIZE, inner + 2 * STATE_SIZE
    shapes: Shapes = {
        "backbone.embeddings.weight": (sizes.values, sizes.width),
        "backbone.norm_f.weight": (sizes.width,),
    }
    for index in range(sizes.layers):
        layer = f"backbone.layers.{index}."
        shapes[layer + "norm.weight"] = (sizes.width,)
        shapes[layer + "mixer.in_proj.weight"] = (inner + channels + heads, sizes.width)
        shapes[layer + "mixer.conv1d.weight"] = (channels, 1, TAPS)
        shapes[layer + "mixer.conv1d.bias"] = (channels,)
        for name in ("dt_bias", "A_log", "D"):
            shapes[f"{layer}mixer.{name}"] = (heads,)
        shapes[layer + "mixer.norm.weight"] = (inner,)
        shapes[layer + "mixer.out_proj.weight"] = (sizes.width, inner)
    return shapes


def random_tensor(name: str, shape: tuple[int, ...], seed: int) -> Floats:
    """One tensor, from its own random stream. Numbers are about as large as trained ones, so states stay bounded."""
    rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    last = name.split(".", 3)[-1]
    if name.endswith(("norm.weight", "norm_f.weight", ".D", "k_a")) or RWKV_NORM.search(name):
        return np.ones(shape, np.float32)
    if last.endswith("k_k") or TIME_MIX.search(name):
        return rng.random(shape, np.float32)
    if last.endswith(("w_lora.lora.2.bias", "time_decay")):
        return rng.uniform(-6, 1, shape).astype(np.float32)  # slow to quick decays
    if last.endswith("A_log"):
        return np.log(rng.uniform(1, 16, shape)).astype(np.float32)
    if last.endswith(("dt_bias", "dt_proj.bias")):
        return np.log(np.expm1(rng.uniform(1e-3, 1e-1, shape))).astype(np.float32)
    tensor = rng.standard_normal(shape, dtype=np.float32)
    if len(shape) < 2 or last.endswith("r_k"):
        return tensor * np.float32(0.1)
    return tensor if "embedding" in name else tensor / np.float32(math.sqrt(shape[-1]))


def vocabulary_text() -> str:
    """The lines of RWKV's vocabulary for single bytes: id, literal, length."""
    literals = [repr(chr(byte)) if byte < 0x80 else repr(bytes([byte])) for byte in range(FIRST_WORDS - 1)]
    return "".join(f"{byte + 1} {literal} 1\n" for byte, literal in enumerate(literals))


def config_and_shapes(preset: str, sizes: Sizes) -> tuple[dict[str, Any], Shapes]:
    if preset == "rwkv7":
        return rwkv7_config(sizes), rwkv7_shapes(sizes)
    if preset == "mamba2":
        return mamba2_config(sizes), mamba2_shapes(sizes)
    first = (preset, sizes.layers, sizes.values)
    if preset in random_gated.PRESETS:
        return random_gated.config_of(*first), random_gated.shapes_of(*first)
    return random_hybrids.config_of(*first), random_hybrids.shapes_of(*first)


def write(preset: str, out: str, sizes: Sizes, seed: int, dtype: str) -> int:
    """Writes the directory, and returns its number of parameters. Presets in FIXED_WIDTH have their own width."""
    config, all_shapes = config_and_shapes(preset, sizes)
    texts = {"config.json": json.dumps(config, indent=2) + "\n"}
    if preset.startswith("rwkv"):
        texts[VOCABULARY] = vocabulary_text()

    def write_text(text: str) -> Callable[[BinaryIO], object]:
        return lambda file: file.write(text.encode())

    write_all(out, {name: write_text(text) for name, text in texts.items()})

    def tensor(name: str) -> Floats:
        if preset in random_hybrids.PRESETS and random_hybrids.is_zero_centred(preset, name):
            return np.zeros(all_shapes[name], np.float32)
        return random_tensor(name, all_shapes[name], seed)

    path = os.path.join(out, "model.safetensors")
    bundle.write_safetensors(path, all_shapes, tensor, dtype, {"format": "pt"})
    return sum(math.prod(shape) for shape in all_shapes.values())
