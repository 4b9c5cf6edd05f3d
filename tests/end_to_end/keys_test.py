"""Keys as people use them: made by `runnel key`, sent by grpcio's clients, changed while the server runs.

Needs grpcio and protobuf.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable, Sequence
from typing import Any

from real_server import PATIENCE, ROOT, RUNNEL, eventually, grpc
from runnel_client import messages

CREATE, LIST = "/runnel.v1.Sessions/CreateSession", "/runnel.v1.Sessions/ListSessions"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RUNNEL, *words], capture_output=True, text=True, check=False, timeout=PATIENCE)


class Server:
    """`runnel serve` of some models, with flags."""

    def __init__(self, *flags: str, models: Sequence[pathlib.Path] = (ROOT / "zoo/mnist-small",)) -> None:
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")  # noqa: SIM115 - closed by stop()
        command = [
            RUNNEL,
            "serve",
            *map(str, models),
            "--log-level",
            "debug",
            *flags,
        ]
        self.process = subprocess.Popen(command, stderr=self.log)

    def text(self) -> str:
        return pathlib.Path(self.log.name).read_text(encoding="utf-8")

    def port(self) -> int:
        assert eventually(lambda: re.search(r"ready.*address=\S+:(\d+)", self.text()) is not None), self.text()
        found = re.search(r"ready.*address=\S+:(\d+)", self.text())
        return int(found.group(1)) if found else 0

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        self.log.close()
        return code


class Tenant:
    """A client with a key."""

    def __init__(self, channel: grpc.Channel, key: str | None) -> None:
        self.channel = channel
        self.metadata: tuple[tuple[str, str], ...] = (("authorization", f"Bearer {key}"),) if key else ()

    def unary(self, method: str, request: Any, answer: Any) -> Any:
        call = self.channel.unary_unary(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call(request, metadata=self.metadata, timeout=PATIENCE)

    def create(self, session: str) -> Any:
        sessions = messages.load("sessions")
        return self.unary(CREATE, sessions.CreateSessionRequest(id=session), sessions.Session)

    def sessions(self) -> list[str]:
        sessions = messages.load("sessions")
        page = self.unary(LIST, sessions.ListSessionsRequest(), sessions.ListSessionsResponse)
        return [session.id for session in page.sessions]

    def generate(self, count: int, session: str = "", prompt: Sequence[int] = ()) -> Any:
        inference = messages.inference()
        request = inference.GenerateRequest(max_values=count)
        request.sampling.seed = 7
        request.values.values.extend(prompt)
        if session:
            request.origin.session = session
        call = self.channel.unary_stream(
            "/runnel.v1.Inference/Generate",
            request_serializer=inference.GenerateRequest.SerializeToString,
            response_deserializer=inference.GenerateResponse.FromString,
        )
        return call(request, metadata=self.metadata, timeout=PATIENCE)

    def values(self, count: int, session: str = "") -> list[int]:
        return [v for event in self.generate(count, session) for run in event.values.runs for v in run.values]


class KeysTest(unittest.TestCase):
    def setUp(self) -> None:
        self.stack = contextlib.ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.file = f"{folder}/keys.jsonl"

    def tearDown(self) -> None:
        self.stack.close()

    def new(self, name: str, *flags: str) -> str:
        made = run("key", "new", name, "--file", self.file, *flags)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertRegex(made.stdout, r"^rnl_[0-9a-f]{64}\n$")
        key = made.stdout.strip()
        self.assertNotIn(key, pathlib.Path(self.file).read_text(encoding="utf-8") + made.stderr)
        return key

    def serve(self) -> Server:
        server = Server("--address", "127.0.0.1:0", "--keys", self.file)
        self.stack.callback(server.stop)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{server.port()}")
        self.stack.callback(self.channel.close)
        return server

    def tenant(self, key: str | None) -> Tenant:
        return Tenant(self.channel, key)

    def assert_refused(self, code: grpc.StatusCode, says: str, call: Callable[[], Any]) -> grpc.RpcError:
        with self.assertRaises(grpc.RpcError) as raised:
            call()
        self.assertEqual(raised.exception.code(), code, raised.exception.details())
        self.assertIn(says, raised.exception.details())
        return raised.exception

    def test_wrong_missing_and_malformed_keys(self) -> None:
        key = self.new("ada")
        server = self.serve()
        refused = grpc.StatusCode.UNAUTHENTICATED
        self.assertEqual(len(self.tenant(key).values(16)), 16)
        self.assert_refused(refused, "asks for a key", lambda: self.tenant(None).values(16))
        for wrong in (key[:-1], key + "0", "rnl_" + "0" * 64, key.upper()):
            self.assert_refused(
                refused,
                "not one of this server's",
                functools.partial(self.tenant(wrong).values, 16),
            )
        basic = self.tenant(None)
        basic.metadata = (("authorization", f"Basic {key}"),)
        self.assert_refused(refused, "not of the form", basic.sessions)
        basic.metadata = (("authorization", f"Bearer {key}"),) * 2
        self.assert_refused(refused, "more than once", basic.sessions)
        self.assertNotIn(key[4:20], server.text(), "no key is logged, nor a part of one")

    def test_tenants_with_the_same_session_ids(self) -> None:
        ada, bob = self.new("ada"), self.new("bob")
        self.serve()
        one, two = self.tenant(ada), self.tenant(bob)
        one.create("s")
        self.assertEqual(two.sessions(), [])
        self.assert_refused(grpc.StatusCode.NOT_FOUND, "no session 's'", lambda: two.values(8, "s"))
        two.create("s")
        first = one.values(300, "s")
        self.assertEqual(two.values(300, "s"), first, "its own sequence, from its start")
        self.assertNotEqual(one.values(300, "s"), first, "which goes on where it stands")
        self.assertEqual((one.sessions(), two.sessions()), (["s"], ["s"]))

    def test_rotation_and_removal_while_calls_run(self) -> None:
        old = self.new("ada")
        server = self.serve()
        self.tenant(old).create("s")
        stream = self.tenant(old).generate(784)
        next(stream)
        new = self.new("ada")
        self.assertTrue(eventually(lambda: "keys=2" in server.text()), server.text())
        self.assertEqual(self.tenant(new).sessions(), ["s"], "the owner is the name")
        removed = run("key", "remove", "ada", "--old", "--file", self.file)
        self.assertEqual(removed.returncode, 0, removed.stderr)
        self.assertTrue(eventually(lambda: "keys=1" in server.text()), server.text())
        self.assert_refused(grpc.StatusCode.UNAUTHENTICATED, "taken away", self.tenant(old).sessions)
        self.assertEqual(len(self.tenant(new).values(8, "s")), 8)

    def test_a_bad_new_file_leaves_the_old_keys(self) -> None:
        key = self.new("ada")
        server = self.serve()
        with open(self.file, "a", encoding="utf-8") as file:
            file.write("not a key\n")
        self.assertTrue(eventually(lambda: "warn keys" in server.text()), server.text())
        self.assertIn("line 2", server.text())
        self.assertEqual(len(self.tenant(key).values(4)), 4)

    def test_a_used_up_quota_is_named_with_a_retry_time(self) -> None:
        slow, behind, limited = (
            self.new("slow", "--values-per-second", "50"),
            self.new("behind", "--values-per-second", "2"),
            self.new("limited", "--models", "another"),
        )
        self.serve()
        self.assert_refused(
            grpc.StatusCode.NOT_FOUND,
            "no model",
            lambda: self.tenant(limited).values(4),
        )
        begin = time.monotonic()
        self.assertEqual(len(self.tenant(slow).values(125)), 125)
        self.assertGreater(time.monotonic() - begin, 1.3, "50 at once, the others at 50 a second")
        running = self.tenant(behind).generate(1, prompt=[0] * 300)  # costs two and a half minutes of the quota
        next(running)
        refusals: list[grpc.RpcError] = []

        def is_refused() -> bool:
            call = self.tenant(behind).generate(1)
            try:
                next(call)  # reads no value: a call that came before the prompt was counted would wait
            except grpc.RpcError as error:
                refusals.append(error)
            call.cancel()
            return bool(refusals)

        self.assertTrue(eventually(is_refused))
        running.cancel()
        self.assertEqual(refusals[0].code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn("values_per_second is 2", refusals[0].details())
        pushback = dict(refusals[0].trailing_metadata())["grpc-retry-pushback-ms"]
        self.assertTrue(1000 < int(pushback) < 151_000, pushback)

    def test_key_commands(self) -> None:
        self.new("ada", "--calls", "4", "--models", "digits,text")
        again = self.new("ada")
        self.assertTrue(again)
        listed = run("key", "list", "--file", self.file)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertEqual(
            len(
                re.findall(
                    r"^ada  [0-9a-f]{16}  calls 4, models digits text$",
                    listed.stdout,
                    re.M,
                )
            ),
            2,
        )
        self.assertEqual(os.stat(self.file).st_mode & 0o777, 0o600)
        self.assertEqual(run("key", "remove", "bob", "--file", self.file).returncode, 2)
        self.assertEqual(run("key", "new", "a b", "--file", self.file).returncode, 2)
        os.chmod(self.file, 0o644)
        wide = run("key", "list", "--file", self.file)
        self.assertEqual(wide.returncode, 2)
        self.assertIn("its mode is 0644", wide.stderr)


class ReachTest(unittest.TestCase):
    def test_a_public_server_without_keys_needs_a_flag(self) -> None:
        refused = run("serve", str(ROOT / "zoo/mnist-small"), "--address", "0.0.0.0:0")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        for way in ("--keys", "--insecure-public"):
            self.assertIn(way, refused.stderr)
        server = Server("--address", "0.0.0.0:0", "--insecure-public")
        try:
            socket.create_connection(("127.0.0.1", server.port()), timeout=PATIENCE).close()
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
