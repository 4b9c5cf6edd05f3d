"""The exceptions of this package. Every message says in one line what is wrong and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


class RunnelError(Exception):
    """The base class of the others."""


class BundleError(RunnelError):
    """A bundle, a checkpoint or a flag of a tool cannot be used."""


class AccessError(RunnelError):
    """An address, a certificate or a key cannot be used, or a key would be sent where others can read it."""


class CallError(RunnelError):
    """A call failed. Each status of the server has a subclass; an unknown status is a CallError."""

    status = "UNKNOWN"

    def __init__(self, details: str, status: str = "", retry_after: float | None = None):
        self.status = status or self.status  # name of the gRPC status code
        self.details = details  # the message of the server, with its advice
        self.retry_after = retry_after  # seconds to wait before another attempt; inf: do not retry; None: unknown
        super().__init__(details, self.status, retry_after)  # copy and pickle make the error again from these

    def __str__(self) -> str:
        return f"{self.status}: {self.details}"


class InvalidArgument(CallError):
    """An option is outside of its limit or does not fit the model: correct the request."""

    status = "INVALID_ARGUMENT"


class NotFound(CallError):
    """There is no such model, session or stored state: use one that exists, or create the session."""

    status = "NOT_FOUND"


class AlreadyExists(CallError):
    """A session of that id exists: use it, or choose another id."""

    status = "ALREADY_EXISTS"


class OutOfRange(CallError):
    """The values do not fit before the model's last position: give fewer, or start a fresh sequence."""

    status = "OUT_OF_RANGE"


class Aborted(CallError):
    """The session is busy, was deleted or is at another position, or a stream cannot continue: look at `info()`."""

    status = "ABORTED"


class ResourceExhausted(CallError):
    """A quota is used up or the server is full: wait for `retry_after`, or delete sessions that are done."""

    status = "RESOURCE_EXHAUSTED"


class Unauthenticated(CallError):
    """The server needs a key, and the call had none or a wrong one."""

    status = "UNAUTHENTICATED"


class PermissionDenied(CallError):
    """The call is an administrator's, and its key is not marked `admin`."""

    status = "PERMISSION_DENIED"


class FailedPrecondition(CallError):
    """The server cannot do this as it was started: the message says why."""

    status = "FAILED_PRECONDITION"


class Unavailable(CallError):
    """No server answers, or the server is loading or draining: try again later, or call another server."""

    status = "UNAVAILABLE"


class DeadlineExceeded(CallError):
    """The call took longer than its timeout: give it more time. `info()` says where its session is."""

    status = "DEADLINE_EXCEEDED"


class Cancelled(CallError):
    """The call was cancelled, or was lost when the server stopped."""

    status = "CANCELLED"


class Unimplemented(CallError):
    """The server does not know the call: it has another version."""

    status = "UNIMPLEMENTED"


class DataLoss(CallError):
    """A stored state fails its checksum."""

    status = "DATA_LOSS"


def check(condition: object, message: str) -> None:
    """Raises BundleError(message) unless the condition holds."""
    if not condition:
        raise BundleError(message)


def call_error(status: str, details: str, trailing: Iterable[tuple[str, Any]]) -> CallError:
    """The exception for a gRPC status, with the pushback that its trailing metadata has."""
    kind = next((one for one in CallError.__subclasses__() if one.status == status), CallError)
    pushback = next((value for key, value in trailing if key == "grpc-retry-pushback-ms"), None)
    return kind(details, status, None if pushback is None else _seconds(pushback))


def _seconds(pushback: str) -> float:
    """Converts a pushback from ms to seconds. Infinite if it is negative or not a number: gRPC then does not retry."""
    return float(pushback) / 1000 if pushback.isdecimal() else math.inf
