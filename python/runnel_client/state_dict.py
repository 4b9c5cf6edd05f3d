"""Finds the weights in the file of a training program, which may nest them in a dict and add prefixes of wrappers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from runnel_client.errors import check

T = TypeVar("T")

HOLDERS = ("model_state", "model_state_dict", "state_dict", "model", "module")
# torch.compile, FSDP, activation checkpoints and Lightning name the module that they wrap, at any depth.
WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_forward_module.")
PREFIXES = ("module.", "model.")  # before every name
MAX_DEPTH = 8


def find_weights(path: str, data: Mapping[Any, Any], kind: type[T], depth: int = 0) -> dict[str, T]:
    """The tensors, which are instances of `kind`, by name and without wrappers' names."""
    for key in HOLDERS:
        if isinstance(data.get(key), Mapping) and depth < MAX_DEPTH:
            return find_weights(f"{path}: {key}", data[key], kind, depth + 1)
    tensors: dict[str, T] = {}
    for name, value in data.items():
        if not isinstance(value, kind):
            continue
        check(isinstance(name, str), f"{path}: expected tensor names, found {shown(name)}")
        plain = unwrapped(name)
        check(plain not in tensors, f"{path}: expected one tensor {shown(plain)}, found another as {shown(name)}")
        tensors[plain] = value
    found = ", ".join(map(shown, list(data)[:5])) or "nothing"
    check(
        bool(tensors),
        f"{path}: expected tensors, or a dict of them as {', '.join(HOLDERS[:-1])} or {HOLDERS[-1]}, found {found}",
    )
    return tensors


def shown(key: object) -> str:
    """A key of a pickle in an error message. Only texts are shown themselves: others may be nested too deeply."""
    return repr(key[:200]) if isinstance(key, str) else f"a key of type {type(key).__name__}"


def unwrapped(name: str) -> str:
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def without_prefixes(tensors: Mapping[str, T]) -> dict[str, T]:
    """Removes the prefixes that all names have, in any order and any number of times."""
    names = dict(tensors)
    while prefix := next((p for p in PREFIXES if all(name.startswith(p) for name in names)), ""):
        names = {name[len(prefix) :]: tensor for name, tensor in names.items()}
    return names
