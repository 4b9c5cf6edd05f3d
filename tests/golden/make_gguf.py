#!/usr/bin/env python3
"""Write the GGUF files of this folder with the package gguf of llama.cpp.

    python3 -m venv build/gguf && build/gguf/bin/pip install gguf==0.19.0
    build/gguf/bin/python tests/golden/make_gguf.py

gguf/blocks.gguf    for each type T of blocks a tensor T, and T.f32, what gguf dequantizes it to. Q4_0, Q5_0,
                    Q8_0 and MXFP4 are quantized by gguf from T.from; it has no quantizer for the others, which
                    are random bits with finite scales.
gguf/rwkv7.gguf     the model in rwkv7_official, whose golden.bin holds its outputs
gguf/mamba2.gguf    the model in mamba2_state_spaces, likewise, without its padding

The keys and the names of tensors are those that gguf has for the architecture. What llama.cpp's converters do
to the numbers besides (their code is not in the package) is repeated here.
"""

from __future__ import annotations

import importlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

# The package of that name; the folder beside this file has it, too.
gguf: Any = importlib.import_module("gguf")
Type = gguf.GGMLQuantizationType

HERE = Path(__file__).parent
OUT = HERE / "gguf"
# Bytes of each block's start of fp16 scales, and their number.
SCALES = {Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208, 1), Type.IQ4_NL: (0, 1)}
QUANTIZED = (Type.Q4_0, Type.Q5_0, Type.Q8_0, Type.MXFP4)


def read_safetensors(folder: str) -> dict[str, np.ndarray]:
    data = (HERE / folder / "model.safetensors").read_bytes()
    begin = 8 + struct.unpack_from("<Q", data)[0]
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        raw = data[begin + first : begin + last]
        if entry["dtype"] == "BF16":
            numbers = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            numbers = np.frombuffer(raw, np.float32)
        tensors[name] = numbers.reshape(entry["shape"])
    return tensors


def random_blocks(kind: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    at, number = SCALES[kind]
    scales = rng.normal(0, 0.05, (count, number)).astype(np.float16)
    blocks[:, at : at + 2 * number] = scales.view(np.uint8)
    return blocks.reshape(1, -1)


def write_blocks() -> None:
    rng = np.random.default_rng(11)
    writer = gguf.GGUFWriter(OUT / "blocks.gguf", "blocks")
    for kind in (*QUANTIZED, *SCALES):
        elements = 4 * gguf.GGML_QUANT_SIZES[kind][0]
        if kind in QUANTIZED:
            numbers = rng.normal(0, 1, (1, elements)).astype(np.float32)
            numbers[0, :32] = 0
            blocks = gguf.quants.quantize(numbers, kind)
            writer.add_tensor(kind.name + ".from", numbers)
        else:
            blocks = random_blocks(kind, 4, rng)
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        writer.add_tensor(kind.name + ".f32", gguf.quants.dequantize(blocks, kind))
    save(writer)


def save(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_named(writer: gguf.GGUFWriter, names: gguf.TensorNameMap, name: str, numbers: np.ndarray) -> None:
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, name
    numbers = np.ascontiguousarray(numbers, dtype=np.float32)
    # As the converter of the type BF16: matrices, but not the low-rank ones that it keeps in F32.
    if numbers.ndim == 2 and name.endswith("weight") and np.all(numbers.view(np.uint32) & 0xFFFF == 0):
        writer.add_tensor(found, gguf.quants.quantize(numbers, Type.BF16), raw_dtype=Type.BF16)
    else:
        writer.add_tensor(found, numbers)


def write_rwkv7() -> None:
    tensors = read_safetensors("rwkv7_official")
    model = json.loads((HERE / "rwkv7_official/config.json").read_text())["model"]
    writer = gguf.GGUFWriter(OUT / "rwkv7.gguf", "rwkv7")
    writer.add_context_length(1048576)
    writer.add_embedding_length(model["width"])
    writer.add_block_count(model["layers"])
    writer.add_layer_norm_eps(1e-5)
    writer.add_wkv_head_size(model["width"] // model["heads"])
    writer.add_decay_lora_rank(model["ranks"]["decay"])
    writer.add_iclr_lora_rank(model["ranks"]["rate"])
    writer.add_value_residual_mix_lora_rank(model["ranks"]["value"])
    writer.add_gate_lora_rank(model["ranks"]["gate"])
    writer.add_feed_forward_length(model["ffn"])
    writer.add_head_count(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.RWKV7, model["layers"])
    for layer in range(model["layers"]):
        block = f"blocks.{layer}.att."
        fused = np.stack([tensors.pop(block + "x_" + letter).reshape(-1) for letter in "rwkvag"])
        writer.add_tensor(f"blk.{layer}.time_mix_lerp_fused.weight", fused.reshape(6, 1, 1, -1))
        if layer == 0:  # never read; llama.cpp wants the tensors
            for index in "012":
                tensors[block + "v" + index] = tensors[block + "a" + index]
    for name, numbers in tensors.items():
        numbers = numbers.squeeze()
        if name[-2:] in ("w1", "w2", "a1", "a2", "v1", "v2", "g1", "g2"):
            numbers = numbers.T
        if name.endswith("r_k"):
            numbers = numbers.reshape(-1)
        # The converter's own names for the checkpoint of BlinkDL.
        if name == "emb.weight":
            name = "model.embeddings.weight"
        name = name.replace("blocks.0.ln0", "model.pre_ln").replace("blocks", "model.layers")
        name = name.replace("att.", "attention.").replace("ffn", "feed_forward").replace("ln_out", "model.ln_out")
        if not name.endswith((".weight", ".bias")):
            name += ".weight"
        add_named(writer, names, name, numbers)
    save(writer)


def write_mamba2() -> None:
    tensors = read_safetensors("mamba2_state_spaces")
    config = json.loads((HERE / "mamba2_state_spaces/config.json").read_text())
    model = config["model"]
    inner = model["heads"] * model["head_size"]
    writer = gguf.GGUFWriter(OUT / "mamba2.gguf", "mamba2")
    writer.add_context_length(1048576)
    writer.add_embedding_length(model["width"])
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(model["layers"])
    writer.add_ssm_conv_kernel(model["taps"])
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(model["state_size"])
    writer.add_ssm_time_step_rank(model["heads"])
    writer.add_ssm_group_count(model["groups"])
    writer.add_layer_norm_rms_eps(1e-5)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MAMBA2, model["layers"])
    for name, numbers in tensors.items():
        if name.endswith("embedding.weight"):
            numbers = numbers[: config["values"]]
        if "conv1d.weight" in name:
            numbers = numbers.squeeze()
        if name.endswith("A_log"):
            numbers = -np.exp(numbers)
        if name.endswith(("A_log", ".D")):
            numbers = numbers.reshape(-1, 1)
        if name.endswith("mixer.norm.weight"):
            numbers = numbers.reshape(model["groups"], -1)
        name = name.replace("dt_bias", "dt_proj.bias")
        add_named(writer, names, name, numbers)
    save(writer)


def main() -> None:
    OUT.mkdir(exist_ok=True)
    write_blocks()
    write_rwkv7()
    write_mamba2()


if __name__ == "__main__":
    main()
