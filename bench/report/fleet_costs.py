"""Measurements of bench_fleet.py: the cost of a store for calls of a server, and fleets whose replicas are killed."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

from local_fleet import PATIENCE, ROOT, Fleet
from local_redis import PROGRAM, Redis

from runnel_client import Client, Retry, serving

LEASE_MS = 3000  # the minimum that a server accepts
LONG = 1 << 20  # values of a call that is never read to its end


@dataclasses.dataclass(frozen=True)
class Size:
    """A random model without a last position, whose state has a given size."""

    name: str
    words: tuple[str, ...]  # arguments of runnel-random-bundle
    streams: int
    values: int  # of a call


def size_of(name: str, layers: int, heads: int, width: int, streams: int, values: int) -> Size:
    words = ("--layers", layers, "--width", 128, "--heads", heads, "--query-size", width, "--value-size", width)
    return Size(name, tuple(map(str, words)), streams, values)


SIZES = (
    size_of("66 KB", 4, 4, 32, streams=32, values=784),  # an image of MNIST
    size_of("66 KB", 4, 4, 32, streams=32, values=64),
    size_of("2.4 MB", 12, 12, 64, streams=16, values=64),
    size_of("25 MB", 24, 16, 128, streams=8, values=64),
)


def random_bundle(folder: pathlib.Path, *words: str) -> pathlib.Path:
    tool = str(ROOT / "scripts/runnel-random-bundle")
    command = [sys.executable, tool, "--preset", "tiny", "--endless", *words, "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


@contextlib.contextmanager
def stores(folder: pathlib.Path) -> Iterator[dict[str, tuple[str, ...]]]:
    """The flags of servers, by the name of their store. Redis is left out if this machine does not have it."""

    def directory(sync: str) -> tuple[str, ...]:
        return ("--storage", f"dir:{folder / sync}", "--storage-sync", sync)

    found: dict[str, tuple[str, ...]] = {"no store": ()}
    found |= {f"directory, sync {sync}": directory(sync) for sync in ("none", "interval", "each")}
    with contextlib.ExitStack() as stack:
        if PROGRAM is not None:
            redis = Redis(folder, fsync="everysec")
            redis.start()
            stack.callback(redis.kill)
            found["Redis, everysec"] = ("--storage", redis.url, "--seal-keys", str(redis.seal_key))
        yield found


def throughput(address: str, streams: int, values: int, seconds: float) -> float:
    """Values per second of clients that each continue their own session, one call after the other."""
    counts = [0] * streams
    ready = threading.Barrier(streams + 1, timeout=PATIENCE)  # breaks if a client fails before
    over = threading.Event()

    def converse(number: int) -> None:
        with Client(address) as client, client.session() as session:
            session.generate([1], max_values=values).samples()
            ready.wait()
            while not over.is_set():
                for run in session.generate([1], max_values=values):
                    counts[number] += len(run.values)

    threads = [threading.Thread(target=converse, args=(number,)) for number in range(streams)]
    for thread in threads:
        thread.start()
    ready.wait()
    begin, before = time.perf_counter(), sum(counts)
    time.sleep(seconds)
    measured, took = sum(counts) - before, time.perf_counter() - begin
    over.set()
    for thread in threads:
        thread.join()
    return measured / took


def call_seconds(address: str, calls: int) -> float:
    """The median time of a call of one value that continues a session, while no other call runs."""
    with Client(address) as client, client.session() as session:
        times = []
        for _ in range(calls):
            begin = time.perf_counter()
            session.generate([1], max_values=1).samples()
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def rounds_of(names: Sequence[str], rounds: int, measure: Callable[[str], float]) -> dict[str, list[float]]:
    """The figures of each name, one for each round. Names take turns, so that changes of the machine affect all."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            found[name].append(measure(name))
    return found


def against(found: dict[str, list[float]], base: str, name: str) -> float:
    """The median over rounds of a figure divided by the figure of `base` in the same round."""
    return statistics.median(one / other for one, other in zip(found[name], found[base]))


def store_costs(
    runnel: str, size: Size, folder: pathlib.Path, rounds: int, seconds: float, calls: int
) -> dict[str, Any]:
    """For each store: values per second divided by those without a store, and the additional seconds of a call."""
    bundle = random_bundle(folder / "bundle", *size.words)
    with stores(folder) as found, contextlib.ExitStack() as stack:
        addresses = {}
        for number, (name, flags) in enumerate(found.items()):
            words = ["--backend", "cpu", "--sessions", str(2 * size.streams), *flags]
            server = serving.running(runnel, bundle, folder / f"log{number}", words)
            addresses[name] = stack.enter_context(server)[1]
        with Client(addresses["no store"]) as client:
            state_bytes = client.model().state_bytes
        speeds = rounds_of(
            list(found), rounds, lambda name: throughput(addresses[name], size.streams, size.values, seconds)
        )
        times = rounds_of(list(found), rounds, lambda name: call_seconds(addresses[name], calls))
    base = "no store"
    rows = [
        {
            "store": name,
            "speed": statistics.median(speeds[name]),
            "share": against(speeds, base, name),
            "call": statistics.median(times[name]),
            "more": statistics.median(one - other for one, other in zip(times[name], times[base])),
        }
        for name in found
    ]
    return {"size": size.name, "state_bytes": state_bytes, "streams": size.streams, "values": size.values, "rows": rows}


def gap_after_kill(fleet: Fleet, client: Client, seed: int) -> float:
    """The longest time between two values of a stream whose replica is killed. The replica starts again.

    Values that were already sent arrive after the kill, so the stream is read for longer than a lease.
    """
    with client.session() as session:
        last = gap = end = 0.0
        killed = None
        for _ in session.generate("The ", max_values=LONG, seed=seed, ignore_eos=True):
            now = time.perf_counter()
            if killed is not None:
                gap = max(gap, now - last)
                if now > end:
                    break
            elif last:
                killed = fleet.serving()
                killed.kill()
                now = time.perf_counter()
                end = now + LEASE_MS / 1000 + 1
            last = now
    assert killed is not None
    killed.start()
    return gap


def kills(runnel: str, folder: pathlib.Path, count: int) -> dict[str, list[float]]:
    """The seconds that gap_after_kill() returns, by the store of a fleet of three replicas."""
    found = {}
    flags = ["--storage-lease-ms", str(LEASE_MS)]
    places = {"directory": "dir"}
    with contextlib.ExitStack() as stack:
        if PROGRAM is not None:
            redis = Redis(folder, fsync="everysec")
            redis.start()
            stack.callback(redis.kill)
            places["Redis"] = redis.url
            flags += ["--seal-keys", str(redis.seal_key)]
        for name, store in places.items():
            with (
                Fleet(runnel, folder, *flags, store=store) as fleet,
                Client(fleet.proxy, retry=Retry(attempts=100, longest_delay=0.05)) as client,
            ):
                found[name] = [gap_after_kill(fleet, client, seed) for seed in range(count)]
    return found


def replicas(runnel: str, folder: pathlib.Path, rounds: int, seconds: float) -> float:
    """Values per second of three replicas divided by those of one. Both have a directory as store, and HAProxy."""
    with contextlib.ExitStack() as stack:
        addresses = {}
        for count in (1, 3):
            place = folder / str(count)
            place.mkdir()
            addresses[str(count)] = stack.enter_context(Fleet(runnel, place, count=count)).proxy
        found = rounds_of(["1", "3"], rounds, lambda name: throughput(addresses[name], 32, 256, seconds))
    return against(found, "1", "3")
