"""kill -9 of replicas that share a Redis, and of Redis: no heard call is lost, and no value is wrong.

    tests/fleet/redis_kill_test.py [--kills 2] [--seed 1]

Needs redis-server 7, or Debian's package redis-tools, and grpcio and protobuf.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import unittest

from fleet import PATIENCE, SKIPPED, VALUES, FleetTest, options
from local_fleet import wait_until

ARGS = options(__doc__, kills=2, seed=1)
SLOTS = "24"  # fewer than there are sessions, so that resting ones are given up and loaded again
LEASE_MS = "3000"  # no server sees that another one has ended
PROGRAM = shutil.which("redis-server") or shutil.which("redis-check-rdb")  # the same, by another name
if PROGRAM is None:
    print("skipped: there is no redis-server; scripts/setup test installs it")
    sys.exit(SKIPPED)


class Redis:
    """A Redis on a unix socket, whose disk has each write before its reply."""

    def __init__(self, folder: pathlib.Path):
        self.socket = folder / "redis.socket"
        settings = {"port": "0", "unixsocket": str(self.socket), "dir": str(folder), "save": "", "appendonly": "yes"}
        settings |= {"appendfsync": "always", "maxmemory-policy": "noeviction"}
        self._command = ["redis-server"]
        for key, value in settings.items():
            self._command += [f"--{key}", value]

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, executable=PROGRAM, stdout=subprocess.DEVNULL)
        try:
            wait_until(self.answers, "Redis answers")
        except BaseException:
            self.kill()
            raise

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            try:
                connection.connect(os.fspath(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(5) == b"+PONG"
            except OSError:
                return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class RedisKillTest(FleetTest):
    def test_nothing_that_was_heard_is_lost(self) -> None:
        draw = random.Random(ARGS.seed)
        key = self.folder / "seal.key"
        key.touch(mode=0o600)
        key.write_bytes(draw.randbytes(32))
        redis = Redis(self.folder)
        redis.start()
        self.stack.callback(redis.kill)
        flags = ("--storage-lease-ms", LEASE_MS, "--sessions", SLOTS, "--seal-keys", str(key))
        fleet = self.fleet(*flags, store=f"unix:{redis.socket}")
        with self.load(fleet, seed=ARGS.seed) as load:
            for _ in range(ARGS.kills):
                load.wait_for(draw.randint(1, 10 * VALUES))
                replica = draw.choice(fleet.replicas)
                replica.kill()
                load.wait_for(draw.randint(1, 5 * VALUES))  # from the others
                replica.start()
                redis.kill()
                redis.start()
                load.wait_for(draw.randint(1, 5 * VALUES))
        print(f"{ARGS.kills} kills of a replica and of Redis: {load.summary()}")
        self.assertEqual(load.faults, [])


if __name__ == "__main__":
    unittest.main()
