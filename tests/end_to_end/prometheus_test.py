"""A real Prometheus scrapes a server under load, and every expression of the dashboard has a result there.

    RUNNEL=build/release/runnel tests/end_to_end/prometheus_test.py

Run by ctest (end_to_end.prometheus) for `make test-clients`, which installs Prometheus.
"""

from __future__ import annotations

import functools
import json
import math
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNEL = os.environ.get("RUNNEL") or str(ROOT / "build/release/runnel")
DASHBOARD = ROOT / "docker/grafana-dashboard.json"
PATIENCE = 600.0  # seconds until an event counts as one that never comes: the machine may be busy with other things
INTERVAL = "10s"  # from one scrape to the next, and the time for its answer
WINDOW = "300s"  # for rates; much longer than the scrapes that they need, some of which may fail
SESSIONS, HELD = 4, 3  # states of the server; states that idle sessions hold
VARIABLES = {"$__rate_interval": WINDOW, "$instance": ".*", "$model": ".*"}


def wait_until(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
        return text


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def expressions(panels: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Title and expression of each target, with Grafana's variables filled in."""
    for panel in panels:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            yield panel["title"], expression


class LoadedServer(unittest.TestCase):
    """`runnel serve` with one free state, `runnel load` with more calls than it can serve, and Prometheus."""

    folder: pathlib.Path
    address: str  # the address for metrics
    prometheus: str

    @classmethod
    def setUpClass(cls) -> None:
        holder = tempfile.TemporaryDirectory(prefix="runnel_prometheus_")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.serve()
        cls.scrape()

    @classmethod
    def start(cls, name: str, *words: str) -> tuple[subprocess.Popen[bytes], pathlib.Path]:
        """Starts a program that runs until the tests have ended. Returns it and the file with its output."""
        output = cls.folder / f"{name}.log"
        with output.open("w") as file:
            process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, cwd=cls.folder)
        cls.addClassCleanup(process.wait, PATIENCE)
        cls.addClassCleanup(process.terminate)
        return process, output

    @classmethod
    def serve(cls) -> None:
        any_port = "127.0.0.1:0"
        flags = ["--address", any_port, "--metrics-address", any_port, "--sessions", str(SESSIONS)]
        _, log = cls.start("serve", RUNNEL, "serve", str(ROOT / "zoo/mnist-small"), *flags)
        assert wait_until(lambda: " ready " in log.read_text()), log.read_text()
        found = dict(re.findall(r"info (metrics|ready) .*address=(\S+)", log.read_text()))
        cls.address = found["metrics"]
        picture = ["--values", "0,0,9", "--max-values", "1", "--out", str(cls.folder / "held.png")]
        hold = [RUNNEL, "generate", *picture, "--keep", "--server", found["ready"]]
        for _ in range(HELD):
            subprocess.run(hold, check=True, capture_output=True, timeout=PATIENCE)
        # Calls come faster than they can use the only free state, so the server refuses some all the time.
        load = ["--server", found["ready"], "--rate", "400", "--duration", "3600", "--warm-up", "0"]
        cls.start("load", RUNNEL, "load", *load, "--values", "512-700", "--prompt", "1-64")

    @classmethod
    def scrape(cls) -> None:
        targets = [{"targets": [cls.address]}]
        settings = {
            "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL},
            "scrape_configs": [{"job_name": "runnel", "static_configs": targets}],
        }
        config = cls.folder / "prometheus.yml"
        config.write_text(json.dumps(settings))  # JSON is valid YAML
        flags = [f"--config.file={config}", f"--storage.tsdb.path={cls.folder / 'data'}"]
        # If another program takes the port before Prometheus does, Prometheus is started again on another port.
        assert any(cls.has_started(flags) for _ in range(10)), (cls.folder / "prometheus.log").read_text()
        # Rates over the window need several scrapes.
        scraped = f"count_over_time(runnel_build_info[{WINDOW}]) > 2"
        assert wait_until(lambda: bool(cls.query(scraped))), (cls.folder / "prometheus.log").read_text()

    @classmethod
    def has_started(cls, flags: list[str]) -> bool:
        """Starts Prometheus. False if it ends at once."""
        listen = f"127.0.0.1:{free_port()}"
        cls.prometheus = f"http://{listen}"
        process, log = cls.start("prometheus", "prometheus", *flags, f"--web.listen-address={listen}")
        assert wait_until(lambda: bool(cls.query("vector(1)")) or process.poll() is not None), log.read_text()
        return process.poll() is None

    @classmethod
    def query(cls, expression: str) -> list[float]:
        """The values of the series that match the expression. Empty until Prometheus answers."""
        words = urllib.parse.urlencode({"query": expression})
        try:
            answer = json.loads(get(f"{cls.prometheus}/api/v1/query?{words}"))
        except OSError:
            return []
        return [float(series["value"][1]) for series in answer["data"]["result"]]

    @classmethod
    def has_answer(cls, expression: str) -> bool:
        """Whether a series has a finite number. A quantile without data has none."""
        return any(map(math.isfinite, cls.query(expression)))

    def test_promtool_accepts_the_text(self) -> None:
        text = get(f"http://{self.address}/metrics")
        command = ["promtool", "check", "metrics"]
        checked = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=PATIENCE)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))

    def test_every_expression_of_the_dashboard_has_an_answer(self) -> None:
        asked = list(expressions(json.loads(DASHBOARD.read_text())["panels"]))
        self.assertGreater(len(asked), 12)
        for title, expression in asked:
            with self.subTest(panel=title, expression=expression):
                self.assertTrue(wait_until(functools.partial(self.has_answer, expression)))

    def test_every_expression_of_the_docs_has_an_answer(self) -> None:
        rows = re.findall(r"^\| `\w+` \| \w+ \|.*`([^`]+)` \|$", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
        self.assertGreater(len(rows), 20)
        for expression in rows:
            with self.subTest(expression=expression):
                asked = expression.replace("[5m]", f"[{WINDOW}]")
                self.assertTrue(wait_until(functools.partial(self.has_answer, asked)))

    def test_refusals_are_counted(self) -> None:
        refused = f'sum(rate(runnel_refusals_total{{reason="sessions"}}[{WINDOW}])) > 0'
        self.assertTrue(wait_until(lambda: bool(self.query(refused))))


if __name__ == "__main__":
    for program in ("prometheus", "promtool"):
        assert shutil.which(program), f"there is no {program}: scripts/setup test-clients installs it"
    unittest.main()
