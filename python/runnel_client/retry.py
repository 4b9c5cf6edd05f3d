"""When a call that failed is made again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from runnel_client.errors import CallError

CONNECTION_LOST = ("UNAVAILABLE", "CANCELLED")  # where it was not this client that cancelled


@dataclass(frozen=True)
class Retry:
    """How a client tries again.

    Where the server says when to come back (it is full, or a quota is used up), the client does so until the call's
    time is over. Where the connection is lost or refused, it waits longer from try to try.
    """

    attempts: int = 6  # in a row that bring nothing; 1: a call is never made again
    first_delay: float = 0.1  # seconds before the second attempt; doubles from there
    longest_delay: float = 5.0


class Tries:
    """The attempts at one call."""

    def __init__(self, retry: Retry, timeout: float, clock: Callable[[], float] = time.monotonic):
        """`timeout`: seconds for all attempts together, pauses included."""
        self._retry, self._clock = retry, clock
        self._until = clock() + timeout
        self._failures = 0
        self.lost = False  # an attempt may have succeeded, and its answer was lost

    def left(self) -> float:
        """Seconds that are left for the call."""
        return max(self._until - self._clock(), 0.0)

    def progressed(self) -> None:
        """Call when an attempt has brought something new."""
        self._failures = 0

    def pause_after(self, error: CallError) -> float:
        """Seconds to wait before the next attempt. Raises the error where there is to be none."""
        if self._retry.attempts <= 1:
            raise error
        if error.retry_after is not None:
            pause = error.retry_after * random.uniform(1, 1.1)  # clients refused together come back apart
        elif error.status in CONNECTION_LOST:
            self._failures += 1
            self.lost = True
            if self._failures >= self._retry.attempts:
                raise error
            delay = self._retry.first_delay * 2.0 ** (self._failures - 1)
            pause = min(delay, self._retry.longest_delay) * random.uniform(0.8, 1)
        else:
            raise error
        if pause >= self.left():
            raise error
        return pause
