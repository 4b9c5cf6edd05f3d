"""Decides when a failed call is made again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from runnel_client.errors import CallError

# The statuses that mean a lost connection. CANCELLED does, unless this client has cancelled the call. UNKNOWN never
# comes from a runnel server: a proxy that has lost its server resets the stream, or answers without gRPC.
CONNECTION_LOST = ("UNAVAILABLE", "UNKNOWN", "CANCELLED")
MOST_DOUBLINGS = 64  # of the pause; a float has room for a thousand
LONGEST = 1e9  # seconds; gRPC treats an infinite timeout as one that has expired
LEAST_PAUSE = 0.01  # seconds, in case a server always names none


@dataclass(frozen=True)
class Retry:
    """When a client makes a call again.

    If the server is full or drains, a quota is used up, or another call is using the session, the server says when to
    come back, and the client does so until the call's time is over, each time after 10 ms at least. If the connection
    is lost or refused, the client waits, each time twice as long.
    """

    attempts: int = 6  # in a row without a result; 1: no retries
    first_delay: float = 0.1  # seconds before the second attempt; doubles from there
    longest_delay: float = 5.0  # seconds


class Tries:
    """The attempts of one call."""

    def __init__(
        self, retry: Retry, timeout: float, clock: Callable[[], float] = time.monotonic, repeatable: bool = True
    ):
        """`timeout`: seconds for all attempts together, pauses included.

        `repeatable`: False for a call that must not take effect twice. It is not made again once an answer was lost.
        """
        self._retry, self._clock, self._repeatable = retry, clock, repeatable
        self._until = clock() + min(timeout, LONGEST)
        self._failures = 0
        self.lost = False  # whether an attempt may have succeeded although its answer was lost

    def left(self) -> float:
        """Seconds left for the call."""
        return max(self._until - self._clock(), 0.0)

    def progressed(self) -> None:
        """To be called when an attempt has received something new."""
        self._failures = 0

    def pause_after(self, error: CallError) -> float:
        """Seconds to wait before the next attempt. Raises the error if there is none."""
        if self._retry.attempts <= 1:
            raise error
        if error.status in CONNECTION_LOST:
            # Even if the server gives a retry delay: its store may have made the change without an answer.
            self.lost = True
            if not self._repeatable:
                raise error
        if error.retry_after is not None:
            # A server that names 0 ms would be asked in a loop. The factor spreads the clients of a full server.
            pause = max(error.retry_after, LEAST_PAUSE) * random.uniform(1, 1.1)
        elif error.status in CONNECTION_LOST:
            self._failures += 1
            if self._failures >= self._retry.attempts:
                raise error
            delay = self._retry.first_delay * 2.0 ** min(self._failures - 1, MOST_DOUBLINGS)
            pause = min(delay, self._retry.longest_delay) * random.uniform(0.8, 1)
        else:
            raise error
        if pause >= self.left():
            raise error
        return pause
