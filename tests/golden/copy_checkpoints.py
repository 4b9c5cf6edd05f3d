#!/usr/bin/env python3
"""Write the golden files of small checkpoints whose logits were computed by the original code of each family.

    build/python/bin/python tests/golden/copy_checkpoints.py ../shared/data/recurrences [--check]

Each folder of the data has config.json, model.safetensors and expected.npz: tokens [T], and logits [T, V] after each
token. NAME/{config.json,model.safetensors} are copies. NAME/golden.bin has the tokens, the logits of the vocabulary
and the log-probabilities that follow from them, in the format of make_recurrences.py. Only checkpoints with random
weights are copied. --check compares the files with the stored ones and writes nothing.
"""

import argparse
import os
import shutil
import sys

import numpy as np
import numpy.typing as npt

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "python"))

from runnel_client import bundle

# The names begin with the library that computed the logits: flash-linear-attention, transformers or state-spaces.
FOLDERS = {
    "fla_gla": "gla-a",
    "fla_retnet": "retnet-a",
    "fla_delta_net": "deltanet-a",
    "fla_gated_deltanet": "gated-deltanet-a",
    "fla_kda": "kda-a",
    "fla_hgrn2": "hgrn2-a",
    "fla_mamba2": "mamba2-fla-a",
    "transformers_mamba2": "mamba2-hf-a",
    "state_spaces_mamba2": "mamba2-ssm-a",
}
COPIED = ("config.json", "model.safetensors")
VOCABULARY = 61


def golden_of(source: str) -> dict[str, npt.NDArray[np.float32]]:
    with np.load(os.path.join(source, "expected.npz")) as expected:
        values, logits = expected["tokens"], expected["logits"]
    head = logits[:-1, :VOCABULARY]
    wide = head.astype(np.float64)
    log_prob = (wide - np.log(np.exp(wide).sum(-1, keepdims=True)))[np.arange(len(head)), values[1:]]
    arrays = {"values": values, "head": head, "log_prob": log_prob}
    return {key: np.ascontiguousarray(array, np.float32) for key, array in arrays.items()}


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def copy(name: str, source: str, compare: bool) -> None:
    folder = os.path.join(HERE, name)
    golden = golden_of(source)
    if compare:
        for key, array in bundle.read_safetensors(os.path.join(folder, "golden.bin")).items():
            assert np.array_equal(array, golden[key]), f"{name}: '{key}' differs"
        for file_name in COPIED:
            same = read(os.path.join(folder, file_name)) == read(os.path.join(source, file_name))
            assert same, f"{name}: {file_name} differs"
        return
    os.makedirs(folder, exist_ok=True)
    for file_name in COPIED:
        shutil.copyfile(os.path.join(source, file_name), os.path.join(folder, file_name))
    shapes = {key: array.shape for key, array in golden.items()}
    bundle.write_safetensors(os.path.join(folder, "golden.bin"), shapes, golden.__getitem__, "f32")
    print(f"{name}: logits up to {float(np.abs(golden['head']).max()):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="the folder of the checkpoints")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    for name, source in FOLDERS.items():
        copy(name, os.path.join(args.data, source), args.check)


if __name__ == "__main__":
    main()
