#!/usr/bin/env python3
"""Measures forks, exports and imports, and writes docs/benchmarks/sessions.{json,md}.

    bench/report/bench_sessions.py RUNNEL BENCH_MOVES OUT_DIRECTORY [--seconds 2]

For states of three sizes (MNIST's model, CIFAR-10's, and one of 25 MB), with server and client on this machine:
  moves  the time of a fork, an export and an import by the C++ client (BENCH_MOVES), and of a copy in memory
  steps  the time of a step and between two values of 8 streams, without other calls and while another client forks,
         exports and imports without a pause; the server's stepping thread has its own core

Medians are reported. Have the machine to yourself: `uptime` should say 0.

Needs two cores, protoc, and Python with grpcio and protobuf; on Debian: scripts/setup bench
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from runnel_client import Client, Session, messages, serving

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGE = "lm --layers 24 --width 256 --heads 16 --query-size 128 --value-size 128 --ffn 256 --values 256 --dtype f32"
MODELS = {"MNIST": "mnist --endless", "CIFAR-10": "cifar10 --endless", "25 MB": f"{LARGE} --endless"}
STREAMS = 8
ROUNDS = 3
CHILDREN = 16  # of a fork, the same number as in BENCH_MOVES
PAGE = """# Sessions that move

Measured by `make bench-sessions` on {date}, on {machine}: one server with one thread that computes, and its client
on the same machine over loopback. All figures are medians. [sessions.md](../sessions.md) explains these operations.

| model, its state | a copy in memory | each further child of a fork | a call that forks one child |
| --- | --- | --- | --- |
{forks}

The copy in memory copies the bytes of a state from one place to {children} others, as a fork with {children} children
does. Copies and forks alternate, so that both find the caches in the same condition. The time of a further child is the
difference between a fork with {children} children and a fork with one, divided by {fewer}.

| model, its file | one export at a time | 4 exports at a time | one import at a time | 4 imports at a time |
| --- | --- | --- | --- | --- |
{moves}

A time is the average for one of {children} states, which move one after another or four at the same time. MB/s count
the bytes of the state file; checksums and SHA-256 are included. The client is that of `runnel session save` and `load`,
with one connection. The server runs with `--network-bytes` of 256 MiB, which four states of 25 MB on one connection
need.

The last table shows how moves slow down {streams} streams: the time of a step and the time between two values of a
stream, alone and while another client exports, imports, forks and deletes without a pause. The thread that computes
steps has its own core; the server's other threads and the client share the other cores. So the difference comes from
the copies between steps, and from the caches and the memory that the moves use. Medians of {rounds} alternating rounds.

| model | a step, alone and during moves | between two values, alone and during moves |
| --- | --- | --- |
{steps}
"""


class Raw:
    """Exports and imports only the bytes of the messages, so that no work of a client is measured."""

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
        """Imports such messages."""
        self._import(iter(messages))

    def as_import(self, id: str, exported: list[bytes]) -> list[bytes]:
        """The messages that import what an export has returned."""
        request = self.sessions.ImportSessionRequest
        target = request(target=self.sessions.ImportTarget(id=id))
        data = (self.sessions.ExportSessionResponse.FromString(one).data for one in exported)
        return [target.SerializeToString(), *(request(data=piece).SerializeToString() for piece in data)]


def machine() -> str:
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    return found[1] if found else "an unnamed processor"


def measure_moves(bench: str, address: str, session: str, size: int, seconds: float) -> dict[str, Any]:
    """Runs bench_moves and returns its JSON."""
    line = [bench, address, session, str(size), str(seconds)]
    return json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout)


def set_apart(process: subprocess.Popen[bytes]) -> None:
    """Gives one core to the server's stepping thread, and the other cores to all other threads. While the server
    samples, the busiest thread is the one that steps."""
    threads = pathlib.Path(f"/proc/{process.pid}/task")

    def used(thread: str) -> int:
        times = (threads / thread / "stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return int(times[11]) + int(times[12])

    names = os.listdir(threads)
    before = {name: used(name) for name in names}
    time.sleep(0.5)
    stepping = max(names, key=lambda name: used(name) - before[name])
    first, *rest = sorted(os.sched_getaffinity(0))
    for name in names:
        os.sched_setaffinity(int(name), [first] if name == stepping else rest)
    os.sched_setaffinity(0, rest)


def figures_of(metrics: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as page:
        text = page.read().decode()
    found = re.findall(r"^(\w+)\{[^}]*\} (\S+)$", text, re.M)
    return {name: float(value) for name, value in found if not name.endswith("_bucket")}


def pace(metrics: str, seconds: float) -> dict[str, float]:
    """The mean time of a step and the mean time between two values, in seconds, measured for `seconds`."""
    before = figures_of(metrics)
    time.sleep(seconds)
    after = figures_of(metrics)

    def mean(name: str) -> float:
        count = after[f"{name}_count"] - before[f"{name}_count"]
        return (after[f"{name}_sum"] - before[f"{name}_sum"]) / count

    return {"step": mean("runnel_step_seconds"), "gap": mean("runnel_value_gap_seconds")}


@contextlib.contextmanager
def streams(client: Client, count: int) -> Iterator[None]:
    """Runs `count` calls that sample during the block."""
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
    """Makes calls without a pause on another thread during the block."""
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


def measure_steps(
    metrics: str, raw: Raw, client: Client, session: Session, seconds: float
) -> dict[str, dict[str, float]]:
    """The pace of the streams without other calls and during each kind of move: medians of alternating rounds."""
    sent = raw.as_import("brought", raw.save(session.id))

    def move() -> None:
        raw.save(session.id)
        raw.load(sent)
        client.open_session("brought").delete()
        for child in session.fork(2):
            child.delete()

    found: dict[str, list[dict[str, float]]] = {"alone": [], "moving": []}
    for _ in range(ROUNDS):
        found["alone"].append(pace(metrics, seconds))
        with traffic(move):
            found["moving"].append(pace(metrics, seconds))
    return {
        kind: {what: statistics.median(one[what] for one in paces) for what in ("step", "gap")}
        for kind, paces in found.items()
    }


def measure(runnel: str, bench: str, name: str, seconds: float, folder: pathlib.Path) -> dict[str, Any]:
    bundle = folder / name.replace(" ", "")
    tool = str(ROOT / "scripts/runnel-random-bundle")
    make = [sys.executable, tool, "--preset", *MODELS[name].split(), "--out", str(bundle)]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    flags = ["--backend", "cpu", "--threads", "1", "--sessions", "40", "--metrics-address", "127.0.0.1:0"]
    flags += ["--network-bytes", str(1 << 28)]  # for four large states that come at once
    with serving.running(runnel, bundle, folder / "log", flags) as (process, address), Client(address) as client:
        log = (folder / "log").read_text()
        metrics = re.search(r"info metrics .*address=(\S+)", log)
        assert metrics is not None
        session = client.session(keep=True)
        session.feed([1, 2, 3])
        found = measure_moves(bench, address, session.id, client.model().state_bytes, seconds)
        found["state_bytes"] = client.model().state_bytes
        with streams(client, STREAMS):
            cores = os.sched_getaffinity(0)
            set_apart(process)
            found["steps"] = measure_steps(metrics[1], Raw(address), client, session, seconds)
            os.sched_setaffinity(0, cores)
        return found


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def speed(found: dict[str, Any], what: str, at_once: str) -> str:
    seconds = found[what][at_once]
    return f"{seconds * 1e3:.2f} ms, {found['file_bytes'] / 1e6 / seconds:,.0f} MB/s"


def fork_row(name: str, found: dict[str, Any]) -> str:
    one, all = found["fork"]["1"], found["fork"][str(CHILDREN)]
    more = (all - one) / (CHILDREN - 1)
    return row(
        f"{name}, {found['state_bytes']:,} bytes",
        f"{found['copy'] * 1e6:,.0f} us",
        f"{more * 1e6:,.0f} us ({more / found['copy']:.1f}x)",
        f"{one * 1e3:.2f} ms",
    )


def move_row(name: str, found: dict[str, Any]) -> str:
    cells = [speed(found, what, at_once) for what in ("export", "import") for at_once in ("1", "4")]
    return row(f"{name}, {found['file_bytes']:,} bytes", *cells)


def beside(found: dict[str, Any], what: str) -> str:
    alone, moving = found["steps"]["alone"][what], found["steps"]["moving"][what]
    return f"{alone * 1e3:.3f} ms, {moving * 1e3:.3f} ms ({moving / alone:.2f}x)"


def page(figures: dict[str, Any]) -> str:
    models = figures["models"]
    steps = [row(name, beside(found, "step"), beside(found, "gap")) for name, found in models.items()]
    return PAGE.format(
        date=figures["date"],
        machine=figures["machine"],
        forks="\n".join(fork_row(name, found) for name, found in models.items()),
        moves="\n".join(move_row(name, found) for name, found in models.items()),
        children=CHILDREN,
        fewer=CHILDREN - 1,
        rounds=ROUNDS,
        streams=STREAMS,
        steps="\n".join(steps),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runnel")
    parser.add_argument("bench_moves")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement")
    args = parser.parse_args()
    figures: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "models": {},
    }
    with tempfile.TemporaryDirectory(prefix="runnel_bench_") as holder:
        for name in MODELS:
            print(name, file=sys.stderr)
            figures["models"][name] = measure(args.runnel, args.bench_moves, name, args.seconds, pathlib.Path(holder))
    (args.out / "sessions.json").write_text(json.dumps(figures, indent=1) + "\n")
    (args.out / "sessions.md").write_text(page(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
