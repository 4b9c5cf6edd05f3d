"""A Redis on this machine for tests/fleet, which kill, stop, fill and damage it, and for bench/report.

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

from local_fleet import PATIENCE, wait_until

# Debian's package redis-tools has the same program by another name.
PROGRAM = shutil.which("redis-server") or shutil.which("redis-check-rdb")


class Redis:
    """A Redis on a unix socket that keeps its data in a folder."""

    def __init__(self, folder: pathlib.Path, fsync: str = "always"):
        """`fsync`: "always", so that each write is on disk before its reply, or "everysec"."""
        self.socket = folder / "redis.socket"
        self.url = f"unix:{self.socket}"  # of --storage
        self.seal_key = folder / "seal.key"  # for --seal-keys, which servers need to use a Redis
        self.seal_key.touch(mode=0o600)
        self.seal_key.write_bytes(random.Random(1).randbytes(32))
        self._folder = folder
        settings = {"port": "0", "unixsocket": str(self.socket), "dir": str(folder), "save": "", "appendonly": "yes"}
        settings |= {"appendfsync": fsync, "maxmemory-policy": "noeviction"}
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
        """Cuts off the last bytes of the file from which a killed Redis restores its data."""
        [path] = self._folder.glob("appendonlydir/*.incr.aof")
        os.truncate(path, path.stat().st_size - count)
