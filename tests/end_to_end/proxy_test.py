"""docker/haproxy.cfg before a server: calls pass, TLS serves gRPC and OpenAI's API on one port, and bounds hold.

docker/haproxy-fleet.cfg before two servers: a session stays on its server, and either server takes a state token.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import unittest
from collections.abc import Callable
from typing import Any, TypeVar

from hostile_client import MIB, PATIENCE, ROOT, RUNNEL, Client, Flood, Server, eventually
from http2_frames import CONTINUATION, END_HEADERS, FRAME, HEADERS, PREFACE, SETTINGS, frame, headers

MOST_CONNECTIONS = 64  # of one address, by the configuration
Connection = TypeVar("Connection", Client, ssl.SSLSocket)


class Proxy:
    """HAProxy with a configuration from docs/tls.md or docs/fleet.md. `places` are its variables."""

    def __init__(self, config: str = "haproxy.cfg", **places: str) -> None:
        program = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
        if program is None:
            raise AssertionError("haproxy is missing: scripts/setup test")
        command = [program, "-q", "-db", "-f", str(ROOT / "docker" / config)]
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port = int(listening.getsockname()[1])
            environment = {**os.environ, "RUNNEL_PROXY": f"fd@{listening.fileno()}", **places}
            self.process = subprocess.Popen(command, env=environment, pass_fds=[listening.fileno()])

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


def place_of(server: Server, port: str) -> str:
    """The address of a server's other port, from its log."""
    [place] = re.findall(rf" {port} address=(\S+)", server.logged())
    return str(place)


def is_open(connection: Client | ssl.SSLSocket) -> bool:
    """Whether the peer has kept a connection open. By TLS it has sent nothing, or a status before it closes."""
    if isinstance(connection, Client):
        connection.listen()
        return connection.is_open
    connection.settimeout(0)
    try:
        connection.recv(1)
    except ssl.SSLWantReadError:
        return True
    except OSError:
        pass
    return False


def is_full(held: list[Connection], connect: Callable[[], Connection | None]) -> bool:
    """Whether MOST_CONNECTIONS are open, and a further one is refused: connect() gives None. Opens missing ones.

    The proxy may close idle ones in the meantime, and count one that its client has closed for a while.
    """
    for each in [each for each in held if not is_open(each)]:
        held.remove(each)
        each.close()
    while len(held) < MOST_CONNECTIONS:
        more = connect()
        if more is None:
            return False
        held.append(more)
    further = connect()
    if further is not None:
        further.close()
    return further is None


def header_value(port: int, size: int) -> bool:
    """Sends a call with a header value of this many bytes. True if the peer refused it before the end."""
    length, rest = b"\x7f", size - 127
    while rest > 127:
        length += bytes([rest & 127 | 128])
        rest >>= 7
    block = headers("Inference/Generate") + b"\x00\x01x" + length + bytes([rest]) + b"a" * size
    parts = [block[at : at + FRAME] for at in range(0, len(block), FRAME)]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(PATIENCE)
        try:
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, 0, 1, parts[0]))
            for part in parts[1:-1]:
                connection.sendall(frame(CONTINUATION, 0, 1, part))
            connection.sendall(frame(CONTINUATION, END_HEADERS, 1, parts[-1]))
            while connection.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
    return False


class ProxyTest(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.proxy = Proxy(RUNNEL_SERVER=f"127.0.0.1:{self.server.port}")
        self.addCleanup(self.server.stop)
        self.addCleanup(self.proxy.stop)
        self.runnel("health", "--wait", str(PATIENCE))

    def runnel(self, *words: str) -> None:
        command = [RUNNEL, *words, "--server", f"127.0.0.1:{self.proxy.port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_calls_pass(self):
        with tempfile.TemporaryDirectory() as folder:
            self.runnel("generate", "--count", "4", "--out", f"{folder}/digits.png")
        self.runnel("score", str(ROOT / "examples/digits.idx3-ubyte.gz"), "--first", "2")
        self.runnel("session", "list")

    def test_a_long_header_value_does_not_reach_the_server(self):
        before = self.server.cpu_seconds()
        self.assertTrue(header_value(self.proxy.port, 11 * MIB), "the proxy hangs up")
        self.assertLess(self.server.cpu_seconds() - before, 0.25)
        self.runnel("health", "--timeout", str(PATIENCE))

    def test_floods_do_not_reach_the_server(self):
        before = self.server.memory()
        for kind in ("reset", "small headers", "continuation"):
            with self.subTest(kind):
                flood = Flood(kind, self.proxy.port, "--busy", "8")
                flood.wait_until_busy()
                self.runnel("health", "--wait", str(PATIENCE))
                self.assertGreater(flood.stop()["bytes"], MIB)
                self.assertLess(self.server.memory("VmHWM"), before + 64 * MIB)
                self.assertNotIn(" flood ", self.server.logged())

    def test_one_address_has_no_more_than_its_connections(self):
        clients: list[Client] = []

        def connect() -> Client | None:
            try:
                client = Client(self.proxy.port)
            except OSError:
                return None
            while client.is_open and not client.is_accepted:
                client.listen(PATIENCE)
            if client.is_open:
                return client
            client.close()
            return None

        self.assertTrue(eventually(lambda: is_full(clients, connect)))
        for client in clients:
            client.close()
        self.runnel("health", "--wait", str(PATIENCE))


class OnePortTest(unittest.TestCase):
    """TLS on one port for gRPC and HTTP, with keys."""

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        subprocess.run([ROOT / "scripts/certificates", self.folder], check=True, capture_output=True)
        self.authority, certificate = self.folder / "ca.pem", self.folder / "tls.crt"
        (self.folder / "server.pem").rename(certificate)  # the names in a Kubernetes secret
        (self.folder / "server.key").rename(self.folder / "tls.key")
        keys = self.folder / "keys.jsonl"
        new = [RUNNEL, "key", "new", "alice", "--file", str(keys)]
        self.key = subprocess.run(new, capture_output=True, text=True, check=True).stdout.strip()
        self.server = Server("--http-address", "127.0.0.1:0", "--keys", str(keys), bundle="zoo/text-endless-small")
        stack.callback(self.server.stop)
        places = {"RUNNEL_SERVER": f"127.0.0.1:{self.server.port}", "RUNNEL_HTTP": place_of(self.server, "http")}
        self.proxy = Proxy(RUNNEL_PEM=str(certificate), **places)
        stack.callback(self.proxy.stop)
        self.assertEqual(self.runnel("health", "--wait", str(PATIENCE)).returncode, 0)

    def runnel(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command that calls over TLS with the key."""
        own = ["--server", f"localhost:{self.proxy.port}", "--tls-ca", str(self.authority)]
        environment = {**os.environ, "RUNNEL_API_KEY": self.key}
        command = [RUNNEL, *words, *own]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False, env=environment
        )

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> http.client.HTTPResponse:
        """The answer to a request over HTTP/1.1 and TLS with the key."""
        context = ssl.create_default_context(cafile=str(self.authority))
        self.connection = http.client.HTTPSConnection("localhost", self.proxy.port, timeout=PATIENCE, context=context)
        self.addCleanup(self.connection.close)
        own = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}", **headers}
        self.connection.request(method, path, None if body is None else json.dumps(body), own)
        return self.connection.getresponse()

    def test_both_doors_answer(self):
        self.assertIn("text-endless-small", self.runnel("info").stdout)
        self.assertEqual(self.runnel("generate", "--prompt", "The river", "--max-values", "20").returncode, 0)
        [model] = json.load(self.ask("GET", "/v1/models"))["data"]
        self.assertEqual(model["id"], "text-endless-small")
        request = {"prompt": "The river was ", "max_tokens": 20, "seed": 7}
        answer = json.load(self.ask("POST", "/v1/completions", request))
        self.assertEqual(answer["usage"]["completion_tokens"], 20)

    def test_http_2_reaches_the_http_door(self):
        url = f"https://localhost:{self.proxy.port}/v1/models"
        command = ["curl", "-s", "--http2", "--cacert", str(self.authority), "-w", "%{http_version} %{http_code}"]
        command += ["-o", "/dev/null", "-H", f"Authorization: Bearer {self.key}", url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.stdout, "2 200", done.stderr)

    def test_a_stream_is_not_buffered_and_ends_when_its_reader_closes(self):
        request = {"prompt": "The river was ", "max_tokens": 1_000_000, "stream": True}
        answer = self.ask("POST", "/v1/completions", request)
        self.assertEqual(answer.headers["Content-Type"].split(";")[0], "text/event-stream")
        events = (line for line in iter(answer.readline, b"") if line.startswith(b"data: "))  # not `: ping`
        self.assertTrue(json.loads(next(events).removeprefix(b"data: "))["choices"])
        for _ in range(10):
            next(events)
        self.assertNotIn(" info call ", self.server.logged(), "events come while the call runs")
        self.connection.close()
        answer.close()
        self.assertTrue(eventually(lambda: "code=CANCELLED" in self.server.logged()), self.server.logged())

    def test_both_doors_check_keys_and_hosts(self):
        self.key = "rnl_wrong"
        self.assertIn("UNAUTHENTICATED", self.runnel("info").stderr)
        self.assertEqual(self.ask("GET", "/v1/models").status, 401)
        self.assertEqual(self.ask("GET", "/v1/models", Host="evil.example").status, 403)

    def test_a_flood_by_tls_does_not_reach_the_server(self):
        before = self.server.memory()
        flood = Flood("reset", self.proxy.port, "--ca", str(self.authority), "--busy", "8")
        flood.wait_until_busy()
        self.assertEqual(self.runnel("health", "--wait", str(PATIENCE)).returncode, 0)
        self.assertGreater(flood.stop()["bytes"], MIB)
        self.assertLess(self.server.memory("VmHWM"), before + 64 * MIB)
        self.assertNotIn(" flood ", self.server.logged())

    def test_long_headers_do_not_reach_the_door_of_http(self):
        before = self.server.cpu_seconds()
        self.assertEqual(self.ask("GET", "/v1/models", Long="a" * 20_000).status, 400)
        self.assertLess(self.server.cpu_seconds() - before, 0.25)

    def test_one_address_has_no_more_than_its_connections(self):
        context = ssl.create_default_context(cafile=str(self.authority))
        connections: list[ssl.SSLSocket] = []

        def connect() -> ssl.SSLSocket | None:
            with contextlib.suppress(OSError):  # the proxy has closed it
                connection = socket.create_connection(("127.0.0.1", self.proxy.port), PATIENCE)
                return context.wrap_socket(connection, server_hostname="localhost")
            return None

        self.assertTrue(eventually(lambda: is_full(connections, connect)))
        for connection in connections:
            connection.close()
        self.assertEqual(self.runnel("health", "--wait", str(PATIENCE)).returncode, 0)


class FleetTest(unittest.TestCase):
    """Two servers with the same seal key on one port."""

    SESSIONS = 6

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        key = folder / "seal.key"
        key.touch(0o600)
        key.write_bytes(bytes(32))
        flags = ["--http-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0", "--seal-keys", str(key)]
        # No server counts as dead because the machine is busy.
        places = {"RUNNEL_PEERS": f"unix@{folder}/peers", "RUNNEL_CHECK_TIMEOUT": "60s"}
        self.servers = []
        for name in ("ONE", "TWO"):
            server = Server(*flags, bundle="zoo/text-endless-small")
            stack.callback(server.stop)
            self.servers.append(server)
            places |= {f"RUNNEL_{name}_GRPC": f"127.0.0.1:{server.port}"}
            places |= {f"RUNNEL_{name}_{port.upper()}": place_of(server, port) for port in ("http", "metrics")}
        self.proxy = Proxy("haproxy-fleet.cfg", **places)
        stack.callback(self.proxy.stop)
        self.assertTrue(eventually(lambda: self.ask("/v1/models")[0] == 200))

    def ask(self, path: str, body: object = None, port: int = 0, session: str = "") -> tuple[int, Any]:
        """Status and JSON of the answer to a GET, or to a POST of a body, each on a new connection.

        `session` goes into the header that names a session.
        """
        connection = http.client.HTTPConnection("127.0.0.1", port or self.proxy.port, timeout=PATIENCE)
        data = None if body is None else json.dumps(body)
        own = {"Content-Type": "application/json", **({"x-session-id": session} if session else {})}
        connection.request("GET" if data is None else "POST", path, data, own)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text.startswith(b"{") else text

    def runnel(self, *words: str) -> str:
        command = [RUNNEL, *words, "--server", f"127.0.0.1:{self.proxy.port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
        return "" if done.returncode == 0 else done.stderr

    def sessions_of(self, server: Server) -> set[str]:
        port = int(place_of(server, "http").rpartition(":")[2])
        return {session["id"] for session in self.ask("/v1/sessions", port=port)[1]["data"]}

    def make_sessions(self) -> list[str]:
        """Makes sessions on both servers. The server chooses half of the ids."""
        made = [self.ask("/v1/sessions", {"id": f"s{i}"} if i % 2 else {}) for i in range(self.SESSIONS)]
        self.assertEqual([status for status, _ in made], [200] * self.SESSIONS)
        there = [self.sessions_of(server) for server in self.servers]
        self.assertTrue(all(there), there)
        self.assertEqual(len(there[0] | there[1]), self.SESSIONS)
        return [session["id"] for _, session in made]

    def find(self, session: str) -> list[int]:
        """The statuses of calls that name the session in their header, path or body."""
        named = {"session": session, "prompt": "a", "max_tokens": 1}
        return [
            self.ask(f"/v1/sessions/{session}")[0],
            self.ask("/v1/completions", named)[0],
            self.ask("/v1/completions", named, session=session)[0],
        ]

    def test_a_session_stays_on_its_server(self):
        sessions = self.make_sessions()
        for session in sessions:
            self.assertEqual(self.find(session), [200] * 3, session)
            self.assertEqual(self.runnel("generate", "--session", session, "--prompt", "a", "--max-values", "1"), "")
            self.assertEqual(self.runnel("session", "delete", session), "")

    def test_either_server_takes_a_token_even_after_its_maker_stops(self):
        choice: dict[str, Any] = {"state_token": None}

        def complete() -> int:
            body = {"prompt": "a", "max_tokens": 2, "include_state": True, "state_token": choice["state_token"]}
            status, told = self.ask("/v1/completions", body)
            if status == 200:
                choice.update(told["choices"][0])
            return status

        for turn in range(4):
            self.assertEqual(complete(), 200)
            self.assertEqual(choice["position"], 4 + 3 * turn)
        self.assertTrue(eventually(lambda: all("openai.completions" in server.logged() for server in self.servers)))
        self.servers[0].process.kill()
        self.assertTrue(eventually(lambda: complete() == 200), "the proxy leaves out a server that is gone")
        self.assertEqual(choice["position"], 16)


if __name__ == "__main__":
    unittest.main(verbosity=1)
