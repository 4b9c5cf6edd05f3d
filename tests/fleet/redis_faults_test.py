"""A Redis that hangs, is full, or has lost its last writes: calls are refused, and no value is wrong.

    tests/fleet/redis_faults_test.py [--stalls 2] [--seed 1] [--minutes 30]

Needs redis-server 7, or Debian's package redis-tools, and grpcio and protobuf.
"""

from __future__ import annotations

import concurrent.futures
import random
import signal
import unittest

from fleet import PATIENCE, PATIENT, VALUES, Call, FleetTest, Progress, make, options
from redis_server import redis_of, skip_without_redis

from runnel_client import Client, Retry, Session, errors

skip_without_redis()
ARGS = options(__doc__, stalls=2, seed=1, minutes=30.0)
ONCE = Retry(attempts=1)
SESSIONS = 4
LONG = 300  # more values than a log may hold, so the call writes a state
ENDLESS = 1 << 20  # more values than any client reads
# For tests that wait for a Redis that hangs. On a busy machine, the default would also end calls before it hangs.
TIMEOUT = ("--storage-timeout-ms", "10000")


class RedisFaultsTest(FleetTest):
    def setUp(self) -> None:
        super().setUp()
        self.redis, self.flags = redis_of(self)
        self.store = self.redis.url

    def client(self, address: str, retry: Retry | None = None) -> Client:
        return self.stack.enter_context(Client(address, retry=retry or Retry(), timeout=PATIENCE))

    def assert_serves_without_a_session(self, client: Client) -> None:
        self.assertEqual(len(list(client.generate("The ", max_values=5, ignore_eos=True).values())), 5)

    def assert_unavailable(self, session: Session) -> None:
        with self.assertRaises(errors.Unavailable):
            session.feed("The ", expected_position=None)

    def test_a_redis_that_hangs_loses_nothing(self) -> None:
        draw = random.Random(ARGS.seed)
        fleet = self.fleet("--sessions", "24", *TIMEOUT, *self.flags, store=self.store)
        clients = [self.client(replica.grpc, ONCE) for replica in fleet.replicas]
        clients[0].session("probe", keep=True)
        probes = [client.open_session("probe") for client in clients]
        with self.load(fleet, seed=ARGS.seed) as load:
            progress = Progress(load, "times that Redis hung", ARGS.stalls, ARGS.minutes)
            for stall in range(1, ARGS.stalls + 1):
                load.wait_for(draw.randint(1, 10 * VALUES))
                self.redis.stop_answering()
                with concurrent.futures.ThreadPoolExecutor(len(probes)) as pool:
                    list(pool.map(self.assert_unavailable, probes))
                for client in clients:
                    self.assert_serves_without_a_session(client)
                self.redis.answer_again()
                load.wait_for_all()
                progress.note(stall)
        progress.end()
        self.assertEqual(load.faults, [])

    def test_a_full_redis_refuses_states_and_loses_no_session(self) -> None:
        [replica] = self.fleet(*PATIENT, *self.flags, store=self.store, proxied=False, count=1).replicas
        client, reference = self.client(replica.grpc, ONCE), self.client(self.untouched.grpc)
        sessions = [client.session(f"s{i}", keep=True) for i in range(SESSIONS)]
        references = [reference.session(f"s{i}") for i in range(SESSIONS)]
        self.assert_same(sessions, references, turn=1)
        self.set_memory("1")
        self.assert_same(sessions, references, turn=2)  # the log has room for them
        with self.assertRaises(errors.ResourceExhausted):
            client.session("new", keep=True)
        for session in sessions:
            with self.assertRaises(errors.ResourceExhausted):
                values_of(session, 3, LONG)
        self.assert_serves_without_a_session(client)
        self.set_memory("0")
        self.assert_same(sessions, references, turn=3, count=LONG)
        replica.kill()
        replica.start()
        sessions = [self.client(replica.grpc).open_session(session.id) for session in sessions]
        self.assert_same(sessions, references, turn=4)

    def set_memory(self, most: str) -> None:
        """Sets the bytes that Redis may use. "0" means no limit."""
        self.assertEqual(self.redis.ask("CONFIG", "SET", "maxmemory", most), b"+OK\r\n")

    def assert_same(self, sessions: list[Session], references: list[Session], turn: int, count: int = 30) -> None:
        for session, reference in zip(sessions, references):
            self.assertEqual(values_of(session, turn, count), values_of(reference, turn, count), f"{session.id} {turn}")

    def test_after_redis_loses_its_last_writes_the_position_is_reported(self) -> None:
        # Each call writes a state, so the last write of Redis is the end of the last call.
        flags = ("--storage-log-bytes", "0", *PATIENT, *self.flags)
        fleet = self.fleet(*flags, store=self.store, proxied=False, count=2)
        sessions = [self.client(fleet.replicas[0].grpc).session("tail", keep=True)]
        sessions.append(self.client(fleet.replicas[1].grpc).open_session("tail"))
        reference = self.client(self.untouched.grpc).session("tail")
        kept, lost, next_one = (Call(f"turn {turn}: ", 30, turn) for turn in range(3))
        before = make(sessions[0], kept, 0)
        self.assertEqual(before, make(reference, kept, None))
        after = make(sessions[0], lost, before.position)
        self.assertEqual(after, make(reference, lost, None))
        self.redis.kill()
        self.redis.cut_tail(20)
        self.redis.start()
        for session in sessions:  # the second waits for the lease of the call whose end was lost
            with self.assertRaisesRegex(errors.Aborted, f"position {before.position}"):
                make(session, next_one, after.position)
        for session in sessions:
            self.assertEqual(session.info().position, before.position)
        self.assertEqual(make(sessions[1], lost, before.position), after)
        self.assertEqual(make(sessions[0], next_one, after.position), make(reference, next_one, None))

    def test_a_server_stops_while_redis_hangs(self) -> None:
        flags = ("--grace-ms", "100", *TIMEOUT, *self.flags)
        [replica] = self.fleet(*flags, store=self.store, proxied=False, count=1).replicas
        before = Call("The river was ", 30, 1)
        reference = self.client(self.untouched.grpc).session("s")
        session = self.client(replica.grpc, ONCE).session("s", keep=True)
        heard = make(session, before, 0)
        self.assertEqual(heard, make(reference, before, None))
        stream = session.generate(" and ", max_values=ENDLESS, ignore_eos=True, expected_position=heard.position)
        next(iter(stream))
        self.redis.stop_answering()
        replica.signal(signal.SIGTERM)
        with self.assertRaises(errors.CallError):
            list(stream)
        self.assertEqual(replica.wait(), 0, replica.log())
        self.redis.answer_again()
        replica.start()
        after = Call(" but ", 30, 2)
        again = self.client(replica.grpc).open_session("s")  # waits for the lease of the interrupted call
        self.assertEqual(make(again, after, heard.position), make(reference, after, None))


def values_of(session: Session, turn: int, count: int) -> list[int]:
    """The values of a call that expects the session where the last heard call has left it."""
    return list(session.generate(f"Turn {turn}: ", max_values=count, seed=turn, ignore_eos=True).values())


if __name__ == "__main__":
    unittest.main()
