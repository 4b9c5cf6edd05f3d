"""Two clients share a session through different replicas: one call runs at a time, and no position is given twice.

Needs grpcio and protobuf.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import signal
import threading
import unittest

from fleet import PATIENCE, PATIENT, Call, FleetTest, Heard, freeze, make

from runnel_client import Client, Retry, errors

ROUNDS = 20
# A test reads its stream only after the lease has expired.
FLAGS = (*PATIENT, "--storage-lease-ms", "3000", "--stall-timeout-ms", "600000")
ENDLESS = 1 << 20  # more values than any client reads


class TwoClientsTest(FleetTest):
    def setUp(self) -> None:
        super().setUp()
        replicas = self.fleet(*FLAGS, proxied=False, count=2)
        self.first, self.second = replicas.replicas
        self.reference = self.client(self.untouched.grpc).session("shared")

    def client(self, address: str, **retry: int) -> Client:
        return self.stack.enter_context(Client(address, retry=Retry(**retry), timeout=PATIENCE))

    def expect(self, call: Call) -> Heard:
        """The same call on the undisturbed server."""
        return make(self.reference, call, None)

    def test_one_of_two_calls_at_a_time_is_aborted(self) -> None:
        clients = [self.client(replica.grpc, attempts=1) for replica in (self.first, self.second)]
        sessions = [clients[0].session("shared", keep=True), clients[1].open_session("shared")]
        position = 0
        with concurrent.futures.ThreadPoolExecutor(len(sessions)) as pool:
            for turn in range(ROUNDS):
                together = threading.Barrier(len(sessions), timeout=PATIENCE)
                calls = [Call(f"{turn}, client {one}: ", 50, turn) for one in range(len(sessions))]

                def attempt(one: int, at: int = position, calls=calls, together=together) -> Heard | None:
                    together.wait()
                    with contextlib.suppress(errors.Aborted):
                        return make(sessions[one], calls[one], at)
                    return None

                heard = list(pool.map(attempt, range(len(sessions))))
                [winner] = [one for one, what in enumerate(heard) if what is not None]
                self.assertEqual(heard[winner], self.expect(calls[winner]), f"round {turn}")
                position = heard[winner].position

    def test_a_server_that_stops_answering_loses_the_session(self) -> None:
        stopped = self.client(self.first.grpc, attempts=1).session("shared", keep=True)
        before = Call("The river was ", 10, 1)
        position = make(stopped, before, 0).position
        self.expect(before)
        stream = stopped.generate(" and ", max_values=ENDLESS, ignore_eos=True, expected_position=position)
        next(iter(stream))
        freeze(self.first)
        after = Call(" but ", 50, 2)
        # The other server's client waits until the lease expires. The server names the time.
        other = self.client(self.second.grpc).open_session("shared")
        self.assertEqual(make(other, after, position), self.expect(after))
        self.first.signal(signal.SIGCONT)
        with self.assertRaisesRegex(errors.Aborted, "another server continues it"):
            list(stream)
        again = Call(" then ", 50, 3)
        self.assertEqual(make(stopped, again, None), self.expect(again))


if __name__ == "__main__":
    unittest.main()
