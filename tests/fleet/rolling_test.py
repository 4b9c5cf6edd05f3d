"""A rolling update of replicas under load: no client sees an error, and no stream is lost.

    tests/fleet/rolling_test.py [--rounds 1] [--store dir]

The clients call through HAProxy and make no call again. Needs grpcio, protobuf and HAProxy.
"""

from __future__ import annotations

import functools
import signal
import sys
import time
import unittest

from fleet import SKIPPED, VALUES, FleetTest, options
from local_fleet import LAME_DUCK_MS, Replica, find_haproxy, wait_until

from runnel_client import Retry

ARGS = options(__doc__, rounds=1, store="dir")
if find_haproxy() is None:
    print("skipped: haproxy is missing; on Debian: scripts/setup proxy")
    sys.exit(SKIPPED)


class RollingTest(FleetTest):
    def test_no_client_sees_an_update(self) -> None:
        flags = ("--lame-duck-ms", str(LAME_DUCK_MS), "--storage-sync", "none", "--sessions", "64")
        fleet = self.fleet(*flags, store=ARGS.store)
        begin = time.monotonic()
        with self.load(fleet, retry=Retry(attempts=1)) as load:
            for turn in range(1, ARGS.rounds + 1):
                for replica in fleet.replicas:
                    load.wait_for(10 * VALUES)
                    replica.signal(signal.SIGTERM)
                    self.assertEqual(replica.wait(), 0)
                    logged = len(replica.log())
                    replica.start()
                    wait_until(functools.partial(serves, replica, logged), "HAProxy uses the replica again")
                print(f"{turn} rounds in {time.monotonic() - begin:.0f} s: {load.summary()}", flush=True)
        self.assertEqual(load.faults, [])


def serves(replica: Replica, since: int) -> bool:
    """Whether a client's call has ended there since its log had this many characters."""
    return " info call " in replica.log()[since:]


if __name__ == "__main__":
    unittest.main()
