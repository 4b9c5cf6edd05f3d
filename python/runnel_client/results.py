"""The results of calls: plain data, without gRPC."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel_client.errors import CallError


@dataclass(frozen=True)
class Started:
    """The beginning of a Generate call."""

    session: str  # id of the session that keeps the sequence; empty: none does
    seed: int
    position: int  # of the call's first value, given or sampled
    numerics: str  # the numerics id; together with model, prompt, options and seed it determines every bit


@dataclass(frozen=True)
class Run:
    """Values of one sample at consecutive positions."""

    sample: int
    position: int  # of values[0]
    values: list[int]
    log_probs: list[float]  # natural log, one for each value
    text: str  # the characters that these values complete, if the model has text
    top_log_probs: list[
        list[tuple[int, float]]
    ]  # for each value (value, log_prob), most likely first; empty without the option


@dataclass(frozen=True)
class Finished:
    """The end of a sample."""

    reason: str  # LENGTH, STOP, END, TIME, EOS
    prompt_values: int
    sampled_values: int
    position: int  # of the sequence's next value
    elapsed: float  # seconds
    token: bytes = b""  # the state after the last value, if the call had include_state
    cached_values: int = 0  # how many of prompt_values this call did not read, because a state after them was kept


@dataclass
class Sample:
    """All runs of one sample."""

    position: int = 0  # of values[0]
    values: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    text: str = ""
    top_log_probs: list[list[tuple[int, float]]] = field(default_factory=list)
    finished: Finished | None = None


@dataclass(frozen=True)
class Score:
    """Log-probabilities of a sequence."""

    position: int  # of log_probs[0]
    log_probs: npt.NDArray[np.float32]  # natural log; a first value that is not predicted has none
    log_prob: float  # their sum, in double precision
    bits_per_dim: float
    numerics: str


@dataclass(frozen=True)
class Model:
    """A model that a server has."""

    name: str
    spec_json: str  # the bundle's config.json, normalized
    parameters: int
    state_bytes: int  # of one session
    sessions: int  # capacity
    sessions_free: int
    backend: str
    numerics: str
    weight_digest: str  # SHA-256 of the weights' file
    vocabulary: int
    max_length: int  # maximum number of values of a sequence; 0: no limit
    image: tuple[int, int, int] | None  # height, width, channels; None: a sequence of symbols
    symbols: list[str]
    has_begin: bool  # the model gives a first value, so that no prompt is needed
    head: str
    has_text: bool  # prompts, results and stops can be text
    aliases: list[str]  # other names by which calls find it
    chat: str = ""  # the name of its chat template; empty: it does not support conversations
    no_chat: str = ""  # the reason why it does not, if the server reports one
    position_bytes: int = 0  # the part of state_bytes for each position; 0: a state does not grow


@dataclass(frozen=True)
class SessionInfo:
    """A session as it is now."""

    id: str
    model: str
    position: int  # of its next value
    state: str  # NEW, PROMPTING, GENERATING, MOVING, IDLE
    state_bytes: int
    idle: float  # seconds


@dataclass(frozen=True)
class StoredState:
    """A state from which sequences can start, by name."""

    name: str
    position: int  # of the next value
    numerics: str  # the numerics id with which it was computed


def started_of(message: Any) -> Started:
    return Started(message.session, message.seed, message.position, message.numerics)


def finished_of(message: Any) -> Finished:
    usage = message.usage
    return Finished(
        _name_of(message.Reason, message.reason),
        usage.prompt_values,
        usage.sampled_values,
        usage.position,
        seconds_of(usage.elapsed),
        message.token,
        usage.cached_values,
    )


def _name_of(kind: Any, number: int) -> str:
    """The name of a value of an enum, or its number: a newer server may know more values."""
    return str(kind.Name(number)) if number in kind.values() else str(number)


def seconds_of(duration: Any) -> float:
    return float(duration.seconds + duration.nanos * 1e-9)


def score_of(responses: Iterable[Any]) -> Score:
    """Joins all messages of a Score call to one Score."""
    position: int | None = None
    log_probs: list[float] = []
    total: Any = None
    for response in responses:
        if response.HasField("total"):
            total = response.total
        elif response.chunk.log_probs:
            position = response.chunk.position if position is None else position
            log_probs.extend(response.chunk.log_probs)
    if total is None:
        raise CallError("the server ended the call without a result; is it a server of runnel?", "INTERNAL")
    return Score(position or 0, np.array(log_probs, np.float32), total.log_prob, total.bits_per_dim, total.numerics)


def model_of(message: Any) -> Model:
    image = message.image
    return Model(
        name=message.name,
        spec_json=message.spec_json,
        parameters=message.parameters,
        state_bytes=message.state_bytes,
        sessions=message.sessions,
        sessions_free=message.sessions_free,
        backend=message.backend,
        numerics=message.numerics,
        weight_digest=message.weight_digest,
        vocabulary=message.vocabulary,
        max_length=message.max_length,
        image=(image.height, image.width, image.channels) if message.HasField("image") else None,
        symbols=list(message.symbols),
        has_begin=message.has_begin,
        head=message.head,
        has_text=message.has_text,
        aliases=list(message.aliases),
        chat=message.chat.template_name,
        no_chat=message.chat.missing,
        position_bytes=message.position_bytes,
    )


def session_of(message: Any) -> SessionInfo:
    return SessionInfo(
        message.id,
        message.model,
        message.position,
        _name_of(message.State, message.state),
        message.state_bytes,
        seconds_of(message.idle),
    )


def stored_of(message: Any) -> StoredState:
    return StoredState(message.name, message.position, message.numerics)


def samples_of(runs: Iterable[Run], finished: dict[int, Finished], count: int) -> list[Sample]:
    """Joins the runs of each of `count` samples."""
    samples = [Sample() for _ in range(count)]
    for run in runs:
        sample = samples[run.sample]
        if not sample.values:
            sample.position = run.position
        sample.values += run.values
        sample.log_probs += run.log_probs
        sample.top_log_probs += run.top_log_probs
        sample.text += run.text
    for index, sample in enumerate(samples):
        sample.finished = finished.get(index)
    return samples
