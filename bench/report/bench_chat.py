#!/usr/bin/env python3
"""Measures a long conversation over OpenAI's API, compared with llama-server. Writes docs/benchmarks/chat.{json,md}.

Both servers have the same RWKV-7 models of published sizes, with random weights in bf16. As usual, the client sends the
whole conversation with each turn. It sends answers back unchanged (kept), or only half of each (cut), like clients that
leave out the thinking. At each turn the program measures the time to the first text, the tokens that the server read,
and the server's memory. Answers consist only of letters, so that their text becomes the same tokens again.

It then measures how the prefix cache affects callers who do not chat: calls that each have their own prompt, with and
without the cache.

    bench/report/bench_chat.py                 # make bench-chat: builds what is missing, writes docs/benchmarks/chat.md
    bench/report/bench_chat.py --models 0.1B --turns 10 --docs build/bench/chat

llama.cpp is built as bench_text.py does. Needs a built runnel, Python with numpy and venv, a C++ compiler and cmake.
"""

import contextlib
import http.client
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time
from typing import Any

from bench_cpu import BenchError, add_models, page_parser, quiet_machine, run, write_page
from bench_report import table
from bench_text import PLAIN, ROOT, Files, Setup, cores, is_ready

sys.path.insert(0, str(ROOT / "python"))

TEMPLATE = ROOT / "examples/plain_chat.jinja"
CHAT_MODELS = ("RWKV-7 0.1B", "RWKV-7 0.4B")
ANSWER = 64  # values of an answer; a token of these models is a byte
QUESTION = "How wide was the river on the day when nobody saw the boat go by"
LETTERS = {str(1 + byte): 100 for byte in b"abcdefghijklmnopqrstuvwxyz"}  # RWKV's tokens of bytes begin at 1
CONTEXT = 1 << 15  # tokens that llama-server keeps
PORT = 50972
SHOWN = (1, 5, 10, 25, 50)  # turns
EARLY = 5  # the turn that the last one is compared with
GROWTH, SPEED, COST = 1.2, 5, 0.02  # the goals
AT_ONCE, CALL_SECONDS = 32, 10


class ChatFiles(Files):
    """A model's files with a vocabulary, because the clients send text."""

    def __init__(self, setup, model):
        super().__init__(setup, model)
        self.bundle = self.beside("-chat")
        self.gguf = self.beside(".gguf")

    def vocabulary(self):
        from runnel_client import random_published

        return random_published.vocabulary_text()

    def make_bundle(self):
        sizes = PLAIN[self.model]
        words = [word for key in ("preset", "layers", "width") for word in (f"--{key}", sizes[key])]
        maker = ROOT / "scripts/runnel-random-bundle"
        run([sys.executable, maker, *words, "--dtype", "bf16", "--out", self.bundle])

    def make(self):
        if not (self.bundle / "model.safetensors").exists():
            self.make_bundle()
        if "llama.cpp" not in self.setup.missing and not self.gguf.exists():
            self.make_gguf()


# --- Servers: each yields its process and its port ---


@contextlib.contextmanager
def runnel_serving(runnel, files, *flags):
    from runnel_client import serving

    name = files.bundle.name
    own = ("--backend", "cpu", "--http-address", "127.0.0.1:0", "--chat-template", f"{name}={TEMPLATE}")
    log = files.setup.folder / "chat-serve.log"
    with serving.running(runnel, files.bundle, log, (*own, "--log-access=false", *flags)) as (process, address):
        found = re.search(r" http address=\S+:(\d+)", log.read_text(encoding="utf-8"))
        yield process, int(found.group(1)), address


@contextlib.contextmanager
def llama_serving(_, files):
    words = ["-m", files.gguf, "-np", 1, "-c", CONTEXT, "-t", cores(), "-tb", cores(), "--port", PORT, "--no-webui"]
    words += ["--jinja", "--chat-template-file", TEMPLATE]
    log = files.setup.folder / "chat-llama-server.log"
    with open(log, "w", encoding="utf-8") as file:
        program = files.setup.program("llama-server")
        process = subprocess.Popen([str(word) for word in (program, *words)], stdout=file, stderr=file)
    try:
        began = time.monotonic()
        while not is_ready(f"http://127.0.0.1:{PORT}"):
            if process.poll() is not None or time.monotonic() - began > 120:
                raise BenchError(f"llama-server did not start: {log}")
            time.sleep(0.05)
        yield process, PORT, ""
    finally:
        process.terminate()
        process.wait(timeout=60)


SERVERS: dict[str, Any] = {"runnel": runnel_serving, "llama-server": llama_serving}


# --- A conversation ---


def events(port, body):
    """The JSON of each event of a streamed answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise BenchError(f"a chat was answered with {answer.status}: {answer.read().decode()}")
    for line in answer:
        if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
            yield json.loads(line[6:])
    connection.close()


def ask(port, messages):
    """The answer and its figures: ms to the first text and to the end, and the tokens read and in the whole prompt."""
    body = {"messages": messages, "max_tokens": ANSWER, "logit_bias": LETTERS, "seed": len(messages), "stream": True}
    began = time.perf_counter()
    first, text = 0.0, ""
    usage: dict[str, Any] = {}
    timings: dict[str, Any] = {}
    for event in events(port, {**body, "stream_options": {"include_usage": True}}):
        for choice in event.get("choices", []):
            piece = choice["delta"].get("content") or ""
            if piece and not text:
                first = time.perf_counter() - began
            text += piece
        usage, timings = event.get("usage") or usage, event.get("timings") or timings
    if len(text) != ANSWER:
        raise BenchError(f"an answer has {len(text)} characters of {ANSWER}")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    read = timings.get("prompt_n", usage["prompt_tokens"] - cached)
    whole = time.perf_counter() - began
    return text, {"first_ms": 1e3 * first, "all_ms": 1e3 * whole, "read": read, "prompt": usage["prompt_tokens"]}


def memory(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return 1024 * int(re.search(r"^VmRSS:\s+(\d+)", status, re.MULTILINE).group(1))


def converse(process, port, turns, keeps):
    """The figures of each turn. `keeps`: the client sends answers back unchanged; otherwise only half of each."""
    ask(port, [{"role": "user", "content": "Another conversation, to warm up"}])
    messages, figures = [], []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{QUESTION}, {turn}?"})
        text, found = ask(port, messages)
        messages.append({"role": "assistant", "content": text if keeps else text[ANSWER // 2 :]})
        figures.append({**found, "memory": memory(process)})
    return figures


# --- Callers who do not chat ---


def others_rate(runnel, files, cache_bytes):
    """Values per second of calls that each have their own prompt."""
    flags = ("--prefix-cache-bytes", str(cache_bytes), "--sessions", str(2 * AT_ONCE), "--batch-rows", str(AT_ONCE))
    with runnel_serving(runnel, files, *flags) as (_, _, address):
        calls = ("--find-capacity", "--concurrency", AT_ONCE, "--prompt", 64, "--values", 64)
        told = run([runnel, "load", "--server", address, *calls, "--duration", CALL_SECONDS, "--json"])
    load = json.loads(told)["runs"][0]
    return load["values"] / load["seconds"]


def measure_cost(runnel, files, rounds):
    rates: dict[int, list[float]] = {0: [], 1 << 30: []}
    for number in range(rounds):
        for cache_bytes in sorted(rates, reverse=number % 2 == 1):
            rates[cache_bytes].append(others_rate(runnel, files, cache_bytes))
    without, with_cache = (statistics.median(rates[one]) for one in rates)
    return {"without": without, "with": with_cache, "cost": 1 - with_cache / without, "runs": list(rates.values())}


# --- The page ---


def turns_table(ways, turns):
    rows = []
    for turn in (turn for turn in SHOWN if turn <= turns):
        row = [str(turn), f"{ways['runnel'][turn - 1]['prompt']:,}"]
        for way in SERVERS:
            one = ways[way][turn - 1] if way in ways else None
            row += ["-"] * 3 if one is None else figures_of_turn(one)
        rows.append(row)
    head = [f"{way}: {what}" for way in SERVERS for what in ("first text", "read", "memory")]
    return table(["turn", "tokens", *head], rows)


def figures_of_turn(one):
    return [f"{one['first_ms']:,.0f} ms", f"{one['read']:,}", f"{one['memory'] / 2**20:,.0f} MiB"]


def verdicts(ways, turns):
    """The figures compared with the goals."""
    last, early = ways["runnel"][turns - 1]["first_ms"], ways["runnel"][min(EARLY, turns) - 1]["first_ms"]
    growth = f"runnel's first text of turn {turns} takes {last / early:.2f}x as long as that of turn {EARLY}"
    lines = [f"{growth} (goal: at most {GROWTH}x)."]
    if "llama-server" in ways:
        times = ways["llama-server"][turns - 1]["first_ms"] / last
        lines.append(
            f"llama-server's at turn {turns} takes {times:.1f}x as long as runnel's (goal: at least {SPEED}x)."
        )
    return " ".join(lines)


KINDS = {True: "answers sent back as they came", False: "half of each answer sent back"}


def page(figures):
    about, turns = figures["machine"], figures["turns"]
    lines = [
        "# Conversations",
        "",
        f"{about['cores']} cores of {about['cpu']}, load average {about['load_average']:.1f}. RWKV-7 with random "
        f"weights in bf16, one conversation of {turns} turns, sent whole at each turn over HTTP. A question and an "
        f"answer have about {len(QUESTION) + 4} and {ANSWER} tokens. llama-server is that of {figures['llama']}.",
        *(f"Without {name}: {why}." for name, why in figures["missing"].items() if name != "rwkv"),
        "",
        'The columns "read" say how many tokens the model read at that turn; its state already contained the '
        "earlier ones. llama-server also keeps states of recurrent models between turns, so it reads only the new "
        "tokens.",
    ]
    for model, found in figures["models"].items():
        for keeps, ways in zip(KINDS.values(), found["chats"], strict=True):
            lines += ["", f"## {model}, {keeps}", "", turns_table(ways, turns), verdicts(ways, turns)]
    cost = figures["cost"]
    lines += [
        "",
        "## The cost for other streams",
        "",
        f"{AT_ONCE} concurrent calls of {cost['model']}, each with its own prompt of 64 values and 64 values to "
        f"sample: {cost['without']:,.0f} values/s without the prefix cache, {cost['with']:,.0f} with it, "
        f"{cost['cost']:+.1%} lost (goal: less than {COST:.0%}). The alternating runs in values/s: "
        f"{', '.join(f'{one:,.0f}' for one in cost['runs'][0])} without, "
        f"{', '.join(f'{one:,.0f}' for one in cost['runs'][1])} with.",
        "",
        "Reproduce with `make bench-chat`.",
    ]
    return "\n".join(lines) + "\n"


def write(figures, docs):
    (docs / "chat.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (docs / "chat.md").write_text(page(figures), encoding="utf-8")


def measure(arguments):
    setup = Setup(arguments.folder)
    setup.make(without=("llama-quantize",))
    missing = {name: why for name, why in setup.missing.items() if name != "rwkv"}
    figures = {"machine": quiet_machine(), "llama": "llama-cpp-python " + setup.versions()["llama-cpp-python"]}
    figures |= {"turns": arguments.turns, "missing": missing, "models": {}}
    for model in arguments.models:
        files = ChatFiles(setup, model)
        files.make()
        chats = []
        for keeps in KINDS:
            ways = {}
            for way, serving in SERVERS.items():
                if way in missing or "llama.cpp" in missing and way == "llama-server":
                    continue
                with serving(arguments.runnel, files) as (process, port, _):
                    ways[way] = converse(process, port, arguments.turns, keeps)
                last = ", ".join(figures_of_turn(ways[way][-1]))
                print(f"{time.strftime('%H:%M:%S')} {model}, {KINDS[keeps]}: {way}: {last}", flush=True)
            chats.append(ways)
        figures["models"][model] = {"chats": chats}
    smallest = arguments.models[0]
    cost = measure_cost(arguments.runnel, ChatFiles(setup, smallest), arguments.rounds)
    return {**figures, "cost": {"model": smallest, **cost}}


def make_parser():
    parser = page_parser("chat", __doc__)
    add_models(parser, CHAT_MODELS, str.endswith, "SIZE,...", "some of 0.1B and 0.4B (default: both)")
    parser.add_argument("--turns", type=int, default=50, help="of a conversation (default: %(default)s)")
    return parser


def measure_and_write(arguments):
    write(measure(arguments), arguments.docs)


if __name__ == "__main__":
    sys.exit(write_page(make_parser(), measure_and_write))
