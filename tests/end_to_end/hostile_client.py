"""A server process, and clients on plain sockets that send bytes which no library would send."""

import dataclasses
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from http2_frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW,
    PING,
    PREFACE,
    RESET,
    SETTINGS,
    WINDOW,
    frame,
    headers,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNEL = sys.argv.pop(1) if len(sys.argv) > 1 else str(ROOT / "build/release/runnel")
MIB = 1 << 20
PATIENCE = 600.0  # seconds until a test gives up on an event: a busy server may read a body very late


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Server:
    """`runnel serve` of a bundle with flags, on a free port; `files`: its soft and hard limit of open files."""

    def __init__(self, *flags: str, bundle: str = "zoo/mnist-small", files: tuple[int, int] | None = None) -> None:
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")  # noqa: SIM115 - closed by stop()
        command = [RUNNEL, "serve", str(ROOT / bundle), "--address", "127.0.0.1:0", *flags]
        if files is not None:
            command = ["prlimit", f"--nofile={files[0]}:{files[1]}", *command]
        self.process = subprocess.Popen(command, stderr=self.log)
        self.port = 0
        if not eventually(lambda: self.is_ready() or self.process.poll() is not None) or self.port == 0:
            raise AssertionError(self.logged())

    def is_ready(self) -> bool:
        ready = re.search(r"ready.*address=127\.0\.0\.1:(\d+)", self.logged())
        self.port = int(ready.group(1)) if ready else 0
        return self.port != 0

    def logged(self) -> str:
        return pathlib.Path(self.log.name).read_text(encoding="utf-8")

    def memory(self, name: str = "VmRSS") -> int:
        """The process's resident bytes, or with VmHWM their maximum."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(rf"{name}:\s+(\d+)", status)
        return int(found.group(1)) * 1024 if found else 0

    def cpu_seconds(self) -> float:
        """The process's CPU time."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def pin(self, cpu: int) -> None:
        """Runs all threads of the process on one CPU."""
        for thread in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {cpu})

    def open_files(self) -> int:
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def serves(self) -> bool:
        """Whether the server is healthy. Waits until it has noticed closed connections."""
        command = [RUNNEL, "health", "--server", f"127.0.0.1:{self.port}", "--wait", str(PATIENCE)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        self.log.close()
        return code


class Flood:
    """Runs http2_attack.py."""

    def __init__(self, kind: str, port: int, *words: str) -> None:
        program = [sys.executable, "-B", str(ROOT / "tests/end_to_end/http2_attack.py")]
        self.process = subprocess.Popen([*program, kind, str(port), *words], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()  # waits until its bytes are made

    def wait_until_busy(self) -> None:
        """Waits until it has sent the bytes that `--busy` names, by default a MiB."""
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def stop(self) -> dict[str, int]:
        """The number of bytes sent, and how its connections ended."""
        self.process.terminate()
        try:
            told = self.process.communicate(timeout=PATIENCE)[0]
            return dict(json.loads(told.splitlines()[-1]))
        finally:
            self.process.kill()


@dataclasses.dataclass
class Stream:
    body: bytes
    ends: bool  # whether the stream ends after the body
    window: int  # bytes that the server may still get
    sent: int = 0


class Client:
    """A connection that lets the server send `window` bytes of each answer, and never more."""

    def __init__(self, port: int, window: int = 65535, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), source_address=(source, 0))
        self.streams: dict[int, Stream] = {}
        self.initial, self.window = 65535, 65535
        self.received, self.is_open, self.goes_away = b"", True, False
        self.is_accepted = False  # whether the server has sent its settings
        self.resets: list[int] = []  # streams that the server has reset
        self.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, window)))

    def close(self) -> None:
        self.socket.close()

    def begin(self, method: str, body: bytes, ends: bool = True) -> None:
        """Begins a call. push() sends its body."""
        stream = 2 * len(self.streams) + 1
        self.streams[stream] = Stream(body, ends, self.initial)
        self.send(frame(HEADERS, END_HEADERS, stream, headers(method)))

    def send(self, data: bytes) -> None:
        try:
            self.socket.settimeout(PATIENCE)
            self.socket.sendall(data)
        except OSError:
            self.is_open = False

    def listen(self, seconds: float = 0.001) -> None:
        """Reads what the server has sent."""
        try:
            self.socket.settimeout(seconds)
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
            self.window += int.from_bytes(payload, "big")
        elif kind == WINDOW and stream in self.streams:
            self.streams[stream].window += int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            self.is_accepted = True
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                if name == INITIAL_WINDOW:
                    for each in self.streams.values():
                        each.window += value - self.initial
                    self.initial = value
            self.send(frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            self.goes_away = True
        elif kind == RESET:
            self.resets.append(stream)

    def push(self) -> bool:
        """Sends as much as the server takes. False if it takes nothing more."""
        moved = False
        for number, stream in self.streams.items():
            most = min(FRAME, len(stream.body) - stream.sent, stream.window, self.window)
            if not self.is_open or most <= 0:
                continue
            last = stream.ends and stream.sent + most == len(stream.body)
            body = stream.body[stream.sent : stream.sent + most]
            self.send(frame(DATA, END_STREAM if last else 0, number, body))
            stream.sent += most
            stream.window -= most
            self.window -= most
            moved = True
        return moved

    def sent(self) -> int:
        return sum(stream.sent for stream in self.streams.values())


def push_all(clients: list[Client], seconds: float, enough: Callable[[], bool] = lambda: True) -> None:
    """Sends until no server takes anything for a while, or `seconds` have passed, and enough() holds."""
    begin = time.monotonic()
    quiet = 0
    while quiet < 20 and time.monotonic() < begin + seconds or not enough() and time.monotonic() < begin + PATIENCE:
        for client in clients:
            client.listen()
        quiet = 0 if sum(client.push() for client in clients) > 0 else quiet + 1


def ask_readiness(port: int) -> bytes:
    """The answer to GET /readyz, or b"" if the server closes the connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as asking:
            asking.sendall(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
            return asking.recv(4096)
    except ConnectionError:
        return b""


def honest(server: Server, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """A client that reads its whole answer."""
    words = ["--server", f"127.0.0.1:{server.port}", "--prompt", "The ", "--max-values", "10000"]
    return subprocess.Popen([RUNNEL, "generate", *words], stdout=stdout, stderr=subprocess.DEVNULL)
