"""Calls to a runnel server. `runnel_client.aio` has the same for asyncio."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from runnel_client import address as addresses
from runnel_client import command, files

with command.installed():
    import google.protobuf  # noqa: F401
    import grpc
    import numpy.typing as npt

from runnel_client import messages, pictures, results, silence, wire
from runnel_client.access import Access
from runnel_client.door import Door
from runnel_client.errors import AlreadyExists, CallError, NotFound, call_error
from runnel_client.fault import failure_of
from runnel_client.known import BUSY, LAST_KNOWN, Known
from runnel_client.options import CONVERSATION, Options, takes_options
from runnel_client.pictures import Picture
from runnel_client.received import Progress, Received
from runnel_client.results import Model, Run, Sample, Score, SessionInfo, StoredState
from runnel_client.retry import Retry, Tries
from runnel_client.wire import Prompt

if TYPE_CHECKING:
    import PIL.Image
    from typing_extensions import Unpack

T = TypeVar("T")

SHORT = 30.0  # maximum seconds of a call that computes nothing


class Client:
    """Calls to a server. Threads may share a client. `with Client(...) as client` closes it at the end of the block."""

    def __init__(
        self,
        address: str = "127.0.0.1:50051",
        *,
        access: Access | None = None,
        retry: Retry | None = None,
        timeout: float = 3600,
        http: str = "",
    ):
        """Connects when the first call is made. AccessError if the address or `access` cannot be used.

        `address`: host:port of the server, or one of gRPC's own forms, as unix:/run/runnel.sock.
        `access`: certificates and key; default: from the environment (RUNNEL_TLS_CA, RUNNEL_API_KEY_FILE and so on).
        `retry`: how often a call that failed is made again.
        `timeout`: seconds that a call may take, all attempts together, if it has no timeout of its own.
        `http`: the server's HTTP port, as http://127.0.0.1:8000, which tokenize() and detokenize() call.
        """
        addresses.check(address)
        self._address, self._access = address, access or Access.from_environment()
        self._metadata = self._access.metadata(address)
        self._channel = self._access.channel(address, wire.CHANNEL_OPTIONS)
        self._methods = wire.Methods(self._channel)
        self._door = Door(http, self._access)
        self._retry, self._timeout, self._closed = retry or Retry(), timeout, threading.Event()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Calls that run fail with Cancelled."""
        self._closed.set()
        self._channel.close()

    def models(self) -> list[Model]:
        """The models of the server that this caller may use."""
        found = self._unary(self._methods.list_models, messages.load("models").ListModelsRequest())
        return [results.model_of(model) for model in found.models]

    def model(self, name: str = "") -> Model:
        """One model, by name or alias. NotFound lists the names that exist."""
        return self._model(name)

    @takes_options()
    def generate(self, prompt: Prompt | None = None, **options: Unpack[Options]) -> Generation:
        """Continues a prompt: text, or values as a list or an array; or, with `messages`, answers a conversation.

        The call begins when the stream is first read.
        """
        return self._generate(prompt, "", options)

    @takes_options("samples", *CONVERSATION)
    def image(self, given: npt.ArrayLike | PIL.Image.Image | None = None, **options: Unpack[Options]) -> Picture:
        """Draws one picture below the given rows: uint8 of shape (height, width), or (height, width, 3)."""
        drawn: Picture = self.images(1, given, **options)[0]
        return drawn

    @takes_options("samples", *CONVERSATION)
    def images(
        self, count: int, given: npt.ArrayLike | PIL.Image.Image | None = None, **options: Unpack[Options]
    ) -> Picture:
        """Draws several pictures in one call: uint8 of shape (count, height, width), or (count, height, width, 3)."""
        wire.check_count(count)
        tries = self._tries(options.get("timeout"))
        shape = wire.image_shape(self._model(options.get("model") or "", tries))
        rows = pictures.first_rows(given, shape)
        all_options: Options = {**options, "samples": count, "timeout": tries.left()}
        return pictures.put_together(rows, self._generate(rows, "", all_options), count, shape)

    def score(
        self,
        *chunks: Prompt,
        model: str = "",
        state: str = "",
        begin: bool | None = None,
        max_queue_time: float | None = None,
        timeout: float | None = None,
    ) -> Score:
        """Log-probabilities of a sequence: text or values, in one or several chunks.

        The chunks may hold any number of values together; a chunk of text may be as long as the server's
        `limits.text_bytes`, and is tokenized by itself. `state`: scores what comes after this stored state. `begin`:
        whether the model's first value comes before them. `max_queue_time`: seconds that the call may wait in the
        server for a free state; without it, the server decides.
        """
        requests = wire.score_requests(chunks, model, state=state, begin=begin, max_queue_time=max_queue_time)
        return self._score(requests, timeout)

    def session(self, id: str = "", model: str = "", keep: bool = False) -> Session:
        """Creates a session. A `with` block deletes it at its end unless `keep`.

        AlreadyExists if there is a session of that id. Without an id the session gets a random one.
        """
        request = messages.load("sessions").CreateSessionRequest(model=model, id=id or wire.new_id())
        tries = self._short_tries()
        try:
            created = self._unary(self._methods.create_session, request, request.id, tries)
        except AlreadyExists:
            if tries.lost:
                session = self.open_session(request.id, model, keep)
                if session.is_new:
                    return session  # made by an attempt whose answer was lost
            raise
        return Session(self, results.session_of(created), keep)

    def open_session(self, id: str, model: str = "", keep: bool = True) -> Session:
        """Opens a session that exists. A `with` block deletes it at its end only with keep=False."""
        return Session(self, self._session_info(id, model), keep)

    def sessions(self, model: str = "") -> Iterator[SessionInfo]:
        """This caller's sessions of a model, in the order of their ids."""
        token = ""
        for pages in itertools.count(1):
            request = messages.load("sessions").ListSessionsRequest(model=model, page_token=token)
            page = self._unary(self._methods.list_sessions, request)
            yield from map(results.session_of, page.sessions)
            token = wire.next_token(page, token, pages)
            if not token:
                return

    def load_session(
        self,
        file: str | os.PathLike[str] | bytes,
        id: str = "",
        model: str = "",
        keep: bool = False,
        allow_inexact: bool = False,
        timeout: float | None = None,
    ) -> Session:
        """Makes a session from a state file: its path, or its bytes. The model must be the one that computed the state.

        `allow_inexact`: also accepts a state of another numerics id. Later values then have other bits.
        """
        data = file if isinstance(file, bytes) else files.read(file)
        return Session(self, self._import_session(data, model, id, allow_inexact, timeout), keep)

    def states(self, model: str = "") -> list[StoredState]:
        """The server's stored states of a model, by name. `generate` and `score` start from one with state=NAME."""
        request = messages.load("sessions").ListStatesRequest(model=model)
        return [results.stored_of(one) for one in self._unary(self._methods.list_states, request).states]

    def tokenize(self, text: str, model: str = "") -> list[int]:
        """The values of a text, by the model's tokenizer. Needs Client(http=...)."""
        body = {"model": model, "prompt": text}
        found: list[int] = self._door.post("/tokenize", body, self._short_time(), "tokens", list)
        return found

    def detokenize(self, values: npt.ArrayLike, model: str = "") -> str:
        """The text of values. Bytes that are no characters become U+FFFD. Needs Client(http=...)."""
        body = {"model": model, "tokens": wire.values_of(values)}
        found: str = self._door.post("/detokenize", body, self._short_time(), "prompt", str)
        return found

    def _model(self, name: str, tries: Tries | None = None) -> Model:
        request = messages.load("models").GetModelRequest(name=name)
        return results.model_of(self._unary(self._methods.get_model, request, tries=tries))

    def _session_info(self, id: str, model: str, tries: Tries | None = None) -> SessionInfo:
        request = messages.load("sessions").GetSessionRequest(model=model, id=id)
        return results.session_of(self._unary(self._methods.get_session, request, id, tries))

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

    def _export_session(self, request: Any, timeout: float | None) -> bytes:
        def attempt(left: float) -> bytes:
            call, file = self._call(self._methods.export_session, request, left, request.id), bytearray()
            try:
                for piece in call:
                    wire.add_piece(file, piece.data)
            finally:
                call.cancel()
            return bytes(file)

        return self._attempts(attempt, self._tries(timeout))

    def _import_session(
        self, data: bytes, model: str, id: str, allow_inexact: bool, timeout: float | None
    ) -> SessionInfo:
        name, tries = id or wire.new_id(), self._tries(timeout)

        def attempt(left: float) -> Any:
            requests = wire.import_requests(data, model, name, allow_inexact)
            return self._call(self._methods.import_session, requests, left, name)

        try:
            return results.session_of(self._attempts(attempt, tries))
        except AlreadyExists:
            if id or not tries.lost:  # else an attempt whose answer was lost has made it
                raise
            return self._session_info(name, model)

    def _generate(
        self, prompt: Prompt | None, session: str, options: Options, known: Known | None = None
    ) -> Generation:
        request = wire.generate_request(prompt, session, options)
        return Generation(self, request, options, known)

    def _score(
        self, requests: list[Any], timeout: float | None, session: str = "", known: Known | None = None
    ) -> Score:
        tries = self._tries(timeout, known is not None or wire.is_repeatable(requests[0]))
        if known:
            requests[0].expected_position = _position(self, requests[0], known, tries)

        def attempt(left: float) -> Score:
            call = self._call(self._methods.score, iter(requests), left, session)
            try:
                return results.score_of(call)
            finally:
                call.cancel()

        return self._attempts(attempt, tries)

    def _headers(self, session: str) -> list[tuple[str, str]]:
        """The metadata of a call: the key, and the session's id, by which a proxy finds its server."""
        return [*self._metadata, ("x-session-id", session)] if session else self._metadata

    def _tries(self, timeout: float | None, repeatable: bool = True) -> Tries:
        return Tries(self._retry, self._timeout if timeout is None else timeout, repeatable=repeatable)

    def _short_tries(self) -> Tries:
        return Tries(self._retry, self._short_time())

    def _short_time(self) -> float:
        return min(SHORT, self._timeout)

    def _unary(self, method: Any, request: Any, session: str = "", tries: Tries | None = None) -> Any:
        return self._attempts(lambda left: self._call(method, request, left, session), tries or self._short_tries())

    def _call(self, method: Any, request: Any, left: float, session: str) -> Any:
        """Makes a call. Cancelled if another thread has closed the client: gRPC raises a bare ValueError then."""
        try:
            return method(request, timeout=left, metadata=self._headers(session))
        except ValueError:
            self._check_open()
            raise

    def _attempts(self, attempt: Callable[[float], T], tries: Tries) -> T:
        while True:
            self._check_open()
            try:
                return attempt(tries.left())
            except grpc.RpcError as error:
                self._pause(tries, error)

    def _pause(self, tries: Tries, error: grpc.RpcError) -> None:
        """Waits until the next attempt. Raises the exception for `error` if there is none."""
        failure = failure_of(error)
        if self._closed.is_set():
            raise failure from None
        try:
            pause = tries.pause_after(failure)
        except CallError:
            raise silence.explained(failure, self._address, self._access) from None
        self._closed.wait(pause)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise call_error("CANCELLED", "the client was closed", ()) from None


class Generation(Progress):
    """A stream of the values that a call samples. The call begins when the first run is read.

    If the server is full or the connection is lost, the call is made again, and the stream continues without gaps or
    repetitions. If you stop reading, the call is cancelled.
    """

    def __init__(self, client: Client, request: Any, options: Options, known: Known | None):
        super().__init__(request)
        self._runs = _receive(client, request, self._received, options, known)

    def __iter__(self) -> Iterator[Run]:
        return self._runs

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the call if it still runs. To be called by the thread that reads the stream."""
        self._runs.close()

    def text(self) -> Iterator[str]:
        """The text of the sample, piece by piece. ValueError if the call has several samples."""
        wire.check_one_sample(self._request)
        return (run.text for run in self if run.text)

    def values(self) -> Iterator[int]:
        """The values of the sample, one by one. ValueError if the call has several samples."""
        wire.check_one_sample(self._request)
        return (value for run in self for value in run.values)

    def samples(self) -> list[Sample]:
        """Reads the stream to its end, and joins its runs to one Sample for each sample."""
        runs = list(self)
        return results.samples_of(runs, self.finished, max(self._request.samples, 1))


class Session:
    """A named state on the server. Each call on it continues where the last one ended."""

    def __init__(self, client: Client, info: SessionInfo, keep: bool):
        self._client = client
        self.id, self.model = info.id, info.model
        self._known = Known(info)
        self.is_new = info.position == 0 and info.state not in BUSY  # had taken in no values when it was opened
        self.keep = keep  # whether it outlives a `with` block

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.keep:
            return
        # If the block has failed, its error is raised, and not an error of the deletion.
        with contextlib.suppress(CallError if kind else NotFound):
            self.delete()

    def info(self) -> SessionInfo:
        """The session as it is now. The next call expects it there."""
        info = self._client._session_info(self.id, self.model)
        self._known.note(info)
        return info

    def delete(self) -> None:
        """Deletes the session. A call that runs on it fails with Aborted."""
        self._client._delete_session(self.id, self.model)

    def fork(self, count: int = 1, keep: bool = False) -> list[Session]:
        """Makes `count` new sessions at this one's position. Use each like a session from Client.session."""
        children = [wire.new_id() for _ in range(count)]
        made = self._client._fork_session(self.id, self.model, children)
        return [Session(self._client, info, keep) for info in made]

    def rewind(self, position: int) -> SessionInfo:
        """Moves the session back to an earlier position, as if it had stopped there.

        FailedPrecondition if the server was started without --rewind. OutOfRange names the oldest possible position.
        """
        info = self._client._rewind_session(self.id, self.model, position)
        self._known.note(info)
        return info

    @takes_options("model", "state", "token", "include_state")
    def generate(self, prompt: Prompt | None = None, **options: Unpack[Options]) -> Generation:
        """As Client.generate, from the session's position. With one sample the session moves on, unless keep=False."""
        all_options: Options = {**options, "model": self.model}
        return self._client._generate(prompt, self.id, all_options, self._known)

    @takes_options("model", "state", "token", "include_state", "max_values", *CONVERSATION)
    def feed(self, prompt: Prompt, **options: Unpack[Options]) -> None:
        """Has the session take in text or values without sampling."""
        all_options: Options = {**options, "model": self.model, "max_values": 0}
        self._client._generate(prompt, self.id, all_options, self._known).samples()

    def score(
        self,
        *chunks: Prompt,
        keep: bool = False,
        timeout: float | None = None,
        expected_position: int | None = LAST_KNOWN,
    ) -> Score:
        """As Client.score, from the session's position.

        `keep`: the session takes the values in, and the next call continues after them. If the connection is lost and
        the session has taken some of them, the call ends with Aborted: info().position says how many.
        `expected_position`: Aborted unless the session is there; default: where its last call ended; None: no check.
        """
        known = self._known if expected_position == LAST_KNOWN else None
        expected = None if known else expected_position
        requests = wire.score_requests(chunks, self.model, self.id, keep=keep, expected_position=expected)
        score = self._client._score(requests, timeout, self.id, known)
        if keep:
            self._known.note_scored(score)
        return score

    def export(self, timeout: float | None = None, any_owner: bool = False, expires_in: float | None = None) -> bytes:
        """The session's state as the bytes of a state file (docs/state.md), at most 64 GiB. The session stays as it is.

        If the server seals files, only this caller may load the file, or with `any_owner` every caller; and only for
        `expires_in` seconds, if that is set.
        """
        request = wire.export_request(self.id, self.model, any_owner, expires_in)
        return self._client._export_session(request, timeout)

    def save(
        self,
        path: str | os.PathLike[str],
        timeout: float | None = None,
        any_owner: bool = False,
        expires_in: float | None = None,
    ) -> None:
        """Exports the state to a file that only its owner may read, because it is as private as the text."""
        files.write_private(path, self.export(timeout, any_owner, expires_in))


def _receive(
    client: Client, request: Any, received: Received, options: Options, known: Known | None
) -> Generator[Run, None, None]:
    """The runs of a Generation. Holds no reference to it, so that the call ends when the caller drops it."""
    tries = client._tries(options.get("timeout"))
    progress = options.get("progress")
    if known and wire.lacks_position(request, options):
        request.expected_position = _position(client, request, known, tries)
    with known.during(request, received) if known else contextlib.nullcontext():
        while True:
            client._check_open()
            received.begin_attempt()
            call = client._call(client._methods.generate, request, tries.left(), request.origin.session)
            try:
                for response in call:
                    for run in received.take(response):
                        tries.progressed()
                        if progress:
                            progress(len(run.values))
                        yield run
                received.check_end()
                return
            except grpc.RpcError as error:
                client._pause(tries, error)
            finally:
                call.cancel()


def _position(client: Client, request: Any, known: Known, tries: Tries) -> int:
    """The session's position. If it is unknown, waits a moment for a cancelled call that still holds the session."""
    if known.position is not None:
        return known.position
    for pause in wire.SETTLING:
        info = client._session_info(request.origin.session, request.model, tries)
        if info.state not in BUSY:
            break
        client._closed.wait(min(pause, tries.left()))
    known.position = info.position
    return info.position
