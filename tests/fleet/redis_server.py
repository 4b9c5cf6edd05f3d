"""A Redis for tests of tests/fleet, and the flags of servers that use it."""

from __future__ import annotations

import sys

from fleet import SKIPPED, FleetTest
from local_redis import PROGRAM, Redis

LEASE_MS = "3000"  # the minimum; with Redis, no server notices that another one has died


def skip_without_redis() -> None:
    """Ends the test if there is no Redis."""
    if PROGRAM is None:
        print("skipped: there is no redis-server; scripts/setup test installs it")
        sys.exit(SKIPPED)


def redis_of(test: FleetTest) -> tuple[Redis, tuple[str, ...]]:
    """A Redis that runs until the test ends, and the flags of servers that keep their sessions there."""
    redis = Redis(test.folder)
    redis.start()
    test.stack.callback(redis.kill)
    return redis, ("--storage-lease-ms", LEASE_MS, "--seal-keys", str(redis.seal_key))
