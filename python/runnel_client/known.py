"""Where a session is, as far as its client knows: each call tells the server, so that none takes effect twice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from runnel_client.errors import CallError
from runnel_client.received import Received
from runnel_client.results import Score, SessionInfo

LAST_KNOWN = -1  # in place of a position: the position in the last answer
BUSY = ("PROMPTING", "GENERATING", "MOVING")  # a session that another call has


class Known:
    """The position of a session's next value, by the last answer about it. None: the client must ask."""

    def __init__(self, info: SessionInfo):
        self.position: int | None = None
        self.note(info)

    def note(self, info: SessionInfo) -> None:
        """Takes the position from the server's answer."""
        self.position = None if info.state in BUSY else info.position

    def note_scored(self, score: Score) -> None:
        """Takes the position after a Score call that the session has kept."""
        self.position = score.position + len(score.log_probs) if len(score.log_probs) else None

    @contextlib.contextmanager
    def during(self, request: Any, received: Received) -> Iterator[None]:
        """Surrounds a Generate call.

        The position is unknown while the call runs, and after a reader has stopped early. After a failure it is the
        position before the call. If the call took effect and only its answer was lost, the next call is Aborted.
        """
        moves = request.keep if request.HasField("keep") else request.samples <= 1
        if not moves:
            yield
            return
        before, self.position = self.position, None
        try:
            yield
        except CallError:
            self.position = before
            raise
        self.position = received.finished[0].position if 0 in received.finished else None
