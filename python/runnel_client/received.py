"""Joins the attempts at one Generate call to a stream without gaps and repetitions.

If a call is made again with its request_id, the server sends it from its beginning. Values that the caller already has
are left out one by one, because a server may divide the same values into other messages. A checksum shows that they are
the same values.
"""

from __future__ import annotations

import array
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runnel_client.errors import Aborted, CallError
from runnel_client.results import Finished, Run, Started, finished_of, started_of


@dataclass
class Place:
    """The progress of a sample."""

    position: int  # of its next value
    characters: int = 0  # of text so far
    checksum: int = 0  # of the values so far

    def pass_by(self, values: Sequence[int]) -> None:
        self.position += len(values)
        self.checksum = zlib.crc32(array.array("i", values).tobytes(), self.checksum)


class Received:
    """The state of one call over all of its attempts."""

    def __init__(self, samples: int) -> None:
        """`samples`: how many the request asks for; 0 is one."""
        self._samples = max(samples, 1)
        self.started: Started | None = None
        self.finished: dict[int, Finished] = {}  # by sample
        self._given: dict[int, Place] = {}  # the values that the caller already has, by sample
        self._again: dict[int, Place] = {}  # the values that this attempt has received, by sample

    def begin_attempt(self) -> None:
        self._again = {}

    def take(self, response: Any) -> list[Run]:
        """The new runs of a response. Raises Aborted if they do not continue the earlier ones."""
        if response.HasField("started"):
            self._start(started_of(response.started))
        elif response.HasField("finished"):
            self._finish(response.finished.sample, finished_of(response.finished))
        return [new for run in response.values.runs if (new := self._new_part(run))]

    def check_end(self) -> None:
        """CallError if the stream has ended before one of its samples."""
        missing = next((sample for sample in range(self._samples) if sample not in self.finished), None)
        if missing is not None:
            said = f"the server ended the call before sample {missing} ended; is it a server of runnel?"
            raise CallError(said, "INTERNAL")

    def _start(self, started: Started) -> None:
        if self.started not in (None, started):
            raise Aborted(
                f"the stream broke off, and what goes on is another one: it began as {self.started}, and now as "
                f"{started}; make the call again as a new one"
            )
        self.started = started

    def _finish(self, sample: int, finished: Finished) -> None:
        given, again = self._given.get(sample), self._again.get(sample)
        # A sample that is made again within max_time may not come as far as it did before.
        if given != again and finished.reason != "TIME":
            raise _differs(sample)
        self.finished.setdefault(sample, finished)

    def _new_part(self, run: Any) -> Run | None:
        if not 0 <= run.sample < self._samples:
            said = f"the server sent sample {run.sample}, and the call has {self._samples}, from 0 on"
            raise CallError(f"{said}; is it a server of runnel?", "INTERNAL")
        given = self._given.setdefault(run.sample, Place(run.position))
        again = self._again.setdefault(run.sample, Place(run.position))
        values = list(run.values)
        if values and run.position != again.position:
            raise Aborted(f"sample {run.sample} has a gap: position {again.position} is followed by {run.position}")
        known = min(max(given.position - again.position, 0), len(values))
        again.pass_by(values[:known])
        if again.position >= given.position and again != Place(given.position, again.characters, given.checksum):
            raise _differs(run.sample)
        new = values[known:]
        again.pass_by(new)
        given.pass_by(new)
        text = run.text[max(given.characters - again.characters, 0) :]
        again.characters += len(run.text)
        given.characters += len(text)
        if not new and not text:
            return None
        return Run(
            run.sample,
            run.position + known,
            new,
            list(run.log_probs[known:]),
            text,
            [[(one.value, one.log_prob) for one in top.top] for top in run.top_log_probs[known:]],
        )


def _differs(sample: int) -> Aborted:
    return Aborted(
        f"the stream broke off, and sample {sample} is not the same when it is made again: has the session or the "
        "model changed? make the call again as a new one"
    )


class Progress:
    """The progress of a call."""

    def __init__(self, request: Any):
        self._request, self._received = request, Received(request.samples)

    @property
    def request_id(self) -> str:
        """The id under which the call can be made again."""
        return str(self._request.request_id)

    @property
    def started(self) -> Started | None:
        """Session, seed and position at the beginning of the call; None before the first run has come."""
        return self._received.started

    @property
    def finished(self) -> dict[int, Finished]:
        """Why each sample ended and what it used, by sample; a sample that still runs is not in it."""
        return self._received.finished
