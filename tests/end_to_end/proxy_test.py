"""docker/haproxy.cfg in front of a server: calls pass, and a header value of 11 MiB does not reach the server."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

from hostile_client import (
    CONTINUATION,
    END_HEADERS,
    FRAME,
    HEADERS,
    MIB,
    PREFACE,
    ROOT,
    RUNNEL,
    SETTINGS,
    Client,
    Server,
    frame,
    headers,
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Proxy:
    """HAProxy with the configuration that docs/deploy.md shows, before a server."""

    def __init__(self, server: Server) -> None:
        program = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
        if program is None:
            raise AssertionError("haproxy is missing: scripts/setup test")
        self.port = free_port()
        places = {"RUNNEL_PROXY": f"127.0.0.1:{self.port}", "RUNNEL_SERVER": f"127.0.0.1:{server.port}"}
        command = [program, "-q", "-db", "-f", str(ROOT / "docker/haproxy.cfg")]
        self.process = subprocess.Popen(command, env={**os.environ, **places})

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(60)


def header_value(port: int, size: int) -> bool:
    """Sends a call with a header value of so many bytes. True when the peer has refused it before the end."""
    length, rest = b"\x7f", size - 127
    while rest > 127:
        length += bytes([rest & 127 | 128])
        rest >>= 7
    block = headers("Inference/Generate") + b"\x00\x01x" + length + bytes([rest]) + b"a" * size
    parts = [block[at : at + FRAME] for at in range(0, len(block), FRAME)]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(60)
        try:
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, 0, 1, parts[0]))
            for part in parts[1:-1]:
                connection.sendall(frame(CONTINUATION, 0, 1, part))
            connection.sendall(frame(CONTINUATION, END_HEADERS, 1, parts[-1]))
            while connection.recv(65536):
                pass
        except OSError:
            return True
    return False


class ProxyTest(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.proxy = Proxy(self.server)
        self.addCleanup(self.server.stop)
        self.addCleanup(self.proxy.stop)
        self.runnel("health", "--wait", "30")

    def runnel(self, *words: str) -> None:
        command = [RUNNEL, *words, "--server", f"127.0.0.1:{self.proxy.port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_calls_pass(self):
        with tempfile.TemporaryDirectory() as folder:
            self.runnel("generate", "--count", "4", "--out", f"{folder}/digits.png")
        self.runnel("score", str(ROOT / "examples/digits.idx3-ubyte.gz"), "--first", "2")
        self.runnel("session", "list")

    def test_a_long_header_value_does_not_reach_the_server(self):
        before = self.server.cpu_seconds()
        began = time.monotonic()
        self.assertTrue(header_value(self.proxy.port, 11 * MIB), "the proxy hangs up")
        self.assertLess(time.monotonic() - began, 30)
        self.assertLess(self.server.cpu_seconds() - before, 0.25)
        self.runnel("health")

    def test_one_address_has_no_more_than_its_connections(self):
        clients = [Client(self.proxy.port) for _ in range(80)]
        for client in clients:
            client.listen(0.5)
        self.assertEqual(sum(client.is_open for client in clients), 64)
        for client in clients:
            client.close()
        self.runnel("health", "--wait", "10")


if __name__ == "__main__":
    unittest.main(verbosity=1)
