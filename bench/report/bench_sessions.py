#!/usr/bin/env python3
"""Measures forks, exports, imports and rewinds, and writes docs/benchmarks/sessions.{json,md}.

    bench/report/bench_sessions.py RUNNEL OUT_DIRECTORY [--seconds 5]

For states of three sizes (MNIST's model, CIFAR-10's, and one of 25 MB), on one server with its client beside it:
  fork    one child more of a fork, against a copy of as many bytes in memory
  export  a state file out of a session and into one over loopback, in MB/s
  steps   the time of a step and between two values of 8 streams, alone and while another client forks, exports and
          imports without a pause


Medians are reported. Have the machine to yourself: `uptime` should say 0.

Needs protoc, and Python with grpcio, protobuf and numpy; on Debian: scripts/setup bench
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from runnel_client import Client, Session, messages, serving

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGE = "lm --layers 24 --width 256 --heads 16 --query-size 128 --value-size 128 --ffn 256 --values 256 --dtype f32"
MODELS = {"MNIST": "mnist --endless", "CIFAR-10": "cifar10 --endless", "25 MB": f"{LARGE} --endless"}
STREAMS = 8
MEMORY = 1 << 28  # bytes in which copies are made: more than the caches
CHILDREN = 16
PAGE = """# Sessions that move

Measured by `make bench-sessions` on {date}, on {machine}: one server with one thread that computes, and its client
on the same machine over loopback. Medians. [sessions.md](../sessions.md) says what each is for.

| model, its state | a copy in memory | a child more of a fork | a fork of one, as a call | export | import |
| --- | --- | --- | --- | --- | --- |
{moves}

The copy is of as many bytes, by numpy, from place to place of a memory larger than the caches. MB/s are those of
the state file, with its checksums and SHA-256.

While {streams} streams sample: their steps, and the time between two of their values, alone, and while another client
exports, imports, forks and deletes without a pause. The client's work and the wire's is on the same cores.

| model | a step, alone and beside | between two values, alone and beside |
| --- | --- | --- |
{steps}
"""


class Raw:
    """Export and import as the bytes of their messages: what a client does with them is not measured."""

    def __init__(self, address: str):
        import grpc

        self.sessions = messages.load("sessions")
        self.channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 1 << 26)])
        path = "/runnel.v1.Sessions/"
        self._export = self.channel.unary_stream(
            path + "ExportSession",
            request_serializer=self.sessions.ExportSessionRequest.SerializeToString,
        )
        self._import = self.channel.stream_unary(
            path + "ImportSession",
        )

    def save(self, id: str) -> list[bytes]:
        """The messages of an export."""
        return list(self._export(self.sessions.ExportSessionRequest(id=id)))

    def load(self, messages: list[bytes]) -> None:
        """An import of such messages."""
        self._import(iter(messages))

    def as_import(self, id: str, exported: list[bytes]) -> list[bytes]:
        """The messages of an import of what an export has brought."""
        request = self.sessions.ImportSessionRequest
        target = request(target=self.sessions.ImportTarget(id=id))
        data = (self.sessions.ExportSessionResponse.FromString(one).data for one in exported)
        return [target.SerializeToString(), *(request(data=piece).SerializeToString() for piece in data)]


def machine() -> str:
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    return found[1] if found else "an unnamed processor"


def timed(seconds: float, call: Callable[[], Any], undo: Callable[[Any], object] = lambda _: None) -> float:
    """The median time of a call, in seconds, of as many as fit, three at least; each is undone outside of its time."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < until:
        begun = time.perf_counter()
        made = call()
        times.append(time.perf_counter() - begun)
        undo(made)
    return statistics.median(times)


def memory_copy(size: int, seconds: float) -> float:
    """The time of a copy of so many bytes, between places that change as those of slots do."""
    places = np.ones((max(4, MEMORY // size), size), np.uint8)
    at = 0

    def copy() -> None:
        nonlocal at
        at = (at + 1) % (len(places) - 1)
        np.copyto(places[at + 1], places[at])

    return timed(seconds, copy)


def measure_fork(session: Session, seconds: float) -> dict[str, float]:
    """One child, and one child more, in seconds."""

    def delete(children: list[Session]) -> None:
        for child in children:
            child.delete()

    one = timed(seconds / 2, lambda: session.fork(1), delete)
    many = timed(seconds / 2, lambda: session.fork(CHILDREN), delete)
    return {"one": one, "more": (many - one) / (CHILDREN - 1)}


def figures_of(metrics: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as page:
        text = page.read().decode()
    found = re.findall(r"^(\w+)\{[^}]*\} (\S+)$", text, re.M)
    return {name: float(value) for name, value in found if not name.endswith("_bucket")}


def pace(metrics: str, seconds: float) -> dict[str, float]:
    """The mean time of a step and between two values over some seconds, in seconds."""
    before = figures_of(metrics)
    time.sleep(seconds)
    after = figures_of(metrics)

    def mean(name: str) -> float:
        count = after[f"{name}_count"] - before[f"{name}_count"]
        return (after[f"{name}_sum"] - before[f"{name}_sum"]) / count

    return {"step": mean("runnel_step_seconds"), "gap": mean("runnel_value_gap_seconds")}


@contextlib.contextmanager
def streams(client: Client, count: int) -> Iterator[None]:
    """So many calls that sample meanwhile."""
    open_ones = [client.generate([1], max_values=1 << 20, values_per_message=64) for _ in range(count)]

    def read(stream: Any) -> None:
        with contextlib.suppress(Exception):
            for _ in stream:
                pass

    threads = [threading.Thread(target=read, args=(stream,), daemon=True) for stream in open_ones]
    for thread in threads:
        thread.start()
    time.sleep(1)
    yield


@contextlib.contextmanager
def traffic(call: Callable[[], object]) -> Iterator[None]:
    """Calls without a pause on a thread of their own."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            call()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        time.sleep(0.2)
        yield
    finally:
        over.set()
        thread.join()


def measure(runnel: str, name: str, seconds: float, folder: pathlib.Path) -> dict[str, Any]:
    bundle = folder / name.replace(" ", "")
    tool = str(ROOT / "scripts/runnel-random-bundle")
    make = [sys.executable, tool, "--preset", *MODELS[name].split(), "--out", str(bundle)]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    flags = ["--backend", "cpu", "--threads", "1", "--sessions", "40", "--metrics-address", "127.0.0.1:0"]
    with serving.running(runnel, bundle, folder / "log", flags) as (_, address), Client(address) as client:
        log = (folder / "log").read_text()
        metrics = re.search(r"info metrics .*address=(\S+)", log)
        assert metrics is not None
        raw = Raw(address)
        session = client.session(keep=True)
        session.feed([1, 2, 3])
        size = client.model().state_bytes
        exported = raw.save(session.id)
        sent = raw.as_import("brought", exported)

        def drop(_: object) -> None:
            client.open_session("brought").delete()

        def move() -> None:
            raw.save(session.id)
            raw.load(sent)
            drop(None)
            for child in session.fork(2):
                child.delete()

        found: dict[str, Any] = {
            "state_bytes": size,
            "file_bytes": sum(map(len, exported)),
            "copy": memory_copy(size, seconds / 5),
            "fork": measure_fork(session, seconds),
            "export": timed(seconds, lambda: raw.save(session.id)),
            "import": timed(seconds, lambda: raw.load(sent), drop),
        }
        with streams(client, STREAMS):
            found["alone"] = pace(metrics[1], seconds)
            with traffic(move):
                found["moving"] = pace(metrics[1], seconds)
        return found


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def speed(found: dict[str, Any], what: str) -> str:
    return f"{found[what] * 1e3:.2f} ms, {found['file_bytes'] / 1e6 / found[what]:,.0f} MB/s"


def beside(found: dict[str, Any], what: str) -> str:
    alone, moving = found["alone"][what], found["moving"][what]
    return f"{alone * 1e3:.3f} ms, {moving * 1e3:.3f} ms ({moving / alone:.2f}x)"


def page(figures: dict[str, Any]) -> str:
    models = figures["models"]
    moves = [
        row(
            f"{name}, {found['state_bytes']:,} bytes",
            f"{found['copy'] * 1e6:,.0f} us",
            f"{found['fork']['more'] * 1e6:,.0f} us ({found['fork']['more'] / found['copy']:.1f}x)",
            f"{found['fork']['one'] * 1e3:.2f} ms",
            speed(found, "export"),
            speed(found, "import"),
        )
        for name, found in models.items()
    ]
    steps = [row(name, beside(found, "step"), beside(found, "gap")) for name, found in models.items()]
    return PAGE.format(
        date=figures["date"],
        machine=figures["machine"],
        moves="\n".join(moves),
        streams=STREAMS,
        steps="\n".join(steps),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runnel")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    args = parser.parse_args()
    figures: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "models": {},
    }
    with tempfile.TemporaryDirectory(prefix="runnel_bench_") as holder:
        for name in MODELS:
            print(name, file=sys.stderr)
            figures["models"][name] = measure(args.runnel, name, args.seconds, pathlib.Path(holder))
    (args.out / "sessions.json").write_text(json.dumps(figures, indent=1) + "\n")
    (args.out / "sessions.md").write_text(page(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
