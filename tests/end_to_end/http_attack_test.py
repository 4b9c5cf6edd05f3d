"""An attack on the HTTP port costs other clients only refusals, and its time and memory are bounded.

Streams over HTTP or gRPC slow down by less than a tenth. The attackers run on the same machine, and the processor time
that they take is not a cost of the server. So rounds with an attack on the server alternate with rounds with an attack
on another server, and the medians of the streams' times are compared. Other work on the machine disturbs rounds of both
kinds. If it disturbs one kind more, more rounds follow.
"""

import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Iterator

from hostile_client import PATIENCE, RUNNEL, Server
from http_attack import AT_ONCE, GONE, HELD, HOLDING, SILENT, SLOW, SLOW_BODIES, SLOW_HEADS

ATTACK = pathlib.Path(__file__).with_name("http_attack.py")
CONNECTIONS = SLOW_HEADS + SLOW_BODIES + SILENT + len(HELD) * HOLDING + 200
SLACK = 1 << 20
VALUES = 256  # values in a stream
AT_LEAST, AT_MOST = 8, 60  # pairs of rounds of one second each
SLOWED = 1.1
LOOKS = 3  # consecutive pairs with a ratio below the limit that end the test
WHOLE = 5 * PATIENCE  # for streams that share the machine with attackers and other work


class AttackedServer(Server):
    def __init__(self) -> None:
        flags = (
            "--http-address",
            "127.0.0.1:0",
            "--connections",
            str(CONNECTIONS),
            "--backend",
            "cpu",
            "--threads",
            "1",
        )
        super().__init__(*flags, "--log-access=false", bundle="zoo/text-endless-small")
        self.http = re.findall(r" http address=(\S+)", self.logged())[0]

    def stream(self) -> float:
        """The seconds that a stream of values takes."""
        asked = json.dumps({"prompt": [84], "max_tokens": VALUES, "stream": True, "seed": 1})
        connection = http.client.HTTPConnection(self.http, timeout=WHOLE)
        start = time.perf_counter()
        connection.request("POST", "/v1/completions", asked, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        whole = answer.read().endswith(b"data: [DONE]\n\n")
        connection.close()
        if answer.status != 200 or not whole:
            raise AssertionError(f"a stream was not served: {answer.status}")
        return time.perf_counter() - start


class Attackers:
    """A process of attackers, which is stopped except during `at_work`."""

    def __init__(self, server: AttackedServer) -> None:
        self.process = subprocess.Popen([sys.executable, "-B", ATTACK, server.http], stdout=subprocess.PIPE)
        self.process.send_signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGSTOP)

    def wait_until_enough(self) -> None:
        """Waits until each attack has ended often enough to judge it."""
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def stop(self) -> dict[str, dict[str, int]]:
        """Counts the ways in which each attack ended."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            told = self.process.communicate(timeout=PATIENCE)[0]
        finally:
            self.process.kill()
        return dict(json.loads(told.splitlines()[-1]))


def seconds_of_streams(server: AttackedServer) -> dict[str, list[float]]:
    """The seconds of each stream, by gRPC and by HTTP, within about a second."""
    by_http: list[float] = []
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set() or not by_http:
            by_http.append(server.stream())

    words = ["--what", "streams", "--batch", "2", "--values", str(VALUES), "--seconds", "1", "--json"]
    line = [RUNNEL, "bench", *words, "--server", f"127.0.0.1:{server.port}"]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reader = pool.submit(go_on)
        try:
            told = json.loads(subprocess.run(line, capture_output=True, check=True, timeout=WHOLE).stdout)
        finally:
            over.set()
        reader.result()
    return {"gRPC": [VALUES / speed for speed in told["throughput"][0]["runs"]], "HTTP": by_http}


class Refusals(unittest.TestCase):
    """Tests that run for every commit."""

    def setUp(self) -> None:
        self.server = AttackedServer()
        self.addCleanup(self.server.stop)

    def test_every_attack_is_refused_within_its_bound_and_memory(self) -> None:
        attackers = Attackers(self.server)
        with attackers.at_work():
            attackers.wait_until_enough()
            self.server.stream()
        ended = attackers.stop()
        for name, (_, expected) in AT_ONCE.items():
            self.assertTrue(
                set(ended[name]) and set(ended[name]) <= {str(status) for status in expected}, (name, ended[name])
            )
        for name, (_, count, slowly) in SLOW.items():
            statuses = ended.get(name, {})
            self.assertLessEqual(set(statuses), {str(status) for status in slowly}, name)
            if name != "nothing":
                self.assertGreaterEqual(sum(statuses.values()), count, name)
        # Each worker lets some connections read their answers slowly. It cuts off the oldest ones above that share.
        for name, (_, _, expected) in HELD.items():
            cut_off = {"closed"} if 413 in expected else set()
            self.assertLessEqual(set(ended[name]), {str(status) for status in expected} | cut_off, name)
            self.assertGreater(ended[name].get(str(min(expected)), 0), 0, ended[name])
        self.assertGreaterEqual(ended["gone"]["closed"], GONE)
        most = int(re.findall(r" memory most=(\d+)", self.server.logged())[0])
        self.assertLess(self.server.memory("VmHWM"), most + SLACK)
        self.assertTrue(self.server.serves())
        self.server.stream()


class Slowdown(unittest.TestCase):
    """Compares times, so it runs alone, in `make long`."""

    def setUp(self) -> None:
        self.server, self.other = AttackedServer(), AttackedServer()
        self.addCleanup(self.other.stop)
        self.addCleanup(self.server.stop)

    def test_other_clients_are_slowed_by_less_than_a_tenth(self) -> None:
        here, there = Attackers(self.server), Attackers(self.other)
        seconds: dict[Attackers, dict[str, list[float]]] = {each: {"gRPC": [], "HTTP": []} for each in (here, there)}
        slowed: dict[str, float] = {}
        looks = 0
        try:
            for pair in range(AT_MOST):
                for attackers in (here, there) if pair % 2 else (there, here):
                    with attackers.at_work():
                        for door, streams in seconds_of_streams(self.server).items():
                            seconds[attackers][door] += streams
                medians = {
                    door: [statistics.median(seconds[each][door]) for each in (here, there)] for door in seconds[here]
                }
                slowed = {door: attacked / otherwise for door, (attacked, otherwise) in medians.items()}
                looks = looks + 1 if max(slowed.values()) < SLOWED else 0
                if pair + 1 >= AT_LEAST and looks >= LOOKS:
                    break
        finally:
            here.stop()
            there.stop()
        print({door: f"{ratio:.3f}" for door, ratio in slowed.items()}, "of a stream's time, in", pair + 1, "pairs")
        self.assertGreaterEqual(looks, LOOKS, slowed)


if __name__ == "__main__":
    unittest.main(verbosity=1)
