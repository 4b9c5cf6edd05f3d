"""All attacks that a hostile client can make on the HTTP port, at a bounded rate, until SIGTERM.

    http_attack.py HOST:PORT

It prints "enough" once each attack has ended often enough to judge it. At SIGTERM it prints JSON that counts the
endings of each attack: {attack: {status, "closed", "closed early" or "hangs": times}}.
"""

import asyncio
import collections
import json
import resource
import signal
import sys

SLOW_HEADS, SLOW_BODIES, SILENT, HOLDING = 600, 300, 200, 50  # connections
PAUSE = 0.005  # seconds between two requests of an attack
DRIP = 2.0  # seconds between two bytes of a slow connection
PATIENCE = 600.0  # seconds until a connection on which nothing happens counts as one that hangs
LEAST_SILENCE = 50.0  # seconds that the server must tolerate a silent connection: its limit is 60
GONE = 200  # the least number of requests whose clients leave at once
MIB = 1 << 20


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def post(body: bytes, *headers: str) -> bytes:
    said = headers if any(each.startswith("Content-Type") for each in headers) else (*headers, JSON)
    return head("POST /v1/completions", f"Content-Length: {len(body)}", *said) + body


JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
CHUNK = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
# Requests that are sent at once, and the statuses that they may get.
AT_ONCE: dict[str, tuple[bytes, set[int | str]]] = {
    "deep JSON": (post(b'{"prompt":' + b"[" * 100000), {400}),
    "deep objects": (post(b'{"a":' * 50000), {400}),
    "wrong JSON": (post(b"}"), {400}),
    "bytes that are no text": (post(b'{"prompt":"\xff\xfe"}'), {400}),
    "another charset": (post("{}".encode("utf-16"), "Content-Type: application/json; charset=utf-16"), {415}),
    "a packed body": (post(b"\x1f\x8b\x08", "Content-Encoding: gzip"), {415}),
    "a form": (post(b"a=b", "Content-Type: application/x-www-form-urlencoded"), {415}),
    "a body too long": (head("POST /v1/completions", JSON, f"Content-Length: {8 * MIB}"), {413}),
    "chunks without end": (head("POST /v1/completions", JSON, CHUNKED) + CHUNK * 40, {413, "closed"}),
    "a chunk too long": (head("POST /v1/completions", JSON, CHUNKED) + b"ffffffffffffff\r\n", {413}),
    "a wrong chunk": (head("POST /v1/completions", JSON, CHUNKED) + b"zz\r\n", {400}),
    "two lengths": (head("POST /v1/completions", JSON, "Content-Length: 2", "Content-Length: 3") + b"{}", {400}),
    "no length": (head("POST /v1/completions", JSON, "Content-Length: -1"), {400}),
    "length and chunks": (head("POST /v1/completions", JSON, "Content-Length: 2", CHUNKED) + b"{}", {400}),
    "a length too short": (head("POST /v1/completions", JSON, "Content-Length: 1") + b"{" + b"}" * 99, {400}),
    "long headers": (head("GET /v1/models", "X-A: " + "a" * 20000), {431}),
    "another host": (b"GET /v1/models HTTP/1.1\r\nHost: example.org\r\n\r\n", {403}),
    "another page": (head("GET /v1/models", "Origin: http://example.org"), {403}),
    "another path": (head("GET /" + "a/" * 500), {404}),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01" * 100, {400}),
    "no state": (
        head("PUT /v1/sessions/a/state", "Content-Type: application/octet-stream", f"Content-Length: {MIB}")
        + b"RNLSTATE" * 8192,
        {400},
    ),
}
# Requests that are sent byte by byte, or not at all: the number of connections, and the statuses that they may get.
SLOW: dict[str, tuple[bytes, int, set[int | str]]] = {
    "slow headers": (b"GET /v1/models HTTP/1.1\r\n", SLOW_HEADS, {408}),
    "slow bodies": (head("POST /v1/completions", JSON, "Content-Length: 100000"), SLOW_BODIES, {408}),
    "nothing": (b"", SILENT, {"closed"}),
}
# Requests whose clients keep the connection open after the answer. True: the client closes its sending side. Each
# attack uses HOLDING connections.
HELD: dict[str, tuple[bytes, bool, set[int | str]]] = {
    "refused and stays": (head("POST /v1/completions", JSON, f"Content-Length: {8 * MIB}"), False, {413}),
    "refused and half closed": (head("POST /v1/completions", JSON, f"Content-Length: {8 * MIB}"), True, {413}),
    "half closed": (head("GET /v1/models"), True, {200}),
}


async def status_of(reader: asyncio.StreamReader) -> str:
    """The status of an answer; "closed" where the server hangs up without one, "hangs" where nothing comes."""
    try:
        line = await asyncio.wait_for(reader.readline(), PATIENCE)
    except asyncio.TimeoutError:
        return "hangs"
    return line.split()[1].decode() if line.startswith(b"HTTP/1.1 ") else "closed"


async def stays_open(reader: asyncio.StreamReader) -> bool:
    """Whether the server leaves a connection open that it has refused to read on."""
    try:
        await asyncio.wait_for(reader.read(), PATIENCE)
    except asyncio.TimeoutError:
        return True
    return False


class Attack:
    def __init__(self, address: str) -> None:
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)
        self.over = asyncio.Event()  # wait_for() may swallow a cancellation, so loops check this event, too
        self.ended: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.is_enough = False

    def end(self, name: str, status: str, since: float) -> None:
        early = name == "nothing" and status == "closed" and asyncio.get_running_loop().time() - since < LEAST_SILENCE
        self.ended[name]["closed early" if early else status] += 1
        if not self.is_enough and self.has_enough():
            self.is_enough = True
            print("enough", flush=True)

    def has_enough(self) -> bool:
        """Whether each attack has ended, the slow ones twice on each of their connections."""
        slow = {name: 2 * count for name, (_, count, _) in SLOW.items() if name != "nothing"}
        least = {"gone": GONE, **dict.fromkeys(AT_ONCE, 1), **dict.fromkeys(HELD, HOLDING), **slow}
        return all(sum(self.ended[name].values()) >= count for name, count in least.items())

    async def once(self, name: str, data: bytes, dripping: bool = False, stays: bool = True) -> None:
        since = asyncio.get_running_loop().time()
        try:
            reader, writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            self.end(name, "closed", since)
            return
        answer = asyncio.ensure_future(status_of(reader))
        try:
            writer.write(data)
            if not stays:
                writer.transport.abort()
            while dripping and not answer.done():
                await asyncio.wait({answer}, timeout=DRIP)
                if name != "nothing":
                    writer.write(b"a")
            self.end(name, await answer, since)
        except OSError:
            self.end(name, "closed", since)
        finally:
            answer.cancel()
            writer.transport.abort()

    async def go_on(self, name: str, data: bytes, dripping: bool) -> None:
        while not self.over.is_set():
            await self.once(name, data, dripping)
            await asyncio.sleep(PAUSE * len(AT_ONCE))

    async def hold(self, name: str, data: bytes, half_closes: bool) -> None:
        """Requests whose client leaves the end of the connection to the server."""
        while not self.over.is_set():
            since = asyncio.get_running_loop().time()
            try:
                reader, writer = await asyncio.open_connection(self.host, self.port)
                writer.write(data)
                if half_closes:
                    writer.write_eof()
                status = await status_of(reader)
                self.end(name, "stays open" if await stays_open(reader) else status, since)
                writer.transport.abort()
            except OSError:
                self.end(name, "closed", since)
            await asyncio.sleep(PAUSE * len(AT_ONCE))

    async def leave_midway(self) -> None:
        """Requests whose client goes at once."""
        while not self.over.is_set():
            await self.once("gone", post(b"{}"), stays=False)
            await asyncio.sleep(PAUSE)

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.over.set)
        tasks = [asyncio.ensure_future(self.leave_midway())]
        for name, (data, _) in AT_ONCE.items():
            tasks.append(asyncio.ensure_future(self.go_on(name, data, False)))
        for name, (data, count, _) in SLOW.items():
            tasks += [asyncio.ensure_future(self.go_on(name, data, True)) for _ in range(count)]
        for name, (data, half_closes, _) in HELD.items():
            tasks += [asyncio.ensure_future(self.hold(name, data, half_closes)) for _ in range(HOLDING)]
        await self.over.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    attack = Attack(sys.argv[1])
    asyncio.run(attack.run())
    print(json.dumps(attack.ended))


if __name__ == "__main__":
    main()
