"""A runnel server for the tools: started for one bundle, or found at an address."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from runnel_client import command
from runnel_client.bundle import read_json
from runnel_client.errors import BundleError, check

if TYPE_CHECKING:
    from runnel_client.batch import Batch

Path = str | os.PathLike[str]

PATIENCE = 600.0  # seconds that a server may take to start or to end


@contextlib.contextmanager
def running(
    runnel: Path, bundle: Path, log: Path, flags: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The process of a server of one bundle on a free port, and its address."""
    with process_of(runnel, [bundle, *flags], log) as found:
        yield found


@contextlib.contextmanager
def process_of(runnel: Path, words: Sequence[Path], log: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Runs `runnel serve` with these arguments on a free port during the block. Yields its process and its address."""
    line = [runnel, "serve", *words, "--address", "127.0.0.1:0"]
    try:
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(line, stderr=file)
    except OSError as error:
        raise BundleError(f"--runnel: {runnel}: {error.strerror}") from None
    try:
        yield process, ready_address(process, log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ready_address(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address that a starting server logs once it is ready."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        has_ended = process.poll() is not None  # before the log is read, whose last line may be the reason
        with open(log, encoding="utf-8", errors="replace") as file:
            text = file.read()
        found = re.search(r"\bready\b.*address=(\S+)", text)
        if found:
            return found.group(1)
        if has_ended:
            break
        time.sleep(0.1)
    raise BundleError("the server did not start: " + text)


@contextlib.contextmanager
def connect(
    bundle: str, runnel: str | None = None, address: str | None = None, flags: Sequence[str] = ()
) -> Iterator[Batch]:
    """Calls to the server at `address`, or to one that `runnel` runs for as long as the block lasts."""
    try:
        from runnel_client.access import Access
        from runnel_client.batch import Batch
        from runnel_client.client import Client
    except ImportError as error:
        raise command.missing(error) from None
    check(
        (runnel is None) != (address is None),
        "give either --runnel, the program to serve with, or --server, the address of a server",
    )
    model = read_json(os.path.join(bundle, "config.json"), "BUNDLE").get("name", "")  # a published model has none
    with contextlib.ExitStack() as stack:
        access = None  # that of the environment, which is for other servers than one that this starts
        if runnel is not None:
            access = Access()
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            _, address = stack.enter_context(running(runnel, bundle, os.path.join(directory, "log"), flags))
        assert address is not None
        client = stack.enter_context(Client(address, access=access))
        yield stack.enter_context(Batch(client, model))
