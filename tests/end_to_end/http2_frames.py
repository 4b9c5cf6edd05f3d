"""The frames of HTTP/2 and the messages of gRPC, byte by byte."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = (0, 1, 3, 4, 6, 7, 8, 9)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW = 4  # the number of a setting
FRAME = 16384  # the most bytes in a frame


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def field(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers(method: str) -> bytes:
    """The headers of a call of "Service/Method"."""
    pairs = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/runnel.v1." + method.encode(),
        b":authority": b"x",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    return b"".join(field(*pair) for pair in pairs.items())


def message(body: bytes) -> bytes:
    """A message as gRPC frames it."""
    return struct.pack(">BI", 0, len(body)) + body
