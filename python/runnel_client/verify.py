"""Compares a converted bundle with recorded outputs of its checkpoint.

A checkpoint does not record the number of heads, the activation or the feature map. A wrong guess still converts, and
the model is only slightly worse. Outputs of the model that were recorded where it was trained reveal a wrong guess.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from runnel_client.bundle import Config, is_softmax, shape_text
from runnel_client.errors import BundleError, check
from runnel_client.reference import Array, Reference

# The largest allowed difference of outputs and log-probabilities, relative to the largest of them (or 1). The rounding
# of weights causes such differences.
TOLERANCES = {"f32": 1e-3, "f16": 1e-2, "bf16": 1e-1}
# The arrays of a .npz file. Each may have any of these names.
NAMES = {"values": ("values", "images"), "outputs": ("outputs", "head"), "log_probs": ("log_probs", "logprob")}
PROBED = 24  # number of positions that are compared when another number of heads is tried

Tensors = Mapping[str, npt.NDArray[Any]]


class Model(Protocol):
    """A sequence at its start: step(value) gives the outputs after one more value."""

    def step(self, value: int) -> Array: ...

    def log_prob(self, head: Array, value: int) -> float: ...


@dataclasses.dataclass
class Recording:
    """Inputs, and the outputs of a model for them."""

    source: str
    values: npt.NDArray[np.int64]  # [sequences, n]
    outputs: Array | None = None  # [sequences, up to n, outputs]: after values 0, 1, ...
    log_probs: Array | None = None  # [sequences, up to n - 1]: natural, of values 1, 2, ...

    def positions(self) -> int:
        """Values of each sequence after which something is recorded."""
        return max(0 if one is None else one.shape[1] for one in (self.outputs, self.log_probs))

    def first(self, count: int) -> Recording:
        """The first positions of the first sequence."""
        parts = (None if one is None else one[:1, :count] for one in (self.outputs, self.log_probs))
        return Recording(self.source, self.values[:1], *parts)


def read(path: str, config: Config) -> Recording:
    """Reads a recording from a .npz file: values, and outputs or log_probs or both. Refuses it if it does not fit."""
    try:
        with open(path, "rb") as held, np.load(held, allow_pickle=False) as file:
            found = {key: next((file[name] for name in names if name in file), None) for key, names in NAMES.items()}
    except Exception as error:  # numpy raises several kinds for a broken archive or a file with one array
        raise BundleError(f"--verify: {path}: expected a file of numpy.savez: {error}") from None
    values, outputs, log_probs = found["values"], found["outputs"], found["log_probs"]
    if values is None or (outputs is None and log_probs is None):
        raise BundleError(f"--verify: {path}: expected arrays 'values' and 'outputs' or 'log_probs'")
    check(
        values.ndim == 2
        and values.size
        and values.dtype.kind in "iu"
        and 0 <= values.min() <= values.max() < config["values"],
        f"--verify: {path}: values: expected [sequences, n] of integers from 0 to {config['values'] - 1}, "
        f"found {shape_text(values.shape)} of {values.dtype}",
    )
    count, length = values.shape
    limit = config["model"]["position"].get("length") or length
    for key, array, dims, most in (
        ("outputs", outputs, 3, min(length, limit)),
        ("log_probs", log_probs, 2, min(length - 1, limit)),
    ):
        check(
            array is None or (array.ndim == dims and len(array) == count and 1 <= array.shape[1] <= most),
            f"--verify: {path}: {key}: expected {count} sequences of 1 to {most} positions, "
            f"found {shape_text(() if array is None else array.shape)}",
        )
        check(
            array is None or (array.dtype.kind in "fiu" and np.isfinite(array).all()),
            f"--verify: {path}: {key}: expected finite numbers, found others",
        )
    return Recording(os.path.basename(path), values.astype(np.int64), outputs, log_probs)


def record(source: str, make: Callable[[], Model], config: Config, sequences: int = 2, length: int = 64) -> Recording:
    """Records the outputs of another implementation for random values."""
    length = min(length, config["model"]["position"].get("length") or length)
    values = np.random.default_rng(0).integers(config["values"], size=(sequences, length))
    outputs = [[model.step(int(value)) for value in row] for row in values for model in [make()]]
    return Recording(source, values, np.array(outputs))


def differences(make: Callable[[], Model], recording: Recording) -> Iterator[tuple[float, int, int]]:
    """For each recorded position, the difference relative to the largest number (or 1), with its sequence and position.

    It is infinite if an output of the model is not a number.
    """
    outputs, log_probs = recording.outputs, recording.log_probs
    scales = [1.0 if one is None else max(1.0, float(np.abs(one).max())) for one in (outputs, log_probs)]
    for sequence, values in enumerate(recording.values):
        model = make()
        for position in range(recording.positions()):
            head = model.step(int(values[position]))
            found = [0.0]
            if outputs is not None and position < outputs.shape[1]:
                check(
                    head.shape == outputs.shape[2:],
                    f"--verify: {recording.source}: outputs: expected {len(head)} of each position, "
                    f"found {shape_text(outputs.shape[2:])}",
                )
                found.append(float(np.abs(head - outputs[sequence, position]).max()) / scales[0])
            if log_probs is not None and position < log_probs.shape[1]:
                log_prob = model.log_prob(head, int(values[position + 1]))
                found.append(abs(log_prob - float(log_probs[sequence, position])) / scales[1])
            yield math.inf if any(map(math.isnan, found)) else max(found), sequence, position


def verify(config: Config, tensors: Tensors, recording: Recording, dtype: str) -> str:
    """One line about how well the bundle agrees with a recording. Raises BundleError if it does not agree."""
    worst, sequence, position = max(differences(lambda: Reference(config, tensors), recording))
    if worst <= TOLERANCES[dtype]:
        count = len(recording.values) * recording.positions()
        return f"the largest difference from {recording.source} is {worst:.2g}, over {count:,} positions"
    fitting = [flags for flags, other in others(config) if fits(other, tensors, recording, dtype)]
    advice = (
        f"they fit {' or '.join(fitting)}" if fitting else "--attention, --feature-map or the checkpoint may be wrong"
    )
    raise BundleError(
        f"--verify: the outputs in {recording.source} are not those of this model: with --heads "
        f"{config['model']['heads']} they differ by {worst:.2g} (sequence {sequence}, position {position}); {advice}"
    )


def others(config: Config) -> Iterator[tuple[str, Config]]:
    """The other configs that the same tensors allow, with their flags: kinds of attention, numbers of heads, and
    activations."""
    yield from others_of_attention(config)
    for flag, attention in other_attentions(config["model"]):
        other = copy.deepcopy(config)
        other["model"]["attention"] = attention
        yield flag, other
        yield from ((f"{flag} {flags}", changed) for flags, changed in others_of_attention(other))


def other_attentions(model: Config) -> Iterator[tuple[str, Config]]:
    """The kinds of attention that have the same tensors, with their flags."""
    if is_softmax(model):
        yield "--attention linear", {"feature_map": "elu", "eps": 1e-6}
    elif model["attention"] == {"feature_map": "elu", "eps": 1e-6} and model["position"].get("length"):
        yield "--attention softmax", {"kind": "softmax"}


def others_of_attention(config: Config) -> Iterator[tuple[str, Config]]:
    """The other configs with the same kind of attention."""
    model = config["model"]
    queries, values = (model["heads"] * model[key] for key in ("query_size", "value_size"))
    random = model["attention"].get("feature_map", "elu") not in ("elu", "relu")  # then omega tells the size of a head
    for heads in [model["heads"]] if random else range(1, min(queries, values) + 1):
        if queries % heads or values % heads:
            continue
        for activation in ("relu", "gelu"):
            other = copy.deepcopy(config)
            other["model"] |= {"heads": heads, "query_size": queries // heads, "value_size": values // heads}
            other["model"]["activation"] = activation
            if other != config:
                changed = [f"--heads {heads}"] * (heads != model["heads"])
                changed += [f"--activation {activation}"] * (activation != model["activation"])
                yield " ".join(changed), other


def fits(config: Config, tensors: Tensors, recording: Recording, dtype: str) -> bool:
    probe = recording.first(PROBED)
    return all(found <= TOLERANCES[dtype] for found, _, _ in differences(lambda: Reference(config, tensors), probe))
