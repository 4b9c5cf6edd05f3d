"""What clients that send and never finish, or never read, cost a server: no more than it says at start."""

import re
import socket
import subprocess
import time
import unittest

from hostile_client import MIB, RUNNEL, Client, Server, message, push_all

ELSEWHERE = "127.0.0.2"  # where the attackers are
SLACK = MIB  # of the figures themselves: pages, and what the test costs the server


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
    """A GenerateRequest with so many values of prompt."""
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
    except TimeoutError:
        return False


class Bounds(unittest.TestCase):
    def test_withheld_messages_cost_no_more_than_the_network_may_hold(self):
        server = Server("--network-bytes", str(16 * MIB))
        try:
            before = server.memory()
            clients = [Client(server.port) for _ in range(4)]
            for client in clients:
                for _ in range(40):
                    client.begin("Inference/Generate", withheld(MIB - 64))
            push_all(clients, 20)
            grown = server.memory() - before
            sent = sum(client.sent() for client in clients)
            self.assertGreater(sent, 80 * MIB, "the clients have sent far more than may be held")
            # The library frees what is over the bound a moment after it is there.
            self.assertLess(grown, 48 * MIB, f"{sent} bytes sent")
            for client in clients:
                client.close()
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

    def test_a_connection_is_asked_to_end_at_its_age_and_its_calls_go_on(self):
        server = Server("--connection-age-ms", "1000", bundle="zoo/text-endless-small")
        try:
            client = Client(server.port, window=1 << 20)
            client.begin("Inference/Generate", withheld(100))  # a call that does not end
            deadline = time.monotonic() + 20
            while not client.goes_away and time.monotonic() < deadline:
                client.listen(0.2)
                client.push()
            self.assertTrue(client.goes_away)
            self.assertTrue(client.is_open, "the call may go on")
            self.assertTrue(server.serves())
            client.close()
        finally:
            self.assertEqual(server.stop(), 0)

    def test_all_at_once_cost_no_more_than_the_figure_at_start(self):
        flags = {
            "network-bytes": 16 * MIB,
            "call-bytes": 96 * MIB,
            "record-bytes": 64 << 10,
            "sessions": 64,
            "sessions-per-caller": 48,
            "connections": 48,
            "streams-per-connection": 64,
        }
        words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        server = Server(*words, bundle="zoo/text-endless-small")
        try:
            figure = re.search(r" memory most=(\d+)", server.logged())
            self.assertIsNotNone(figure, "the bound is in the log")
            assert figure is not None
            before = self.honest(server)
            self.attack(server)
            during = self.honest(server)
            for stream in (before, during):
                self.assertEqual(stream.wait(300), 0, "honest clients are served to the end")
            self.assertLess(server.memory("VmHWM"), int(figure.group(1)) + SLACK)
            self.assertTrue(server.serves())
        finally:
            self.assertEqual(server.stop(), 0)

    def honest(self, server: Server) -> subprocess.Popen[bytes]:
        """A client that reads all that it asks for."""
        where = ["--server", f"127.0.0.1:{server.port}"]
        asked = ["generate", *where, "--prompt", "The ", "--max-values", "20000"]
        return subprocess.Popen([RUNNEL, *asked], stdout=subprocess.DEVNULL)

    def attack(self, server: Server) -> None:
        clients = []

        def connect(window: int = 65535) -> Client:
            clients.append(Client(server.port, window, ELSEWHERE))
            return clients[-1]

        for _ in range(4):  # messages that never end
            client = connect()
            for _ in range(64):
                client.begin("Inference/Generate", withheld(MIB - 64))
        for _ in range(16):  # streams without a message
            client = connect()
            for _ in range(64):
                client.begin("Inference/Generate", b"")
        for _ in range(4):  # streams of which nothing is read, with all that comes with values
            client = connect(window=0)
            for _ in range(32):
                client.begin("Inference/Generate", generate(10, top=20))
            client.begin("Inference/Generate", generate(10, samples=16, top=20))
        for index in range(4):  # calls that are remembered
            client = connect()
            for call in range(32):
                name = f"{index}-{call}"
                client.begin("Inference/Generate", generate(10, values=2000, top=20, request_id=name))
        for _ in range(4):  # prompts as long as a message can be, and chunks to score
            client = connect()
            for _ in range(16):
                client.begin("Inference/Generate", generate(MIB - 100))
                chunk = bytes_field(3, bytes_field(1, b"\x01" * 100000))
                client.begin("Inference/Score", message(chunk), ends=False)
        for _ in range(4):  # pages that are not read
            client = connect(window=0)
            for _ in range(60):
                client.begin("Sessions/CreateSession", message(b""))
                client.begin("Sessions/ListSessions", message(number_field(2, 1000)))
        push_all(clients, 30)
        self.clients = clients  # until the test ends


if __name__ == "__main__":
    unittest.main(verbosity=1)
