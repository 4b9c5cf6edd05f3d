"""Clients that send without an end, or never read, cost a server at most the memory that it logs at its start."""

import contextlib
import functools
import os
import re
import select
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable

from hostile_client import (
    MIB,
    PATIENCE,
    ROOT,
    RUNNEL,
    Client,
    Flood,
    Server,
    ask_readiness,
    eventually,
    honest,
    push_all,
)
from http2_frames import PREFACE, message

ELSEWHERE = "127.0.0.2"  # the address of the attackers
SLACK = MIB  # for inexact figures: whole pages, and the test's own calls
WHOLE = 5 * PATIENCE  # for a client to read all its answers while others use the server


def number(value: int) -> bytes:
    """A number in protobuf."""
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def bytes_field(key: int, value: bytes) -> bytes:
    return number(key << 3 | 2) + number(len(value)) + value


def number_field(key: int, value: int) -> bytes:
    return number(key << 3) + number(value)


def generate(prompt: int, *, samples: int = 1, values: int = 100000, top: int = 0, request_id: str = "") -> bytes:
    """A GenerateRequest with this many prompt values."""
    body = bytes_field(3, bytes_field(1, b"\x01" * prompt)) + number_field(5, samples) + number_field(6, values)
    body += number_field(10, top)
    if request_id:
        body += number_field(11, 1) + bytes_field(13, request_id.encode())
    return message(body)


def withheld(size: int) -> bytes:
    """A message that lacks its last byte."""
    return message(b"\x0a" * size)[:-1]


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except (BlockingIOError, TimeoutError):
        return False


class Unfinished:
    """A connection for metrics with headers that do not end. The server waits ten seconds for their end."""

    def __init__(self, port: int, source: str) -> None:
        self.port, self.source = port, source
        self.answers: list[bytes] = []  # one for each connection; the server may refuse all but the first
        self.connect()

    def connect(self) -> None:
        self.connection: socket.socket | None = None
        with contextlib.suppress(ConnectionError):  # refused
            self.connection = socket.create_connection(("127.0.0.1", self.port), source_address=(self.source, 0))
            self.connection.sendall(b"GET /metrics HTTP/1.1\r\n" + b"a:\r\n" * 2000)

    def hold(self) -> None:
        """Makes another connection if the server has ended this one."""
        if self.connection is None or select.select([self.connection], [], [], 0)[0]:
            self.end()
            self.connect()

    def end(self) -> None:
        """Waits until the server ends the connection."""
        answer = b""
        if self.connection is not None:
            self.connection.settimeout(PATIENCE)
            with contextlib.suppress(ConnectionError):
                answer = received(self.connection)
        self.answers.append(answer)
        self.close()

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


class Bounds(unittest.TestCase):
    def test_withheld_messages_cost_no_more_than_the_figures_for_messages_and_calls(self):
        server = Server("--network-bytes", str(16 * MIB), "--connections", "8")
        try:
            before = server.memory()
            clients = [Client(server.port) for _ in range(4)]
            for client in clients:
                withhold(client, 64)
            network, connections = (
                int(re.findall(rf" {part}=(\d+)", server.logged())[0]) for part in ("network", "connections")
            )
            push_all(clients, 20, lambda: sum(client.sent() for client in clients) > 2 * network)
            grown = server.memory("VmHWM") - before
            sent = sum(client.sent() for client in clients)
            self.assertGreater(sent, 2 * network, "the clients have sent far more than may be held")
            self.assertLess(grown, network + connections, f"{sent} bytes sent")
            for client in clients:
                client.close()
            self.assertTrue(server.serves())
        finally:
            self.assertEqual(server.stop(), 0)

    def test_connections_beyond_the_limit_are_closed_and_others_are_served(self):
        server = Server("--connections", "8")
        try:
            held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(7)]
            self.assertTrue(server.serves(), "there is room for one more")
            more = []
            for _ in range(200):
                with contextlib.suppress(ConnectionResetError):  # closed already
                    more.append(socket.create_connection(("127.0.0.1", server.port)))
            for each in more:
                each.setblocking(False)
            self.assertTrue(eventually(lambda: 200 - len(more) + sum(map(is_closed, more)) >= 198))
            for each in held + more:
                each.close()
            self.assertTrue(server.serves(), "room again once they have gone")
        finally:
            self.assertEqual(server.stop(), 0)

    def test_connections_with_tls_cost_no_more_than_the_figure_counts_for_them(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([ROOT / "scripts/certificates", folder], check=True)
            files = ("--tls-cert", f"{folder}/server.pem", "--tls-key", f"{folder}/server.key")
            server = Server(*files, "--connections", "256", "--streams-per-connection", "1")
            held: list[socket.socket] = []
            try:
                context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
                context.set_alpn_protocols(["h2"])
                secure(server, context).close()
                before = server.memory()
                most = int(re.findall(r" connections=(\d+)", server.logged())[0])
                for _ in range(120):
                    held.append(socket.create_connection(("127.0.0.1", server.port)))
                    held[-1].sendall(endless_hello())
                # Each sends 16 KiB. Some of it fits into memory that the process had before.
                cost = eventually(lambda: server.memory() - before > 120 * (8 << 10))
                self.assertTrue(cost, "the handshakes have cost something")
                self.assertLess(growth(server, before), most)
                for each in held:
                    each.close()
                held = [secure(server, context) for _ in range(120)]
                for each in held:
                    each.sendall(PREFACE)
                self.assertLess(growth(server, before), most)
            finally:
                for each in held:
                    each.close()
                self.assertEqual(server.stop(), 0)

    def test_connections_for_metrics_cost_no_more_than_the_figure_counts_for_them(self):
        server = Server("--metrics-address", "127.0.0.1:0")
        held: list[Unfinished] = []
        try:
            port = int(re.findall(r" metrics address=127\.0\.0\.1:(\d+)", server.logged())[0])
            most = int(re.findall(r" memory .* metrics=(\d+)", server.logged())[0])
            files = server.open_files()
            self.assertIn(b" 200 OK", ask_readiness(port))
            # Waits until the server has closed that connection, which counted toward its peer's limit.
            self.assertTrue(eventually(lambda: server.open_files() <= files))
            before = server.memory()
            held = [Unfinished(port, source) for source in ("127.0.0.1", ELSEWHERE) for _ in range(16)]

            def while_held(holds: Callable[[], bool]) -> bool:
                for each in held:
                    each.hold()
                return holds()

            self.assertTrue(eventually(lambda: while_held(lambda: ask_readiness(port) == b"")), "there is no room")
            cost = eventually(lambda: while_held(lambda: server.memory() - before > most // 4))
            self.assertTrue(cost, "the headers have cost something")
            self.assertLess(growth(server, before), most)
            self.assertTrue(server.serves())
            for each in held:
                each.end()
                self.assertIn(b" 408 ", each.answers[0])
            self.assertTrue(eventually(lambda: b" 200 OK" in ask_readiness(port)), "there is room again")
        finally:
            for each in held:
                each.close()
            self.assertEqual(server.stop(), 0)

    def test_an_old_connection_is_asked_to_end_and_its_calls_continue(self):
        server = Server("--connection-age-ms", "1000", bundle="zoo/text-endless-small")
        try:
            client = Client(server.port, window=1 << 20)
            client.begin("Inference/Generate", withheld(100))  # a call that does not end
            push_all([client], 0, lambda: client.goes_away)
            self.assertTrue(client.goes_away)
            self.assertTrue(client.is_open, "the call may go on")
            self.assertTrue(server.serves())
            client.close()
        finally:
            self.assertEqual(server.stop(), 0)

    def test_an_answer_that_nobody_reads_is_dropped(self):
        server = Server("--stall-timeout-ms", "500")
        try:
            client = Client(server.port, window=0)
            client.begin("Models/ListModels", message(b""))
            push_all([client], 0, lambda: client.resets != [])
            self.assertEqual(client.resets, [1])
            client.close()
        finally:
            self.assertEqual(server.stop(), 0)

    def test_all_together_cost_no_more_than_the_figure_at_start(self):
        flags = {
            "network-bytes": 64 * MIB,
            "call-bytes": 96 * MIB,
            "record-bytes": 64 << 10,
            "sessions": 64,
            "sessions-per-caller": 48,
            "connections": 48,
            "streams-per-connection": 64,
        }
        words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        server = Server(*words, bundle="zoo/text-endless-small")
        clients: list[Client] = []
        try:
            figure = re.search(r" memory most=(\d+)", server.logged())
            assert figure is not None, "the bound is in the log"
            streams = [honest(server)]
            clients = attackers(server)
            push_all(clients, 30)
            streams.append(honest(server))
            for stream in streams:
                self.assertEqual(stream.wait(WHOLE), 0, "honest clients are served to the end")
            # Above limits.network_bytes the library ends any client's calls: it has no better choice.
            flood = [Client(server.port, source=ELSEWHERE) for _ in range(4)]
            clients += flood
            for client in flood:
                withhold(client, 64)
            push_all(clients, 20)
            self.assertLess(server.memory("VmHWM"), int(figure.group(1)) + SLACK)
            for client in clients:
                client.close()
            self.assertEqual(honest(server).wait(WHOLE), 0)
        finally:
            for client in clients:
                client.close()
            self.assertEqual(server.stop(), 0)


class Floods(unittest.TestCase):
    """The server stops what gRPC reads without a bound before it reaches the figure, and memory is returned."""

    FLAGS = (
        *("--connections", "64", "--network-bytes", str(16 * MIB), "--record-bytes", str(64 << 10)),
        "--log-access=false",
    )
    SECONDS = float(os.environ.get("RUNNEL_FLOOD_SECONDS", "1"))
    # The memory above the level before, some seconds after a flood. Most floods leave 5 to 40 MiB. On a loaded machine,
    # one in hundreds leaves 100, because used pieces share pages with freed ones. Without a trim, 190 to 270 remain.
    LEFT = 192 * MIB
    # The server returns memory to the system only after it has stopped a flood. The machine's load decides which of the
    # two measures stops it first.
    STOPPED = " flood .*(calls that are begun and reset|memory that no call explains)"

    def endure(
        self, kind: str, flags: tuple[str, ...] = (), words: tuple[str, ...] = (), logs: tuple[str, ...] = ()
    ) -> None:
        """Floods a server until its log has lines that match these patterns."""
        server = Server(*self.FLAGS, *flags)
        server.pin(min(os.sched_getaffinity(0)))  # threads that read must not starve the thread that watches memory
        try:
            most = int(re.findall(r" memory most=(\d+)", server.logged())[0])
            before = server.memory()
            flood = Flood(kind, server.port, *words)
            flood.wait_until_busy()
            time.sleep(self.SECONDS)
            for pattern in logs:
                found = eventually(functools.partial(self.has_logged, server, pattern))
                self.assertTrue(found, (pattern, server.logged()))
            sent = flood.stop().get("bytes", 0)
            self.assertGreater(sent, MIB, kind)
            self.assertLess(server.memory("VmHWM"), most + SLACK, f"{kind}: {sent} bytes sent")
            returned = eventually(lambda: server.memory() < before + self.LEFT)
            self.assertTrue(returned, f"{kind}: {server.memory() - before} bytes are left")
            if "--tls-cert" not in flags:
                self.assertTrue(server.serves())
        finally:
            self.assertEqual(server.stop(), 0)

    @staticmethod
    def has_logged(server: Server, pattern: str) -> bool:
        return re.search(pattern, server.logged()) is not None

    def test_streams_that_are_reset_at_once(self):
        for kind in ("reset", "reset of streams", "reset of unknown methods"):
            with self.subTest(kind):
                self.endure(kind, logs=(self.STOPPED, "the address is kept out after a flood"))

    def test_streams_that_are_reset_before_the_server_knows_of_them(self):
        for kind in ("reset without a message", "reset of reflection"):
            with self.subTest(kind):
                self.endure(kind)

    def test_headers_that_do_not_end(self):
        for kind in ("small headers", "continuation"):
            with self.subTest(kind):
                self.endure(kind)

    def test_with_keys_and_with_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            made = [RUNNEL, "key", "new", "ada", "--file", f"{folder}/keys"]
            key = subprocess.run(made, capture_output=True, text=True, check=True).stdout.split()[-1]
            self.endure("reset", ("--keys", f"{folder}/keys"), ("--key", key), logs=(self.STOPPED,))
            subprocess.run([ROOT / "scripts/certificates", folder], check=True)
            files = ("--tls-cert", f"{folder}/server.pem", "--tls-key", f"{folder}/server.key")
            for kind, logs in (("reset", (self.STOPPED,)), ("small headers", ())):
                with self.subTest(kind):
                    self.endure(kind, files, ("--ca", f"{folder}/ca.pem"), logs)


def received(connection):
    """Everything that arrives until the server closes the connection."""
    return b"".join(iter(lambda: connection.recv(4096), b""))


def secure(server: Server, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A connection after its handshake."""
    return context.wrap_socket(socket.create_connection(("127.0.0.1", server.port)), server_hostname="127.0.0.1")


def endless_hello() -> bytes:
    """The first message of a handshake: as long as allowed, and incomplete."""
    hello = b"\x01" + (128000).to_bytes(3, "big") + b"\x03\x03" + bytes(120000)
    records = [hello[at : at + 16384] for at in range(0, len(hello), 16384)]
    return b"".join(b"\x16\x03\x01" + len(record).to_bytes(2, "big") + record for record in records)


def growth(server: Server, before: int) -> int:
    """The bytes by which a server's memory has grown, once it grows no more."""
    last, now = -1, 0
    deadline = time.monotonic() + 5
    while now > last and time.monotonic() < deadline:
        time.sleep(0.2)
        last, now = now, server.memory() - before
    return now


def withhold(client: Client, calls: int) -> None:
    for _ in range(calls):
        client.begin("Inference/Generate", withheld(MIB - 64))


def attackers(server: Server) -> list[Client]:
    """Clients that run all attacks at once, from another address than the honest ones."""
    clients: list[Client] = []

    def connect(window: int = 65535) -> Client:
        clients.append(Client(server.port, window, ELSEWHERE))
        return clients[-1]

    for _ in range(4):  # messages without an end: half of the network limit
        withhold(connect(), 8)
    for _ in range(16):  # streams without a message
        client = connect()
        for _ in range(64):
            client.begin("Inference/Generate", b"")
    for window in (0, 0, 2000, 2000):  # streams whose client reads nothing, or reads only the first events
        client = connect(window)
        for _ in range(32):
            client.begin("Inference/Generate", generate(10, top=20))
        client.begin("Inference/Generate", generate(10, samples=16, top=20))
    for index in range(4):  # calls that the server keeps records of
        client = connect()
        for call in range(32):
            name = f"{index}-{call}"
            client.begin("Inference/Generate", generate(10, values=2000, top=20, request_id=name))
    for _ in range(4):  # long prompts, and chunks to score
        client = connect()
        for _ in range(16):
            client.begin("Inference/Generate", generate(200000))
            chunk = bytes_field(3, bytes_field(1, b"\x01" * 100000))
            client.begin("Inference/Score", message(chunk), ends=False)
    for _ in range(4):  # pages that nobody reads
        client = connect(window=0)
        for _ in range(30):
            client.begin("Sessions/CreateSession", message(b""))
            client.begin("Sessions/ListSessions", message(number_field(2, 1000)))
    return clients


if __name__ == "__main__":
    unittest.main(verbosity=1)
