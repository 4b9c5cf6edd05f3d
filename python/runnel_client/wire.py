"""Requests from plain arguments, and the methods of a channel."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel_client import messages
from runnel_client.conversation import set_conversation
from runnel_client.errors import CallError
from runnel_client.options import CONVERSATION, Options
from runnel_client.results import Model

Prompt = npt.ArrayLike  # text, or values: a list or an array of integers of any shape
CHUNK = 65536  # values in one message of Score
FILE_PIECE = 65536  # bytes of a state file in one message of ImportSession
LONGEST = 315_576_000_000  # seconds of protobuf's Duration
FILE_BYTES = 1 << 36  # of a state file that a server sends
PAGES = 10_000  # pages that a list of sessions may have

CHANNEL_OPTIONS: list[tuple[str, str | int]] = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 1 << 26),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.keepalive_time_ms", 30_000),  # detects a connection that has died silently
    ("grpc.keepalive_timeout_ms", 20_000),
]

SETTLING = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # seconds to wait for the end of a call that was cancelled


SAMPLING = (
    "seed", "temperature", "top_k", "top_p", "min_p", "greedy", "repetition_penalty", "presence_penalty",
    "frequency_penalty",
)  # fmt: skip
PLAIN = (
    "samples", "max_values", "ignore_eos", "top_log_probs", "keep", "begin", "expected_position", "include_state",
)  # fmt: skip


class Methods:
    """The RPCs of a channel, of grpc or of grpc.aio."""

    def __init__(self, channel: Any):
        inference, models, sessions = (messages.load(name) for name in ("inference", "models", "sessions"))

        def method(kind: str, path: str, request: Any, response: Any) -> Any:
            return getattr(channel, kind)(
                f"/runnel.v1.{path}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )

        def unary(path: str, module: Any, response: str) -> Any:
            request = path.split("/")[1] + "Request"
            return method("unary_unary", path, getattr(module, request), getattr(module, response))

        self.generate = method(
            "unary_stream", "Inference/Generate", inference.GenerateRequest, inference.GenerateResponse
        )
        self.score = method("stream_stream", "Inference/Score", inference.ScoreRequest, inference.ScoreResponse)
        self.list_models = unary("Models/ListModels", models, "ListModelsResponse")
        self.get_model = unary("Models/GetModel", models, "ModelInfo")
        self.create_session = unary("Sessions/CreateSession", sessions, "Session")
        self.get_session = unary("Sessions/GetSession", sessions, "Session")
        self.list_sessions = unary("Sessions/ListSessions", sessions, "ListSessionsResponse")
        self.delete_session = unary("Sessions/DeleteSession", sessions, "DeleteSessionResponse")
        self.fork_session = unary("Sessions/ForkSession", sessions, "ForkSessionResponse")
        self.rewind_session = unary("Sessions/RewindSession", sessions, "Session")
        self.list_states = unary("Sessions/ListStates", sessions, "ListStatesResponse")
        self.export_session = method(
            "unary_stream", "Sessions/ExportSession", sessions.ExportSessionRequest, sessions.ExportSessionResponse
        )
        self.import_session = method(
            "stream_unary", "Sessions/ImportSession", sessions.ImportSessionRequest, sessions.Session
        )


def new_id() -> str:
    """A random id for a session or a call that its caller has not named."""
    return secrets.token_hex(16)


def generate_request(prompt: Prompt | None, session: str, options: Options) -> Any:
    """A GenerateRequest. TypeError for an unknown option, a prompt that is neither text nor values, or two prompts."""
    unknown = sorted(set(options) - set(Options.__annotations__))
    if unknown:
        raise TypeError(f"generate() has no option {unknown[0]!r}; it has {', '.join(Options.__annotations__)}")
    given: Mapping[str, Any] = {name: value for name, value in options.items() if value is not None}
    request = messages.inference().GenerateRequest(
        model=given.get("model", ""), request_id=given.get("request_id") or new_id()
    )
    _set_prompt(request, prompt)
    if any(name in given for name in CONVERSATION):
        if prompt is not None or "messages" not in given:
            raise TypeError("generate() takes a prompt, or messages with their tools, variables and continues")
        set_conversation(
            request.conversation,
            given["messages"],
            given.get("tools", ()),
            given.get("variables", {}),
            given.get("continues", False),
        )
    _set_origin(request, session, given.get("state", ""), given.get("token", b""))
    for name in PLAIN:
        if name in given:
            setattr(request, name, given[name])
    for name in SAMPLING:
        if name in given:
            setattr(request.sampling, name, given[name])
    if "logit_bias" in given:
        request.sampling.logit_bias.update(given["logit_bias"])
    stops = given.get("stop", ())
    for stop in [stops] if isinstance(stops, str) else stops:
        if isinstance(stop, str):
            request.stop_text.append(stop)
        else:
            request.stop.add().values.extend(values_of(stop))
    if "max_time" in given:
        _set_duration(request.max_time, "max_time", given["max_time"])
    if "max_queue_time" in given:
        _set_duration(request.max_queue_time, "max_queue_time", given["max_queue_time"])
    if "values_per_message" in given:
        request.delivery.max_values = given["values_per_message"]
    if "message_delay" in given:
        _set_duration(request.delivery.max_delay, "message_delay", given["message_delay"])
    return request


def score_requests(
    chunks: Sequence[Prompt],
    model: str,
    session: str = "",
    state: str = "",
    begin: bool | None = None,
    keep: bool = False,
    max_queue_time: float | None = None,
    expected_position: int | None = None,
) -> list[Any]:
    """The messages of a Score call; values are cut into messages that a server takes."""
    requests = []
    for part in (part for chunk in chunks for part in _parts(chunk)):
        request = messages.inference().ScoreRequest()
        _set_prompt(request, part)
        requests.append(request)
    if not requests:
        raise ValueError("score() needs a sequence of at least one value")
    first = requests[0]
    first.model, first.keep = model, keep
    _set_origin(first, session, state)
    if begin is not None:
        first.begin = begin
    if expected_position is not None:
        first.expected_position = expected_position
    if max_queue_time is not None:
        _set_duration(first.max_queue_time, "max_queue_time", max_queue_time)
    return requests


def export_request(id: str, model: str, any_owner: bool, expires_in: float | None) -> Any:
    """An ExportSessionRequest."""
    request = messages.load("sessions").ExportSessionRequest(model=model, id=id, any_owner=any_owner)
    if expires_in is not None:
        _set_duration(request.expires_in, "expires_in", expires_in)
    return request


def add_piece(file: bytearray, piece: bytes) -> None:
    """Appends the next piece of a state file. CallError if the server sends more than any state has."""
    if len(file) + len(piece) > FILE_BYTES:
        raise CallError(f"the server sent a state file of more than {FILE_BYTES:,} bytes", "INTERNAL")
    file += piece


def import_requests(data: bytes, model: str, id: str, allow_inexact: bool) -> Iterator[Any]:
    """The messages that make a session of a state file.

    TypeError for an argument of another type. If an iterator raised it, gRPC would end the call with UNKNOWN.
    """
    kind = messages.load("sessions").ImportSessionRequest
    first = kind()
    first.target.model, first.target.id, first.target.allow_inexact = model, id, allow_inexact
    pieces = (kind(data=data[start : start + FILE_PIECE]) for start in range(0, len(data), FILE_PIECE))
    return itertools.chain([first], pieces)


def next_token(page: Any, token: str, pages: int) -> str:
    """The token of the page after the page of `token`, which is the `pages`th; "" if that is the last page.

    CallError if the server names pages without end.
    """
    following: str = page.next_page_token
    if following and following == token:
        raise CallError("the server's list of sessions has no end: a page names itself as the next one", "INTERNAL")
    if following and pages >= PAGES:
        raise CallError(f"the server's list of sessions has more than {PAGES:,} pages", "INTERNAL")
    return following


def values_of(prompt: Prompt) -> list[int]:
    """The values of a list or an array of integers, in reading order."""
    values = np.asarray(prompt)
    if values.size and values.dtype.kind not in "iu":
        raise TypeError(f"expected text or integers, found {values.dtype}: {str(prompt)[:40]!r}")
    found: list[int] = values.ravel().tolist()
    return found


def lacks_position(request: Any, options: Options) -> bool:
    """Whether the client must send the session's position, because the caller has not set expected_position."""
    return bool(request.origin.session) and "expected_position" not in options


def is_repeatable(first: Any) -> bool:
    """Whether a Score call can be made again although its first attempt may have taken effect.

    With a position it can: if the session has taken the values in, it is elsewhere, and the server refuses.
    """
    return not first.keep or bool(first.HasField("expected_position"))


def check_one_sample(request: Any) -> None:
    """ValueError for a call of several samples, whose values come mixed."""
    if request.samples > 1:
        raise ValueError(f"the call has {request.samples} samples: iterate over its runs, or take samples()")


def check_count(count: int) -> None:
    """ValueError unless there are pictures to draw."""
    if count < 1:
        raise ValueError(f"expected a count of pictures of at least 1, found {count}")


def image_shape(model: Model) -> tuple[int, int, int]:
    """Height, width and channels of a model's pictures."""
    if model.image is None:
        raise ValueError(f"model '{model.name}' has symbols, not pictures: use generate()")
    return model.image


def _parts(chunk: Prompt) -> Iterator[Prompt]:
    if isinstance(chunk, str):
        yield chunk
        return
    values = values_of(chunk)
    for start in range(0, len(values), CHUNK):
        yield values[start : start + CHUNK]


def _set_prompt(request: Any, prompt: Prompt | None) -> None:
    if isinstance(prompt, str):
        request.text = prompt
    elif prompt is not None:
        request.values.values.extend(values_of(prompt))


def _set_origin(request: Any, session: str, state: str, token: bytes = b"") -> None:
    given = {"session": session, "state": state, "token": token}
    names = [name for name, value in given.items() if value]
    if len(names) > 1:
        raise TypeError(f"a call starts from one of session, state and token, found {' and '.join(names)}")
    for name in names:
        setattr(request.origin, name, given[name])


def _set_duration(duration: Any, name: str, seconds: float) -> None:
    """Sets the field of an option. ValueError for a number that no Duration can have, such as infinity."""
    if not abs(seconds) <= LONGEST:
        raise ValueError(f"{name} is {seconds}; expected at most {LONGEST:,} seconds; leave it out for the default")
    duration.FromNanoseconds(round(seconds * 1e9))
