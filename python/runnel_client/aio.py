"""Calls to a runnel server for asyncio: the classes and methods of `runnel_client.client`, to be awaited."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from runnel_client import address as addresses
from runnel_client import command, files

with command.installed():
    import google.protobuf  # noqa: F401
    import grpc
    import numpy.typing as npt

from runnel_client import messages, pictures, results, silence, wire
from runnel_client.access import Access
from runnel_client.client import SHORT
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

__all__ = ["Client", "Generation", "Opening", "Session"]


class Client:
    """Calls to a server, from one event loop. `async with Client(...) as client` closes it at the end of the block.

    It can be made before the loop runs: it belongs to the loop of its first call.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:50051",
        *,
        access: Access | None = None,
        retry: Retry | None = None,
        timeout: float = 3600,
        http: str = "",
    ):
        """As runnel_client.Client."""
        addresses.check(address)
        self._address, self._access = address, access or Access.from_environment()
        self._metadata = self._access.metadata(address)
        self._access.credentials()  # wrong options show now, not at the first call
        self._channel: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._door = Door(http, self._access)
        self._retry, self._timeout, self._closed = retry or Retry(), timeout, asyncio.Event()
        self._streams: weakref.WeakSet[Any] = weakref.WeakSet()

    @functools.cached_property
    def _methods_of_channel(self) -> wire.Methods:
        self._loop = asyncio.get_running_loop()
        self._channel = self._access.channel(self._address, wire.CHANNEL_OPTIONS, aio=True)
        return wire.Methods(self._channel)

    @property
    def _methods(self) -> wire.Methods:
        """The RPCs. The connection belongs to the event loop of the first call, so a client can be made before one."""
        self._check_open()
        methods = self._methods_of_channel
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError(
                "this aio.Client has made calls in another event loop, and works in that one alone; make a Client in "
                "each loop, as asyncio.run() begins one"
            )
        return methods

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection. Calls that run fail with Cancelled."""
        self._closed.set()
        for call in list(self._streams):  # the channel's close() does not end streams that have begun
            call.cancel()
        if self._channel is not None:
            await self._channel.close()

    async def models(self) -> list[Model]:
        """The models of the server that this caller may use."""
        found = await self._unary(self._methods.list_models, messages.load("models").ListModelsRequest())
        return [results.model_of(model) for model in found.models]

    async def model(self, name: str = "") -> Model:
        """One model, by name or alias. NotFound lists the names that exist."""
        return await self._model(name)

    @takes_options()
    def generate(self, prompt: Prompt | None = None, **options: Unpack[Options]) -> Generation:
        """Continues a prompt: text, or values as a list or an array; or, with `messages`, answers a conversation.

        The call begins when the stream is first read.
        """
        return self._generate(prompt, "", options)

    @takes_options("samples", *CONVERSATION)
    async def image(self, given: npt.ArrayLike | PIL.Image.Image | None = None, **options: Unpack[Options]) -> Picture:
        """Draws one picture below the given rows: uint8 of shape (height, width), or (height, width, 3)."""
        drawn: Picture = (await self.images(1, given, **options))[0]
        return drawn

    @takes_options("samples", *CONVERSATION)
    async def images(
        self, count: int, given: npt.ArrayLike | PIL.Image.Image | None = None, **options: Unpack[Options]
    ) -> Picture:
        """Draws several pictures in one call: uint8 of shape (count, height, width), or (count, height, width, 3)."""
        wire.check_count(count)
        tries = self._tries(options.get("timeout"))
        shape = wire.image_shape(await self._model(options.get("model") or "", tries))
        rows = pictures.first_rows(given, shape)
        all_options: Options = {**options, "samples": count, "timeout": tries.left()}
        runs = [run async for run in self._generate(rows, "", all_options)]
        return pictures.put_together(rows, runs, count, shape)

    async def score(
        self,
        *chunks: Prompt,
        model: str = "",
        state: str = "",
        begin: bool | None = None,
        max_queue_time: float | None = None,
        timeout: float | None = None,
    ) -> Score:
        """Log-probabilities of a sequence, as of runnel_client.Client."""
        requests = wire.score_requests(chunks, model, state=state, begin=begin, max_queue_time=max_queue_time)
        return await self._score(requests, timeout)

    def session(self, id: str = "", model: str = "", keep: bool = False) -> Opening:
        """Creates a session: `async with client.session() as session`, or `session = await client.session()`.

        An `async with` block deletes it at its end unless `keep`. AlreadyExists if there is a session of that id.
        Without an id the session gets a random one.
        """
        return Opening(self._create_session(id, model, keep))

    def open_session(self, id: str, model: str = "", keep: bool = True) -> Opening:
        """Opens a session that exists, as Client.session does. A block deletes it at its end only with keep=False."""
        return Opening(self._open_session(id, model, keep))

    async def sessions(self, model: str = "") -> AsyncIterator[SessionInfo]:
        """This caller's sessions of a model, in the order of their ids."""
        token = ""
        for pages in itertools.count(1):
            request = messages.load("sessions").ListSessionsRequest(model=model, page_token=token)
            page = await self._unary(self._methods.list_sessions, request)
            for session in page.sessions:
                yield results.session_of(session)
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
    ) -> Opening:
        """Makes a session from a state file, like runnel_client.Client. Use the result like that of Client.session."""

        async def load() -> Session:
            data = file if isinstance(file, bytes) else await asyncio.to_thread(files.read, file)
            return Session(self, await self._import_session(data, model, id, allow_inexact, timeout), keep)

        return Opening(load())

    async def states(self, model: str = "") -> list[StoredState]:
        """The server's stored states of a model, by name. `generate` and `score` start from one with state=NAME."""
        request = messages.load("sessions").ListStatesRequest(model=model)
        return [results.stored_of(one) for one in (await self._unary(self._methods.list_states, request)).states]

    async def tokenize(self, text: str, model: str = "") -> list[int]:
        """The values of a text, as of runnel_client.Client."""
        body = {"model": model, "prompt": text}
        limit = self._short_time()
        found: list[int] = await asyncio.to_thread(self._door.post, "/tokenize", body, limit, "tokens", list)
        return found

    async def detokenize(self, values: npt.ArrayLike, model: str = "") -> str:
        """The text of values, as of runnel_client.Client."""
        body = {"model": model, "tokens": wire.values_of(values)}
        limit = self._short_time()
        found: str = await asyncio.to_thread(self._door.post, "/detokenize", body, limit, "prompt", str)
        return found

    async def _create_session(self, id: str, model: str, keep: bool) -> Session:
        request = messages.load("sessions").CreateSessionRequest(model=model, id=id or wire.new_id())
        tries = self._short_tries()
        try:
            created = await self._unary(self._methods.create_session, request, request.id, tries)
        except AlreadyExists:
            if tries.lost:
                session = await self._open_session(request.id, model, keep)
                if session.is_new:
                    return session  # made by an attempt whose answer was lost
            raise
        return Session(self, results.session_of(created), keep)

    async def _open_session(self, id: str, model: str, keep: bool) -> Session:
        return Session(self, await self._session_info(id, model), keep)

    async def _model(self, name: str, tries: Tries | None = None) -> Model:
        request = messages.load("models").GetModelRequest(name=name)
        return results.model_of(await self._unary(self._methods.get_model, request, tries=tries))

    async def _session_info(self, id: str, model: str, tries: Tries | None = None) -> SessionInfo:
        request = messages.load("sessions").GetSessionRequest(model=model, id=id)
        return results.session_of(await self._unary(self._methods.get_session, request, id, tries))

    async def _delete_session(self, id: str, model: str) -> None:
        request = messages.load("sessions").DeleteSessionRequest(model=model, id=id)
        tries = self._short_tries()
        try:
            await self._unary(self._methods.delete_session, request, id, tries)
        except NotFound:
            if not tries.lost:  # else an attempt whose answer was lost has deleted it
                raise

    async def _rewind_session(self, id: str, model: str, position: int) -> SessionInfo:
        request = messages.load("sessions").RewindSessionRequest(model=model, id=id, position=position)
        return results.session_of(await self._unary(self._methods.rewind_session, request, id))

    async def _fork_session(self, id: str, model: str, children: list[str]) -> list[SessionInfo]:
        request = messages.load("sessions").ForkSessionRequest(model=model, id=id, children=children)
        tries = self._short_tries()
        try:
            made = await self._unary(self._methods.fork_session, request, id, tries)
        except AlreadyExists:
            if not tries.lost:  # else an attempt whose answer was lost has made them
                raise
            return [await self._session_info(child, model) for child in children]
        return [results.session_of(session) for session in made.sessions]

    async def _export_session(self, request: Any, timeout: float | None) -> bytes:
        async def attempt(left: float) -> bytes:
            headers = self._headers(request.id)
            call = self._stream(self._methods.export_session(request, timeout=left, metadata=headers))
            file = bytearray()
            try:
                async for piece in call:
                    wire.add_piece(file, piece.data)
            finally:
                call.cancel()
            return bytes(file)

        return await self._attempts(attempt, self._tries(timeout))

    async def _import_session(
        self, data: bytes, model: str, id: str, allow_inexact: bool, timeout: float | None
    ) -> SessionInfo:
        name, tries = id or wire.new_id(), self._tries(timeout)

        async def attempt(left: float) -> Any:
            requests = wire.import_requests(data, model, name, allow_inexact)
            return await self._methods.import_session(requests, timeout=left, metadata=self._headers(name))

        try:
            return results.session_of(await self._attempts(attempt, tries))
        except AlreadyExists:
            if id or not tries.lost:  # else an attempt whose answer was lost has made it
                raise
            return await self._session_info(name, model)

    def _generate(
        self, prompt: Prompt | None, session: str, options: Options, known: Known | None = None
    ) -> Generation:
        request = wire.generate_request(prompt, session, options)
        return Generation(self, request, options, known)

    async def _score(
        self, requests: list[Any], timeout: float | None, session: str = "", known: Known | None = None
    ) -> Score:
        tries = self._tries(timeout, known is not None or wire.is_repeatable(requests[0]))
        if known:
            requests[0].expected_position = await _position(self, requests[0], known, tries)

        async def attempt(left: float) -> Score:
            headers = self._headers(session)
            call = self._stream(self._methods.score(iter(requests), timeout=left, metadata=headers))
            try:
                return results.score_of([response async for response in call])
            finally:
                call.cancel()

        return await self._attempts(attempt, tries)

    def _headers(self, session: str) -> list[tuple[str, str]]:
        """The metadata of a call: the key, and the session's id, by which a proxy finds its server."""
        return [*self._metadata, ("x-session-id", session)] if session else self._metadata

    def _tries(self, timeout: float | None, repeatable: bool = True) -> Tries:
        return Tries(self._retry, self._timeout if timeout is None else timeout, repeatable=repeatable)

    def _short_tries(self) -> Tries:
        return Tries(self._retry, self._short_time())

    def _short_time(self) -> float:
        return min(SHORT, self._timeout)

    async def _unary(self, method: Any, request: Any, session: str = "", tries: Tries | None = None) -> Any:
        return await self._attempts(
            lambda left: method(request, timeout=left, metadata=self._headers(session)), tries or self._short_tries()
        )

    async def _attempts(self, attempt: Callable[[float], Awaitable[T]], tries: Tries) -> T:
        while True:
            self._check_open()
            try:
                return await attempt(tries.left())
            except grpc.RpcError as error:
                await self._pause(tries, error)
            except asyncio.CancelledError:
                self._check_cancelled()
                raise

    def _stream(self, call: Any) -> Any:
        """Returns `call`, and has close() end it."""
        self._streams.add(call)
        return call

    def _check_cancelled(self) -> None:
        """Raises Cancelled if close() has ended a call, which grpc.aio reports as if the task was cancelled.

        Before Python 3.11 the two cannot be told apart once the client is closed.
        """
        cancelling = getattr(asyncio.current_task(), "cancelling", None)
        if cancelling is None or not cancelling():
            self._check_open()

    async def _pause(self, tries: Tries, error: grpc.RpcError) -> None:
        """Waits until the next attempt. Raises the exception for `error` if there is none."""
        failure = failure_of(error)
        if self._closed.is_set():
            raise failure from None
        try:
            pause = tries.pause_after(failure)
        except CallError:
            raise await asyncio.to_thread(silence.explained, failure, self._address, self._access) from None
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._closed.wait(), pause)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise call_error("CANCELLED", "the client was closed", ()) from None


class Generation(Progress):
    """A stream of the values that a call samples. The call begins when the first run is read.

    If the server is full or the connection is lost, the call is made again, and the stream continues without gaps or
    repetitions. If you may stop reading early, read in an `async with` block, which cancels the call at its end.
    """

    def __init__(self, client: Client, request: Any, options: Options, known: Known | None):
        super().__init__(request)
        self._runs = _receive(client, request, self._received, options, known)

    def __aiter__(self) -> AsyncIterator[Run]:
        return self._runs

    async def __aenter__(self) -> Generation:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels the call if it still runs. To be called by the task that reads the stream."""
        await self._runs.aclose()

    def text(self) -> AsyncIterator[str]:
        """The text of the sample, piece by piece. ValueError if the call has several samples."""
        wire.check_one_sample(self._request)
        return (run.text async for run in self if run.text)

    def values(self) -> AsyncIterator[int]:
        """The values of the sample, one by one. ValueError if the call has several samples."""
        wire.check_one_sample(self._request)
        return (value async for run in self for value in run.values)

    async def samples(self) -> list[Sample]:
        """Reads the stream to its end, and joins its runs to one Sample for each sample."""
        runs = [run async for run in self]
        return results.samples_of(runs, self.finished, max(self._request.samples, 1))


class Opening:
    """A session that is being created or opened: await it, or enter it with `async with`."""

    def __init__(self, session: Coroutine[Any, Any, Session]):
        self._asked = session

    def __await__(self) -> Generator[Any, None, Session]:
        return self._asked.__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._asked
        return self._session

    async def __aexit__(self, kind: object, *error: object) -> None:
        await self._session.__aexit__(kind, *error)


class Session:
    """A named state on the server. Each call on it continues where the last one ended."""

    def __init__(self, client: Client, info: SessionInfo, keep: bool):
        self._client = client
        self.id, self.model = info.id, info.model
        self._known = Known(info)
        self.is_new = info.position == 0 and info.state not in BUSY  # had taken in no values when it was opened
        self.keep = keep  # whether it outlives an `async with` block

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if self.keep:
            return
        # If the block has failed, its error is raised, and not an error of the deletion.
        with contextlib.suppress(CallError if kind else NotFound):
            await self.delete()

    async def info(self) -> SessionInfo:
        """The session as it is now. The next call expects it there."""
        info = await self._client._session_info(self.id, self.model)
        self._known.note(info)
        return info

    async def delete(self) -> None:
        """Deletes the session. A call that runs on it fails with Aborted."""
        await self._client._delete_session(self.id, self.model)

    async def fork(self, count: int = 1, keep: bool = False) -> list[Session]:
        """Makes `count` new sessions at this one's position. Use each like a session from Client.session."""
        children = [wire.new_id() for _ in range(count)]
        made = await self._client._fork_session(self.id, self.model, children)
        return [Session(self._client, info, keep) for info in made]

    async def rewind(self, position: int) -> SessionInfo:
        """Moves the session back to an earlier position, as if it had stopped there.

        FailedPrecondition if the server was started without --rewind. OutOfRange names the oldest possible position.
        """
        info = await self._client._rewind_session(self.id, self.model, position)
        self._known.note(info)
        return info

    @takes_options("model", "state", "token", "include_state")
    def generate(self, prompt: Prompt | None = None, **options: Unpack[Options]) -> Generation:
        """As Client.generate, from the session's position. With one sample the session moves on, unless keep=False."""
        all_options: Options = {**options, "model": self.model}
        return self._client._generate(prompt, self.id, all_options, self._known)

    @takes_options("model", "state", "token", "include_state", "max_values", *CONVERSATION)
    async def feed(self, prompt: Prompt, **options: Unpack[Options]) -> None:
        """Has the session take in text or values without sampling."""
        all_options: Options = {**options, "model": self.model, "max_values": 0}
        await self._client._generate(prompt, self.id, all_options, self._known).samples()

    async def score(
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
        score = await self._client._score(requests, timeout, self.id, known)
        if keep:
            self._known.note_scored(score)
        return score

    async def export(
        self, timeout: float | None = None, any_owner: bool = False, expires_in: float | None = None
    ) -> bytes:
        """The session's state as the bytes of a state file (docs/state.md), at most 64 GiB. The session stays as it is.

        If the server seals files, only this caller may load the file, or with `any_owner` every caller; and only for
        `expires_in` seconds, if that is set.
        """
        request = wire.export_request(self.id, self.model, any_owner, expires_in)
        return await self._client._export_session(request, timeout)

    async def save(
        self,
        path: str | os.PathLike[str],
        timeout: float | None = None,
        any_owner: bool = False,
        expires_in: float | None = None,
    ) -> None:
        """Exports the state to a file that only its owner may read, because it is as private as the text."""
        data = await self.export(timeout, any_owner, expires_in)
        await asyncio.to_thread(files.write_private, path, data)


async def _receive(
    client: Client, request: Any, received: Received, options: Options, known: Known | None
) -> AsyncGenerator[Run, None]:
    """The runs of a Generation. Holds no reference to it, so that the call ends when the caller drops it."""
    tries = client._tries(options.get("timeout"))
    headers, progress = client._headers(request.origin.session), options.get("progress")
    if known and wire.lacks_position(request, options):
        request.expected_position = await _position(client, request, known, tries)
    with known.during(request, received) if known else contextlib.nullcontext():
        while True:
            client._check_open()
            received.begin_attempt()
            call = client._stream(client._methods.generate(request, timeout=tries.left(), metadata=headers))
            try:
                async for response in call:
                    for run in received.take(response):
                        tries.progressed()
                        if progress:
                            progress(len(run.values))
                        yield run
                received.check_end()
                return
            except grpc.RpcError as error:
                await client._pause(tries, error)
            except asyncio.CancelledError:
                client._check_cancelled()
                raise
            finally:
                call.cancel()


async def _position(client: Client, request: Any, known: Known, tries: Tries) -> int:
    """The session's position. If it is unknown, waits a moment for a cancelled call that still holds the session."""
    if known.position is not None:
        return known.position
    for pause in wire.SETTLING:
        info = await client._session_info(request.origin.session, request.model, tries)
        if info.state not in BUSY:
            break
        await asyncio.sleep(min(pause, tries.left()))
    known.position = info.position
    return info.position
