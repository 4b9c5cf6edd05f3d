"""kill -9 of replicas that share a store, at random moments: no heard call is lost, and no value is wrong.

    tests/fleet/kill_test.py [--kills 3] [--seed 1] [--minutes 30] [--store dir] [--sync none] [--flags "--more flags"]

`--seed 0` chooses a random seed. `--store redis` starts a Redis. Needs grpcio and protobuf. `make fleet-test` makes
the test kill 200 times with each kind of store.
"""

from __future__ import annotations

import random
import shlex
import unittest

from fleet import VALUES, FleetTest, Progress, options
from redis_server import redis_of, skip_without_redis

ARGS = options(__doc__, kills=3, seed=1, minutes=30.0, store="dir", sync="none", flags="")
if ARGS.store == "redis":
    skip_without_redis()
SLOTS = "24"  # fewer than sessions, so resting sessions are evicted and loaded again


class KillTest(FleetTest):
    def store(self) -> tuple[str, tuple[str, ...]]:
        """The store, and the flags that it needs."""
        if ARGS.store != "redis":
            return ARGS.store, ("--storage-sync", ARGS.sync)
        redis, flags = redis_of(self)
        return redis.url, flags

    def test_no_received_value_is_lost(self) -> None:
        draw = random.Random(ARGS.seed)
        store, flags = self.store()
        fleet = self.fleet("--sessions", SLOTS, *flags, *shlex.split(ARGS.flags), store=store)
        with self.load(fleet, seed=ARGS.seed) as load:
            progress = Progress(load, "kills", ARGS.kills, ARGS.minutes)
            for kill in range(1, ARGS.kills + 1):
                load.wait_for(draw.randint(1, 20 * VALUES))
                replica = draw.choice(fleet.replicas)
                replica.kill()
                load.wait_for(draw.randint(1, 10 * VALUES))  # served by the others
                replica.start()
                progress.note(kill)
        progress.end()
        self.assertEqual(load.faults, [])
        self.assertGreater(load.counts["calls"], 10 * ARGS.kills)


if __name__ == "__main__":
    unittest.main()
