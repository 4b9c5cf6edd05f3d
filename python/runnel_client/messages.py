"""The messages of the wire contract, as classes.

The package carries a description of the contract, `_proto/runnel.binpb`, and makes the classes of it when they are
first needed. The description works with every version of protobuf; code that protoc generates would not. In a checkout
protoc writes the description, and writes it again when the contract has changed.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Sequence
from typing import Any

from runnel_client import command
from runnel_client.errors import BundleError

PACKAGE = pathlib.Path(__file__).resolve().parent
CONTRACT = PACKAGE.parents[1] / "proto"  # in a checkout
DESCRIPTION = PACKAGE / "_proto" / "runnel.binpb"  # a FileDescriptorSet
NAMES = ("admin", "fault", "inference", "models", "sessions")
SOURCES = [CONTRACT / f"runnel/v1/{name}.proto" for name in NAMES]
_loading = threading.RLock()  # otherwise threads that load at the same time would get different classes


def inference() -> Any:
    """The messages of the service Inference, by name."""
    return load("inference")


def load(name: str) -> Any:
    """The messages of runnel/v1/NAME.proto, by name."""
    with _loading:
        return _load(name)


@functools.cache
def _load(name: str) -> Any:
    file = _pool().FindFileByName(f"runnel/v1/{name}.proto")
    return types.SimpleNamespace(**{kind: _class_of(found) for kind, found in file.message_types_by_name.items()})


def decode_error() -> type[Exception]:
    """The exception that protobuf raises for bytes that are not a message."""
    from google.protobuf.message import DecodeError

    return DecodeError


def is_stale() -> bool:
    """Whether the description is missing, or older than the contract of this checkout."""
    if not DESCRIPTION.exists():
        return True
    written = DESCRIPTION.stat().st_mtime
    return any(source.exists() and source.stat().st_mtime > written for source in SOURCES)


def protoc() -> list[str]:
    """The command that runs protoc: the program, or the one in grpcio-tools. Empty if both are missing."""
    program = shutil.which("protoc")
    if program is not None:
        return [program]
    return [sys.executable, "-m", "grpc_tools.protoc"] if importlib.util.find_spec("grpc_tools") else []


def generate() -> None:
    """Writes the description with protoc; several processes may do so at once."""
    command_line = protoc()
    if not command_line:
        raise BundleError(
            "protoc is missing, which reads the wire contract; install protobuf-compiler (Debian) or grpcio-tools (pip)"
        )
    try:
        _write(command_line)
    except OSError as error:
        raise BundleError(
            f"{error.filename}: {error.strerror}; the description of the wire contract is missing there or old: "
            "make one call as a user who may write it"
        ) from None


def _write(command_line: Sequence[str]) -> None:
    DESCRIPTION.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DESCRIPTION.parent) as directory:
        written = f"{directory}/{DESCRIPTION.name}"
        done = subprocess.run(
            [
                *command_line,
                f"-I{CONTRACT}",
                "--include_imports",
                f"--descriptor_set_out={written}",
                *map(str, SOURCES),
            ],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BundleError(f"protoc could not read the wire contract: {done.stderr}")
        os.replace(written, DESCRIPTION)


@functools.cache
def _pool() -> Any:
    """The contract's descriptors. The pool is our own, so that a program may also have generated modules of runnel."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
    except ImportError as error:
        raise command.missing(error) from None
    if is_stale():
        generate()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTION.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _class_of(descriptor: Any) -> Any:
    from google.protobuf import message_factory

    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return _factory().GetPrototype(descriptor)


@functools.cache
def _factory() -> Any:
    """Makes the classes if protobuf is older than 4.22."""
    from google.protobuf import message_factory

    return message_factory.MessageFactory(_pool())
