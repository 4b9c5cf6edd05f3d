"""The clients of soak.py, which behave, cancel, retry, stall, vanish or attack.

Clients check the values that they receive. A session's values are the same as those of one fresh call with its seed,
however many calls, cancellations and retries they come from. So a table of such calls, which is made at the start, has
the expected values.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from runnel_client import messages

Faults = list[str]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TIMEOUT = 120.0  # seconds that a call may take on a busy machine
OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
NARROW = (*OPTIONS, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16384))


@dataclass
class Session:
    """What the clients know about a session that the server has created."""

    name: str
    seed: int
    position: int = 0


@dataclass
class Keys:
    """The keys that clients send. The operator replaces `user` from time to time."""

    user: str
    admin: str


@dataclass
class Account:
    """Counts the calls by kind of client and by final status, and collects faults."""

    begun: int = 0
    ended: dict[str, Counter[str]] = field(default_factory=dict)
    faults: Faults = field(default_factory=list)
    values: int = 0

    def end(self, kind: str, status: str, allowed: tuple[str, ...]) -> None:
        self.ended.setdefault(kind, Counter())[status] += 1
        if status not in allowed:
            self.fault(f"a call of kind {kind} ended with {status}; expected {' or '.join(allowed)}")

    def fault(self, what: str) -> None:
        if len(self.faults) < 50:
            self.faults.append(what)


class Door:
    """One connection of a client."""

    def __init__(self, address: str, keys: Keys, options: tuple[tuple[str, Any], ...] = OPTIONS) -> None:
        self.channel, self.keys = grpc.aio.insecure_channel(address, options=options), keys

    def metadata(self, key: str | None = None) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.keys.user if key is None else key}"),)

    async def unary(self, method: str, request: Any, answer: Any, key: str | None = None) -> Any:
        call = self.channel.unary_unary(
            method, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
        )
        return await call(request, metadata=self.metadata(key), timeout=TIMEOUT)

    def generate(self, request: Any, key: str | None = None) -> Any:
        contract = messages.inference()
        call = self.channel.unary_stream(
            "/runnel.v1.Inference/Generate",
            request_serializer=type(request).SerializeToString if not isinstance(request, bytes) else None,
            response_deserializer=contract.GenerateResponse.FromString,
        )
        return call(request, metadata=self.metadata(key), timeout=TIMEOUT)

    async def position(self, model: str, name: str) -> int:
        """The position of a session. Waits until no call runs on it."""
        sessions = messages.load("sessions")
        while True:
            found = await self.unary(
                "/runnel.v1.Sessions/GetSession",
                sessions.GetSessionRequest(model=model, id=name),
                sessions.Session,
            )
            if found.state in (sessions.Session.NEW, sessions.Session.IDLE):
                return int(found.position)
            await asyncio.sleep(0.01)


def request_of(model: str, seed: int, count: int, session: Session | None = None) -> Any:
    request = messages.inference().GenerateRequest(model=model, max_values=count)
    request.sampling.seed = seed
    if session is None or session.position == 0:
        request.values.values.append(1)
    if session is not None:
        request.origin.session = session.name
        request.expected_position = session.position
    return request


def values_of(event: Any) -> Iterator[tuple[int, int]]:
    """The values of an event with their positions."""
    for run in event.values.runs:
        yield from enumerate(run.values, run.position)


class Clients:
    """All clients of one server. `truth` has the value at each position, by model and seed."""

    def __init__(self, address: str, keys: Keys, truth: dict[str, list[list[int]]], stall: float) -> None:
        self.address, self.keys, self.truth, self.stall = address, keys, truth, stall
        self.account = Account()
        self.over = asyncio.Event()
        self.free: deque[Session] = deque()  # the sessions on which no call runs
        self.random = random.Random(1)

    async def stream(self, call: Any, at_most: int | None = None) -> tuple[str, list[tuple[int, int]]]:
        """Reads a call. Returns its final status and its values. Cancels it once it has returned `at_most` values."""
        self.account.begun += 1
        found: list[tuple[int, int]] = []
        try:
            async for event in call:
                found.extend(values_of(event))
                if at_most is not None and len(found) >= at_most:
                    call.cancel()
                    break
            status = await call.code()
        except grpc.aio.AioRpcError as error:
            status = error.code()
        except asyncio.CancelledError:
            status = await call.code()
        self.account.values += len(found)
        return status.name, found

    def check(self, found: list[tuple[int, int]], first: int, truths: list[list[int]]) -> None:
        """Checks that the values have no gaps, and belong to one of the sequences."""
        places = [position for position, _ in found]
        if places != list(range(first, first + len(found))):
            self.account.fault(f"values from {first} on came at {places[:5]}...")
        elif found and not any(all(truth[at] == value for at, value in found) for truth in truths):
            self.account.fault(f"values at {first}... are not those that the seed draws: {found[:8]}")

    @contextlib.asynccontextmanager
    async def session(self, door: Door) -> AsyncIterator[Session]:
        """A session that nobody else uses during the block. If it is near the end of the truth, it is created again."""
        session = self.free.popleft()
        try:
            if session.position > len(self.truth["stays"][session.seed]) - 110:
                await self.remake(door, session)
            yield session
        finally:
            self.free.append(session)

    async def remake(self, door: Door, session: Session) -> None:
        sessions = messages.load("sessions")
        delete = sessions.DeleteSessionRequest(model="stays", id=session.name)
        await door.unary("/runnel.v1.Sessions/DeleteSession", delete, sessions.DeleteSessionResponse)
        create = sessions.CreateSessionRequest(model="stays", id=session.name)
        await door.unary("/runnel.v1.Sessions/CreateSession", create, sessions.Session)
        session.position = 0

    def first_of(self, session: Session) -> int:
        """The position of the next sampled value, at least 1, because a fresh session is given its first value."""
        return max(1, session.position)

    async def settle(self, door: Door, session: Session, read: list[tuple[int, int]], count: int) -> None:
        """Reads the session's position after a call that may have ended anywhere. Checks that the session is not behind
        the values that were read, unless nothing was read and it did not move."""
        first = self.first_of(session)
        stands = await door.position("stays", session.name)
        if not (stands == session.position and not read) and not first + len(read) <= stands <= first + count:
            self.account.fault(f"a session stands at {stands} after {len(read)} of {count} values from {first}")
        session.position = stands

    async def on_session(self, kind: str, door: Door, at_most: int | None, allowed: tuple[str, ...]) -> None:
        """Makes one call on a session, and checks its result."""
        async with self.session(door) as session:
            count = self.random.randint(4, 40)
            status, found = await self.stream(door.generate(request_of("stays", session.seed, count, session)), at_most)
            self.account.end(kind, status, allowed)
            first = self.first_of(session)
            self.check(found, first, [self.truth["stays"][session.seed]])
            if status == "OK" and len(found) == count:
                session.position = first + count
            else:
                await self.settle(door, session, found, count)

    # --- one call of each kind ---

    async def behave(self, door: Door) -> None:
        await self.on_session("behaves", door, None, ("OK", "UNAUTHENTICATED"))

    async def cancel(self, door: Door) -> None:
        await self.on_session("cancels", door, self.random.randint(0, 6), ("OK", "CANCELLED", "UNAUTHENTICATED"))

    async def retry(self, door: Door) -> None:
        """Cancels a call and makes it again with the same id. All its values must come again from the first one on."""
        async with self.session(door) as session:
            request = request_of("stays", session.seed, 100, session)
            request.request_id = f"{session.name}-{session.position}-{self.random.getrandbits(64)}"
            request.delivery.max_values = 4
            first = self.first_of(session)
            status, found = await self.stream(door.generate(request), self.random.randint(1, 20))
            self.account.end("retries, first", status, ("OK", "CANCELLED", "UNAUTHENTICATED"))
            if status != "UNAUTHENTICATED":
                status, again = await self.stream(door.generate(request))
                self.account.end("retries, again", status, ("OK", "UNAUTHENTICATED"))
                self.check(again, first, [self.truth["stays"][session.seed]])
                if status == "OK" and again[: len(found)] != found:
                    self.account.fault("a retry brought other values")
                found = again
            await self.settle(door, session, found, 100)

    async def turn(self, door: Door) -> None:
        """Calls a model that is constantly replaced and retired. All values of a call must be of the same model."""
        seed = self.random.randrange(len(self.truth["a"]))
        model = self.random.choice(("turns", "latest"))
        status, found = await self.stream(door.generate(request_of(model, seed, 60)))
        self.account.end("on models that turn", status, ("OK", "NOT_FOUND", "UNAUTHENTICATED"))
        self.check(found, 1, [self.truth["a"][seed], self.truth["b"][seed]])
        if status == "OK" and len(found) != 60:
            self.account.fault(f"a call of 60 values on {model} brought {len(found)}")
        if status == "NOT_FOUND":
            await asyncio.sleep(0.2)

    async def be_stalled(self, _door: Door) -> None:
        """Reads a stream once, and then not again until the server has ended it."""
        door = Door(self.address, self.keys, NARROW)
        request = request_of("stays", 0, 1 << 20)
        request.top_log_probs = 16
        call = door.generate(request)
        await call.__aiter__().__anext__()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.over.wait(), 3 * self.stall)
        status, rest = await self.stream(call, 4096)  # more values than can be buffered
        self.account.values -= len(rest)  # not compared
        self.account.end("stalls", status, ("ABORTED", "CANCELLED", "UNAUTHENTICATED"))
        await door.channel.close()

    async def vanish(self, door: Door) -> None:
        """Breaks the connection in the middle of a stream."""
        async with self.session(door) as session, relay(self.address) as (port, cut):
            broken = Door(f"127.0.0.1:{port}", self.keys)
            request = request_of("stays", session.seed, 100, session)
            request.delivery.max_values = 1
            call = broken.generate(request)
            asyncio.get_running_loop().call_later(self.random.random() / 20, cut)
            status, found = await self.stream(call)
            self.account.end("vanishes", status, ("OK", "UNAVAILABLE", "UNAUTHENTICATED"))
            self.check(found, self.first_of(session), [self.truth["stays"][session.seed]])
            await broken.channel.close()
            if found:
                await self.settle(door, session, found, 100)
            else:  # the call may still be on its way
                await self.remake(door, session)

    async def attack(self, door: Door) -> None:
        await self.attack_socket(self.random.choice((self.random.randbytes(4096), PREFACE, PREFACE + b"\0\0\xff")))
        many = messages.inference().GenerateRequest(model="stays", max_values=1)
        many.values.values.extend([1] * 600_000)
        wrong = request_of("stays", 0, 4)
        wrong.values.values[0] = -1
        for what, call, status in (
            ("wrong key", door.generate(request_of("stays", 0, 4), "rnl_0"), "UNAUTHENTICATED"),
            ("no message", door.generate(b"\xff" * 64), "INVALID_ARGUMENT"),
            ("no model", door.generate(request_of("none", 0, 4)), "NOT_FOUND"),
            ("wrong value", door.generate(wrong), "INVALID_ARGUMENT"),
            ("too many samples", door.generate(with_samples(request_of("stays", 0, 4), 1 << 20)), "INVALID_ARGUMENT"),
            ("long prompt, cancelled", door.generate(many), "CANCELLED"),
        ):
            ended, _ = await self.stream(call, 0 if status == "CANCELLED" else None)
            self.account.end(f"attacks: {what}", ended, (status, "OK", "UNAUTHENTICATED"))

        await self.attack_models(door)

    async def attack_models(self, door: Door) -> None:
        """Asks for a reload without permission."""
        admin = messages.load("admin")
        self.account.begun += 1
        status = "OK"
        try:
            await door.unary("/runnel.v1.Admin/Reload", admin.ReloadRequest(), admin.ReloadResponse)
        except grpc.aio.AioRpcError as error:
            status = error.code().name
        self.account.end("attacks: reload", status, ("PERMISSION_DENIED", "UNAUTHENTICATED"))

    async def attack_socket(self, sent: bytes) -> None:
        """Opens a connection and sends bytes that are not a call. If the server does not close it, resets it."""
        reader, writer = await asyncio.open_connection(*self.address.rsplit(":", 1))
        self.account.begun += 1
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            writer.write(sent)
            await asyncio.wait_for(reader.read(-1), 1)
        break_off(writer)
        self.account.end("attacks: bytes", "closed", ("closed",))

    async def loop(self, one: Callable[[Door], Awaitable[None]], pause: float = 0.0) -> None:
        """Makes calls of one kind, one after the other, on its own connection, until the end of the run."""
        door = Door(self.address, self.keys)
        while not self.over.is_set():
            try:
                await one(door)
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.UNAUTHENTICATED:  # expected if the key has just been removed
                    self.account.fault(f"{one.__name__}: {error.code().name}: {error.details()}")
            except OSError as error:
                self.account.fault(f"{one.__name__}: {error}")
            await asyncio.sleep(pause * self.random.random() * 2)
        await door.channel.close()


def with_samples(request: Any, samples: int) -> Any:
    request.samples = samples
    return request


def break_off(writer: asyncio.StreamWriter) -> None:
    """Closes a connection with a reset."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextlib.asynccontextmanager
async def relay(address: str) -> AsyncIterator[tuple[int, Callable[[], None]]]:
    """A port that forwards to the server, and a function that breaks its connections on both sides."""
    writers: list[asyncio.StreamWriter] = []
    tasks: list[asyncio.Task[None]] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if cut_off:
            return break_off(writer)
        to_reader, to_writer = await asyncio.open_connection(*address.rsplit(":", 1))
        writers.extend((writer, to_writer))
        tasks.extend((asyncio.create_task(pump(reader, to_writer)), asyncio.create_task(pump(to_reader, writer))))
        return None

    cut_off: list[bool] = []

    def cut() -> None:
        cut_off.append(True)
        for writer in writers:
            break_off(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], cut
    finally:
        cut()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
