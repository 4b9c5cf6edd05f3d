#!/usr/bin/env python3
"""Write the golden files of published families with their own classes, in float32 on a CPU.

    python3 -m venv build/published && cd build/published
    bin/pip install torch rwkv==0.8.32 flash-linear-attention==0.6.0 transformers==5.23.0
    bin/pip download --no-deps --no-build-isolation --no-binary :all: mamba-ssm==2.3.2.post1
    tar -xf mamba_ssm-2.3.2.post1.tar.gz
    bin/python .../tests/golden/make_published.py --mamba-ssm mamba_ssm-2.3.2.post1

NAME/{config.json,model.safetensors,golden.bin}: small models of random weights. golden.bin is a safetensors file:
values [T + 1] (whole numbers as F32), head [T, outputs] (the logits after value t), log_prob [T] (natural, of value
t + 1 given values 0..t). --check compares the results with the stored files and writes nothing; --only NAME makes one
model. published.json is the config.json that the model's own library saves, if it saves one.

Triton's kernels run in its interpreter, without tuning, which would need a GPU.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import types
import unittest.mock
from typing import Any, NamedTuple

os.environ["TRITON_INTERPRET"] = "1"
os.environ["RWKV_V7_ON"] = "1"
os.environ["RWKV_JIT_ON"] = "0"

import numpy as np
import torch
from triton.runtime.autotuner import Autotuner

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "python"))

from runnel_client import bundle

STEPS = 48
Autotuner.do_bench = lambda self, call, quantiles: (0.0, 0.0, 0.0)  # the first configuration will do
torch.cuda.device = lambda index: contextlib.nullcontext()  # kernels ask for the device of their tensors


def random_tensor(rng, name, shape):
    """Random numbers of such sizes that every part of a network affects its outputs."""

    def normal(mean, deviation):
        return mean + deviation * rng.standard_normal(shape)

    last = name.split(".")[-1]
    if name.endswith(("norm.weight", "norm_f.weight", "ln0.weight", "ln1.weight", "ln2.weight", "ln_x.weight")):
        return normal(1, 0.2)
    if last in ("ln_out.weight", "D", "k_a"):
        return normal(1, 0.2)
    if "w0" in last or name.endswith("w_lora.lora.2.bias"):
        return normal(-2, 2)
    if last.startswith("x_"):
        return rng.uniform(0, 1, shape)
    if last in ("A_log", "k_k"):
        return rng.uniform(0.5, 1.5, shape)
    if last == "weight" and len(shape) == 2 and "emb" not in name:
        return normal(0, 1 / np.sqrt(shape[1]))
    if last in ("w1", "a1", "v1", "g1", "w2", "a2", "v2", "g2"):
        return normal(0, 1 / np.sqrt(shape[0]))
    return normal(0, 0.5)


def random_tensors(seed, shapes, dtype):
    """Random tensors by name, rounded to `dtype` as in the file."""
    rng = np.random.Generator(np.random.PCG64(seed))
    made = {name: random_tensor(rng, name, shape) for name, shape in sorted(shapes.items())}
    return {name: bundle.rounded(name, values.astype(np.float32), dtype) for name, values in made.items()}


def as_torch(tensors):
    return {name: torch.from_numpy(values.copy()) for name, values in tensors.items()}


def shapes_of(module):
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def load(module, tensors):
    """Loads these weights into a module. Weights that the file leaves out are tied to others."""
    missing, unexpected = module.load_state_dict(as_torch(tensors), strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    return module.float().eval()


class OfficialRwkv7:
    """BlinkDL's rwkv package, which reads a .pth file and steps value by value."""

    config = None

    def __init__(self, model, vocabulary):
        self.sizes = model

    def shapes(self):
        sizes = self.sizes
        width, ffn, heads = sizes["width"], sizes["ffn"], sizes["heads"]
        shapes: dict[str, tuple[int, ...]] = {
            "emb.weight": (sizes["table_rows"], width),
            "head.weight": (sizes["table_rows"], width),
        }
        norms = ["ln_out", "blocks.0.ln0"]
        for layer in range(sizes["layers"]):
            block, att, ffn_name = (f"blocks.{layer}.{part}" for part in ("", "att.", "ffn."))
            norms += [block + "ln1", block + "ln2", att + "ln_x"]
            vectors = [f"{att}x_{letter}" for letter in "rwkvag"] + [f"{att}{letter}0" for letter in "wav"]
            vectors += [att + "k_k", att + "k_a", ffn_name + "x_k"]
            shapes |= dict.fromkeys(vectors, (1, 1, width))
            shapes[att + "r_k"] = (heads, width // heads)
            for letter, rank in zip("wavg", (sizes["ranks"][key] for key in ("decay", "rate", "value", "gate"))):
                shapes |= {f"{att}{letter}1": (width, rank), f"{att}{letter}2": (rank, width)}
            for name in ("receptance", "key", "value", "output"):
                shapes[f"{att}{name}.weight"] = (width, width)
            shapes |= {ffn_name + "key.weight": (ffn, width), ffn_name + "value.weight": (width, ffn)}
        return shapes | {f"{name}.{part}": (width,) for name in norms for part in ("weight", "bias")}

    def logits(self, tensors, values):
        from rwkv.model import RWKV

        with tempfile.TemporaryDirectory() as folder:
            torch.save(as_torch(tensors), os.path.join(folder, "model.pth"))
            network = RWKV(model=os.path.join(folder, "model"), strategy="cpu fp32")
        state, rows = None, []
        for value in values:
            head, state = network.forward([int(value)], state)
            rows.append(head.float().clone())
        return torch.stack(rows)


class FlaRwkv7:
    """flash-linear-attention's class: it steps below 64 values, and uses chunks above."""

    def __init__(self, model, vocabulary):
        from fla.models.rwkv7 import RWKV7Config, RWKV7ForCausalLM

        self.sizes = model
        self.network = RWKV7ForCausalLM(
            RWKV7Config(
                hidden_size=model["width"],
                num_hidden_layers=model["layers"],
                head_dim=model["width"] // model["heads"],
                intermediate_size=model["ffn"],
                decay_low_rank_dim=model["ranks"]["decay"],
                a_low_rank_dim=model["ranks"]["rate"],
                v_low_rank_dim=model["ranks"]["value"],
                gate_low_rank_dim=model["ranks"]["gate"],
                vocab_size=model["table_rows"],
                norm_eps=model["norm_eps"],
                norm_bias=model["norm_bias"],
                norm_first=model["input_norm"],
                fuse_norm="key_eps" in model,
                fuse_cross_entropy=False,
                tie_word_embeddings=model["tied"],
            )
        )
        self.config = self.network.config.to_json_string()

    def stacked(self, shapes):
        """With x_x in place of x_r and the others, as in files from before April 2025."""
        if self.sizes["names"] != "fla_x":
            return shapes
        kept = {name: shape for name, shape in shapes.items() if ".attn.x_" not in name}
        layers = range(self.sizes["layers"])
        return kept | {f"model.layers.{layer}.attn.x_x": (6, self.sizes["width"]) for layer in layers}

    def shapes(self):
        shapes = self.stacked(shapes_of(self.network))
        if self.sizes["tied"]:
            del shapes["lm_head.weight"]
        return shapes

    def logits(self, tensors, values):
        apart = {name: values for name, values in tensors.items() if not name.endswith(".x_x")}
        for name in tensors.keys() - apart.keys():
            for row, letter in zip(tensors[name], "rwkvag"):
                apart[name[:-1] + letter] = row.reshape(1, 1, -1)
        network = load(self.network, apart)
        return network(torch.from_numpy(values).unsqueeze(0), use_cache=False).logits[0]


class StateSpacesMamba2:
    """state-spaces' layers, value by value with its kernels, within the same network as its mixer_seq_simple.py."""

    sources = ""  # the folder of mamba-ssm

    def __init__(self, model, vocabulary):
        package = types.ModuleType("mamba_ssm")  # without its __init__.py, which imports CUDA extensions
        package.__path__ = [os.path.join(self.sources, "mamba_ssm")]
        with unittest.mock.patch.dict(sys.modules, {"mamba_ssm": package}):  # only for this class, not for transformers
            from mamba_ssm.models.config_mamba import MambaConfig
            from mamba_ssm.modules.mamba2 import Mamba2

        options = {
            "d_model": model["width"],
            "d_state": model["state_size"],
            "d_conv": model["taps"],
            "expand": model["heads"] * model["head_size"] // model["width"],
            "headdim": model["head_size"],
            "ngroups": model["groups"],
            "bias": model["bias"],
            "conv_bias": model["convolution_bias"],
            "norm_before_gate": model["norm_before_gate"],
        }
        in_file = {key: value for key, value in options.items() if key != "d_model"} | {"layer": "Mamba2"}
        sizes = {"d_model": model["width"], "n_layer": model["layers"], "vocab_size": vocabulary}
        config = MambaConfig(**sizes, ssm_cfg=in_file, pad_vocab_size_multiple=16)
        self.config = json.dumps(vars(config), indent=2) + "\n"
        layers = [
            torch.nn.ModuleDict(
                {"norm": torch.nn.RMSNorm(model["width"], eps=1e-5), "mixer": Mamba2(**options, use_mem_eff_path=False)}
            )
            for _ in range(model["layers"])
        ]
        self.backbone = torch.nn.ModuleDict(
            {
                "embedding": torch.nn.Embedding(model["table_rows"], model["width"]),
                "layers": torch.nn.ModuleList(layers),
                "norm_f": torch.nn.RMSNorm(model["width"], eps=1e-5),
            }
        )
        self.network = torch.nn.ModuleDict({"backbone": self.backbone})

    def shapes(self):
        return shapes_of(self.network)

    def logits(self, tensors, values):
        load(self.network, tensors)
        backbone, rows = self.backbone, []
        states = [layer["mixer"].allocate_inference_cache(1, len(values)) for layer in backbone["layers"]]
        for value in values:
            x = backbone["embedding"].weight[value].view(1, 1, -1)
            for layer, state in zip(backbone["layers"], states):
                x = x + layer["mixer"].step(layer["norm"](x), *state)[0]
            rows.append(backbone["embedding"].weight @ backbone["norm_f"](x).view(-1))
        return torch.stack(rows)


class HuggingFaceMamba2:
    """The class of transformers, on its slow path."""

    def __init__(self, model, vocabulary):
        from transformers import Mamba2Config, Mamba2ForCausalLM

        self.sizes = model
        self.network = Mamba2ForCausalLM(
            Mamba2Config(
                num_heads=model["heads"],
                head_dim=model["head_size"],
                vocab_size=model["table_rows"],
                hidden_size=model["width"],
                state_size=model["state_size"],
                num_hidden_layers=model["layers"],
                layer_norm_epsilon=model["norm_eps"],
                expand=model["heads"] * model["head_size"] // model["width"],
                conv_kernel=model["taps"],
                n_groups=model["groups"],
                use_bias=model["bias"],
                use_conv_bias=model["convolution_bias"],
                time_step_limit=(model.get("dt_least", 0.0), model.get("dt_most", float("inf"))),
                chunk_size=16,
                tie_word_embeddings=model["tied"],
            )
        )
        self.config = self.network.config.to_json_string()

    def shapes(self):
        shapes = shapes_of(self.network)
        if self.sizes["tied"]:
            del shapes["lm_head.weight"]
        return shapes

    def logits(self, tensors, values):
        network = load(self.network, tensors)
        return network(torch.from_numpy(values).unsqueeze(0), use_cache=False).logits[0]


class FlaMamba2:
    """flash-linear-attention's class, value by value: prompts on a CPU would assign heads to groups differently."""

    def __init__(self, model, vocabulary):
        from fla.models.mamba2 import Mamba2Config, Mamba2ForCausalLM

        self.network = Mamba2ForCausalLM(
            Mamba2Config(
                head_dim=model["head_size"],
                vocab_size=model["table_rows"],
                hidden_size=model["width"],
                state_size=model["state_size"],
                num_hidden_layers=model["layers"],
                norm_eps=model["norm_eps"],
                expand=model["heads"] * model["head_size"] // model["width"],
                conv_kernel=model["taps"],
                n_groups=model["groups"],
                use_bias=model["bias"],
                use_conv_bias=model["convolution_bias"],
                dt_limit=(model.get("dt_least", 0.0), model.get("dt_most", float("inf"))),
                norm_before_gate=model["norm_before_gate"],
                fuse_cross_entropy=False,
                tie_word_embeddings=model["tied"],
            )
        )
        self.config = self.network.config.to_json_string()

    def shapes(self):
        return shapes_of(self.network)

    def logits(self, tensors, values):
        from fla.models.utils import Cache

        network, rows = load(self.network, tensors), []
        states = Cache()
        for index, layer in enumerate(network.backbone.layers):
            mixer = layer.mixer
            states.update(
                recurrent_state=torch.zeros(1, mixer.num_heads, mixer.head_dim, mixer.ssm_state_size),
                conv_state=torch.zeros(1, mixer.conv_dim, mixer.conv_kernel_size),
                layer_idx=index,
                offset=0,
            )
        for value in torch.from_numpy(values):
            rows.append(network(value.view(1, 1), past_key_values=states, use_cache=True).logits[0, 0])
        return torch.stack(rows)


RANKS = {"decay": 5, "rate": 6, "value": 3, "gate": 7}


class Case(NamedTuple):
    kind: Any  # one of the classes above
    dtype: str  # the type in the file
    vocabulary: int  # the head's further outputs are padding
    model: dict[str, Any]  # as in config.json


MODELS = {
    "rwkv7_official": Case(
        OfficialRwkv7,
        "bf16",
        37,
        {"names": "official", "layers": 3, "width": 48, "heads": 3, "value_width": 48, "ffn": 80, "ranks": RANKS}
        | {"table_rows": 37},
    ),
    "rwkv7_fla": Case(
        FlaRwkv7,
        "f32",
        37,
        {"names": "fla", "layers": 3, "width": 32, "heads": 2, "value_width": 32, "ffn": 40, "ranks": RANKS}
        | {"input_norm": True, "norm_bias": True, "norm_eps": 1e-5, "head_norm_eps": 16e-5, "tied": True}
        | {"table_rows": 37},
    ),
    "rwkv7_fla_x": Case(
        FlaRwkv7,
        "bf16",
        35,
        {"names": "fla_x", "layers": 2, "width": 32, "heads": 4, "value_width": 32, "ffn": 40, "ranks": RANKS}
        | {"input_norm": False, "norm_bias": False, "norm_eps": 1e-4, "head_norm_eps": 8e-4, "key_eps": 1e-6}
        | {"tied": False, "table_rows": 37},
    ),
    "mamba2_state_spaces": Case(
        StateSpacesMamba2,
        "f32",
        37,
        {"names": "state_spaces", "layers": 2, "width": 24, "heads": 6, "head_size": 8, "state_size": 16, "groups": 2}
        | {"taps": 4, "bias": False, "convolution_bias": True, "norm_before_gate": False, "table_rows": 48},
    ),
    "mamba2_norm_first": Case(
        StateSpacesMamba2,
        "bf16",
        40,
        {"names": "state_spaces", "layers": 2, "width": 16, "heads": 4, "head_size": 16, "state_size": 8, "groups": 4}
        | {"taps": 3, "bias": True, "convolution_bias": False, "norm_before_gate": True, "table_rows": 40},
    ),
    "mamba2_hugging_face": Case(
        HuggingFaceMamba2,
        "f16",
        37,
        {"names": "hugging_face", "layers": 2, "width": 20, "heads": 5, "head_size": 8, "state_size": 12, "groups": 1}
        | {"taps": 4, "bias": True, "convolution_bias": True, "norm_eps": 1e-4, "dt_least": 0.3, "dt_most": 0.9}
        | {"tied": False, "table_rows": 37},
    ),
    "mamba2_fla": Case(
        FlaMamba2,
        "f32",
        37,
        {"names": "hugging_face", "layers": 2, "width": 16, "heads": 4, "head_size": 8, "state_size": 12, "groups": 2}
        | {"taps": 4, "bias": False, "convolution_bias": True, "norm_before_gate": True, "norm_eps": 1e-4}
        | {"tied": False, "table_rows": 37},
    ),
}


def write_config(folder, original):
    if original.config is not None:
        with open(os.path.join(folder, "published.json"), "w", encoding="utf-8") as file:
            file.write(original.config)


def make(name, compare):
    kind, dtype, vocabulary, model = MODELS[name]
    seed = list(MODELS).index(name)
    original = kind(model, vocabulary)
    tensors = random_tensors(seed, original.shapes(), dtype)
    values = np.random.Generator(np.random.PCG64(seed)).integers(0, vocabulary, STEPS + 1)
    with torch.no_grad():
        head = original.logits(tensors, values[:-1])[:, :vocabulary]
    log_prob = torch.log_softmax(head.double(), dim=-1)[torch.arange(STEPS), torch.from_numpy(values[1:])]
    arrays = {"values": values, "head": head.numpy(), "log_prob": log_prob.numpy()}
    golden = {key: np.asarray(array, dtype=np.float32) for key, array in arrays.items()}
    folder = os.path.join(HERE, name)
    if compare:
        for key, stored in bundle.read_safetensors(os.path.join(folder, "golden.bin")).items():
            worst = np.abs(stored - golden[key]).max()
            assert worst < 1e-5, f"{name}: '{key}' differs by {worst}"
        return
    family = name.split("_")[0]
    config = {"runnel_bundle": 1, "name": name.replace("_", "-"), "model": {"family": family} | model}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(config | {"values": vocabulary}, indent=2) + "\n")
    write_config(folder, original)
    shapes = {key: array.shape for key, array in tensors.items()}
    bundle.write_safetensors(os.path.join(folder, "model.safetensors"), shapes, tensors.__getitem__, dtype)
    shapes = {key: array.shape for key, array in golden.items()}
    bundle.write_safetensors(os.path.join(folder, "golden.bin"), shapes, golden.__getitem__)
    print(f"{name}: logits up to {float(head.abs().max()):.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--mamba-ssm", metavar="FOLDER", default="", help="its unpacked sources: building it would need CUDA"
    )
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    StateSpacesMamba2.sources = args.mamba_ssm
    for name in [args.only] if args.only else MODELS:
        make(name, args.check)


if __name__ == "__main__":
    main()
