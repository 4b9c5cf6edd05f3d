"""kill -9 of replicas that share a Redis, and of Redis: no heard call is lost, and no value is wrong.

    tests/fleet/redis_kill_test.py [--kills 2] [--seed 1] [--minutes 30]

`--seed 0` chooses a random seed. Needs redis-server 7, or Debian's package redis-tools, and grpcio and protobuf.
"""

from __future__ import annotations

import random
import unittest

from fleet import VALUES, FleetTest, Progress, options
from redis_server import redis_of, skip_without_redis

skip_without_redis()
ARGS = options(__doc__, kills=2, seed=1, minutes=30.0)
SLOTS = "24"  # fewer than sessions, so resting sessions are evicted and loaded again


class RedisKillTest(FleetTest):
    def test_no_received_value_is_lost(self) -> None:
        draw = random.Random(ARGS.seed)
        redis, flags = redis_of(self)
        fleet = self.fleet("--sessions", SLOTS, *flags, store=redis.url)
        with self.load(fleet, seed=ARGS.seed) as load:
            progress = Progress(load, "kills of a replica and of Redis", ARGS.kills, ARGS.minutes)
            for kill in range(1, ARGS.kills + 1):
                load.wait_for(draw.randint(1, 10 * VALUES))
                replica = draw.choice(fleet.replicas)
                replica.kill()
                load.wait_for(draw.randint(1, 5 * VALUES))  # served by the others
                replica.start()
                redis.kill()
                redis.start()
                load.wait_for(draw.randint(1, 5 * VALUES))
                progress.note(kill)
        progress.end()
        self.assertEqual(load.faults, [])


if __name__ == "__main__":
    unittest.main()
