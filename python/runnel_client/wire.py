"""Requests from plain arguments, and the methods of a channel."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from runnel_client import messages
from runnel_client.results import Model

Prompt = npt.ArrayLike  # text, or values: a list or an array of integers of any shape
CHUNK = 65536  # values in one message of Score

CHANNEL_OPTIONS: list[tuple[str, str | int]] = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 1 << 26),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.keepalive_time_ms", 30_000),  # a connection that is dead without a word is noticed
    ("grpc.keepalive_timeout_ms", 20_000),
]

BUSY = ("PROMPTING", "GENERATING", "MOVING")  # a session that another call has
SETTLING = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # seconds to wait for the end of a call that was cancelled


class Options(TypedDict, total=False):
    """The options of `generate`. Each that is left out is as docs/api.md says of the field of its name."""

    model: str  # which model; empty: the only one
    samples: int  # independent continuations of the prompt
    max_values: int  # values to sample, at most; 0: only feed the prompt
    max_time: float  # seconds after which every sample ends
    max_queue_time: float  # seconds that the call may wait in the server for a free state
    seed: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    greedy: bool
    stop: Sequence[str | Sequence[int]]  # texts or sequences of values that end a sample
    ignore_eos: bool
    top_log_probs: int  # the most likely values at each position, this many
    keep: bool  # whether the sequence goes on: in the session, or as a new one that `started` names
    begin: bool  # whether the prompt comes after the model's first value
    expected_position: int  # Aborted if the sequence stands elsewhere
    request_id: str  # names the call, so that it can be made again; default: a random one
    values_per_message: int
    message_delay: float  # seconds that a value may wait for others
    timeout: float  # seconds that the call may take, all attempts together; default: the client's
    progress: Callable[[int], object]  # called with how many values have come, as `tqdm.update` takes it


SAMPLING = ("seed", "temperature", "top_k", "top_p", "min_p", "greedy")
PLAIN = (
    "samples", "max_values", "ignore_eos", "top_log_probs", "keep", "begin", "expected_position",
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


def new_id() -> str:
    """For a session or a call that its caller has not named."""
    return secrets.token_hex(16)


def generate_request(prompt: Prompt | None, session: str, options: Options) -> Any:
    """A GenerateRequest. TypeError for an unknown option, and for a prompt that is neither text nor values."""
    unknown = sorted(set(options) - set(Options.__annotations__))
    if unknown:
        raise TypeError(f"generate() has no option {unknown[0]!r}; it has {', '.join(Options.__annotations__)}")
    given: Mapping[str, Any] = options
    request = messages.inference().GenerateRequest(
        model=options.get("model", ""), request_id=options.get("request_id") or new_id()
    )
    _set_start(request, prompt, session)
    for name in PLAIN:
        if name in given:
            setattr(request, name, given[name])
    for name in SAMPLING:
        if name in given:
            setattr(request.sampling, name, given[name])
    for stop in options.get("stop", ()):
        if isinstance(stop, str):
            request.stop_text.append(stop)
        else:
            request.stop.add().values.extend(values_of(stop))
    if "max_time" in options:
        _set_duration(request.max_time, options["max_time"])
    if "max_queue_time" in options:
        _set_duration(request.max_queue_time, options["max_queue_time"])
    if "values_per_message" in options:
        request.delivery.max_values = options["values_per_message"]
    if "message_delay" in options:
        _set_duration(request.delivery.max_delay, options["message_delay"])
    return request


def score_requests(chunks: Sequence[Prompt], model: str, session: str, begin: bool | None) -> list[Any]:
    """The messages of a Score call; values are cut into messages that a server takes."""
    requests = []
    for part in (part for chunk in chunks for part in _parts(chunk)):
        request = messages.inference().ScoreRequest()
        _set_start(request, part, "")
        requests.append(request)
    if not requests:
        raise ValueError("score() needs a sequence of at least one value")
    requests[0].model = model
    if session:
        requests[0].origin.session = session
    if begin is not None:
        requests[0].begin = begin
    return requests


def values_of(prompt: Prompt) -> list[int]:
    """The values of a list or an array of integers, in reading order."""
    values = np.asarray(prompt)
    if values.size and values.dtype.kind not in "iu":
        raise TypeError(f"expected text or integers, found {values.dtype}: {str(prompt)[:40]!r}")
    found: list[int] = values.ravel().tolist()
    return found


def lacks_position(request: Any) -> bool:
    """Whether a session may change between the attempts at this call without the call noticing."""
    return bool(request.origin.session) and not request.HasField("expected_position")


def check_one_sample(request: Any) -> None:
    """ValueError for a call of several samples, whose values come mixed."""
    if request.samples > 1:
        raise ValueError(f"the call has {request.samples} samples: iterate over its runs, or take samples()")


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


def _set_start(request: Any, prompt: Prompt | None, session: str) -> None:
    if session:
        request.origin.session = session
    if isinstance(prompt, str):
        request.text = prompt
    elif prompt is not None:
        request.values.values.extend(values_of(prompt))


def _set_duration(duration: Any, seconds: float) -> None:
    duration.FromNanoseconds(round(seconds * 1e9))
