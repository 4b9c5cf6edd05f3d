"""Calls to a runnel server for asyncio: what `runnel_client.client` has, with the same names, to be awaited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import numpy.typing as npt

from runnel_client import messages, pictures, results, wire
from runnel_client.access import Access
from runnel_client.client import SHORT
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

__all__ = ["Client", "Generation", "Session"]


class Client:
    """A server, and the calls to it, in one event loop. A block `async with Client(...)` closes it at its end."""

    def __init__(
        self,
        address: str = "127.0.0.1:50051",
        *,
        access: Access | None = None,
        retry: Retry | None = None,
        timeout: float = 3600,
    ):
        """As of runnel_client.Client."""
        access = access or Access.from_environment()
        self._metadata = access.metadata(address)
        self._channel = access.channel(address, wire.CHANNEL_OPTIONS, aio=True)
        self._methods = wire.Methods(self._channel)
        self._retry, self._timeout, self._closed = retry or Retry(), timeout, False

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the calls that run, and the connection."""
        self._closed = True
        await self._channel.close()

    async def models(self) -> list[Model]:
        """The models that the server has and this caller may use."""
        found = await self._unary(self._methods.list_models, messages.load("models").ListModelsRequest())
        return [results.model_of(model) for model in found.models]

    async def model(self, name: str = "") -> Model:
        """One model. NotFound lists what there is."""
        request = messages.load("models").GetModelRequest(name=name)
        return results.model_of(await self._unary(self._methods.get_model, request))

    def generate(self, prompt: Prompt | None = None, **options: Unpack[Options]) -> Generation:
        """Samples what comes after a prompt: text, or values as a list or an array."""
        return self._generate(prompt, "", options)

    async def image(self, given: npt.ArrayLike | PIL.Image.Image | None = None, **options: Unpack[Options]) -> Picture:
        """Draws one picture, uint8 of (height, width), or (height, width, 3), below the rows that are given."""
        drawn: Picture = (await self.images(1, given, **options))[0]
        return drawn

    async def images(
        self, count: int, given: npt.ArrayLike | PIL.Image.Image | None = None, **options: Unpack[Options]
    ) -> Picture:
        """Draws several pictures in one call: (count, height, width), or (count, height, width, 3)."""
        shape = wire.image_shape(await self.model(options.get("model", "")))
        rows = pictures.first_rows(given, shape)
        all_options: Options = {**options, "samples": count}
        runs = [run async for run in self._generate(rows, "", all_options)]
        return pictures.put_together(rows, runs, count, shape)

    async def score(
        self, *chunks: Prompt, model: str = "", begin: bool | None = None, timeout: float | None = None
    ) -> Score:
        """Log-probabilities of a sequence, as of runnel_client.Client."""
        return await self._score(wire.score_requests(chunks, model, "", begin), timeout)

    async def session(self, id: str = "", model: str = "", keep: bool = False) -> Session:
        """Creates a session, which an `async with` block deletes at its end unless it is to be kept.

        AlreadyExists where there is one of that id; an empty id is a new one.
        """
        request = messages.load("sessions").CreateSessionRequest(model=model, id=id or wire.new_id())
        tries = self._short_tries()
        try:
            created = await self._unary(self._methods.create_session, request, request.id, tries)
        except AlreadyExists:
            session = await self.open_session(request.id, model, keep)
            if tries.lost and session.is_new:
                return session  # made by an attempt whose answer was lost
            raise
        return Session(self, results.session_of(created), keep)

    async def open_session(self, id: str, model: str = "", keep: bool = True) -> Session:
        """A session that exists. An `async with` block deletes it only where it is not to be kept."""
        return Session(self, await self._session_info(id, model), keep)

    async def sessions(self, model: str = "") -> AsyncIterator[SessionInfo]:
        """This caller's sessions of a model, by id."""
        token = ""
        while True:
            request = messages.load("sessions").ListSessionsRequest(model=model, page_token=token)
            page = await self._unary(self._methods.list_sessions, request)
            for session in page.sessions:
                yield results.session_of(session)
            token = page.next_page_token
            if not token:
                return

    async def _session_info(self, id: str, model: str) -> SessionInfo:
        request = messages.load("sessions").GetSessionRequest(model=model, id=id)
        return results.session_of(await self._unary(self._methods.get_session, request, id))

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

    def _generate(self, prompt: Prompt | None, session: str, options: Options) -> Generation:
        request = wire.generate_request(prompt, session, options)
        return Generation(self, request, options.get("timeout", self._timeout), options.get("progress"))

    async def _score(self, requests: list[Any], timeout: float | None, session: str = "") -> Score:
        async def attempt(left: float) -> Score:
            call = self._methods.score(iter(requests), timeout=left, metadata=self._headers(session))
            try:
                return results.score_of([response async for response in call])
            finally:
                call.cancel()

        return await self._attempts(attempt, Tries(self._retry, self._timeout if timeout is None else timeout))

    def _headers(self, session: str) -> list[tuple[str, str]]:
        """What a call carries: the key, and for a proxy the session, all calls of which go to one server."""
        return [*self._metadata, ("x-session-id", session)] if session else self._metadata

    def _short_tries(self) -> Tries:
        return Tries(self._retry, min(SHORT, self._timeout))

    async def _unary(self, method: Any, request: Any, session: str = "", tries: Tries | None = None) -> Any:
        return await self._attempts(
            lambda left: method(request, timeout=left, metadata=self._headers(session)), tries or self._short_tries()
        )

    async def _attempts(self, attempt: Callable[[float], Awaitable[T]], tries: Tries) -> T:
        while True:
            try:
                return await attempt(tries.left())
            except grpc.RpcError as error:
                await self._pause(tries, error)

    async def _pause(self, tries: Tries, error: grpc.RpcError) -> None:
        """Waits until the next attempt, or raises the exception for `error` where there is to be none."""
        failure = call_error(error.code().name, error.details() or "", error.trailing_metadata() or ())
        if self._closed:
            raise failure from None
        try:
            pause = tries.pause_after(failure)
        except CallError:
            raise failure from None
        await asyncio.sleep(pause)
        if self._closed:
            raise call_error("CANCELLED", "the client was closed", ())


class Generation(Progress):
    """A stream of what a call samples. The call begins when the first run is asked for, and ends with the stream.

    It is made again where the server is full, or the connection lost, and goes on without gaps or repetitions. Leave it
    early from within `async with`, which cancels the call at once.
    """

    def __init__(self, client: Client, request: Any, timeout: float, progress: Callable[[int], object] | None):
        super().__init__(request)
        self._runs = _receive(client, request, self._received, timeout, progress)

    def __aiter__(self) -> AsyncIterator[Run]:
        return self._runs

    async def __aenter__(self) -> Generation:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels the call where it still runs."""
        await self._runs.aclose()

    def text(self) -> AsyncIterator[str]:
        """The text of the one sample, piece by piece."""
        wire.check_one_sample(self._request)
        return (run.text async for run in self if run.text)

    def values(self) -> AsyncIterator[int]:
        """The values of the one sample."""
        wire.check_one_sample(self._request)
        return (value async for run in self for value in run.values)

    async def samples(self) -> list[Sample]:
        """Reads to the end, and joins what has come since the last reading to one Sample for each."""
        runs = [run async for run in self]
        return results.samples_of(runs, self.finished, max(self._request.samples, 1))


class Session:
    """A named state on the server. Calls from it go on where the last one ended."""

    def __init__(self, client: Client, info: SessionInfo, keep: bool):
        self._client = client
        self.id, self.model = info.id, info.model
        self.is_new = info.state == "NEW"  # had taken no values when it was opened
        self.keep = keep  # whether it is to outlive an `async with` block

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if self.keep:
            return
        # An error of the block is told rather than what follows from it.
        with contextlib.suppress(CallError if kind else NotFound):
            await self.delete()

    async def info(self) -> SessionInfo:
        """The session as it is now."""
        return await self._client._session_info(self.id, self.model)

    async def delete(self) -> None:
        """Ends the session. A call that runs on it ends with Aborted."""
        await self._client._delete_session(self.id, self.model)

    async def fork(self, count: int = 1, keep: bool = False) -> list[Session]:
        """Makes `count` sessions that stand where this one stands, which stays. Each is as Client.session makes one."""
        children = [wire.new_id() for _ in range(count)]
        made = await self._client._fork_session(self.id, self.model, children)
        return [Session(self._client, info, keep) for info in made]

    async def rewind(self, position: int) -> SessionInfo:
        """Has the session stand at an earlier position, as if it had stopped there.

        FailedPrecondition where the server was started without --rewind; OutOfRange names the oldest position.
        """
        return await self._client._rewind_session(self.id, self.model, position)

    def generate(self, prompt: Prompt | None = None, **options: Unpack[Options]) -> Generation:
        """As Client.generate, from where the session stands. With one sample the session goes on to its end."""
        all_options: Options = {**options, "model": self.model}
        return self._client._generate(prompt, self.id, all_options)

    async def feed(self, prompt: Prompt, **options: Unpack[Options]) -> None:
        """Lets the session take text or values without sampling."""
        all_options: Options = {**options, "model": self.model, "max_values": 0}
        await self._client._generate(prompt, self.id, all_options).samples()

    async def score(self, *chunks: Prompt, timeout: float | None = None) -> Score:
        """As Client.score, from where the session stands, which stays as it was."""
        return await self._client._score(wire.score_requests(chunks, self.model, self.id, None), timeout, self.id)


async def _receive(
    client: Client, request: Any, received: Received, timeout: float, progress: Callable[[int], object] | None
) -> AsyncGenerator[Run, None]:
    """The runs of a Generation. Knows nothing of it, so that the call ends as soon as nobody holds it any more."""
    tries, headers = Tries(client._retry, timeout), client._headers(request.origin.session)
    if wire.lacks_position(request):
        request.expected_position = await _settled_position(client, request)
    while True:
        received.begin_attempt()
        call = client._methods.generate(request, timeout=tries.left(), metadata=headers)
        try:
            async for response in call:
                for run in received.take(response):
                    tries.progressed()
                    if progress:
                        progress(len(run.values))
                    yield run
            return
        except grpc.RpcError as error:
            await client._pause(tries, error)
        finally:
            call.cancel()


async def _settled_position(client: Client, request: Any) -> int:
    """Where the session stands, once a call that was cancelled has let go of it."""
    for pause in wire.SETTLING:
        info = await client._session_info(request.origin.session, request.model)
        if info.state not in wire.BUSY:
            break
        await asyncio.sleep(pause)
    return info.position
