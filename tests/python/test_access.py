"""Errors of the Python client for a wrong address, or if no server answers. Starts no server of runnel."""

import asyncio
import contextlib
import itertools
import math
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import types
import unittest
import unittest.mock
import warnings

import support

support.require("grpc", "google.protobuf")

from runnel_client import Access, Client, Retry, Session, address, aio, batch, door, errors, files, serving, silence
from runnel_client.results import SessionInfo
from runnel_client.retry import Tries

ONCE = Retry(attempts=1)
PATIENCE = 600.0  # seconds until an event counts as one that never comes


@contextlib.contextmanager
def listener(answer):
    """The address of a socket. `answer` gets its connections one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.settimeout(PATIENCE)
                        answer(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def speak_http(connection):
    connection.recv(100)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


class AddressTest(unittest.TestCase):
    def test_good_addresses_pass(self):
        for good in ("a:1", "127.0.0.1:50051", "[::1]:65535", "unix:/run/r.sock", "dns:///a:1", "ipv4:127.0.0.1:1"):
            address.check(good)

    def test_wrong_addresses_are_reported_before_a_call(self):
        for wrong, message in (
            ("http://a:1", "'http://a:1'; leave out 'http://' and give host:port$"),
            ("https://a:1", r"leave out 'https://' and give host:port, with access=Access\(tls=True\) or"),
            ("grpc://a:1", "leave out 'grpc://'"),
            ("localhost", "'localhost', without a port; expected host:port, as in 127.0.0.1:50051"),
            (":50051", "without a host; expected host:port"),
            ("", "'', without a port"),
            ("::1", r"write IPv6 as \[::1\]:50051"),
            ("a:", "'a:'; expected host:port"),
            ("a:0", "expected host:port"),
            ("a:65536", "expected host:port"),
            ("a:\u0661", "expected host:port"),
            ("a/b:1", "expected host:port"),
        ):
            for kind in (Client, aio.Client):
                with self.assertRaisesRegex(errors.AccessError, message):
                    kind(wrong, access=Access(api_key="k"))

    def test_the_environment_turns_tls_on_and_off(self):
        for said, expected in (("", False), ("0", False), ("No", False), ("off", False), ("1", True), ("true", True)):
            with unittest.mock.patch.dict(os.environ, {"RUNNEL_TLS": said}):
                self.assertEqual(Access.from_environment().tls, expected, said)

    def test_a_wrong_key_is_reported_before_a_call(self):
        with tempfile.TemporaryDirectory() as name:
            for held, message in (
                (b" \n", "key has no key in it"),
                (b"\xff\xfek", "the key is not one"),
                (b"sch\xc3\xb6n", "the key is not one"),
                (b"a\nb", "the key is not one"),
                (b"k" * 4097, "4096 at most"),
            ):
                path = pathlib.Path(name, "key")
                path.write_bytes(held)
                for kind in (Client, aio.Client):
                    with self.assertRaisesRegex(errors.AccessError, message):
                        kind(access=Access(api_key_file=str(path)))
            path.write_bytes(b"rnl_k\n")
            self.assertEqual(Access(api_key_file=str(path)).metadata("a:1", True), [("authorization", "Bearer rnl_k")])
        with self.assertRaisesRegex(errors.AccessError, "the key is not one") as raised:
            Client(access=Access(api_key="secret\n"))
        self.assertNotIn("secret", f"{raised.exception} {Access(api_key='secret')}")

    def test_a_wrong_http_address_is_reported_before_a_call(self):
        for wrong in ("http://[::1", "http://127.0.0.1:p", "http://a:65536", "http://:80", "http://k@a", "http://a b"):
            for kind in (Client, aio.Client):
                with self.assertRaisesRegex(errors.AccessError, "expected http://HOST:PORT or https://HOST"):
                    kind(http=wrong, access=Access())
        for good in ("http://127.0.0.1:8000", "http://[::1]:8000/", "https://example.org"):
            Client(http=good, access=Access()).close()
        for named in ("http://unix:8000", "http://unix-abstract:8000"):  # hosts, and no socket files
            with self.assertRaisesRegex(errors.AccessError, f"{named[7:]} in the clear"):
                Client(http=named, access=Access(api_key="k"))

    def test_without_tls_a_key_is_sent_only_to_this_machine(self):
        for near in (
            *("localhost:1", "LocalHost.:1", "127.1.2.3:1", "127.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:/a"),
            *("dns:localhost:1", "dns:localhost", "dns:///localhost:1", "dns:///[::1]:1", "dns://10.0.0.1/127.0.0.1:1"),
            *("ipv4:127.0.0.1:1", "ipv4:127.0.0.1:1,127.0.0.2:2", "ipv6:[::1]:1", "ipv6:%5B::1%5d:1", "ipv6:::1"),
        ):
            self.assertTrue(address.is_loopback(near), near)
        for far in (
            *("example.org:1", "10.0.0.1:1", "[2001:db8::1]:1", "dns:example.org:1", "dns://10.0.0.1/localhost:1"),
            "127.0.0.1 example.org:1",
            *("ipv4:127.0.0.1:1,10.0.0.1:1", "ipv6:[::1]:1,[::2]:1", "dns:", "dns://", "dns:///", "ipv4:"),
        ):
            self.assertFalse(address.is_loopback(far), far)

    def test_a_place_is_the_same_in_every_form(self):
        for form in ("a.example:1", "dns:a.example:1", "dns:///a.example:1", "dns://10.0.0.1/a.example:1"):
            self.assertEqual(address.host_and_port(form), ("a.example", 1), form)
        self.assertEqual(address.host_and_port("[::1]:1"), ("::1", 1))
        self.assertEqual(address.host_and_port("dns:a.example"), ("a.example", 443))
        for none in ("unix:/run/a", "ipv4:10.0.0.1:1,10.0.0.2:1"):
            self.assertIsNone(address.host_and_port(none), none)


class SilenceTest(unittest.TestCase):
    def message_of(self, where, access=None):
        """The error of the client if no server answers. The asyncio client must give the same."""

        async def ask():
            async with aio.Client(where, retry=ONCE, access=access) as client:
                await client.models()

        with Client(where, retry=ONCE, access=access) as client, self.assertRaises(errors.Unavailable) as raised:
            client.models()
        with self.assertRaises(errors.Unavailable) as other:
            asyncio.run(ask())
        self.assertEqual(str(raised.exception), str(other.exception))
        return raised.exception.details

    def test_a_port_without_a_server(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            where = f"127.0.0.1:{free.getsockname()[1]}"
        expected = f"no server answers at {where}; start one with 'runnel serve BUNDLE', or give Client the address of"
        self.assertIn(expected, self.message_of(where))

    def test_an_unknown_host(self):
        for host in ("no-such-host.invalid", "two..points", "a" * 64):
            self.assertIn(f"the host '{host}' cannot be found (", self.message_of(f"{host}:1"))

    def test_a_machine_that_does_not_answer(self):
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(socket.socket())
            server.bind(("127.0.0.1", 0))
            server.listen(0)
            for _ in range(3):  # fills the queue, so the system drops further connections
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(server.getsockname())
            where = f"127.0.0.1:{server.getsockname()[1]}"
            stack.enter_context(unittest.mock.patch.object(silence, "PROBE", 0.5))
            with Client(where, timeout=0.5) as client, self.assertRaises(errors.DeadlineExceeded) as raised:
                client.models()
        expected = f"no connection to {where}; is the address right, and does a firewall let it pass?"
        self.assertEqual(raised.exception.details, expected)

    def test_another_protocol(self):
        with listener(speak_http) as where:
            self.assertEqual(
                self.message_of(where),
                f"something listens at {where}, but it does not speak gRPC; is that the port of 'runnel serve'?",
            )

    def test_access_that_cannot_be_used_is_part_of_the_error(self):
        failure = errors.Unavailable("failed to connect to all addresses")
        for access, reason in (
            (Access(tls_ca="/gone.pem"), "the files of tls_ca, tls_cert and tls_key cannot be used"),
            (Access(tls_name=".example"), ""),
        ):
            # Python leaves a socket unclosed whose name it refuses.
            with listener(speak_http) as where, warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                said = silence.explained(failure, where, access).details
            self.assertTrue(said.startswith(f"the TLS handshake with {where} failed: {reason}"), said)

    def test_tls(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            script = pathlib.Path(support.ROOT) / "scripts/certificates"
            subprocess.run([script, folder, "served.example"], check=True, capture_output=True)
            # As strict as the checks of Python 3.13 and later.
            strictly = ["openssl", "verify", "-x509_strict", "-CAfile", str(folder / "ca.pem")]
            subprocess.run(
                [*strictly, str(folder / "server.pem"), str(folder / "client.pem")], check=True, capture_output=True
            )
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "server.pem", folder / "server.key")
            context.set_alpn_protocols(["h2"])

            def shake_hands(connection):
                with context.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(1)

            garbage = folder / "garbage.pem"
            garbage.write_text("no certificate")
            for unusable in (
                Access(tls_ca=str(garbage)),
                Access(tls_cert=str(garbage), tls_key=str(folder / "client.key")),
                Access(tls_cert=str(folder / "client.pem"), tls_key=str(folder / "server.key")),
            ):
                for kind in (Client, aio.Client):
                    with self.assertRaisesRegex(errors.AccessError, "tls_ca, tls_cert and tls_key cannot be used"):
                        kind(access=unusable)
            usable = Access(tls_cert=str(folder / "client.pem"), tls_key=str(folder / "client.key"))
            Client(access=usable).close()

            with listener(shake_hands) as where:
                self.assertIn(f"{where} speaks TLS: give Client access=Access(tls_ca=FILE)", self.message_of(where))
                said = self.message_of(where, Access(tls_ca=str(folder / "ca.pem")))
                self.assertIn(f"the TLS handshake with {where} failed: ", said)
                self.assertIn("'127.0.0.1'", said)

            def answer(connection):
                with context.wrap_socket(connection, server_side=True) as secured:
                    answering(b'{"tokens": [7]}')(secured)

            with listener(answer) as where:
                named = Access(tls_ca=str(folder / "ca.pem"), tls_name="served.example")
                self.assertEqual(Client(http=f"https://{where}", access=named).tokenize("a"), [7])
                unnamed = Client(http=f"https://{where}", access=Access(tls_ca=named.tls_ca))
                with self.assertRaisesRegex(errors.Unavailable, "TLS handshake .* failed: .*'127.0.0.1'"):
                    unnamed.tokenize("a")


def answering(content, status=200, head=""):
    """Answers each request over HTTP with this content, status and head."""

    def answer(connection):
        request = b""
        while not request.endswith(b"}"):  # closing a connection with unread bytes would reset it
            received = connection.recv(4096)
            if not received:
                return
            request += received
        connection.sendall(f"HTTP/1.1 {status} Said\r\n{head}Connection: close\r\n\r\n".encode() + content)

    return answer


class DoorTest(unittest.TestCase):
    def test_errors_have_the_status_and_the_wait_of_the_answer(self):
        for status, head, kind, wait in (
            (409, "Retry-After: 1\r\nRetry-After-Ms: 50\r\n", errors.Aborted, 0.05),
            (429, "X-Should-Retry: false\r\n", errors.ResourceExhausted, math.inf),
            (500, "", errors.CallError, None),
            (502, "", errors.Unavailable, None),
            (503, "Retry-After: 2\r\n", errors.Unavailable, 2),
            (503, "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n", errors.Unavailable, None),
            (504, "", errors.DeadlineExceeded, None),
        ):
            with self.subTest(status=status), listener(answering(b"", status, head)) as where:
                with Client(http=f"http://{where}", access=Access()) as client, self.assertRaises(kind) as raised:
                    client.tokenize("a")
                self.assertEqual(raised.exception.status, "INTERNAL" if kind is errors.CallError else kind.status)
                if wait is None:
                    self.assertIsNone(raised.exception.retry_after)
                else:
                    self.assertAlmostEqual(raised.exception.retry_after or 0, wait)

    def refuse(self, where, kind, message):
        """Both clients raise the same."""

        async def ask():
            async with aio.Client(http=f"http://{where}", access=Access()) as client:
                await client.tokenize("a")

        with Client(http=f"http://{where}", access=Access()) as client, self.assertRaisesRegex(kind, message):
            client.tokenize("a")
        with self.assertRaisesRegex(kind, message):
            asyncio.run(ask())

    def test_an_answer_of_another_server_is_refused(self):
        for content in (b"[]", b'{"ids": [1]}', b'{"tokens": "ab"}', b"{", b"[" * 100_000, b"\xff"):
            with self.subTest(content[:20]), listener(answering(content)) as where:
                self.refuse(where, errors.Unavailable, f"no answer from http://{where} (.*); is that the server's")

    def test_an_answer_that_is_too_long_is_refused(self):
        with unittest.mock.patch.object(door, "MOST_BYTES", 20), listener(answering(b" " * 21)) as where:
            self.refuse(where, errors.Unavailable, "its answer has more than 20 bytes")

    def test_an_answer_is_closed_also_after_an_error(self):
        made = []

        class Kept(door._Response):
            def __init__(self, *args, **options):
                super().__init__(*args, **options)
                made.append(self)

        for head in ("", "Content-Length: 30\r\n"):
            with (
                unittest.mock.patch.object(door, "_Response", Kept),
                unittest.mock.patch.object(door, "MOST_BYTES", 20),
                listener(answering(b" " * 30, head=head)) as where,
            ):
                self.refuse(where, errors.Unavailable, "its answer has more than 20 bytes")
        self.assertEqual([response.isclosed() for response in made], [True] * 4)

    def test_the_time_limit_is_for_the_whole_answer(self):
        def never_end(connection):
            answering(b"")(connection)
            while True:
                connection.sendall(b" " * 1024)

        seconds = itertools.count(0, 7)  # 7 s for each part of the answer
        clock = types.SimpleNamespace(monotonic=lambda: next(seconds))
        with unittest.mock.patch.object(door, "time", clock), listener(never_end) as where:
            self.refuse(where, errors.DeadlineExceeded, f"no answer from http://{where} within 30 s")


class ClosedTest(unittest.TestCase):
    def test_a_call_after_the_end_is_cancelled(self):
        async def ask():
            client = aio.Client("127.0.0.1:1", retry=ONCE)
            with self.assertRaises(errors.Unavailable):
                await client.models()
            await client.close()
            for call in (client.models(), client.score("a"), client.generate("a").samples()):
                with self.assertRaisesRegex(errors.Cancelled, "the client was closed"):
                    await call

        client = Client("127.0.0.1:1", retry=ONCE)
        client.close()
        for call in (client.models, lambda: client.score("a"), lambda: client.generate("a").samples()):
            with self.assertRaisesRegex(errors.Cancelled, "the client was closed"):
                call()
        asyncio.run(ask())

    def test_a_call_that_starts_while_the_client_is_closed_is_cancelled(self):
        for call in (
            lambda client: client.models(),
            lambda client: client.score("a"),
            lambda client: client.generate("a").samples(),
            lambda client: client.load_session(b"a"),
            lambda client: Session(client, SessionInfo("mine", "m", 0, "IDLE", 0, 0.0), keep=True).export(),
        ):
            client, left = Client("127.0.0.1:1", retry=ONCE), Tries.left

            def close_and_ask(tries, client=client, left=left):
                client.close()  # as another thread can, after the call has seen that the client is open
                return left(tries)

            cancelled = self.assertRaisesRegex(errors.Cancelled, "the client was closed")
            with unittest.mock.patch.object(Tries, "left", close_and_ask), cancelled:
                call(client)

    def test_asyncio_ends_calls_that_run(self):
        """With CancelledError only if their own task is cancelled."""

        async def end(address, call, reached, closes):
            client = aio.Client(address)
            running = asyncio.create_task(call(client))
            self.assertTrue(await asyncio.to_thread(reached.wait, PATIENCE))
            if closes:
                await client.close()
                with self.assertRaisesRegex(errors.Cancelled, "the client was closed"):
                    await asyncio.wait_for(running, PATIENCE)
            else:
                running.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await running
                await client.close()

        for call in (
            lambda client: client.models(),
            lambda client: client.score("a"),
            lambda client: client.generate("a").samples(),
        ):
            for closes in (True, False):
                reached, over = threading.Event(), threading.Event()

                def stay_silent(_, reached=reached, over=over):
                    reached.set()
                    over.wait(PATIENCE)

                with self.subTest(closes=closes), listener(stay_silent) as address:
                    try:
                        asyncio.run(end(address, call, reached, closes))
                    finally:
                        over.set()

    def test_asyncio_ends_a_pause_before_another_attempt(self):
        async def ask():
            client = aio.Client("127.0.0.1:1", retry=Retry(first_delay=2400, longest_delay=2400))
            asked, paused = client._closed.wait, asyncio.Event()

            async def wait():
                paused.set()
                return await asked()

            with unittest.mock.patch.object(client._closed, "wait", wait):
                call = asyncio.create_task(client.generate("a").samples())
                await paused.wait()
                await client.close()
                with self.assertRaisesRegex(errors.Cancelled, "the client was closed"):
                    await asyncio.wait_for(call, PATIENCE)

        asyncio.run(ask())


class ServingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_the_environments_access_is_not_for_a_server_that_a_tool_starts(self):
        (self.folder / "config.json").write_text("{}")
        started = contextlib.nullcontext((None, "127.0.0.1:1"))
        with (
            unittest.mock.patch.dict(os.environ, {"RUNNEL_TLS": "1"}),
            unittest.mock.patch.object(serving, "running", lambda *_: started),
            serving.connect(str(self.folder), runnel="runnel") as own,
            serving.connect(str(self.folder), address="127.0.0.1:1") as other,
        ):
            self.assertEqual([batch._client._access.uses_tls() for batch in (own, other)], [False, True])

    def test_the_last_line_of_a_server_that_ends_is_shown(self):
        log = self.folder / "log"
        log.touch()

        def end():
            log.write_bytes(b"\xff: no such file")  # after the first look at the log
            return 2

        with self.assertRaisesRegex(errors.BundleError, "did not start: .*: no such file"):
            serving.ready_address(unittest.mock.Mock(poll=end), log)


class BatchTest(unittest.TestCase):
    def test_a_batch_that_fails_does_not_wait_for_its_calls(self):
        begun, over, ended = threading.Event(), threading.Event(), threading.Event()
        self.addCleanup(over.set)

        def score(*_, **__):
            begun.set()
            over.wait(PATIENCE)
            ended.set()

        client = unittest.mock.Mock(score=score)
        with self.assertRaises(KeyboardInterrupt), batch.Batch(client, "m") as calls:
            calls._calls.submit(client.score)
            self.assertTrue(begun.wait(PATIENCE))
            raise KeyboardInterrupt
        self.assertFalse(ended.is_set())


class FilesTest(unittest.TestCase):
    def test_a_state_file_is_private_and_written_completely_or_not_at_all(self):
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name, "a.state")
            files.write_private(path, b"abc")
            self.assertEqual((files.read(str(path)), path.stat().st_mode & 0o777), (b"abc", 0o600))
            with self.assertRaises(OSError):
                files.write_private(pathlib.Path(name, "none", "a.state"), b"abc")
            path.unlink()
            path.mkdir()
            with self.assertRaises(OSError):
                files.write_private(path, b"abc")
            self.assertEqual([one.name for one in pathlib.Path(name).iterdir()], ["a.state"])


if __name__ == "__main__":
    if shutil.which("openssl") is None:
        raise SystemExit("openssl is missing: scripts/setup test")
    unittest.main()
