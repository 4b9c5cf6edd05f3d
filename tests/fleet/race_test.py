"""Six replicas race for one session: each position is given once, with the values of a single server.

    tests/fleet/race_test.py [--calls 60] [--seed 1]

Each replica has its own client, which uses no other replica and never retries. One replica is stopped in a call until
others continue the session, and one is killed. Needs grpcio and protobuf.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import random
import signal
import threading
import unittest

from fleet import PATIENCE, Call, FleetTest, freeze, options

from runnel_client import Client, Retry, Session, errors

ARGS = options(__doc__, calls=60, seed=1)
REPLICAS = 6
STOPPED, KILLED = 4, 5  # replicas
ENDLESS = 1 << 20  # more values than any client reads
LEASE_MS = 3000
PAUSE = 0.05  # the most seconds that a refused client waits for another client's call to end
UNANSWERED = ("UNAVAILABLE", "UNKNOWN", "CANCELLED", "DEADLINE_EXCEEDED")


@dataclasses.dataclass
class Made:
    """A call of a client, with the part of its answer that the client heard."""

    at: int  # the position that it expected
    call: Call
    values: list[int] = dataclasses.field(default_factory=list)
    ended: bool = False  # whether its end was heard


class RaceTest(FleetTest):
    def setUp(self) -> None:
        super().setUp()
        self.replicas = self.fleet("--storage-lease-ms", str(LEASE_MS), proxied=False, count=REPLICAS).replicas
        self.changed = threading.Condition()
        self.made: list[Made] = []
        self.is_over = False
        self.is_stopped = threading.Event()
        with Client(self.replicas[0].grpc, timeout=PATIENCE) as client:
            client.session("shared", keep=True)

    def heard(self) -> int:
        return sum(made.ended for made in self.made)

    def race(self, number: int) -> None:
        """Makes one call after another, each from the session's position."""
        draw = random.Random(f"{ARGS.seed} {number}")
        replica = self.replicas[number]
        with Client(replica.grpc, retry=Retry(attempts=1), timeout=PATIENCE) as client:
            session = client.open_session("shared")
            while not self.is_over:
                try:
                    if number == STOPPED and not self.is_stopped.is_set():
                        self.stop_in_a_call(session)
                    at = session.info().position
                    self.make(session, Made(at, Call(f"{number}: ", draw.randint(1, 20), draw.getrandbits(30))))
                except errors.Aborted:
                    with self.changed:  # another call runs, or came first
                        self.changed.wait(PAUSE)
                except errors.CallError as error:
                    if error.status not in UNANSWERED:
                        raise
                    if replica.has_ended():
                        return

    def stop_in_a_call(self, session: Session) -> None:
        """Raises Aborted: the call is refused, or another replica continues the session while this one is stopped."""
        at = session.info().position
        stream = session.generate(
            "stopped: ", max_values=ENDLESS, ignore_eos=True, values_per_message=1, expected_position=at
        )
        next(iter(stream))
        freeze(self.replicas[STOPPED])
        self.is_stopped.set()
        for _ in stream:
            pass

    def make(self, session: Session, made: Made) -> None:
        """Makes a call. Records it unless it was refused: without a heard end, it may have been saved."""
        try:
            stream = session.generate(
                made.call.prompt,
                max_values=made.call.count,
                seed=made.call.seed,
                ignore_eos=True,
                expected_position=made.at,
            )
            for run in stream:
                made.values += run.values
            made.ended = True
        except errors.CallError as error:
            if error.status not in UNANSWERED:
                raise
            self.note(made)
            raise
        self.note(made)

    def note(self, made: Made) -> None:
        with self.changed:
            self.made.append(made)
            self.changed.notify_all()

    def wait_for(self, calls: int) -> None:
        """Waits until this many more calls have been heard."""
        with self.changed:
            wanted = self.heard() + calls
            came = self.changed.wait_for(lambda: self.heard() >= wanted, PATIENCE * max(1, calls // 50))
        self.assertTrue(came, f"{self.heard()} calls heard in place of {wanted}")

    def test_each_position_is_given_once(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(REPLICAS) as pool:
            racing = [pool.submit(self.race, number) for number in range(REPLICAS)]
            try:
                self.disturb()
            finally:
                self.is_over = True
                self.replicas[STOPPED].signal(signal.SIGCONT)
            for one in racing:
                one.result()
        self.check()

    def disturb(self) -> None:
        third = ARGS.calls // 3
        self.wait_for(third)
        self.assertTrue(self.is_stopped.wait(PATIENCE), "a replica that is stopped in a call")
        self.wait_for(third)  # after its lease has expired
        self.replicas[STOPPED].signal(signal.SIGCONT)
        self.replicas[KILLED].kill()
        self.wait_for(third)

    def check(self) -> None:
        """Repeats the calls on the undisturbed server, from one position to the next."""
        heard: dict[int, Made] = {}
        unheard: dict[int, list[Made]] = {}  # a lost replica may have saved one of them
        for made in self.made:
            if made.ended:
                self.assertNotIn(made.at, heard, "two calls from one position were heard")
                heard[made.at] = made
            else:
                unheard.setdefault(made.at, []).append(made)
        with Client(self.untouched.grpc, timeout=PATIENCE) as client, client.session("shared") as reference:
            position = self.follow(reference, heard, unheard, 0, len(heard))
        self.assertIsNotNone(position, "a call that was heard is not in the session, or has other values")
        print(f"{len(heard)} calls heard of {len(self.made)}, up to position {position}")

    def follow(
        self, reference: Session, heard: dict[int, Made], unheard: dict[int, list[Made]], position: int, left: int
    ) -> int | None:
        """Repeats the calls from `position` on, of which `left` were heard. Returns the end, or None if values differ.

        If no call was heard at a position, any of the others may have been saved. Each of them is tried in a fork.
        """
        while position in heard:
            at, made = position, heard[position]
            values, position = self.made_again(reference, made)
            if made.values != values:
                print(f"position {at}: {made.values} in place of {values}")
                return None
            left -= 1
        if left == 0:
            return position
        for made in unheard.get(position, []):
            [child] = reference.fork()
            with child:
                values, after = self.made_again(child, made)
                self.assertEqual(made.values, values[: len(made.values)], f"position {position}")
                end = self.follow(child, heard, unheard, after, left)
            if end is not None:
                return end
        return None

    def made_again(self, session: Session, made: Made) -> tuple[list[int], int]:
        """The values of a call, and the session's position after it."""
        call = made.call
        stream = session.generate(call.prompt, max_values=call.count, seed=call.seed, ignore_eos=True)
        [sample] = stream.samples()
        return sample.values, stream.finished[0].position


if __name__ == "__main__":
    unittest.main()
