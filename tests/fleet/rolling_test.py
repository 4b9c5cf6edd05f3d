"""A rolling update of replicas under load: no client sees an error, and no stream is lost.

    tests/fleet/rolling_test.py [--rounds 1] [--seed 1] [--store dir] [--flags "--more flags"]

The clients call through HAProxy and make no call again. Needs grpcio, protobuf and HAProxy.
"""

from __future__ import annotations

import shlex
import signal
import sys
import time
import unittest

from fleet import PATIENCE, PATIENT, SKIPPED, VALUES, FleetTest, Load, options
from local_fleet import Fleet, Replica, find_haproxy, wait_until

from runnel_client import Client, Retry
from runnel_client.client import Generation

ONCE = Retry(attempts=1)
LONG = 20_000  # values in a stream
# Longer than any wait: the test ends the lame-duck period by a second signal, after HAProxy has noticed the first.
TIMES = ("--lame-duck-ms", "600000", "--grace-ms", "600000", "--stall-timeout-ms", "600000")
FLAGS = (*TIMES, *PATIENT, "--storage-sync", "none", "--sessions", "64")
ARGS = options(__doc__, rounds=1, seed=1, store="dir", flags="")
if find_haproxy() is None:
    print("skipped: haproxy is missing; on Debian: scripts/setup proxy")
    sys.exit(SKIPPED)


class RollingTest(FleetTest):
    def test_no_client_notices_a_rolling_update(self) -> None:
        with Client(self.untouched.grpc, timeout=PATIENCE) as client:
            self.expected = values_of(long_stream(client, "long"))
        fleet = self.fleet(*FLAGS, *shlex.split(ARGS.flags), store=ARGS.store)
        begin = time.monotonic()
        with self.load(fleet, seed=ARGS.seed, retry=ONCE) as load:
            for turn in range(1, ARGS.rounds + 1):
                for replica in fleet.replicas:
                    load.wait_for(10 * VALUES)
                    self.update(fleet, replica, load, f"long-{turn}-{replica.name}")
                print(f"{turn} rounds in {time.monotonic() - begin:.0f} s: {load.summary()}", flush=True)
        self.assertEqual(load.faults, [])

    def update(self, fleet: Fleet, replica: Replica, load: Load, id: str) -> None:
        downs, ups = fleet.changes(replica, "DOWN"), fleet.changes(replica, "UP")
        with Client(replica.grpc, retry=ONCE, timeout=PATIENCE) as client:
            stream = long_stream(client, id)
            first = next(iter(stream)).values
            replica.signal(signal.SIGTERM)
            wait_until(lambda: fleet.changes(replica, "DOWN") > downs, "HAProxy leaves the replica out")
            load.wait_for_all()  # some calls were on their way to the replica
            replica.signal(signal.SIGTERM)  # ends the lame-duck period
            self.assertEqual(first + values_of(stream), self.expected, "a stream that the drain waits for")
        self.assertEqual(replica.wait(), 0)
        replica.start()
        wait_until(lambda: fleet.changes(replica, "UP") > ups, "HAProxy uses the replica again")


def long_stream(client: Client, id: str) -> Generation:
    """A stream too long to end before it is read."""
    session = client.session(id, keep=True)
    return session.generate("The ", max_values=LONG, seed=1, ignore_eos=True, values_per_message=1)


def values_of(stream: Generation) -> list[int]:
    return [value for run in stream for value in run.values]


if __name__ == "__main__":
    unittest.main()
