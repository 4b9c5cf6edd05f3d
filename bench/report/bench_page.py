#!/usr/bin/env python3
"""Measures how much slower other streams are while a page in Chromium watches their server; writes page.md.

    make bench-page                                                    # writes docs/benchmarks
    build/page/bin/python bench/report/bench_page.py --rounds 1 --docs build/bench/page

The server has one core. Its client and Chromium share another one, so the client may lose a little to Chromium as
well. Rounds with and without a page alternate, and the medians count. Before that, without streams, the processor time
that the server needs for a page is measured. Have the machine to yourself: `uptime` should say 0.

Needs a built runnel, two cores, and Chromium and Playwright, which `scripts/setup test-page` installs.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bench_cpu import ROOT, BenchError, page_parser, quiet_machine, run, write_page
from bench_report import table, write_docs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ALONE, WATCHED = "alone", "with a page"
GOAL = 0.02  # of the values per second of other streams, at most
CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--backend=cpu", "--threads=1", "--log-access=false", "--address=127.0.0.1:0", "--http-address=127.0.0.1:0")


# --- Measuring ---


@contextlib.contextmanager
def serving(runnel: pathlib.Path, bundle: pathlib.Path, cores: list[int]) -> Iterator[tuple[int, str, str]]:
    """A server on the first core: its process id, and its addresses for gRPC and HTTP. This process, and all that
    it starts after this, stay on the second core."""
    os.sched_setaffinity(0, cores[:1])
    with subprocess.Popen([runnel, "serve", bundle, *FLAGS], stderr=subprocess.PIPE, text=True) as process:
        os.sched_setaffinity(0, cores[1:2])
        try:
            found: dict[str, str] = {}
            for line in process.stderr or ():
                if match := re.search(r" (http|ready) .*address=(\S+)", line):
                    found[match[1]] = match[2]
                if "ready" in found:
                    break
            if set(found) != {"http", "ready"}:
                raise BenchError(f"the server of {bundle} did not start")
            yield process.pid, found["ready"], found["http"]
        finally:
            process.terminate()


@contextlib.contextmanager
def browsing() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise BenchError(f"{sys.executable} has no Playwright: run scripts/setup test-page") from None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


def watch(page: Page, url: str) -> None:
    """Opens the page of a server, and waits until it shows values per second."""
    page.goto(url)
    page.locator("[data-figure=values]:not(:text-is('–'))").wait_for()


def processor_seconds(stat: str) -> float:
    """Seconds in user and kernel mode, from the text of /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def server_ms_per_s(process: int, seconds: float) -> float:
    """Milliseconds of processor time that a server uses in each second from now on."""
    stat = pathlib.Path(f"/proc/{process}/stat")
    before, began = processor_seconds(stat.read_text()), time.monotonic()
    time.sleep(seconds)
    return 1000 * (processor_seconds(stat.read_text()) - before) / (time.monotonic() - began)


def values_per_second(arguments: Any, address: str) -> float:
    words = ["--what", "streams", "--batch", arguments.streams, "--seconds", arguments.seconds, "--json"]
    told = json.loads(run([arguments.runnel, "bench", "--server", address, *words]))
    return float(told["throughput"][0]["values_per_s"])


def in_turns(rounds: int) -> list[str]:
    """The ways to measure, in order. Every second round begins with the page, so that a drift favours neither."""
    return [way for i in range(rounds) for way in ((ALONE, WATCHED) if i % 2 == 0 else (WATCHED, ALONE))]


def measure(arguments: Any) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("this process may use one core; the server and its client need one each")
    figures: dict[str, Any] = {"machine": quiet_machine(), "bundle": arguments.bundle.name}
    figures |= {"streams": arguments.streams, "seconds": arguments.seconds}
    rates: dict[str, list[float]] = {ALONE: [], WATCHED: []}
    with serving(arguments.runnel, arguments.bundle, cores) as (process, address, http), browsing() as browser:
        page = browser.new_page()
        watch(page, f"http://{http}")
        figures["server_ms_per_s"] = server_ms_per_s(process, arguments.idle_seconds)
        for way in in_turns(arguments.rounds):
            page.goto("about:blank")
            if way == WATCHED:
                watch(page, f"http://{http}")
            rates[way].append(values_per_second(arguments, address))
    return {**figures, "values_per_s": rates}


# --- The page ---


def change(rates: dict[str, list[float]]) -> float:
    """The change of the values per second while a page watches, as a share; negative: a loss."""
    return statistics.median(rates[WATCHED]) / statistics.median(rates[ALONE]) - 1


def page(figures: dict[str, Any]) -> str:
    about, rates = figures["machine"], figures["values_per_s"]
    rows = [
        [way, f"{statistics.median(each):,.0f}", f"{min(each):,.0f} to {max(each):,.0f}"] for way, each in rates.items()
    ]
    rounds = len(rates[ALONE])
    return f"""# A page that watches

Written by `make bench-page`. {figures["streams"]} streams of `{figures["bundle"]}` take values by gRPC as fast as the
server gives them, alone and while [the page](../page.md) in Chromium watches the same server. The server has one core
of {about["cpu"]}. Its client and Chromium share another core, so
the measured loss includes the time that Chromium takes from the client. Load average at start:
{about["load_average"]:.2f}.

Values per second in {rounds} rounds of {figures["seconds"]:g} s in turns:

{table(["streams", "median", "least and most"], rows)}
While a page watches, the median changes by {change(rates):+.1%} (goal: more than {-GOAL:.0%}). The rounds of streams
alone differ by up to {max(rates[ALONE]) / min(rates[ALONE]) - 1:.0%} among themselves.

Without streams, the server uses {figures["server_ms_per_s"]:.2f} ms of processor time a second for a page.

[page_figures.json](page_figures.json) has every figure.
"""


def make_parser() -> Any:
    parser = page_parser("page", __doc__)
    parser.set_defaults(rounds=9)
    parser.add_argument("--bundle", type=pathlib.Path, default=ROOT / "zoo/text-endless-small", help="the model")
    parser.add_argument("--streams", type=int, default=16, help="at the same time (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="of each round (default: %(default)s)")
    parser.add_argument("--idle-seconds", type=float, default=10, help="without streams (default: %(default)s)")
    return parser


def measure_and_write(arguments: Any) -> None:
    figures = measure(arguments)
    write_docs("page", figures, page(figures), arguments.docs)


if __name__ == "__main__":
    sys.exit(write_page(make_parser(), measure_and_write))
