"""Requests to the server's HTTP port, for functions that gRPC does not have: text to tokens, and back."""

from __future__ import annotations

import http.client
import io
import json
import math
import ssl
import time
from typing import Any
from urllib.parse import urlsplit

from runnel_client.access import Access
from runnel_client.address import OWN_SCHEMES
from runnel_client.errors import AccessError, CallError, call_error

MOST_BYTES = 1 << 26  # of an answer, as of a message over gRPC

# The gRPC status for each HTTP status of the server (docs/http.md), and of a proxy. The server's 409 may also mean
# ALREADY_EXISTS, but not for these functions, which name no session.
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Door:
    """A server's HTTP port. Each request has a connection of its own, so threads may share it."""

    def __init__(self, url: str, access: Access):
        """`url`: for example http://127.0.0.1:8000. If it is "", each request raises an AccessError with the reason."""
        self._url, self._access = url, access
        self._secure, self._host = _place_of(url) if url else (False, "")
        self._headers = {"Content-Type": "application/json"}
        if url:
            # The host may be called "unix", which is not the scheme of a socket file here.
            address = f"dns:///{self._host}" if self._host.startswith(OWN_SCHEMES) else self._host
            self._headers.update({name.title(): value for name, value in access.metadata(address, self._secure)})

    def post(self, path: str, body: dict[str, Any], timeout: float, member: str, kind: type) -> Any:
        """Posts `body` as JSON, and returns a member of the answer, which is of a type.

        `timeout`: seconds for the whole answer. Raises CallError if the answer is an error, or not that of a server.
        """
        if not self._url:
            raise AccessError(
                f"{path} is a call over HTTP: start the server with --http-address HOST:PORT, and give that to "
                "Client(http='http://HOST:PORT')"
            )
        until = time.monotonic() + timeout
        connection = self._connection(timeout)
        try:
            connection.request("POST", path, json.dumps(body), self._headers)
            # A socket's own timeout would begin again with each byte.
            connection.response_class = lambda *args, **options: _Response(until, *args, **options)  # type: ignore[assignment]
            with connection.getresponse() as response:
                # Python 3.10 takes memory for as many bytes as are asked for.
                most = MOST_BYTES if response.length is None else min(response.length, MOST_BYTES)
                answer = response.read(most + 1)
            if response.status == 200:
                return _member_of(answer, member, kind)
            raise _error_of(response, answer)
        except TimeoutError:
            raise call_error("DEADLINE_EXCEEDED", f"no answer from {self._url} within {timeout:g} s", ()) from None
        except ssl.SSLError as error:
            raise call_error("UNAVAILABLE", f"the TLS handshake with {self._url} failed: {error}", ()) from None
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            said = f"no answer from {self._url} ({error}); is that the server's --http-address?"
            raise call_error("UNAVAILABLE", said, ()) from None
        finally:
            connection.close()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, timeout=timeout)
        return _Secured(self._host, self._access, timeout)


class _Secured(http.client.HTTPSConnection):
    """A connection with TLS, which checks the certificate for the name in `access`."""

    def __init__(self, host: str, access: Access, timeout: float):
        self._tls, self._name = access.context(), access.tls_name
        super().__init__(host, timeout=timeout, context=self._tls)

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name or self.host)


class _Received(io.RawIOBase):
    """The bytes that a socket receives until a time. Later reads raise TimeoutError."""

    def __init__(self, connection: Any, until: float):
        self._connection, self._bytes, self._until = connection, connection.makefile("rb", buffering=0), until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        count: int | None = self._bytes.readinto(buffer)
        return count

    def close(self) -> None:
        self._bytes.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """An answer that must be complete at a time."""

    def __init__(self, until: float, connection: Any, *args: Any, **options: Any):
        super().__init__(connection, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Received(connection, until))


def _member_of(answer: bytes, member: str, kind: type) -> Any:
    """A member of an answer in JSON. ValueError if the answer has another form."""
    if len(answer) > MOST_BYTES:
        raise ValueError(f"its answer has more than {MOST_BYTES} bytes")
    found = json.loads(answer)
    if not isinstance(found, dict) or not isinstance(found.get(member), kind):
        raise ValueError(f"its answer has no {member!r}")
    return found[member]


def _place_of(url: str) -> tuple[bool, str]:
    """Whether a URL uses TLS, and its host and port. AccessError if it has other parts or cannot be read."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.path in ("", "/") and parts.port != 0
    except ValueError:  # the port is not a number, or a bracket is not closed
        good = False
    if not good or "@" in parts.netloc or " " in parts.netloc or not parts.netloc.isprintable():
        raise AccessError(f"http is {url[:200]!r}; expected http://HOST:PORT or https://HOST")
    return parts.scheme == "https", parts.netloc


def _error_of(response: http.client.HTTPResponse, answer: bytes) -> CallError:
    try:
        message = str(json.loads(answer)["error"]["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        message = f"HTTP status {response.status}"
    error = call_error(STATUSES.get(response.status, "UNKNOWN"), message, ())
    error.retry_after = _wait_of(response.headers)
    return error


def _wait_of(headers: http.client.HTTPMessage) -> float | None:
    """Seconds until another attempt: infinite if the server says that none can help, None if it says nothing."""
    for name, seconds in (("Retry-After-Ms", 1e-3), ("Retry-After", 1.0)):
        wait = headers.get(name, "")
        if wait.isdecimal():
            return float(wait) * seconds
    return math.inf if headers.get("X-Should-Retry") == "false" else None
