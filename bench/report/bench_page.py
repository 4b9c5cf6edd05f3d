#!/usr/bin/env python3
"""Measures what streams lose while a page in Chromium watches their server, and prints a table.

    build/page/bin/python bench/report/bench_page.py RUNNEL BUNDLE [--rounds N] [--streams N]

The server has one core; its client and Chromium share another one, so the client may lose a little to Chromium as well.
Rounds with and without a page alternate, and medians are reported. Have the machine to yourself: `uptime` should say 0.

Needs what `scripts/setup test-page` installs.
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
from collections.abc import Iterator

from playwright.sync_api import Page, sync_playwright

SECONDS = 3  # of each round
SERVER_CORE, CLIENT_CORE = 0, 1


@contextlib.contextmanager
def server(runnel: pathlib.Path, bundle: pathlib.Path) -> Iterator[tuple[str, str]]:
    """A server on a core of its own: its addresses for gRPC and HTTP."""
    flags = [
        "--backend=cpu",
        "--threads=1",
        "--log-access=false",
        "--address=127.0.0.1:0",
        "--http-address=127.0.0.1:0",
    ]
    os.sched_setaffinity(0, {SERVER_CORE})
    with subprocess.Popen([runnel, "serve", bundle, *flags], stderr=subprocess.PIPE, text=True) as process:
        os.sched_setaffinity(0, {CLIENT_CORE})
        try:
            found = {}
            for line in process.stderr:
                if match := re.search(r" (http|ready) .*address=(\S+)", line):
                    found[match[1]] = match[2]
                if "ready" in found:
                    break
            yield found["ready"], found["http"]
        finally:
            process.terminate()


def values_per_second(runnel: pathlib.Path, address: str, streams: int) -> float:
    what = ["--what", "streams", "--batch", str(streams), "--seconds", str(SECONDS), "--json"]
    run = subprocess.run([runnel, "bench", "--server", address, *what], capture_output=True, text=True, check=True)
    return float(json.loads(run.stdout)["throughput"][0]["values_per_s"])


def watch(page: Page, url: str) -> None:
    page.goto(url)
    page.locator("[data-figure=values]:not(:text-is('–'))").wait_for()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("runnel", type=pathlib.Path)
    options.add_argument("bundle", type=pathlib.Path)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--streams", type=int, default=16)
    given = options.parse_args()
    rates: dict[str, list[float]] = {"alone": [], "with a page": []}
    with server(given.runnel, given.bundle) as (address, http), sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = browser.new_page()
        for _ in range(given.rounds):
            page.goto("about:blank")
            rates["alone"].append(values_per_second(given.runnel, address, given.streams))
            watch(page, f"http://{http}")
            rates["with a page"].append(values_per_second(given.runnel, address, given.streams))
        browser.close()
    print("| | values/s | of all rounds |\n| --- | --- | --- |")
    for name, each in rates.items():
        print(f"| {name} | {statistics.median(each):,.0f} | {min(each):,.0f} to {max(each):,.0f} |")


if __name__ == "__main__":
    main()
