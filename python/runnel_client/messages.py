"""The messages of the wire contract, as protoc writes them for Python.

A built package has them in `_proto`. In a checkout they are generated there when they are first needed, and again when
the contract has changed.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any

from runnel_client import command
from runnel_client.errors import BundleError

PACKAGE = pathlib.Path(__file__).resolve().parent
CONTRACT = PACKAGE.parents[1] / "proto"  # in a checkout
GENERATED = PACKAGE / "_proto"
NAMES = ("admin", "inference", "models", "sessions")


def inference() -> Any:
    """The messages of the service Inference, as a module."""
    return load("inference")


def load(name: str) -> Any:
    try:
        import google.protobuf  # noqa: F401
    except ImportError as error:
        raise command.missing(error) from None
    if is_stale():
        generate()
    return importlib.import_module(f"runnel_client._proto.runnel.v1.{name}_pb2")


def is_stale() -> bool:
    """Whether the generated modules are missing, or older than a contract that lies beside them."""
    for name in NAMES:
        source, module = (CONTRACT / f"runnel/v1/{name}.proto", GENERATED / f"runnel/v1/{name}_pb2.py")
        if not module.exists() or (source.exists() and source.stat().st_mtime > module.stat().st_mtime):
            return True
    return False


def generate() -> None:
    """Writes the modules with protoc; several processes may do so at once."""
    protoc = shutil.which("protoc")
    if protoc is None:
        raise BundleError("protoc is missing, which generates the messages; on Debian: apt install protobuf-compiler")
    sources = [str(CONTRACT / f"runnel/v1/{name}.proto") for name in NAMES]
    target = GENERATED / "runnel/v1"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=GENERATED) as directory:
        done = subprocess.run(
            [protoc, f"-I{CONTRACT}", f"--python_out={directory}", *sources],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BundleError(f"protoc could not generate the messages: {done.stderr}")
        for name in NAMES:
            os.replace(f"{directory}/runnel/v1/{name}_pb2.py", target / f"{name}_pb2.py")
