"""Calls to a runnel server. `runnel_client.aio` has the same for asyncio."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import numpy.typing as npt

from runnel_client import messages, pictures, results, wire
from runnel_client.access import Access
from runnel_client.errors import AlreadyExists, CallError, NotFound, call_error
from runnel_client.pictures import Picture
from runnel_client.received import Progress, Received
from runnel_client.results import Model, Run, Sample, Score, SessionInfo
from runnel_client.retry import Retry, Tries
from runnel_client.wire import Options, Prompt

if TYPE_CHECKING:
    import PIL.Image
    from typing_extensions import Unpack

T = TypeVar("T")

SHORT = 30.0  # seconds that a call may take that computes nothing


class Client:
    """A server, and the calls to it. Threads may share it. A block `with Client(...)` closes it at its end."""

    def __init__(
        self,
        address: str = "127.0.0.1:50051",
        *,
        access: Access | None = None,
        retry: Retry | None = None,
        timeout: float = 3600,
    ):
        """Nothing is connected yet.

        `access`: certificates and key; default: as the environment says (RUNNEL_TLS_CA, RUNNEL_API_KEY_FILE and so on).
        `timeout`: seconds that a call may take, all attempts together, where it has none of its own.
        """
        access = access or Access.from_environment()
        self._metadata = access.metadata(address)
        self._channel = access.channel(address, wire.CHANNEL_OPTIONS)
        self._methods = wire.Methods(self._channel)
        self._retry, self._timeout, self._closed = retry or Retry(), timeout, threading.Event()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the calls that run, with Cancelled, and the connection."""
        self._closed.set()
        self._channel.close()

    def models(self) -> list[Model]:
        """The models that the server has and this caller may use."""
        found = self._unary(self._methods.list_models, messages.load("models").ListModelsRequest())
        return [results.model_of(model) for model in found.models]

    def model(self, name: str = "") -> Model:
        """One model. NotFound lists what there is."""
        request = messages.load("models").GetModelRequest(name=name)
        return results.model_of(self._unary(self._methods.get_model, request))

    def generate(self, prompt: Prompt | None = None, **options: Unpack[Options]) -> Generation:
        """Samples what comes after a prompt: text, or values as a list or an array."""
        return self._generate(prompt, "", options)

    def image(self, given: npt.ArrayLike | PIL.Image.Image | None = None, **options: Unpack[Options]) -> Picture:
        """Draws one picture, uint8 of (height, width), or (height, width, 3), below the rows that are given."""
        drawn: Picture = self.images(1, given, **options)[0]
        return drawn

    def images(
        self, count: int, given: npt.ArrayLike | PIL.Image.Image | None = None, **options: Unpack[Options]
    ) -> Picture:
        """Draws several pictures in one call: (count, height, width), or (count, height, width, 3)."""
        shape = wire.image_shape(self.model(options.get("model", "")))
        rows = pictures.first_rows(given, shape)
        all_options: Options = {**options, "samples": count}
        return pictures.put_together(rows, self._generate(rows, "", all_options), count, shape)

    def score(self, *chunks: Prompt, model: str = "", begin: bool | None = None, timeout: float | None = None) -> Score:
        """Log-probabilities of a sequence: text or values, in as many chunks as it has.

        Values may be any number; a chunk of text is as long as the server's `limits.text_bytes` allows, and becomes
        values by itself. `begin`: whether they come after the model's first value.
        """
        return self._score(wire.score_requests(chunks, model, "", begin), timeout)

    def session(self, id: str = "", model: str = "", keep: bool = False) -> Session:
        """Creates a session, which a `with` block deletes at its end unless it is to be kept.

        AlreadyExists where there is one of that id; an empty id is a new one.
        """
        request = messages.load("sessions").CreateSessionRequest(model=model, id=id or wire.new_id())
        tries = self._short_tries()
        try:
            created = self._unary(self._methods.create_session, request, request.id, tries)
        except AlreadyExists:
            session = self.open_session(request.id, model, keep)
            if tries.lost and session.is_new:
                return session  # made by an attempt whose answer was lost
            raise
        return Session(self, results.session_of(created), keep)

    def open_session(self, id: str, model: str = "", keep: bool = True) -> Session:
        """A session that exists. A `with` block deletes it only where it is not to be kept."""
        return Session(self, self._session_info(id, model), keep)

    def sessions(self, model: str = "") -> Iterator[SessionInfo]:
        """This caller's sessions of a model, by id."""
        token = ""
        while True:
            request = messages.load("sessions").ListSessionsRequest(model=model, page_token=token)
            page = self._unary(self._methods.list_sessions, request)
            yield from map(results.session_of, page.sessions)
            token = page.next_page_token
            if not token:
                return

    def _session_info(self, id: str, model: str) -> SessionInfo:
        request = messages.load("sessions").GetSessionRequest(model=model, id=id)
        return results.session_of(self._unary(self._methods.get_session, request, id))

    def _delete_session(self, id: str, model: str) -> None:
        request = messages.load("sessions").DeleteSessionRequest(model=model, id=id)
        tries = self._short_tries()
        try:
            self._unary(self._methods.delete_session, request, id, tries)
        except NotFound:
            if not tries.lost:  # else an attempt whose answer was lost has deleted it
                raise

    def _rewind_session(self, id: str, model: str, position: int) -> SessionInfo:
        request = messages.load("sessions").RewindSessionRequest(model=model, id=id, position=position)
        return results.session_of(self._unary(self._methods.rewind_session, request, id))

    def _fork_session(self, id: str, model: str, children: list[str]) -> list[SessionInfo]:
        request = messages.load("sessions").ForkSessionRequest(model=model, id=id, children=children)
        tries = self._short_tries()
        try:
            made = self._unary(self._methods.fork_session, request, id, tries)
        except AlreadyExists:
            if not tries.lost:  # else an attempt whose answer was lost has made them
                raise
            return [self._session_info(child, model) for child in children]
        return [results.session_of(session) for session in made.sessions]

    def _generate(self, prompt: Prompt | None, session: str, options: Options) -> Generation:
        request = wire.generate_request(prompt, session, options)
        return Generation(self, request, options.get("timeout", self._timeout), options.get("progress"))

    def _score(self, requests: list[Any], timeout: float | None, session: str = "") -> Score:
        def attempt(left: float) -> Score:
            call = self._methods.score(iter(requests), timeout=left, metadata=self._headers(session))
            try:
                return results.score_of(call)
            finally:
                call.cancel()

        return self._attempts(attempt, Tries(self._retry, self._timeout if timeout is None else timeout))

    def _headers(self, session: str) -> list[tuple[str, str]]:
        """What a call carries: the key, and for a proxy the session, all calls of which go to one server."""
        return [*self._metadata, ("x-session-id", session)] if session else self._metadata

    def _short_tries(self) -> Tries:
        return Tries(self._retry, min(SHORT, self._timeout))

    def _unary(self, method: Any, request: Any, session: str = "", tries: Tries | None = None) -> Any:
        return self._attempts(
            lambda left: method(request, timeout=left, metadata=self._headers(session)), tries or self._short_tries()
        )

    def _attempts(self, attempt: Callable[[float], T], tries: Tries) -> T:
        while True:
            try:
                return attempt(tries.left())
            except grpc.RpcError as error:
                self._pause(tries, error)

    def _pause(self, tries: Tries, error: grpc.RpcError) -> None:
        """Waits until the next attempt, or raises the exception for `error` where there is to be none."""
        failure = call_error(error.code().name, error.details() or "", error.trailing_metadata() or ())
        if self._closed.is_set():
            raise failure from None
        try:
            pause = tries.pause_after(failure)
        except CallError:
            raise failure from None
        if self._closed.wait(pause):
            raise call_error("CANCELLED", "the client was closed", ())


class Generation(Progress):
    """A stream of what a call samples. The call begins when the first run is asked for, and ends with the stream.

    It is made again where the server is full, or the connection lost, and goes on without gaps or repetitions.
    """

    def __init__(self, client: Client, request: Any, timeout: float, progress: Callable[[int], object] | None):
        super().__init__(request)
        self._runs = _receive(client, request, self._received, timeout, progress)

    def __iter__(self) -> Iterator[Run]:
        return self._runs

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the call where it still runs."""
        self._runs.close()

    def text(self) -> Iterator[str]:
        """The text of the one sample, piece by piece."""
        wire.check_one_sample(self._request)
        return (run.text for run in self if run.text)

    def values(self) -> Iterator[int]:
        """The values of the one sample."""
        wire.check_one_sample(self._request)
        return (value for run in self for value in run.values)

    def samples(self) -> list[Sample]:
        """Reads to the end, and joins what has come since the last reading to one Sample for each."""
        runs = list(self)
        return results.samples_of(runs, self.finished, max(self._request.samples, 1))


class Session:
    """A named state on the server. Calls from it go on where the last one ended."""

    def __init__(self, client: Client, info: SessionInfo, keep: bool):
        self._client = client
        self.id, self.model = info.id, info.model
        self.is_new = info.state == "NEW"  # had taken no values when it was opened
        self.keep = keep  # whether it is to outlive a `with` block

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.keep:
            return
        # An error of the block is told rather than what follows from it.
        with contextlib.suppress(CallError if kind else NotFound):
            self.delete()

    def info(self) -> SessionInfo:
        """The session as it is now."""
        return self._client._session_info(self.id, self.model)

    def delete(self) -> None:
        """Ends the session. A call that runs on it ends with Aborted."""
        self._client._delete_session(self.id, self.model)

    def fork(self, count: int = 1, keep: bool = False) -> list[Session]:
        """Makes `count` sessions that stand where this one stands, which stays. Each is as Client.session makes one."""
        children = [wire.new_id() for _ in range(count)]
        made = self._client._fork_session(self.id, self.model, children)
        return [Session(self._client, info, keep) for info in made]

    def rewind(self, position: int) -> SessionInfo:
        """Has the session stand at an earlier position, as if it had stopped there.

        FailedPrecondition where the server was started without --rewind; OutOfRange names the oldest position.
        """
        return self._client._rewind_session(self.id, self.model, position)

    def generate(self, prompt: Prompt | None = None, **options: Unpack[Options]) -> Generation:
        """As Client.generate, from where the session stands. With one sample the session goes on to its end."""
        all_options: Options = {**options, "model": self.model}
        return self._client._generate(prompt, self.id, all_options)

    def feed(self, prompt: Prompt, **options: Unpack[Options]) -> None:
        """Lets the session take text or values without sampling."""
        all_options: Options = {**options, "model": self.model, "max_values": 0}
        self._client._generate(prompt, self.id, all_options).samples()

    def score(self, *chunks: Prompt, timeout: float | None = None) -> Score:
        """As Client.score, from where the session stands, which stays as it was."""
        return self._client._score(wire.score_requests(chunks, self.model, self.id, None), timeout, self.id)


def _receive(
    client: Client, request: Any, received: Received, timeout: float, progress: Callable[[int], object] | None
) -> Generator[Run, None, None]:
    """The runs of a Generation. Knows nothing of it, so that the call ends as soon as nobody holds it any more."""
    tries, headers = Tries(client._retry, timeout), client._headers(request.origin.session)
    if wire.lacks_position(request):
        request.expected_position = _settled_position(client, request)
    while True:
        received.begin_attempt()
        call = client._methods.generate(request, timeout=tries.left(), metadata=headers)
        try:
            for response in call:
                for run in received.take(response):
                    tries.progressed()
                    if progress:
                        progress(len(run.values))
                    yield run
            return
        except grpc.RpcError as error:
            client._pause(tries, error)
        finally:
            call.cancel()


def _settled_position(client: Client, request: Any) -> int:
    """Where the session stands, once a call that was cancelled has let go of it."""
    for pause in wire.SETTLING:
        info = client._session_info(request.origin.session, request.model)
        if info.state not in wire.BUSY:
            break
        time.sleep(pause)
    return info.position
