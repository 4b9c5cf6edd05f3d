#!/usr/bin/env python3
"""Write the GGUF files of this folder with the package gguf of llama.cpp, and with its converter.

    python3 -m venv build/gguf && build/gguf/bin/pip install gguf==0.19.0
    build/gguf/bin/python tests/golden/make_gguf.py
    build/gguf/bin/pip install torch transformers sentencepiece
    build/gguf/bin/python tests/golden/make_gguf.py --llama llama_cpp_python-0.3.36/vendor/llama.cpp [--check]

gguf/blocks.gguf    for each type T of blocks, a tensor T, and its numbers as gguf dequantizes them, T.f32. gguf
                    quantizes Q4_0, Q5_0, Q8_0 and MXFP4 from T.from. It has no quantizer for the other types,
                    which are random bits with finite scales.
gguf/rwkv7.gguf     the model in rwkv7_official, whose golden.bin has its outputs
gguf/mamba2.gguf    the model in mamba2_state_spaces, likewise, without its padding

The keys and the names of tensors are gguf's for the architecture. llama.cpp's converters, which are not in the
package, also change numbers: this script makes the same changes.

With --llama the converter itself writes the hybrid models of HYBRIDS. Its sources are in PyPI's source archive of
llama-cpp-python.

gguf/NAME/          config.json, model.safetensors and golden.bin of a random model, as make_hybrids.py describes
gguf/NAME.gguf      the output of convert_hf_to_gguf.py for the folder, without a vocabulary
gguf/qwen3next_joined.gguf  the same, with one tensor of q, k, v and z for each layer

--check compares the equations of make_hybrids.py with the classes of transformers and writes nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import make_hybrids
import numpy as np
from make_recurrences import Config, bundle, random_tensor

# The package of llama.cpp's sources, if they are given. The folder gguf/ next to this file has the same name.
if "--llama" in sys.argv:
    sources = sys.argv[sys.argv.index("--llama") + 1]
    sys.path[:0] = [sources, sources + "/gguf-py"]
gguf: Any = importlib.import_module("gguf")
Type = gguf.GGMLQuantizationType

HERE = Path(__file__).parent
OUT = HERE / "gguf"
# The number of bytes of each block before its fp16 scales, and the number of these scales.
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
    # Like the converter for type BF16: matrices, except the low-rank ones, which it keeps in F32.
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
        if layer == 0:  # never used, but llama.cpp needs the tensors
            for index in "012":
                tensors[block + "v" + index] = tensors[block + "a" + index]
    for name, numbers in tensors.items():
        numbers = numbers.squeeze()
        if name[-2:] in ("w1", "w2", "a1", "a2", "v1", "v2", "g1", "g2"):
            numbers = numbers.T
        if name.endswith("r_k"):
            numbers = numbers.reshape(-1)
        # The converter's own names for BlinkDL's checkpoint.
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


# The hybrid models that the converter writes: the type of their weights in the safetensors file and in the GGUF file,
# and the config. They cover the groups, layers and factors in which the architectures differ.
SMALL: Config = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 37}
SMALL |= {"max_position_embeddings": 512, "tie_word_embeddings": False}
MAMBA: Config = {"mamba_n_heads": 4, "mamba_d_state": 6, "mamba_d_conv": 3, "mamba_n_groups": 2, "mamba_d_head": 8}
MAMBA |= {"mamba_expand": 2, "mamba_conv_bias": True, "rms_norm_eps": 1e-5}
HYBRIDS: dict[str, tuple[str, Config]] = {
    "qwen35": (
        "bf16",
        SMALL
        | {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "num_hidden_layers": 3}
        | {"full_attention_interval": 3, "head_dim": 8, "intermediate_size": 20, "rms_norm_eps": 1e-5}
        | {"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 5}
        | {"linear_value_head_dim": 4, "linear_conv_kernel_dim": 3, "mtp_num_hidden_layers": 1}
        | {"layer_types": ["linear_attention", "linear_attention", "full_attention"]}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25}},
    ),
    "lfm2": (
        "bf16",
        SMALL
        | {"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "num_hidden_layers": 3}
        | {"layer_types": ["conv", "full_attention", "conv"], "intermediate_size": 30, "conv_L_cache": 3}
        | {"conv_bias": False, "norm_eps": 1e-5, "tie_word_embeddings": True, "block_auto_adjust_ff_dim": False}
        | {"block_ffn_dim_multiplier": 1.0, "block_multiple_of": 2}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
    ),
    "granitehybrid": (
        "bf16",
        SMALL
        | MAMBA
        | {"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "num_hidden_layers": 3}
        | {"layer_types": ["mamba", "attention", "mamba"], "shared_intermediate_size": 20, "intermediate_size": 20}
        | {"num_local_experts": 0, "num_experts_per_tok": 0, "position_embedding_type": "nope"}
        | {"attention_multiplier": 0.3, "attention_bias": False, "mamba_proj_bias": False}
        | {"embedding_multiplier": 2.5, "residual_multiplier": 0.7, "logits_scaling": 1.5},
    ),
    "falcon-h1": (
        "f32",
        SMALL
        | MAMBA
        | {"architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "num_hidden_layers": 2}
        | {"intermediate_size": 20, "mamba_d_ssm": 32, "mamba_rms_norm": False, "mamba_norm_before_gate": False}
        | {"mamba_proj_bias": False, "attention_bias": False, "mlp_bias": False, "projectors_bias": False}
        | {"head_dim": 6, "rope_theta": 1e5, "key_multiplier": 0.6, "attention_in_multiplier": 1.1}
        | {"mlp_multipliers": [0.8, 1.3], "ssm_multipliers": [1.1, 0.9, 1.2, 0.8, 1.4], "ssm_in_multiplier": 0.9}
        | {"attention_out_multiplier": 1.2, "lm_head_multiplier": 0.5, "embedding_multiplier": 1.5}
        | {"ssm_out_multiplier": 0.7},
    ),
    "nemotron_h": (
        "bf16",
        SMALL
        | {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "num_hidden_layers": 5}
        | {"hybrid_override_pattern": "M-*-M", "intermediate_size": 28, "head_dim": 6, "mamba_num_heads": 8}
        | {"mamba_head_dim": 8, "ssm_state_size": 7, "n_groups": 2, "conv_kernel": 4, "layer_norm_epsilon": 1e-5}
        | {"use_bias": False, "mlp_bias": True, "attention_bias": False, "use_conv_bias": True, "expand": 2}
        | {"mlp_hidden_act": "relu2", "time_step_min": 0.0},
    ),
}
EXPERTS: Config = {"num_experts_per_tok": 2, "intermediate_size": 12}
HYBRIDS["granitehybrid_experts"] = ("bf16", HYBRIDS["granitehybrid"][1] | EXPERTS | {"num_local_experts": 5})
EXPERTS |= {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 10}
HYBRIDS["lfm2moe"] = (
    "bf16",
    HYBRIDS["lfm2"][1]
    | EXPERTS
    | {"architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe", "num_dense_layers": 1}
    | {"use_expert_bias": True, "norm_topk_prob": True, "routed_scaling_factor": 1.0},
)
HYBRIDS["qwen35moe"] = (
    "bf16",
    HYBRIDS["qwen35"][1]
    | EXPERTS
    | {"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", "mtp_num_hidden_layers": 0}
    | {"shared_expert_intermediate_size": 14, "linear_key_head_dim": 12, "linear_num_value_heads": 4},
)
NEMOTRON = {"hybrid_override_pattern": "MEM*E", "mlp_bias": False, "n_routed_experts": 6, "num_experts_per_tok": 2}
NEMOTRON |= {"moe_intermediate_size": 14, "moe_shared_expert_intermediate_size": 18, "n_group": 1, "topk_group": 1}
NEMOTRON |= {"n_shared_experts": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "moe_latent_size": None}
HYBRIDS["nemotron_h_moe"] = ("bf16", HYBRIDS["nemotron_h"][1] | NEMOTRON)
HYBRIDS["qwen3next"] = (
    "bf16",
    HYBRIDS["qwen35moe"][1] | {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"},
)


# Part of a layer in Qwen3.5's files that predicts a second token. It is not used.
MTP = {"mtp.fc.weight": (16, 32), "mtp.norm.weight": (16,), "mtp.layers.0.input_layernorm.weight": (16,)}


def write_hybrid(name: str) -> None:
    """Writes the random model, and its outputs by the equations."""
    dtype, config = HYBRIDS[name]
    model = make_hybrids.Hybrid(config)
    rng = np.random.Generator(np.random.PCG64([18, list(HYBRIDS).index(name)]))
    made = {key: random_tensor(rng, key, shape) for key, shape in sorted(model.shapes().items())}
    tensors = {key: bundle.rounded(key, array.astype(np.float32), dtype) for key, array in made.items()}
    values = rng.integers(0, config["vocab_size"], make_hybrids.STEPS + 1)
    head = model.logits({key: array.astype(np.float64) for key, array in tensors.items()}, values[:-1])
    if "mtp_num_hidden_layers" in config:
        tensors |= {key: np.zeros(shape, np.float32) for key, shape in MTP.items()}
    (OUT / name).mkdir(exist_ok=True)
    (OUT / name / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    make_hybrids.write(str(OUT / name / "model.safetensors"), tensors, dtype)
    make_hybrids.write(str(OUT / name / "golden.bin"), make_hybrids.golden_of(values, head), "f32")


def without_division(converter: Any) -> Any:
    """The converter for Qwen3-Next, but it does not divide the tensor of q, k, v and z, as older versions did not."""

    class Undivided(converter):
        model_arch = converter.model_arch

        def modify_tensors(self, data: Any, name: str, bid: int | None) -> Iterator[tuple[str, Any]]:
            if "in_proj_qkvz" in name:
                yield self.map_tensor_name(name), data
            else:
                yield from super().modify_tensors(data, name, bid)

    return Undivided


def convert(name: str, divides: bool = True) -> None:
    """Runs llama.cpp's converter like its command line, except for the vocabulary, which the model does not have."""
    conversion: Any = importlib.import_module("conversion")
    dtype, config = HYBRIDS[name]
    kinds = {"bf16": gguf.LlamaFileType.MOSTLY_BF16, "f32": gguf.LlamaFileType.ALL_F32}
    converter = conversion.get_model_class(config["architectures"][0])
    converter.set_vocab = lambda self: self._set_vocab_none()
    if not divides:
        converter = without_division(converter)
    # Nemotron-H's config is given unchanged: transformers would add keys of experts, which mislead the converter.
    more = {"hparams": dict(config)} if name.startswith("nemotron_h") else {}
    path = OUT / (f"{name}.gguf" if divides else f"{name}_joined.gguf")
    converter(OUT / name, kinds[dtype], path, **more).write()


def check_hybrid(name: str) -> None:
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    golden = bundle.read_safetensors(str(OUT / name / "golden.bin"))
    more = {"experts_implementation": "eager"} if "moe_intermediate_size" in HYBRIDS[name][1] else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(OUT / name, dtype=torch.float32, **more).eval()
    with torch.no_grad():
        logits = model(torch.tensor(golden["values"][None, :-1].astype(np.int64))).logits[0]
    worst = np.abs(logits.numpy() - golden["head"]).max()
    print(f"{name}: the class of transformers differs by {worst:.1e}")
    assert worst < 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", type=Path, metavar="DIR", help="the sources of llama.cpp: write HYBRIDS alone")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", choices=HYBRIDS, help="of HYBRIDS")
    args = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    if args.llama is None:
        write_blocks()
        write_rwkv7()
        write_mamba2()
        return
    for name in [args.only] if args.only else HYBRIDS:
        if args.check:
            check_hybrid(name)
        else:
            write_hybrid(name)
            convert(name)
            if name == "qwen3next":
                convert(name, divides=False)


if __name__ == "__main__":
    main()
