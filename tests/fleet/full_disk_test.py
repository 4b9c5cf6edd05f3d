"""On a full disk, calls that write a state are refused with a status that names the cause, and no session is lost.

The disk is a small tmpfs if this user may mount one. Otherwise the size of the server's files is limited, and the
status is UNAVAILABLE. Needs grpcio and protobuf.
"""

from __future__ import annotations

import os
import resource
import subprocess
import unittest
from collections.abc import Callable

from fleet import PATIENCE, PATIENT, FleetTest

from runnel_client import Client, Retry, Session, errors

DISK = 2 << 20  # bytes
STATE = 65536  # the least bytes of a state
SESSIONS = 4


class FullDiskTest(FleetTest):
    """Without a log, every call writes its state."""

    log_bytes = 0
    rooms: tuple[int, ...] = (STATE // 4, 0)  # room for only a record, and no room

    def setUp(self) -> None:
        super().setUp()
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "runnel-test", str(self.disk)]
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        if mounted:
            self.stack.callback(subprocess.run, ["umount", str(self.disk)], check=True)
        flags = (*PATIENT, "--storage-log-bytes", str(self.log_bytes))
        fleet = self.fleet(*flags, store=f"dir:{self.disk / 'store'}", proxied=False, count=1)
        self.replica = fleet.replicas[0]
        self.client = self.stack.enter_context(Client(self.replica.grpc, retry=Retry(attempts=1), timeout=PATIENCE))
        reference = self.stack.enter_context(Client(self.untouched.grpc, timeout=PATIENCE))
        self.sessions = [self.client.session(f"s{i}", keep=True) for i in range(SESSIONS)]
        self.references = [reference.session(f"s{i}") for i in range(SESSIONS)]
        self.status = "RESOURCE_EXHAUSTED" if mounted else "UNAVAILABLE"
        self.set_room: Callable[[int], None] = self.fill if mounted else self.limit_files

    def fill(self, room: int) -> None:
        """Leaves this many bytes free on the disk."""
        filler = self.disk / "filler"
        filler.unlink(missing_ok=True)
        free = os.statvfs(self.disk).f_bavail * os.statvfs(self.disk).f_frsize
        filler.write_bytes(bytes(max(free - room, 0)))

    def limit_files(self, room: int) -> None:
        """Limits the size of the server's files to this many bytes."""
        assert self.replica.process is not None
        process = self.replica.process.pid
        most = resource.prlimit(process, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(process, resource.RLIMIT_FSIZE, (room, most))

    def test_calls_are_refused_and_sessions_are_kept(self) -> None:
        self.check_that_all_continue(0)
        for turn, room in enumerate(self.rooms, 1):
            with self.subTest(room=room):
                self.set_room(room)
                for session in self.sessions:
                    with self.assertRaises(errors.CallError) as refused:
                        ask(session, turn)
                    self.assertEqual(refused.exception.status, self.status, refused.exception)
                self.assertEqual(len(list(self.client.generate("The ", max_values=5, ignore_eos=True).values())), 5)
                self.set_room(DISK // 2)
                self.check_that_all_continue(turn)
        self.check_that_all_continue_after_a_restart()

    def check_that_all_continue_after_a_restart(self) -> None:
        self.replica.kill()
        self.replica.start()
        with Client(self.replica.grpc, timeout=PATIENCE) as client:
            self.sessions = [client.open_session(session.id) for session in self.sessions]
            self.check_that_all_continue(3)
        self.assertEqual([path.name for path in (self.disk / "store").glob("*~*")], [])

    def check_that_all_continue(self, turn: int) -> None:
        for session, reference in zip(self.sessions, self.references):
            self.assertEqual(ask(session, turn), ask(reference, turn), f"{session.id}, turn {turn}")


class LogTest(FullDiskTest):
    """Each call writes a log entry over an older text of its record. On a full disk this needs no room."""

    log_bytes = 65536
    rooms = (0,)

    def test_calls_are_refused_and_sessions_are_kept(self) -> None:
        if self.status == "UNAVAILABLE":  # the server cannot write to any file
            super().test_calls_are_refused_and_sessions_are_kept()
            return
        self.check_that_all_continue(0)
        self.set_room(0)
        for turn in (1, 2):
            self.check_that_all_continue(turn)
        self.set_room(DISK // 2)
        self.check_that_all_continue_after_a_restart()


def ask(session: Session, turn: int) -> list[int]:
    """The values of a call that expects the session where the last heard call has left it."""
    return list(session.generate(f"Turn {turn}: ", max_values=30, seed=turn, ignore_eos=True).values())


if __name__ == "__main__":
    unittest.main()
