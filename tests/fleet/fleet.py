"""Clients that hold conversations with a fleet, and an undisturbed server that must give the same values.

Each client makes one call after another on a named session: some with runnel_client, some over HTTP through HAProxy,
some over HTTP to a random replica for each request. Every call names its session's position, and is repeated until its
answer is heard. The same call is then made on the undisturbed server. Values, text and position must be equal. This
finds a lost call, a wrong value and a position that is given twice.

Needs grpcio and protobuf.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import http.client
import json
import operator
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from typing import Any

from real_server import ROOT, RUNNEL, SKIPPED

sys.path.insert(0, str(ROOT / "scripts"))
from local_fleet import PATIENCE, Fleet, Replica, wait_until

from runnel_client import Client, Retry, Session

__all__ = [
    "PATIENCE",
    "PATIENT",
    "RUNNEL",
    "SKIPPED",
    "VALUES",
    "Call",
    "FleetTest",
    "Heard",
    "Load",
    "Progress",
    "freeze",
    "make",
    "options",
]

CLIENTS = 16
CALLS = 8  # the most calls in a conversation
VALUES = 200  # the most values in a call
REPORT_EVERY = 10  # rounds between two progress lines
PATIENT = ("--storage-timeout-ms", "60000")  # the maximum, because a busy machine's store may be slow


class Wrong(AssertionError):
    """A client heard a wrong answer."""


@dataclasses.dataclass(frozen=True)
class Call:
    prompt: str
    count: int
    seed: int


@dataclasses.dataclass
class Heard:
    """The result of a call as its client heard it, over all attempts."""

    values: list[int]
    text: str
    position: int  # of the session, after the call
    ended: bool  # False if the call was saved but its end was not heard, which happens only over HTTP


class ByGrpc:
    """Calls made with runnel_client."""

    def __init__(self, address: str, retry: Retry):
        self._client = Client(address, retry=retry, timeout=PATIENCE)

    def create(self, id: str) -> None:
        self._client.session(id, keep=True)

    def make(self, id: str, position: int, call: Call) -> Heard:
        session = self._client.open_session(id)
        stream = session.generate(
            call.prompt, max_values=call.count, seed=call.seed, ignore_eos=True, expected_position=position
        )
        heard = Heard([], "", position, ended=True)
        for run in stream:
            heard.values += run.values
            heard.text += run.text
        heard.position = stream.finished[0].position
        return heard

    def close(self) -> None:
        self._client.close()


class ByHttp:
    """Calls over HTTP. Each opens a connection to a random address."""

    def __init__(self, addresses: list[str], draw: random.Random, tries_again: bool = True):
        self._addresses, self._draw, self._tries_again = addresses, draw, tries_again

    def create(self, id: str) -> None:
        self._until_answered("POST", "/v1/sessions", {"id": id}, also=409)  # 409: an attempt whose answer was lost

    def make(self, id: str, position: int, call: Call) -> Heard:
        body = {"session": id, "position": position, "prompt": call.prompt, "max_tokens": call.count}
        body |= {"seed": call.seed, "ignore_eos": True, "stream": True, "return_token_ids": True}
        longest = Heard([], "", position, ended=False)

        def attempt() -> tuple[Heard | None, float]:
            nonlocal longest
            heard = Heard([], "", position, ended=False)
            pause = self._attempt(body, heard)
            shorter, longer = sorted((heard, longest), key=lambda one: len(one.values))
            if longer.values[: len(shorter.values)] != shorter.values:
                raise Wrong(f"{id}: a call that was made again has other values")
            longest = longer
            if heard.ended:
                return heard, 0
            if pause is None:  # the session is at another position
                longest.position = self._until_answered("GET", f"/v1/sessions/{id}", None)["position"]
                return longest, 0
            return None, pause

        return self._repeat(attempt, f"a call of {id}")

    def close(self) -> None:
        pass

    @contextlib.contextmanager
    def _ask(self, method: str, path: str, body: Any) -> Iterator[http.client.HTTPResponse]:
        """The answer to a request."""
        connection = http.client.HTTPConnection(self._draw.choice(self._addresses), timeout=PATIENCE)
        headers = {"Host": "localhost", "Content-Type": "application/json"}
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            yield connection.getresponse()

    def _attempt(self, body: dict[str, Any], heard: Heard) -> float | None:
        """Fills `heard`. Returns the seconds before the next attempt, or None if the session is at another position."""
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            self._ask("POST", "/v1/completions", body) as answer,
        ):
            if answer.status != 200:
                return pause_after(answer)
            for line in answer:
                if line.startswith(b"data: [DONE]"):
                    heard.ended = True
                elif line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    if "error" in event:
                        break
                    [choice] = event["choices"]
                    heard.values += choice.get("token_ids") or []
                    heard.text += choice["text"]
                    heard.position = choice.get("position") or heard.position
        return 0.1

    def _until_answered(self, method: str, path: str, body: Any, also: int = 200) -> Any:
        def attempt() -> tuple[Any, float]:
            pause: float | None = 0.1
            with contextlib.suppress(OSError, http.client.HTTPException), self._ask(method, path, body) as answer:
                if answer.status in (200, also):
                    return json.load(answer), 0
                pause = pause_after(answer)
            if pause is None:
                raise Wrong(f"{method} {path} was refused")
            return None, pause

        return self._repeat(attempt, f"{method} {path}")

    def _repeat(self, attempt: Callable[[], tuple[Any, float]], name: str) -> Any:
        """The first result of `attempt`. While `attempt` fails, it returns None and a pause."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            result, pause = attempt()
            if result is not None:
                return result
            if not self._tries_again:
                raise Wrong(f"{name} failed")
            time.sleep(pause)
        raise TimeoutError(f"{name}: no answer within {PATIENCE:g} s")


def pause_after(answer: http.client.HTTPResponse) -> float | None:
    """The seconds before a refused call may be repeated, or None if the session is at another position."""
    text = answer.read().decode()
    if answer.status in (429, 502, 503) or (answer.status == 409 and answer.headers["X-Should-Retry"] != "false"):
        return float(answer.headers["Retry-After-Ms"] or 100) / 1000
    if answer.status == 409:
        return None
    raise Wrong(f"HTTP {answer.status}: {text}")


class Load:
    """Clients that hold conversations with a fleet until the end of the block."""

    def __init__(self, fleet: Fleet, untouched: Replica, seed: int = 1, retry: Retry | None = None):
        """`retry`: for all clients. With Retry(attempts=1), every failure that a client sees is an error."""
        self._fleet, self._seed = fleet, seed
        self._retry = retry or Retry(attempts=30, longest_delay=1)
        self._reference = Client(untouched.grpc, timeout=PATIENCE)
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]
        self.counts: collections.Counter[str] = collections.Counter()
        self._heard = [0] * CLIENTS  # the calls of each client
        self.faults: list[str] = []
        self.longest = 0.0  # the seconds of the longest call, with all its attempts

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._reference.close()

    def wait_for(self, values: int) -> None:
        """Waits until the clients have heard this many more values. Raises Wrong if one has heard a wrong answer."""
        wanted = self.counts["values"] + values
        self._wait(lambda: self.counts["values"] >= wanted, f"{values} values more")

    def wait_for_all(self) -> None:
        """Waits until every running call has been heard, that is, until each client has heard two more calls."""
        wanted = [calls + 2 for calls in self._heard]
        self._wait(lambda: all(map(operator.ge, self._heard, wanted)), "two calls of each client")

    def _wait(self, came: Callable[[], bool], what: str) -> None:
        with self._changed:
            in_time = self._changed.wait_for(lambda: self.faults or came(), PATIENCE)
        if self.faults:
            raise Wrong("\n".join(self.faults))
        if not in_time:
            raise TimeoutError(f"the clients have not heard {what} within {PATIENCE:g} s")

    def summary(self) -> str:
        counts = self.counts
        return (
            f"{counts['calls']} calls heard with {counts['values']} values in {counts['conversations']} conversations, "
            f"{counts['saved']} more saved whose end was not heard, longest call {self.longest:.2f} s, "
            f"{len(self.faults)} faults"
        )

    def _door(self, number: int, draw: random.Random) -> ByGrpc | ByHttp:
        direct = [replica.http for replica in self._fleet.replicas]
        tries_again = self._retry.attempts > 1
        if not self._fleet.proxy:
            places = [replica.grpc for replica in self._fleet.replicas]
            draw.shuffle(places)
            address = "ipv4:" + ",".join(places)
            return ByGrpc(address, self._retry) if number % 2 else ByHttp(direct, draw, tries_again)
        if number % 2:
            return ByGrpc(self._fleet.proxy, self._retry)
        is_direct = number % 4 == 2 and tries_again  # a stopping replica refuses direct clients
        return ByHttp(direct if is_direct else [self._fleet.proxy], draw, tries_again)

    def _run(self, number: int) -> None:
        draw = random.Random(f"{self._seed} {number}")
        door = self._door(number, draw)
        try:
            talk = 0
            while not self._stopping.is_set():
                self._converse(number, talk, door, draw)
                talk += 1
        except Exception as error:  # the test reports any error
            with self._changed:
                self.faults.append(f"client {number} ({type(door).__name__}): {type(error).__name__}: {error}")
                self._changed.notify_all()
        finally:
            door.close()

    def _converse(self, number: int, talk: int, door: ByGrpc | ByHttp, draw: random.Random) -> None:
        id = f"client{number}-{talk}"
        door.create(id)
        with self._reference.session(id) as reference:
            position = 0
            for turn in range(draw.randint(2, CALLS)):
                if self._stopping.is_set():
                    break
                call = Call(f"{id}, turn {turn}: ", draw.randint(1, VALUES), draw.getrandbits(30))
                begin = time.monotonic()
                heard = door.make(id, position, call)
                took = time.monotonic() - begin
                stream = reference.generate(call.prompt, max_values=call.count, seed=call.seed, ignore_eos=True)
                [sample] = stream.samples()
                position = stream.finished[0].position
                check(f"{id}, turn {turn}", heard, Heard(sample.values, sample.text, position, ended=True))
                with self._changed:
                    self._heard[number] += 1
                    self.counts["calls" if heard.ended else "saved"] += 1
                    self.counts["values"] += len(heard.values)
                    self.longest = max(self.longest, took)
                    self._changed.notify_all()
        with self._changed:
            self.counts["conversations"] += 1


def check(name: str, heard: Heard, expected: Heard) -> None:
    """Raises Wrong if the undisturbed server answered otherwise. Without the end, a client may have heard less."""
    if heard.position != expected.position:
        raise Wrong(f"{name}: the session is at {heard.position} in place of {expected.position}: {heard}")
    count = len(heard.values)
    same = heard.values == expected.values[:count] and expected.text.startswith(heard.text)
    if not same or (heard.ended and (count, heard.text) != (len(expected.values), expected.text)):
        raise Wrong(f"{name}: {heard} in place of {expected}")


def make(session: Session, call: Call, position: int | None) -> Heard:
    """Makes a call that expects the session at `position`, or anywhere if it is None."""
    stream = session.generate(
        call.prompt, max_values=call.count, seed=call.seed, ignore_eos=True, expected_position=position
    )
    [sample] = stream.samples()
    return Heard(sample.values, sample.text, stream.finished[0].position, ended=True)


def freeze(replica: Replica) -> None:
    """SIGSTOP, while the replica holds no lock of a directory: it would keep the others from the sessions."""
    assert replica.process is not None
    process = replica.process.pid

    def is_frozen() -> bool:
        replica.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process, os.WSTOPPED)  # all its threads have stopped
        files = pathlib.Path(f"/proc/{process}/fd").iterdir()
        if not any("/lock-" in os.readlink(file) for file in files):
            return True
        replica.signal(signal.SIGCONT)
        return False

    wait_until(is_frozen, f"replica {replica.name} is stopped without a lock")


def options(document: str | None, **defaults: Any) -> argparse.Namespace:
    """Parses a test's options and hides them from unittest. A seed of 0 chooses a random one."""
    parser = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    found, sys.argv[1:] = parser.parse_known_args()
    if "seed" in defaults:
        found.seed = found.seed or random.SystemRandom().randint(1, 1 << 30)
        print(f"seed {found.seed}", flush=True)
    return found


class Progress:
    """Reports the progress of a test with many rounds, and ends it when its time is over."""

    def __init__(self, load: Load, what: str, rounds: int, minutes: float):
        self._load, self._what, self._rounds, self._minutes = load, what, rounds, minutes
        self._begin = time.monotonic()
        self._done = 0

    def note(self, done: int) -> None:
        """Notes that this many rounds are done."""
        self._done = done
        if done % REPORT_EVERY == 0 and done < self._rounds:
            self._print()
        if self._seconds() > 60 * self._minutes and done < self._rounds:
            raise TimeoutError(f"{done} of {self._rounds} {self._what} in {self._minutes:g} minutes")

    def end(self) -> None:
        """The load has ended."""
        self._print()

    def _seconds(self) -> float:
        return time.monotonic() - self._begin

    def _print(self) -> None:
        print(f"{self._done} {self._what} in {self._seconds():.0f} s: {self._load.summary()}", flush=True)


class FleetTest(unittest.TestCase):
    """A test with a folder and an undisturbed server without a store."""

    def setUp(self) -> None:
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        alone = Fleet(RUNNEL, self.folder, "--sessions", "64", store="", proxied=False, count=1)
        self.untouched = self.stack.enter_context(alone).replicas[0]

    def fleet(self, *flags: str, **options: Any) -> Fleet:
        folder = self.folder / "fleet"
        folder.mkdir(exist_ok=True)
        return self.stack.enter_context(Fleet(RUNNEL, folder, *flags, **options))

    def load(self, fleet: Fleet, **options: Any) -> Load:
        return Load(fleet, self.untouched, **options)
