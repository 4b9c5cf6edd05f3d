#!/usr/bin/env python3
"""Measures how a store of sessions affects speed and capacity, and writes docs/benchmarks/fleet.{json,md}.

    bench/report/bench_fleet.py RUNNEL OUT_DIRECTORY [--sessions 100000] [--slots 256] [--calls 1000]

- Servers of one model take turns with the same calls: one for each kind of store, and one without a store.
- One server with a small random model keeps its sessions in a directory. The program makes 1%, 10% and then all of the
  sessions. At each of these counts it reads the memory of the server, and continues randomly drawn sessions by one
  value each, twice in a row: the first call must usually load the session, the second finds it in memory. At the end,
  several threads continue sessions at the same time.
- Replicas of a fleet are killed while they stream, and three replicas are compared with one.

Have the machine to yourself: `uptime` should say 0. Needs a disk with room for a state of each session, protoc,
HAProxy, redis-server and Python with grpcio and protobuf; on Debian: scripts/setup bench
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import fleet_costs
from runnel_client import Client, serving

GOAL = 5e-3  # seconds within which a session continues
GOAL_SHARE, GOAL_MORE = 0.95, 0.3e-3  # of a store with states of GOAL_SIZE
GOAL_SIZE = "66 KB"
THREADS = 16  # clients that load sessions at the same time
PAGE = """# Sessions in a store

Measured by `make bench-fleet` on {date}, on {machine}. Servers and clients share the machine, and the clients are
written in Python. [fleet.md](../fleet.md) describes the stores.

## The cost of a store

Each client continues one session, one call after another. Each kind of store has its own server, and the servers take
turns in {rounds} rounds. The share compares the values/s with those of the server without a store in the same round.
The last two columns have the time of a call of one value by a single client, and how much longer it takes than without
a store. All figures are medians over the rounds.

{costs}

The goals for states of 66 KB, with a directory and with Redis, are a share of at least {share:.0%} and calls that take
at most {more:.1f} ms longer. {reached}

## More sessions than states

One server has {slots} states of {state_bytes} bytes in memory and a store in a directory (`storage.sync` none). The
sessions are idle, and {calls} calls of one value continue sessions that are drawn at random. If the state of a session
is no longer in memory, the server loads it first. A second call on the same session finds the state in memory.

| sessions | memory of the server | first call, median and p99 | second call, median and p99 |
| --- | --- | --- | --- |
{rows}

From the first row to the last, memory grows by {growth:.0f} bytes for each additional session. {verdict} {threads}
clients at the same time load {loads:,.0f} sessions a second.

## A replica that is killed

Three replicas behind HAProxy share a store. A client reads a stream, the replica that serves it is killed by
`kill -9`, and the client library continues the stream at another replica, with the same values. The pause is the
longest time between two values after the kill. Leases last {lease:.0f} s. {kills} kills with each store.

| store | median pause | longest pause |
| --- | --- | --- |
{pauses}

With a directory the other replicas see at once that the process has ended. With Redis they must wait until its lease
expires, so the goal is the length of the lease plus 50 ms.

## Three replicas on one machine

Three replicas share the processor with HAProxy and the clients. Together they sample {replicas:.0%} of the values a
second that one replica behind HAProxy samples. The difference is the overhead of a fleet that adds no processors.
"""
COSTS = """| {size} a state, {streams} clients, {values} values a call | values/s | share | one call | longer by |
| --- | --- | --- | --- | --- |
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
    """The seconds that a call of one value takes, without the time to look up where the session is."""
    opened = client.open_session(session)
    begin = time.perf_counter()
    opened.generate([1], max_values=1).samples()
    return time.perf_counter() - begin


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile."""
    return {"p50": statistics.median(seconds), "p99": statistics.quantiles(seconds, n=100)[98]}


def loads_a_second(address: str, names: Sequence[str], seconds: float = 10.0) -> float:
    """Calls per second of several threads, which continue randomly drawn sessions. Most of these must be loaded."""
    counts = [0] * THREADS
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        draw, own = random.Random(number), names[number::THREADS]  # a session takes one call at a time
        with Client(address) as client:
            while time.monotonic() < end:
                client.open_session(draw.choice(own)).generate([1], max_values=1).samples()
                counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def counts_to(sessions: int) -> list[int]:
    """1%, 10% and all of the sessions; at least one session, and each count once."""
    return sorted({max(1, sessions // 100), max(1, sessions // 10), sessions})


def measure(runnel: str, counts: Sequence[int], slots: int, calls: int, folder: pathlib.Path) -> dict[str, Any]:
    bundle = fleet_costs.random_bundle(folder / "bundle")
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
            say(rows[-1])
        figures = {"slots": slots, "calls": calls, "state_bytes": client.model().state_bytes, "rows": rows}
        return figures | {"loads": loads_a_second(address, names)}


def say(figures: object) -> None:
    print(figures, file=sys.stderr, flush=True)


def measure_costs(runnel: str, rounds: int, seconds: float, calls: int, folder: pathlib.Path) -> list[dict[str, Any]]:
    costs = []
    for number, size in enumerate(fleet_costs.SIZES):
        place = folder / f"size{number}"
        place.mkdir()
        costs.append(fleet_costs.store_costs(runnel, size, place, rounds, seconds, calls))
        say(costs[-1])
        shutil.rmtree(place)
    return costs


def cell(times: dict[str, float]) -> str:
    return f"{times['p50'] * 1e3:.2f} ms, {times['p99'] * 1e3:.2f} ms"


def cost_table(cost: dict[str, Any]) -> str:
    lines = [
        f"| {row['store']} | {row['speed']:,.0f} | {row['share']:.0%} | {row['call'] * 1e3:.2f} ms | "
        f"{row['more'] * 1e3:.2f} ms |"
        for row in cost["rows"]
    ]
    return COSTS.format(**cost) + "\n".join(lines)


def reached(costs: Sequence[dict[str, Any]]) -> str:
    """How many rows of the tables reach the goals of a store."""
    rows = [row for cost in costs if cost["size"] == GOAL_SIZE for row in cost["rows"] if row["store"] != "no store"]
    shares = sum(row["share"] >= GOAL_SHARE for row in rows)
    times = sum(row["more"] <= GOAL_MORE for row in rows)
    return f"Of {len(rows)} rows, {shares} reach the share and {times} reach the time."


def pause_row(name: str, gaps: Sequence[float]) -> str:
    return f"| {name} | {statistics.median(gaps) * 1e3:,.0f} ms | {max(gaps) * 1e3:,.0f} ms |"


def page(figures: dict[str, Any]) -> str:
    rows = figures["rows"]
    first, last = rows[0], rows[-1]
    slowest = max(row["load"]["p99"] for row in rows)
    share = "At least" if slowest <= GOAL else "Fewer than"
    return PAGE.format(
        date=figures["date"],
        machine=figures["machine"],
        rounds=figures["rounds"],
        costs="\n\n".join(map(cost_table, figures["costs"])),
        share=GOAL_SHARE,
        more=GOAL_MORE * 1e3,
        reached=reached(figures["costs"]),
        slots=figures["slots"],
        calls=f"{figures['calls']:,}",
        state_bytes=f"{figures['state_bytes']:,}",
        growth=(last["memory"] - first["memory"]) / max(1, last["sessions"] - first["sessions"]),
        verdict=f"{share} 99% of the first calls end within {GOAL * 1e3:.0f} ms.",
        threads=THREADS,
        loads=figures["loads"],
        rows="\n".join(
            f"| {row['sessions']:,} | {row['memory'] / 1e6:.0f} MB | {cell(row['load'])} | {cell(row['again'])} |"
            for row in rows
        ),
        lease=fleet_costs.LEASE_MS / 1000,
        kills=len(next(iter(figures["kills"].values()))),
        pauses="\n".join(pause_row(name, gaps) for name, gaps in figures["kills"].items()),
        replicas=figures["replicas"],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runnel")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--calls", type=int, default=1000, help="at each number of sessions")
    parser.add_argument("--rounds", type=int, default=5, help="of servers with different stores")
    parser.add_argument("--seconds", type=float, default=6.0, help="of a server in a round")
    parser.add_argument("--kills", type=int, default=20, help="with each store")
    args = parser.parse_args()
    if args.sessions < max(args.slots + 1, THREADS):
        parser.error(f"--sessions must be larger than --slots, so that states are loaded, and at least {THREADS}")
    counts = counts_to(args.sessions)
    with tempfile.TemporaryDirectory(prefix="runnel_bench_") as holder:
        folder = pathlib.Path(holder)
        figures: dict[str, Any] = {"rounds": args.rounds}
        figures["costs"] = measure_costs(args.runnel, args.rounds, args.seconds, min(args.calls, 200), folder)
        for name in ("kills", "replicas", "sessions"):
            (folder / name).mkdir()
        figures["kills"] = fleet_costs.kills(args.runnel, folder / "kills", args.kills)
        say(figures["kills"])
        figures["replicas"] = fleet_costs.replicas(args.runnel, folder / "replicas", args.rounds, args.seconds)
        say(figures["replicas"])
        figures |= measure(args.runnel, counts, args.slots, args.calls, folder / "sessions")
    figures |= {"date": time.strftime("%Y-%m-%d"), "machine": machine()}
    (args.out / "fleet.json").write_text(json.dumps(figures, indent=1) + "\n")
    (args.out / "fleet.md").write_text(page(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
