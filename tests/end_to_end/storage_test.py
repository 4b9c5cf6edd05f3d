"""Sessions survive kill -9 of their server: nothing that clients have heard is lost.

Needs grpcio and protobuf.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import tempfile
import unittest
from collections.abc import Sequence
from typing import Any

from keys_test import PATIENCE, ROOT, Server, Tenant, grpc, messages

from real_server import RUNNEL

MODEL = ROOT / "zoo/text-endless-small"
GENERATE = "/runnel.v1.Inference/Generate"
CRASHES = 3


class Client(Tenant):
    """A client without a key."""

    def __init__(self, server: Server) -> None:
        super().__init__(grpc.insecure_channel(f"127.0.0.1:{server.port()}"), None)

    def ask(self, session: str, count: int, prompt: Sequence[int] = (65,), position: int | None = None) -> Any:
        """Starts a call on a session. Returns its stream."""
        inference = messages.inference()
        request = inference.GenerateRequest(max_values=count)
        request.sampling.seed = 7
        request.values.values.extend(prompt)
        request.origin.session = session
        if position is not None:
            request.expected_position = position
        call = self.channel.unary_stream(
            GENERATE,
            request_serializer=inference.GenerateRequest.SerializeToString,
            response_deserializer=inference.GenerateResponse.FromString,
        )
        return call(request, timeout=PATIENCE)

    def hear(self, session: str, count: int, position: int | None = None) -> tuple[list[int], int]:
        """Makes a call. Returns its values and the session's position after it."""
        events = list(self.ask(session, count, position=position))
        values = [value for event in events for run in event.values.runs for value in run.values]
        return values, events[-1].finished.usage.position


class StorageTest(unittest.TestCase):
    def setUp(self) -> None:
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        times = ("--storage-lease-ms", "600000", "--storage-timeout-ms", "60000")  # the maxima
        self.flags = ("--storage", f"dir:{folder / 'store'}", *times)

    def serve(self, *flags: str) -> tuple[Server, Client]:
        server = Server("--address", "127.0.0.1:0", *flags, models=[MODEL])
        self.stack.callback(server.stop)
        client = Client(server)
        self.stack.callback(client.channel.close)
        return server, client

    def test_three_crashes_lose_no_received_value(self) -> None:
        _, untouched = self.serve()
        server, client = self.serve(*self.flags)
        for session in ("rests", "runs"):
            untouched.create(session)
            client.create(session)
        position = None
        for crash in range(CRASHES):
            for session in ("rests", "runs"):
                heard = client.hear(session, 20, position=position if session == "runs" else None)
                self.assertEqual(heard, untouched.hear(session, 20), f"{session} after {crash} crashes")
            position = heard[1]
            cut_off = client.ask("runs", 1 << 20)  # so long that it cannot have ended
            next(cut_off)
            server.process.kill()
            self.assertNotEqual(server.process.wait(PATIENCE), 0)
            with self.assertRaises(grpc.RpcError):
                list(cut_off)
            server, client = self.serve(*self.flags)
            # The lease lasts ten minutes, and the server that held it is dead.
            with self.assertRaises(grpc.RpcError) as refused:
                client.hear("runs", 20)
            self.assertEqual(refused.exception.code(), grpc.StatusCode.ABORTED)
            self.assertIn(f"was cut off, and the session is at position {position}", refused.exception.details())
        self.assertEqual(client.hear("runs", 20, position), untouched.hear("runs", 20))
        self.assertEqual(server.stop(), 0)
        _, client = self.serve(*self.flags)
        self.assertEqual(client.hear("runs", 20), untouched.hear("runs", 20), "after a restart")

    def test_more_sessions_than_slots_survive_a_crash(self) -> None:
        names = [f"s{i}" for i in range(30)]
        _, untouched = self.serve("--sessions", "30")
        server, client = self.serve(*self.flags, "--sessions", "4")
        for name in names:
            untouched.create(name)
            client.create(name)
        for crash in range(2):
            for name in names:
                self.assertEqual(client.hear(name, 5), untouched.hear(name, 5), f"{name} after {crash} crashes")
            server.process.kill()
            self.assertNotEqual(server.process.wait(PATIENCE), 0)
            server, client = self.serve(*self.flags, "--sessions", "4")
        self.assertEqual(client.hear(names[0], 5), untouched.hear(names[0], 5))

    def test_two_servers_share_sessions(self) -> None:
        _, untouched = self.serve()
        clients = [self.serve(*self.flags)[1] for _ in range(2)]
        untouched.create("a")
        clients[0].create("a")
        for turn in range(4):
            self.assertEqual(clients[turn % 2].hear("a", 20), untouched.hear("a", 20), turn)

    def test_the_command_finds_sessions_that_no_server_has_loaded(self) -> None:
        server, client = self.serve(*self.flags)
        for name in ("a", "b"):
            client.create(name)
        _, position = client.hear("b", 20)
        self.assertEqual(server.stop(), 0)
        server, _ = self.serve(*self.flags)

        def run(*words: str) -> str:
            command = [RUNNEL, "session", *words, "--server", f"127.0.0.1:{server.port()}"]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout

        self.assertEqual([line.split()[0] for line in run("list").splitlines() if "position" in line], ["a", "b"])
        [shown] = json.loads(run("show", "b", "--json"))["sessions"]
        self.assertEqual((shown["id"], shown["position"]), ("b", position))
        run("delete", "b")
        self.assertNotIn("b ", run("list"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
