"""A Redis for tests, which they kill, stop, fill and damage.

Needs redis-server 7, or Debian's package redis-tools.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys

from fleet import PATIENCE, SKIPPED, FleetTest
from local_fleet import wait_until

# Debian's package redis-tools has the same program by another name.
PROGRAM = shutil.which("redis-server") or shutil.which("redis-check-rdb")
LEASE_MS = "3000"  # the least; no server sees that another one has ended


def skip_without_redis() -> None:
    """Ends the test if there is no Redis."""
    if PROGRAM is None:
        print("skipped: there is no redis-server; scripts/setup test installs it")
        sys.exit(SKIPPED)


class Redis:
    """A Redis on a unix socket, whose disk has each write before its reply."""

    def __init__(self, folder: pathlib.Path):
        self.socket = folder / "redis.socket"
        self._folder = folder
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
        try:
            return self.ask("PING") == b"+PONG\r\n"
        except OSError:
            return False

    def ask(self, *words: str) -> bytes:
        """The first line of the reply to a command."""
        command = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(os.fspath(self.socket))
            connection.sendall(command.encode())
            with connection.makefile("rb") as reply:
                return reply.readline()

    def stop_answering(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def answer_again(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def cut_tail(self, count: int) -> None:
        """Cuts the last bytes of the file from which a Redis that was killed starts again."""
        [path] = self._folder.glob("appendonlydir/*.incr.aof")
        os.truncate(path, path.stat().st_size - count)


def redis_of(test: FleetTest) -> tuple[Redis, tuple[str, ...]]:
    """A Redis that runs until the test ends, and the flags of servers that keep their sessions there."""
    key = test.folder / "seal.key"
    key.touch(mode=0o600)
    key.write_bytes(random.Random(1).randbytes(32))
    redis = Redis(test.folder)
    redis.start()
    test.stack.callback(redis.kill)
    return redis, ("--storage-lease-ms", LEASE_MS, "--seal-keys", str(key))
