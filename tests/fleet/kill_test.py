"""kill -9 of replicas that share a store, at random moments: no heard call is lost, and no value is wrong.

    tests/fleet/kill_test.py [--kills 3] [--seed 1] [--store dir] [--sync none] [--flags "--more flags"]

Needs grpcio and protobuf; `make fleet-test` kills 200 times.
"""

from __future__ import annotations

import random
import shlex
import time
import unittest

from fleet import VALUES, FleetTest, options

ARGS = options(__doc__, kills=3, seed=1, store="dir", sync="none", flags="")
SLOTS = "24"  # fewer than there are sessions, so that resting ones are given up and loaded again
EVERY = 10  # kills between two lines of progress


class KillTest(FleetTest):
    def test_nothing_that_was_heard_is_lost(self) -> None:
        draw = random.Random(ARGS.seed)
        flags = ("--storage-sync", ARGS.sync, "--sessions", SLOTS, *shlex.split(ARGS.flags))
        fleet = self.fleet(*flags, store=ARGS.store)
        begin = time.monotonic()
        with self.load(fleet, seed=ARGS.seed) as load:
            for kill in range(1, ARGS.kills + 1):
                load.wait_for(draw.randint(1, 20 * VALUES))
                replica = draw.choice(fleet.replicas)
                replica.kill()
                load.wait_for(draw.randint(1, 10 * VALUES))  # from the others
                replica.start()
                if kill % EVERY == 0:
                    print(f"{kill} kills in {time.monotonic() - begin:.0f} s: {load.summary()}", flush=True)
        print(f"{ARGS.kills} kills in {time.monotonic() - begin:.0f} s: {load.summary()}")
        self.assertEqual(load.faults, [])
        self.assertGreater(load.counts["calls"], 10 * ARGS.kills)


if __name__ == "__main__":
    unittest.main()
