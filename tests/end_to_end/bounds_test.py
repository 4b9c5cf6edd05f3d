"""What clients that send and never finish cost a server: bounded by limits.network_bytes and limits.connections.

Plain sockets and HTTP/2 frames: no library sends what these clients send.
"""

import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNEL = sys.argv.pop(1) if len(sys.argv) > 1 else str(ROOT / "build/release/runnel")
DATA, HEADERS, SETTINGS, PING, WINDOW = 0, 1, 4, 6, 8
MIB = 1 << 20


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def field(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


CALL = b"".join(
    field(*pair)
    for pair in (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/runnel.v1.Inference/Generate"),
        (b":authority", b"x"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
)


class Server:
    """`runnel serve` with flags, on a free port."""

    def __init__(self, *flags: str) -> None:
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by stop()
        command = [RUNNEL, "serve", str(ROOT / "zoo/mnist-small"), "--address", "127.0.0.1:0", *flags]
        self.process = subprocess.Popen(command, stderr=self.log)
        self.port = 0
        deadline = time.monotonic() + 60
        while self.port == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
            self.log.seek(0)
            ready = re.search(r"ready.*address=127\.0\.0\.1:(\d+)", self.log.read())
            self.port = int(ready.group(1)) if ready else 0

    def resident(self) -> int:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return int(found.group(1)) * 1024 if found else 0

    def serves(self) -> bool:
        command = [RUNNEL, "health", "--server", f"127.0.0.1:{self.port}", "--timeout", "20"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(60)
        self.log.close()
        return code


class Withholder:
    """A connection with many calls, each of one message that lacks its last byte."""

    def __init__(self, port: int, streams: int, message: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(2)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b""))
        self.message, self.sent = message, {2 * i + 1: 0 for i in range(streams)}
        self.window, self.initial, self.connection_window = dict.fromkeys(self.sent, 65535), 65535, 65535
        self.received, self.is_open = b"", True
        for stream in self.sent:
            self.send(frame(HEADERS, 4, stream, CALL))

    def send(self, data: bytes) -> None:
        try:
            self.socket.settimeout(2)
            self.socket.sendall(data)
        except OSError:
            self.is_open = False

    def listen(self) -> None:
        try:
            self.socket.settimeout(0.001)
            data = self.socket.recv(65536)
            self.is_open = self.is_open and data != b""
            self.received += data
        except TimeoutError:
            return
        except OSError:
            self.is_open = False
        while len(self.received) >= 9:
            length = int.from_bytes(self.received[:3], "big")
            if len(self.received) < 9 + length:
                return
            kind, flags = self.received[3], self.received[4]
            stream = int.from_bytes(self.received[5:9], "big")
            payload, self.received = self.received[9 : 9 + length], self.received[9 + length :]
            self.heard(kind, flags, stream, payload)

    def heard(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == WINDOW and stream == 0:
            self.connection_window += int.from_bytes(payload, "big")
        elif kind == WINDOW and stream in self.window:
            self.window[stream] += int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & 1:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                if name == 4:  # the window that every stream begins with
                    self.window = {s: w + value - self.initial for s, w in self.window.items()}
                    self.initial = value
            self.send(frame(SETTINGS, 1, 0, b""))
        elif kind == PING and not flags & 1:
            self.send(frame(PING, 1, 0, payload))

    def push(self) -> bool:
        """Sends what the server takes; False when it takes nothing more."""
        moved = False
        for stream, sent in self.sent.items():
            most = min(16384, len(self.message) - sent, self.window[stream], self.connection_window)
            if not self.is_open or most <= 0:
                continue
            self.send(frame(DATA, 0, stream, self.message[sent : sent + most]))
            self.sent[stream] += most
            self.window[stream] -= most
            self.connection_window -= most
            moved = True
        return moved


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


class Bounds(unittest.TestCase):
    def test_withheld_messages_cost_no_more_than_the_network_may_hold(self):
        size = MIB - 64
        message = struct.pack(">BI", 0, size) + b"\x0a" * (size - 1)
        server = Server("--network-bytes", str(16 * MIB))
        try:
            before = server.resident()
            clients = [Withholder(server.port, 40, message) for _ in range(4)]
            deadline = time.monotonic() + 20
            quiet = 0
            while quiet < 20 and time.monotonic() < deadline:
                for client in clients:
                    client.listen()
                quiet = 0 if sum(client.push() for client in clients) > 0 else quiet + 1
            grown = server.resident() - before
            sent = sum(sum(client.sent.values()) for client in clients)
            self.assertGreater(sent, 80 * MIB, "the clients have sent far more than may be held")
            # The library frees what is over the bound a moment after it is there.
            self.assertLess(grown, 48 * MIB, f"{sent} bytes sent")
            for client in clients:
                client.socket.close()
            self.assertTrue(server.serves())
        finally:
            self.assertEqual(server.stop(), 0)

    def test_connections_beyond_the_limit_are_closed_and_the_others_served(self):
        server = Server("--connections", "8")
        try:
            held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(7)]
            time.sleep(0.2)
            self.assertTrue(server.serves(), "there is room for one more")
            more = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
            closed = 0
            for each in more:
                each.settimeout(5)
                closed += is_closed(each)
            self.assertGreaterEqual(closed, 198)
            for each in held + more:
                each.close()
            self.assertTrue(server.serves(), "room again once they have gone")
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
