"""What the package raises. Every message says what is wrong, in one line, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterable


class RunnelError(Exception):
    """The base of all others."""


class BundleError(RunnelError):
    """A bundle, a checkpoint or a flag of a tool cannot be used."""


class AccessError(RunnelError):
    """What says how a server is reached cannot be used: a file that is missing, a key that others could read."""


class CallError(RunnelError):
    """A call failed. There is a class for each status that a server gives; others are a CallError itself."""

    status = "UNKNOWN"

    def __init__(self, details: str, status: str = "", retry_after: float | None = None):
        self.status = status or self.status  # name of the gRPC status code
        self.details = details  # what the server says, with its advice
        self.retry_after = retry_after  # seconds that the server asks for before another try; inf: it wants none
        super().__init__(f"{self.status}: {details}")


class InvalidArgument(CallError):
    """A field is outside of its limit, or does not fit the model: correct the request."""

    status = "INVALID_ARGUMENT"


class NotFound(CallError):
    """There is no such model or session: use one that there is, or create the session."""

    status = "NOT_FOUND"


class AlreadyExists(CallError):
    """A session of that id exists: use it, or choose another id."""

    status = "ALREADY_EXISTS"


class OutOfRange(CallError):
    """The values do not fit before the model's last position: give fewer, or start a fresh sequence."""

    status = "OUT_OF_RANGE"


class Aborted(CallError):
    """The session is busy, was deleted or stands elsewhere, or a stream cannot go on: look at the session first."""

    status = "ABORTED"


class ResourceExhausted(CallError):
    """A quota is used up or the server is full: wait for `retry_after`, or delete sessions that are done."""

    status = "RESOURCE_EXHAUSTED"


class Unauthenticated(CallError):
    """The server asks for a key that it knows."""

    status = "UNAUTHENTICATED"


class PermissionDenied(CallError):
    """The call is an administrator's, and its key is not marked `admin`."""

    status = "PERMISSION_DENIED"


class FailedPrecondition(CallError):
    """The server cannot do so as it is now: its message says why."""

    status = "FAILED_PRECONDITION"


class Unavailable(CallError):
    """No server answers, or it loads or drains: try again, or try another server."""

    status = "UNAVAILABLE"


class DeadlineExceeded(CallError):
    """The call's time is over: give it more. A session stands at the last value sampled."""

    status = "DEADLINE_EXCEEDED"


class Cancelled(CallError):
    """The call was cancelled, or came in the instant in which the server went away."""

    status = "CANCELLED"


class Unimplemented(CallError):
    """The server does not know the call: it is of another version."""

    status = "UNIMPLEMENTED"


class DataLoss(CallError):
    """A stored state fails its checksum."""

    status = "DATA_LOSS"


def check(condition: object, message: str) -> None:
    """Raises BundleError(message) unless the condition holds."""
    if not condition:
        raise BundleError(message)


def call_error(status: str, details: str, trailing: Iterable[tuple[str, str]]) -> CallError:
    """The exception for a gRPC status, with the pushback that its trailing metadata has."""
    kind = next((one for one in CallError.__subclasses__() if one.status == status), CallError)
    pushback = next((value for key, value in trailing if key == "grpc-retry-pushback-ms"), None)
    return kind(details, status, None if pushback is None else _seconds(pushback))


def _seconds(pushback: str) -> float:
    """Of a pushback in milliseconds. By gRPC's rules one that is negative or no number asks for no other try."""
    return int(pushback) / 1000 if pushback.isdecimal() else math.inf
