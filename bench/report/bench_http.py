#!/usr/bin/env python3
"""Measures OpenAI's API over HTTP, compared with the engine and gRPC, and writes docs/benchmarks/http.{json,md}.

    bench/report/bench_http.py RUNNEL BUNDLE TINY_BUNDLE OUT_DIRECTORY [--rounds N] [--streams N]

It measures three things, with the clients on the same machine:
  speed   values per second of 32 streams, 16 values in a message: of the engine, over gRPC and over HTTP
  first   the time from a request to its first value, over gRPC and over HTTP, one call at a time
  open    the memory of an open stream in addition to its state, with the tiny model and one value per second and stream

Both bundles must be of models without a last position (scripts/runnel-random-bundle --endless). Rounds alternate,
and medians are reported. Have the machine to yourself: `uptime` should say 0.

Needs protoc, and Python with grpcio and protobuf; on Debian: scripts/setup bench
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from runnel_client import messages, serving

AT_ONCE = 32
VALUES = 512
FIRST_CALLS = 50
SETTLE = 5  # seconds to wait after the streams are open, before memory is read
ONE_THREAD = ("--backend", "cpu", "--threads", "1")


def request(host, values, key):
    body = json.dumps({"prompt": [1], "max_tokens": values, "stream": True, "seed": 1})
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@contextlib.contextmanager
def http_server(runnel, bundle, *flags):
    """A server with gRPC and HTTP: its process, and the addresses of both."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "log")
        own = (*ONE_THREAD, "--http-address", "127.0.0.1:0", "--log-access=false", *flags)
        with serving.running(runnel, bundle, log, own) as (process, address):
            yield process, address, re.search(r" http address=(\S+)", log.read_text(encoding="utf-8")).group(1)


def connect(http):
    host, port = http.rsplit(":", 1)
    return socket.create_connection((host, int(port)))


def stream_all(http, streams, values):
    """Values per second of streams that begin together. Each is read to its end."""
    waiting = selectors.DefaultSelector()
    asked = request(http, values, "none")
    sockets = [connect(http) for _ in range(streams)]
    start = time.perf_counter()
    for connection in sockets:
        connection.sendall(asked)
        waiting.register(connection, selectors.EVENT_READ, bytearray())
    while waiting.get_map():
        for event, _ in waiting.select():
            tail = event.data
            tail += event.fileobj.recv(1 << 16)
            if b"data: [DONE]" in tail[-64:]:
                waiting.unregister(event.fileobj)
            del tail[:-64]
    elapsed = time.perf_counter() - start
    for connection in sockets:
        connection.close()
    return streams * values / elapsed


def bench(runnel, *words):
    """Values per second, as `runnel bench` measures them with 32 sequences."""
    line = [runnel, "bench", "--batch", str(AT_ONCE), "--values", str(VALUES), "--seconds", "2", "--json", *words]
    told = json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout)
    return told["throughput"][0]["values_per_s"]


def measure_speed(runnel, bundle, rounds):
    measured: dict[str, list[float]] = {"engine": [], "gRPC": [], "HTTP": []}
    most = ("--sessions", str(AT_ONCE), "--batch-rows", str(AT_ONCE))
    with http_server(runnel, bundle, *most) as (_, address, http):
        stream_all(http, AT_ONCE, VALUES)  # to warm up
        for _ in range(rounds):
            measured["engine"].append(bench(runnel, "--what", "engine", *ONE_THREAD, bundle))
            measured["gRPC"].append(bench(runnel, "--what", "streams", "--server", address))
            measured["HTTP"].append(statistics.median(stream_all(http, AT_ONCE, VALUES) for _ in range(3)))
    return measured


def first_by_http(http):
    with connect(http) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start = time.perf_counter()
        connection.sendall(request(http, 1, "none"))
        received = b""
        while b"data: {" not in received:
            received += connection.recv(1 << 16)
        return (time.perf_counter() - start) * 1e3


def measure_first(runnel, bundle):
    """Milliseconds to the first value, over gRPC and over HTTP in turn."""
    import grpc

    contract = messages.inference()
    asked = contract.GenerateRequest(max_values=1)
    asked.values.values.append(1)
    measured: dict[str, list[float]] = {"gRPC": [], "HTTP": []}
    with (
        http_server(runnel, bundle) as (_, address, http),
        grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel,
    ):
        generate = channel.unary_stream(
            "/runnel.v1.Inference/Generate",
            request_serializer=contract.GenerateRequest.SerializeToString,
            response_deserializer=contract.GenerateResponse.FromString,
        )
        for _ in range(FIRST_CALLS):
            start = time.perf_counter()
            call = generate(asked, timeout=60)
            while not next(call).HasField("values"):
                pass
            measured["gRPC"].append((time.perf_counter() - start) * 1e3)
            call.cancel()
            measured["HTTP"].append(first_by_http(http))
    return measured


def resident(process):
    pages = pathlib.Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def open_streams(http, process, streams, key):
    """The resident bytes of the server while `count` streams are open."""
    asked = request(http, 1 << 20, key)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(connect(http)) for _ in range(streams)]
        for connection in sockets:
            connection.sendall(asked)
        for connection in sockets:
            connection.settimeout(120)
            received = b""
            while b"\r\n\r\n" not in received:
                received += connection.recv(1 << 16)
            if not received.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"bench_http.py: a stream was not served: {received.decode()}")
        time.sleep(SETTLE)
        return resident(process)


def measure_open(runnel, bundle, streams):
    """Measures the memory of open streams. A quota of the account slows each to one value per second on average."""
    with tempfile.TemporaryDirectory() as folder:
        keys = pathlib.Path(folder, "keys.jsonl")
        new = [runnel, "key", "new", "bench", "--file", keys, "--values-per-second", str(streams)]
        key = subprocess.run(new, stdout=subprocess.PIPE, check=True).stdout.decode().strip()
        most = ("--sessions", str(streams), "--connections", str(streams + 16), "--call-bytes", str(1 << 30))
        with http_server(runnel, bundle, *most, "--keys", str(keys)) as (process, address, http):
            info = [runnel, "info", "--server", address, "--api-key", key, "--json"]
            told = json.loads(subprocess.run(info, stdout=subprocess.PIPE, check=True).stdout)
            states = told.get("models", [told])[0]["state_bytes"] * streams
            before = resident(process)
            held = open_streams(http, process, streams, key)
    return {"streams": streams, "states": states, "added": held - before - states}


def report(figures):
    speed, first, opened = figures["values_per_s"], figures["first_ms"], figures["open"]
    medians = {door: statistics.median(rounds) for door, rounds in speed.items()}
    shares = {
        door: f" ({100 * median / medians['engine']:.0f}%)" for door, median in medians.items() if door != "engine"
    }
    first_of = {door: statistics.median(calls) for door, calls in first.items()}
    return "\n".join(
        [
            "# HTTP",
            "",
            f"OpenAI's API over HTTP, compared with the engine and gRPC. Server and clients share {os.cpu_count()} "
            f"cores; load average {figures['load_average']:.2f} at the start. Model of the paper's MNIST size with "
            "random weights on one thread.",
            "",
            f"Values a second of {AT_ONCE} streams of {VALUES} values that begin at the same time, with 16 values in a "
            f"message. In brackets: percent of the engine. Medians of {len(speed['engine'])} alternating rounds.",
            "",
            "| engine | gRPC | HTTP |",
            "| --- | --- | --- |",
            f"| {' | '.join(f'{median:,.0f}{shares.get(door, str())}' for door, median in medians.items())} |",
            "",
            f"The time from a request to its first value, on an idle server: {first_of['gRPC']:.2f} ms by gRPC "
            f"(grpcio), {first_of['HTTP']:.2f} ms over HTTP with a new connection for each request (medians of "
            f"{FIRST_CALLS} alternating calls).",
            "",
            f"{opened['streams']:,} open streams with one value a second each add {opened['added'] / 1e6:.1f} MB to "
            f"the server's memory ({opened['added'] / opened['streams'] / 1e3:.1f} KB each), in addition to their "
            f"states. This was measured {SETTLE} s after the last stream was admitted.",
            "",
            "Reproduce with `make bench-http` on an idle machine.",
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("runnel", "bundle", "tiny", "out"):
        parser.add_argument(name)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=2000)
    options = parser.parse_args()
    figures = {
        "load_average": os.getloadavg()[0],
        "values_per_s": measure_speed(options.runnel, options.bundle, options.rounds),
        "first_ms": measure_first(options.runnel, options.bundle),
        "open": measure_open(options.runnel, options.tiny, options.streams),
    }
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "http.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (out / "http.md").write_text(report(figures), encoding="utf-8")
    print(report(figures))


if __name__ == "__main__":
    main()
