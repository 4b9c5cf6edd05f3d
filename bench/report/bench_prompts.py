#!/usr/bin/env python3
"""Measures how long prompts slow down other streams, and writes docs/benchmarks/prompts.{json,md}.

    bench/report/bench_prompts.py RUNNEL LARGE_BUNDLE OUT_DIRECTORY

A small model, zoo/text-endless-small, and a large one (scripts/runnel-random-bundle --preset rwkv7) each have 4
streams. The program measures the gaps between the values that each stream reads in three cases: alone, while a client
sends one long prompt after another, and while three clients have long texts tokenized. It measures each case with and
without limits.prompt_slowdown, and also how long a prompt takes without other calls. Rounds alternate. Have the machine
to yourself: `uptime` should say 0.

Needs protoc, and Python with grpcio and protobuf; on Debian: scripts/setup bench
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from runnel_client import messages, serving

ROOT = pathlib.Path(__file__).resolve().parents[2]
STREAMS = 4
TEXT = 262_000  # bytes, just below limits.text_bytes
TOKENIZERS = 3
SLOWDOWNS = (0, 4)
WORDS = "The river was wide and slow, and nobody on the bank had seen the boat go by. "


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model, and how many values its long prompts have."""

    name: str
    bundle: pathlib.Path
    prompt: int


def text_of(size):
    return (WORDS * (size // len(WORDS) + 1))[:size]


def open_generate(address):
    import grpc

    contract = messages.inference()
    channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])
    method = channel.unary_stream(
        "/runnel.v1.Inference/Generate",
        request_serializer=contract.GenerateRequest.SerializeToString,
        response_deserializer=contract.GenerateResponse.FromString,
    )
    return contract, method


def gaps_of_streams(runnel, address, seconds):
    """The gaps between the values of streams, in ms: {"p50": ..., "p99": ..., "max": ...}."""
    streams = ("--find-capacity", "--concurrency", str(STREAMS), "--prompt", "1", "--values", "400")
    pace = ("--values-per-message", "1", "--warm-up", "0.5", "--duration", str(seconds), "--json")
    command = [runnel, "load", "--server", address, *streams, *pace]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(done.stdout)["runs"][0]["gap_ms"]


def prompt_of(contract, size):
    """Values, so that nothing has to be tokenized."""
    request = contract.GenerateRequest(max_values=1)
    request.values.values.extend(text_of(size).encode())
    return request


def send_prompts(address, stop, size):
    """Sends one prompt of `size` values after the other until `stop`."""
    contract, generate = open_generate(address)
    request = prompt_of(contract, size)
    while not stop.is_set():
        call = generate(request)
        while not stop.is_set() and not call.done():
            time.sleep(0.05)
        call.cancel()


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return answer.read()


def have_tokenized(http, stop, _):
    body = {"prompt": text_of(TEXT)}
    while not stop.is_set():
        post(f"{http}/tokenize", body)


def ask_for_models(http, seconds, latencies):
    """Puts the latencies of GET /v1/models, in ms, into a queue."""
    found = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        with urllib.request.urlopen(f"{http}/v1/models", timeout=600) as answer:
            answer.read()
        found.append(1e3 * (time.perf_counter() - began))
        time.sleep(0.02)
    latencies.put(found)


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def measure(runnel, address, http, seconds, disturb, count, size):
    """Gaps of streams and latencies of GET /v1/models, in ms, beside `count` processes of `disturb`."""
    make = multiprocessing.get_context("spawn")
    stop, latencies = make.Event(), make.Queue()
    where = http if disturb is have_tokenized else address
    others = [make.Process(target=disturb, args=(where, stop, size)) for _ in range(count)]
    for other in others:
        other.start()
    time.sleep(2 if others else 0)
    asking = make.Process(target=ask_for_models, args=(http, seconds, latencies))
    asking.start()
    gaps = gaps_of_streams(runnel, address, seconds)
    waits = latencies.get()
    stop.set()
    for process in (asking, *others):
        process.join()
    return {
        "gap_p50": gaps["p50"],
        "gap_p99": gaps["p99"],
        "gap_max": gaps["max"],
        "models_p50": quantile(waits, 0.5),
        "models_max": max(waits),
    }


def seconds_of_a_prompt(address, size):
    contract, generate = open_generate(address)
    request = prompt_of(contract, size)
    began = time.perf_counter()
    for _ in generate(request):
        pass
    return time.perf_counter() - began


CASES = {
    "alone": (None, 0),
    "while a prompt is read": (send_prompts, 1),
    "while three texts are tokenized": (have_tokenized, TOKENIZERS),
}


def run(runnel, subject, rounds, seconds):
    results: dict[int, dict[str, list[dict[str, float]]]] = {
        slowdown: {case: [] for case in CASES} for slowdown in SLOWDOWNS
    }
    prompts: dict[int, list[float]] = {slowdown: [] for slowdown in SLOWDOWNS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for slowdown in SLOWDOWNS:
                flags = ("--http-address", "127.0.0.1:0", "--sessions", "16", "--prompt-slowdown", str(slowdown))
                log = pathlib.Path(folder, "log")
                with serving.running(runnel, subject.bundle, log, flags) as (_, address):
                    [port] = re.findall(r" http address=127\.0\.0\.1:(\d+)", log.read_text(encoding="utf-8"))
                    http = f"http://127.0.0.1:{port}"
                    prompts[slowdown].append(seconds_of_a_prompt(address, subject.prompt))
                    for case, (disturb, count) in CASES.items():
                        found = measure(runnel, address, http, seconds, disturb, count, subject.prompt)
                        results[slowdown][case].append(found)
    return {"gaps": results, "prompt_seconds": prompts}


def table(figures):
    """The lines about one model."""
    lines = [
        "| `prompt_slowdown` | streams | gap p50 | gap p99 | gap max | `GET /v1/models` p50 | `GET /v1/models` max |",
        "| --- " * 7 + "|",
    ]
    for slowdown, cases in figures["gaps"].items():
        for case, rounds in cases.items():
            middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
            most = {name: max(one[name] for one in rounds) for name in rounds[0]}
            lines.append(
                f"| {slowdown} | {case} | {middle['gap_p50']:.2f} ms | {middle['gap_p99']:.2f} ms | "
                f"{most['gap_max']:.1f} ms | {middle['models_p50']:.1f} ms | {most['models_max']:.1f} ms |"
            )
    alone = [
        f"{statistics.median(taken):.2f} s with `prompt_slowdown` {name}"
        for name, taken in figures["prompt_seconds"].items()
    ]
    return [*lines, "", f"Without other calls, a prompt takes {' and '.join(alone)}."]


def report(subjects, figures, cpu):
    lines = [
        "# Streams while long prompts are read",
        "",
        f"{cpu}, load average {os.getloadavg()[0]:.1f}. {STREAMS} clients read a stream each, with one value in a "
        "message: alone, while another client sends one long prompt after another, and while three clients have texts "
        f"of {TEXT:,} bytes tokenized. A gap is the time between two values of a stream. Percentiles are medians over "
        "the rounds, maxima are over all rounds. The goals: while a prompt is read, the median gap is at most 4 times "
        "that of streams alone, and no gap is longer than 50 ms.",
    ]
    for subject in subjects:
        lines += ["", f"## {subject.name}, prompts of {subject.prompt:,} values", "", *table(figures[subject.name])]
    return "\n".join([*lines, "", "Reproduce with `make bench-prompts`.", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runnel", type=pathlib.Path)
    parser.add_argument("large", type=pathlib.Path, help="a bundle of RWKV-7 of 0.1B")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    args = parser.parse_args()
    subjects = (
        Subject("zoo/text-endless-small", ROOT / "zoo/text-endless-small", 262_144),
        Subject("RWKV-7 0.1B, random weights", args.large, 8_192),
    )
    figures = {subject.name: run(args.runnel, subject, args.rounds, args.seconds) for subject in subjects}
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    machine = f"{os.cpu_count()} cores of {cpu[1] if cpu else 'an unknown processor'}"
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "prompts.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (args.out / "prompts.md").write_text(report(subjects, figures, machine), encoding="utf-8")


if __name__ == "__main__":
    main()
