"""Reads checkpoint files written by torch.save, without running code that they contain."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import types
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, BinaryIO

import torch
import torch.serialization

from runnel_client import state_dict
from runnel_client.errors import BundleError, check
from runnel_client.torch_file import SmallUnpickler

Tensors = dict[str, torch.Tensor]


class Checkpoint:
    """One file: its tensors by name, and the text about it on the model card."""

    def __init__(self, path: str):
        self.path = path
        data = load(path)
        iteration = data.get("iteration")
        self.iteration = iteration if type(iteration) is int else None
        found = state_dict.without_prefixes(state_dict.find_weights(path, data, torch.Tensor))
        self.tensors = {name: tensor.detach() for name, tensor in found.items()}
        with open(path, "rb") as file:
            self.digest = hashlib.sha256(file.read()).hexdigest()


def load(path: str) -> dict[str, Any]:
    """The dict that torch.save wrote, of tensors and plain values; anything else is refused."""
    check(os.path.exists(path), f"{path}: no such file")
    check(os.path.isfile(path), f"{path}: expected a file, found a directory or a device")
    try:
        data = load_weights_only(path)
    except Exception as error:  # for a broken file, torch raises a dozen kinds of exceptions
        raise BundleError(
            f"{path}: expected a file of torch.save with tensors and plain values only, found: {reason(error)}"
        ) from None
    check(
        isinstance(data, dict),
        f"{path}: expected a dict, found {type(data).__name__}; save model.state_dict()",
    )
    return data


def reason(error: Exception) -> str:
    """Torch's error in one line, without its advice to load the file unsafely."""
    text = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"^Weights only load failed.*?(WeightsUnpickler error: |$)", "", text)[:200] or "an unsafe pickle"


def load_weights_only(path: str) -> Any:
    if is_torchscript(path):
        raise pickle.UnpicklingError("a TorchScript archive, which holds code; save model.state_dict()")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Torch 1.13 cannot read floats in this way, and the state of every optimizer has floats.
        if "Unsupported operand 71" not in str(error):
            raise
    plain = types.SimpleNamespace(Unpickler=PlainUnpickler, load=load_plain)
    return torch.load(path, map_location="cpu", pickle_module=plain)


def is_torchscript(path: str) -> bool:
    """Whether torch.load takes the file for a TorchScript archive. Before torch 2.6 it then runs the file's code."""
    with open(path, "rb") as file:
        if not torch.serialization._is_zipfile(file):
            return False
    with torch.serialization._open_zipfile_reader(path) as archive:
        return bool(torch.serialization._is_torchscript_zip(archive))


class PlainUnpickler(SmallUnpickler):
    """Allows the same objects as torch's own weights-only loading, and floats."""

    dispatch = dict(SmallUnpickler.dispatch)

    stack: list[Any]  # of pickle's own unpickler in Python

    def find_class(self, module: str, name: str) -> Any:
        from torch._weights_only_unpickler import _get_allowed_globals

        allowed = _get_allowed_globals()
        full = f"{module}.{name}"
        if full not in allowed:
            raise pickle.UnpicklingError(f"Unsupported class {full}")
        return allowed[full]

    def load_build(self) -> None:
        if type(self.stack[-2]) not in (OrderedDict, torch.Tensor, torch.nn.Parameter):
            raise pickle.UnpicklingError(f"Unsupported state of a {type(self.stack[-2]).__name__}")
        super().load_build()  # type: ignore[misc]

    dispatch[pickle.BUILD[0]] = load_build  # type: ignore[assignment]


def load_plain(file: BinaryIO, **options: Any) -> Any:
    return PlainUnpickler(file, **options).load()


def merge(checkpoints: Sequence[Checkpoint]) -> Tensors:
    """The tensors of all files; the same name twice is an error unless the values are the same."""
    merged: Tensors = {}
    origin: dict[str, str] = {}
    for checkpoint in checkpoints:
        for name, tensor in checkpoint.tensors.items():
            if name in merged:
                check(
                    torch.equal(merged[name], tensor),
                    f"tensor '{name}' is in {origin[name]} and, with other values, in {checkpoint.path}",
                )
            merged[name], origin[name] = tensor, checkpoint.path
    return merged
