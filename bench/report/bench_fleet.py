#!/usr/bin/env python3
"""Measures sessions in a store that outnumber the slots of their server, and writes docs/benchmarks/fleet.{json,md}.

    bench/report/bench_fleet.py RUNNEL OUT_DIRECTORY [--sessions 100000] [--slots 256] [--calls 1000]

One server with a small random model keeps its sessions in a directory. Sessions are made until there are a hundredth,
a tenth, and all of them. At each count the memory of the server is read, and calls of one value continue sessions that
are drawn at random: first a session that must be loaded, as nearly all must, and then the same session again.

Have the machine to yourself: `uptime` should say 0. Needs a disk with room for a state of each session, protoc, and
Python with grpcio and protobuf; on Debian: scripts/setup bench
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from runnel_client import Client, serving

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ("--preset", "tiny", "--endless")
GOAL = 5e-3  # seconds within which a session continues
PAGE = """# More sessions than states

Measured by `make bench-fleet` on {date}, on {machine}: one server with {slots} states of {state_bytes} bytes in memory
and a store in a directory (`storage.sync` none), and its client on the same machine over loopback. The sessions rest,
and {calls} calls of one value continue sessions that are drawn at random. A session whose state has made room for
another one is loaded first. The call after that finds the session in memory. [fleet.md](../fleet.md) says how a session
makes room.

| sessions | memory of the server | a call that loads, median and 99% | the next call, median and 99% |
| --- | --- | --- | --- |
{rows}

From the first row to the last, memory grows by {growth:.0f} bytes for each session more. {verdict}
"""


def machine() -> str:
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    return found[1] if found else "an unnamed processor"


def resident_bytes(process: int) -> int:
    status = pathlib.Path(f"/proc/{process}/status").read_text(encoding="ascii")
    found = re.search(r"^VmRSS:\s*(\d+) kB$", status, re.M)
    assert found is not None
    return int(found[1]) * 1024


def timed(client: Client, session: str) -> float:
    """The seconds of a call of one value, without those in which the client asks where the session is."""
    opened = client.open_session(session)
    begin = time.perf_counter()
    opened.generate([1], max_values=1).samples()
    return time.perf_counter() - begin


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """The median, and the time within which 99 of 100 calls are over."""
    return {"p50": statistics.median(seconds), "p99": statistics.quantiles(seconds, n=100)[98]}


def measure(runnel: str, counts: Sequence[int], slots: int, calls: int, folder: pathlib.Path) -> dict[str, Any]:
    bundle = folder / "bundle"
    tool = str(ROOT / "scripts/runnel-random-bundle")
    subprocess.run([sys.executable, tool, *MODEL, "--out", str(bundle)], check=True, stdout=subprocess.DEVNULL)
    flags = ["--backend", "cpu", "--sessions", str(slots), "--storage", f"dir:{folder / 'store'}"]
    flags += ["--storage-sync", "none"]
    draw = random.Random(1)
    names: list[str] = []
    rows: list[dict[str, Any]] = []
    with serving.running(runnel, bundle, folder / "log", flags) as (process, address), Client(address) as client:
        while len(rows) < len(counts):
            while len(names) < counts[len(rows)]:
                session = client.session(f"s{len(names)}", keep=True)
                session.feed([1, 2, 3])
                names.append(session.id)
            drawn = [draw.choice(names) for _ in range(calls)]
            pairs = [(timed(client, name), timed(client, name)) for name in drawn]
            loads, again = zip(*pairs)
            memory = resident_bytes(process.pid)
            rows.append({"sessions": len(names), "memory": memory, "load": spread(loads), "again": spread(again)})
            print(rows[-1], file=sys.stderr)
        return {"slots": slots, "calls": calls, "state_bytes": client.model().state_bytes, "rows": rows}


def cell(times: dict[str, float]) -> str:
    return f"{times['p50'] * 1e3:.2f} ms, {times['p99'] * 1e3:.2f} ms"


def page(figures: dict[str, Any]) -> str:
    rows = figures["rows"]
    first, last = rows[0], rows[-1]
    slowest = max(row["load"]["p99"] for row in rows)
    held = "99 of 100 calls that load are" if slowest <= GOAL else "Not all of 99 in 100 calls that load are"
    return PAGE.format(
        date=figures["date"],
        machine=figures["machine"],
        slots=figures["slots"],
        calls=f"{figures['calls']:,}",
        state_bytes=f"{figures['state_bytes']:,}",
        growth=(last["memory"] - first["memory"]) / max(1, last["sessions"] - first["sessions"]),
        verdict=f"{held} over within {GOAL * 1e3:.0f} ms.",
        rows="\n".join(
            f"| {row['sessions']:,} | {row['memory'] / 1e6:.0f} MB | {cell(row['load'])} | {cell(row['again'])} |"
            for row in rows
        ),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runnel")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--calls", type=int, default=1000, help="at each number of sessions")
    args = parser.parse_args()
    counts = [args.sessions // 100, args.sessions // 10, args.sessions]
    with tempfile.TemporaryDirectory(prefix="runnel_bench_") as holder:
        figures = measure(args.runnel, counts, args.slots, args.calls, pathlib.Path(holder))
    figures |= {"date": time.strftime("%Y-%m-%d"), "machine": machine()}
    (args.out / "fleet.json").write_text(json.dumps(figures, indent=1) + "\n")
    (args.out / "fleet.md").write_text(page(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
