"""Helpers for tests with a real server. Tests are skipped if the program, grpcio, protobuf or protoc is missing."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Callable
from concurrent import futures

SKIPPED = 77
try:
    import google.protobuf  # noqa: F401
    import grpc
except ImportError as error:
    print(f"skipped: {error}; on Debian: apt install python3-grpcio python3-protobuf")
    sys.exit(SKIPPED)

__all__ = ["PATIENCE", "ROOT", "RUNNEL", "SKIPPED", "eventually", "grpc", "passed_on", "served"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 600.0  # seconds until an event counts as one that never comes: the machine may be busy with other things
RUNNEL = os.environ.get("RUNNEL", "")
for _name, _path in (("protoc", "protoc"), ("the program runnel, named by $RUNNEL", RUNNEL)):
    if not _path or shutil.which(_path) is None:
        print(f"skipped: there is no {_name}")
        sys.exit(SKIPPED)


def eventually(holds: Callable[[], bool], patience: float = PATIENCE) -> bool:
    """Waits until holds() is true. False if that takes longer than `patience` seconds.

    It asks again every few milliseconds. Use it only if the server does not announce the event, as with the state of a
    session or a line of a log.
    """
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.01)
    return False


def served(handler: grpc.GenericRpcHandler, stack: contextlib.ExitStack) -> str:
    """The address of a server that only this test uses. It stops with `stack`."""
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[handler])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    stack.callback(lambda: server.stop(None).wait(PATIENCE))
    return address


def passed_on(channel: grpc.Channel, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
    """The answer of the server of `channel` to a unary call. The call ends with the server's error, if it has one."""
    try:
        return channel.unary_unary(method)(request, timeout=PATIENCE)
    except grpc.RpcError as error:
        return context.abort(error.code(), error.details())
