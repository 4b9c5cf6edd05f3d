#!/usr/bin/env python3
"""Measures what floods cost: the memory of a server, and the time of an honest client's calls. Writes floods.md and
floods_figures.json.

    make bench-floods                                                       # writes docs/benchmarks
    bench/report/bench_floods.py --seconds 5 --docs build/bench/floods      # a short look

The server runs on one core. The attack (tests/end_to_end/http2_attack.py), the honest client and HAProxy share another
one. Each flood has a server of its own; the honest client calls it before the flood, and during it. Have the machine to
yourself: `uptime` should say 0. Needs a built runnel, two cores, and Python with grpcio; HAProxy for the last row.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from bench_cpu import ROOT, BenchError, page_parser, quiet_machine, write_page
from bench_report import table, write_docs

sys.path.insert(0, str(ROOT / "python"))

from runnel_client import Access, Client, serving
from runnel_client.errors import CallError

GOAL = 3.0  # times the p99 without a flood
VALUES = 16  # of a call of the honest client
MIB = 1 << 20
HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
ATTACK = ROOT / "tests/end_to_end/http2_attack.py"


@dataclasses.dataclass(frozen=True)
class Case:
    kind: str  # of http2_attack.py
    has_keys: bool = False
    has_proxy: bool = False

    @property
    def name(self) -> str:
        return self.kind + (", with keys" if self.has_keys else "") + (", through HAProxy" if self.has_proxy else "")


CASES = (
    Case("reset"),
    Case("reset", has_keys=True),
    Case("reset without a message"),
    Case("reset of reflection"),
    Case("small headers"),
    Case("continuation"),
    Case("reset", has_proxy=True),
)


# --- Measuring ---


@contextlib.contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """Ends a process after the block."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def new_key(runnel: pathlib.Path, name: str, file: pathlib.Path) -> str:
    made = subprocess.run([runnel, "key", "new", name, "--file", file], capture_output=True, text=True, check=True)
    return made.stdout.split()[-1]


def pin(process: int, core: int) -> None:
    for thread in pathlib.Path(f"/proc/{process}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def memory_mib(process: int, name: str) -> float:
    status = pathlib.Path(f"/proc/{process}/status").read_text(encoding="ascii")
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    if found is None:
        raise BenchError(f"the server has no {name} in /proc")
    return int(found[1]) / 1024


def call_for(client: Client, seconds: float) -> tuple[list[float], int]:
    """The milliseconds that calls take, one after the other, with the client's own retries; and how many fail."""
    times, failed = [], 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        try:
            client.generate([1], max_values=VALUES).samples()
        except CallError:
            failed += 1
        times.append(1000 * (time.perf_counter() - began))
    return times, failed


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


@contextlib.contextmanager
def proxy(address: str) -> Iterator[str]:
    """HAProxy with docker/haproxy.cfg in front of a server: its address."""
    port = free_port()
    others = {name: value for name, value in os.environ.items() if not name.startswith("RUNNEL_")}
    environment = {**others, "RUNNEL_PROXY": f"127.0.0.1:{port}", "RUNNEL_SERVER": address}
    assert HAPROXY is not None
    line = [HAPROXY, "-db", "-f", str(ROOT / "docker/haproxy.cfg")]
    with ended(subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)):
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def attacking(case: Case, address: str, key: str) -> Iterator[None]:
    words = [case.kind, address.rpartition(":")[2], *(["--key", key] if key else [])]
    line = [sys.executable, "-B", str(ATTACK), *words]
    with ended(subprocess.Popen(line, stdout=subprocess.PIPE, text=True)) as attack:
        assert attack.stdout is not None
        attack.stdout.readline()  # its bytes are made
        yield


def measure_case(case: Case, arguments: Any, cores: list[int], folder: pathlib.Path) -> dict[str, Any]:
    flags = ["--backend", "cpu", "--log-access=false"]
    key = attackers_key = ""
    if case.has_keys:
        keys = folder / "keys"
        key, attackers_key = (new_key(arguments.runnel, name, keys) for name in ("ada", "eve"))
        flags += ["--keys", str(keys)]
    log = folder / "log"
    with contextlib.ExitStack() as stack:
        process, address = stack.enter_context(serving.running(arguments.runnel, arguments.bundle, log, flags))
        pin(process.pid, cores[0])
        if case.has_proxy:
            address = stack.enter_context(proxy(address))
        client = stack.enter_context(Client(address, access=Access(api_key=key)))
        call_for(client, 1)
        before, _ = call_for(client, arguments.before)
        with attacking(case, address, attackers_key):
            during, failed = call_for(client, arguments.seconds)
        peak = memory_mib(process.pid, "VmHWM")
        time.sleep(arguments.after)
        left = memory_mib(process.pid, "VmRSS")
    found = re.search(r" memory most=(\d+)", log.read_text(encoding="utf-8"))
    most = int(found[1]) / MIB if found else 0.0
    return {
        "name": case.name,
        "most_mib": most,
        "peak_mib": peak,
        "left_mib": left,
        "calls": len(during),
        "failed": failed,
        "p99_before_ms": p99(before),
        "p99_during_ms": p99(during),
        "longest_ms": max(during),
    }


def measure(arguments: Any) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("this process may use one core; the server and the attack need one each")
    figures: dict[str, Any] = {"machine": quiet_machine(), "seconds": arguments.seconds, "rows": []}
    os.sched_setaffinity(0, cores[1:2])
    for case in CASES:
        if case.has_proxy and HAPROXY is None:
            continue
        with tempfile.TemporaryDirectory(prefix="runnel_bench_") as folder:
            figures["rows"].append(measure_case(case, arguments, cores, pathlib.Path(folder)))
        print(figures["rows"][-1], file=sys.stderr, flush=True)
    return figures


# --- The page ---


def ratio(row: dict[str, Any]) -> float:
    return float(row["p99_during_ms"] / row["p99_before_ms"])


def cells(row: dict[str, Any]) -> list[str]:
    return [
        row["name"],
        f"{row['peak_mib']:,.0f}",
        f"{row['left_mib']:,.0f}",
        f"{row['calls']:,}",
        f"{row['failed']}",
        f"{row['p99_before_ms']:.1f}",
        f"{row['p99_during_ms']:.1f}",
        f"{ratio(row):.1f}",
        f"{row['longest_ms'] / 1000:.2f}",
    ]


def page(figures: dict[str, Any]) -> str:
    about, rows = figures["machine"], figures["rows"]
    head = ["flood", "peak", "afterwards", "calls", "failed", "p99 before", "p99", "times", "longest, s"]
    slow = [row["name"] for row in rows if ratio(row) > GOAL]
    goal = f"Missed by: {'; '.join(slow)}." if slow else "All floods are below it."
    above = [row["name"] for row in rows if row["peak_mib"] > row["most_mib"]]
    return f"""# Floods

Written by `make bench-floods`. [security.md](../security.md) says which floods the server stops, and how. The server
has one core of {about["cpu"]}, and its default limits. The attack, with 8
connections for {figures["seconds"]:g} s, has another core, which it shares with an honest client and, in the last row,
with HAProxy and [docker/haproxy.cfg](../../docker/haproxy.cfg). Load average at start: {about["load_average"]:.2f}.

Memory is in MiB. The server said at its start that it would use at most {rows[0]["most_mib"]:,.0f}.
{"Exceeded by: " + "; ".join(above) if above else "All floods stay below it"}. The honest client makes one call of
{VALUES} values after the other; times are in ms, with the client's retries.

{table(head, [cells(row) for row in rows])}
The goal for the p99 is {GOAL:g} times that without a flood. {goal}

[floods_figures.json](floods_figures.json) has every figure.
"""


def make_parser() -> Any:
    parser = page_parser("floods", __doc__)
    parser.add_argument("--bundle", type=pathlib.Path, default=ROOT / "zoo/mnist-small", help="the model")
    parser.add_argument("--seconds", type=float, default=60, help="of each flood (default: %(default)s)")
    parser.add_argument("--before", type=float, default=10, help="seconds without one (default: %(default)s)")
    parser.add_argument("--after", type=float, default=5, help="seconds until memory is read (default: %(default)s)")
    return parser


def measure_and_write(arguments: Any) -> None:
    figures = measure(arguments)
    write_docs("floods", figures, page(figures), arguments.docs)


if __name__ == "__main__":
    sys.exit(write_page(make_parser(), measure_and_write))
