#!/usr/bin/env python3
"""Measures RWKV-7 and Mamba-2 on this machine's CPU in runnel, llama.cpp and BlinkDL's rwkv package. Writes text.md.

All programs have the same random weights of published sizes in bf16: runnel with flash-linear-attention's names,
llama.cpp as GGUF, rwkv as .pth. Two models are also measured in 4 and 8 bits, with the same GGUF files of
llama-quantize for runnel and llama.cpp. In each round and for each model, the programs take turns, one at a time:
runnel's engine and its server, llama-batched-bench and llama-server, and the rwkv package. Each round also measures the
machine's limits.

    bench/report/bench_text.py                 # make bench-text: builds what is missing, writes docs/benchmarks/text.md
    bench/report/bench_text.py --models 0.1B --rounds 1 --docs build/bench/text
    bench/report/bench_text.py --models 0.4B,1.5B --kinds q4_0,q4_k,q8_0 --docs build/bench/text
    bench/report/bench_text.py --rounds 1 --add  # another round for the page that is there

llama.cpp is built from the sources in PyPI's llama-cpp-python, and rwkv installed with PyTorch, under build/bench/text.
A peer that cannot be had is left out, and the page says why. Needs a built runnel, Python with numpy and venv, a C++
compiler and cmake, 16 GB of memory and 24 GB of disk.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import time
import urllib.request
from typing import Any

import gguf_sizes
import logit_distance
import text_page
from bench_cpu import (
    PEER_PACKAGES,
    BenchError,
    add_models,
    install_peers,
    page_parser,
    quiet_machine,
    run,
    write_page,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

BATCHES = (1, 4, 16)
PROMPT = 512
SLOTS = max(BATCHES)
DISTURBED = 0.1  # a measurement is repeated if other programs used more than this share of the machine
TRIES = 3
SDIST = "llama-cpp-python==0.3.36"
PORT = 50971
HEAD = "lm_head.weight"
FIRST_WORD, VALUES = 257, 65536  # of RWKV's vocabulary: 0 ends texts, then come the bytes

# Layers and width by name. `values`: how many values to decode for a measurement of a few seconds.
PLAIN: dict[str, dict[str, Any]] = {
    "RWKV-7 0.1B": {"preset": "rwkv7", "layers": 12, "width": 768, "values": 64},
    "RWKV-7 0.4B": {"preset": "rwkv7", "layers": 24, "width": 1024, "values": 48},
    "RWKV-7 1.5B": {"preset": "rwkv7", "layers": 24, "width": 2048, "values": 24},
    "Mamba-2 130m": {"preset": "mamba2", "layers": 24, "width": 768, "values": 48},
}
KINDS = {"Q4_0": "Q4_0", "Q4_K": "Q4_K_M", "Q8_0": "Q8_0"}  # our name -> llama-quantize's name
MODELS = PLAIN | {
    f"{model} {kind}": {**PLAIN[model], "kind": kind, "of": model}
    for model in ("RWKV-7 0.4B", "RWKV-7 1.5B")
    for kind in KINDS
}
COMPARED = "RWKV-7 0.4B"  # the model whose log probabilities are compared, in every kind


def folder_name(model):
    return model.replace(" ", "-").lower()


def cores():
    return len(os.sched_getaffinity(0))


class Setup:
    """The peers, built under a folder. `missing` has the name of each missing peer, with the reason."""

    def __init__(self, folder):
        self.folder = folder
        self.python = folder / "../peers/bin/python"
        self.missing = {}

    def source(self):
        return next(self.folder.glob("llama_cpp_python-*/vendor/llama.cpp"), None)

    def program(self, name):
        return self.folder / "llama-build/bin" / name

    def make(self, without=()):
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, make in (
            ("rwkv", lambda: install_peers(self.python.parents[1])),
            ("llama.cpp", self.build_llama),
            ("llama-server", lambda: self.build("llama-server")),
            ("llama-quantize", lambda: self.build("llama-quantize")),
        ):
            if name in without:
                continue
            try:
                make()
            except (BenchError, OSError) as error:
                self.missing[name] = " ".join(str(error).split())
                print(f"without {name}: {self.missing[name]}", flush=True)

    def build_llama(self):
        if self.source() is None:
            print("fetching the sources of llama.cpp from PyPI", flush=True)
            words = ["download", "-q", "--no-deps", "--no-binary", ":all:", SDIST, "-d", self.folder]
            run([self.python, "-m", "pip", *words])
            archive = next(self.folder.glob("llama_cpp_python-*.tar.gz"))
            run(["tar", "-xzf", archive, "-C", self.folder])
        self.build("llama-batched-bench")

    def build(self, target):
        if self.program(target).exists():
            return
        source = self.source()
        if source is None:
            raise BenchError("there are no sources of llama.cpp")
        print(f"building {target}", flush=True)
        options = ["CMAKE_BUILD_TYPE=Release", "GGML_NATIVE=ON", "BUILD_SHARED_LIBS=OFF", "LLAMA_CURL=OFF"]
        options += ["LLAMA_OPENSSL=OFF", "LLAMA_BUILD_TESTS=OFF", "LLAMA_BUILD_EXAMPLES=OFF"]
        run(["cmake", "-S", source, "-B", self.folder / "llama-build", *(f"-D{one}" for one in options)])
        run(["cmake", "--build", self.folder / "llama-build", "-j", str(cores()), "--target", target])

    def versions(self):
        return dict(one.split("==") for one in (*PEER_PACKAGES, SDIST) if "==" in one)


class Files:
    """A model's files for all programs. make() makes the missing ones."""

    def __init__(self, setup, model):
        self.setup, self.model = setup, model
        self.bundle = setup.folder / "models" / folder_name(model)
        self.gguf, self.pth = (self.beside(suffix) for suffix in ("-bf16.gguf", ".pth"))
        self.served = self.bundle  # the path that runnel serves

    def beside(self, suffix):
        return self.bundle.parent / (self.bundle.name + suffix)

    def make(self):
        if not (self.bundle / "model.safetensors").exists():
            self.make_bundle()
        is_rwkv = MODELS[self.model]["preset"] == "rwkv7"
        if "llama.cpp" not in self.setup.missing and not self.gguf.exists():
            self.make_gguf()
        if is_rwkv and "rwkv" not in self.setup.missing and not self.pth.exists():
            run([self.setup.python, ROOT / "bench/report/bench_text_peer.py", "--write", self.bundle, self.pth])

    def make_bundle(self):
        """Makes runnel's bundle without RWKV's vocabulary, with which the values that it lacks would be padding."""
        sizes = MODELS[self.model]
        words = [word for key in ("preset", "layers", "width") for word in (f"--{key}", sizes[key])]
        maker = ROOT / "scripts/runnel-random-bundle"
        run([sys.executable, maker, *words, "--dtype", "bf16", "--out", self.bundle])
        for vocabulary in self.bundle.glob("rwkv_vocab*"):
            vocabulary.unlink()

    def vocabulary(self):
        """A token for each value: a value without one would be padding, which runnel does not compute."""
        from runnel_client import random_published

        words = ((value, f"w{value}") for value in range(FIRST_WORD, VALUES))
        return random_published.vocabulary_text() + "".join(f"{value} '{word}' {len(word)}\n" for value, word in words)

    def make_gguf(self):
        """Makes the GGUF file with llama.cpp's own program, which needs a vocabulary."""
        from runnel_client.publish import VOCABULARY

        source = self.beside(".source")
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        for name in ("config.json", "model.safetensors"):
            (source / name).symlink_to(self.bundle / name)
        (source / VOCABULARY).write_text(self.vocabulary(), encoding="utf-8")
        part = self.beside(".part")
        converter = self.setup.source() / "convert_hf_to_gguf.py"
        run([self.setup.python, converter, source, "--outtype", "bf16", "--outfile", part])
        part.rename(self.gguf)

    def weight_bytes(self):
        """The bytes that a step reads, and the bytes of the head. An embedding that is not also the head is left out,
        because a step reads only one row of it."""
        with open(self.bundle / "model.safetensors", "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(size))
        sizes = {
            name: entry["data_offsets"][1] - entry["data_offsets"][0]
            for name, entry in header.items()
            if name != "__metadata__"
        }
        tied = HEAD not in sizes
        head = sum(size for name, size in sizes.items() if is_table(name) and (tied or name == HEAD))
        return {"head_bytes": head, "step_bytes": head + sum(sizes[name] for name in sizes if not is_table(name))}

    def read(self):
        """Reads the files into the page cache, so that no figure depends on the disk."""
        for path in (*self.bundle.glob("*"), self.gguf, self.pth):
            if path.is_file():
                with open(path, "rb") as file:
                    while file.read(1 << 24):
                        pass

    def state_bytes(self, runnel):
        return json.loads(run([runnel, "info", self.served, "--json"]))["state_bytes"]


class QuantizedFiles(Files):
    """A GGUF file with weights in 4 or 8 bits, made from the file in bf16. Both programs read it."""

    def __init__(self, setup, model):
        super().__init__(setup, model)
        self.origin = Files(setup, MODELS[model]["of"])
        self.gguf = self.served = self.beside(".gguf")

    def make(self):
        if self.gguf.exists():
            return
        if not (self.origin.bundle / "model.safetensors").exists():
            self.origin.make_bundle()
        if not self.origin.gguf.exists():
            self.origin.make_gguf()
        part = self.beside(".part")
        kind = KINDS[MODELS[self.model]["kind"]]
        run([self.setup.program("llama-quantize"), self.origin.gguf, part, kind, cores()])
        part.rename(self.gguf)

    def weight_bytes(self):
        sizes = gguf_sizes.tensor_sizes(self.gguf)
        tied = "output.weight" not in sizes
        head = sizes["token_embd.weight" if tied else "output.weight"]
        unread = 0 if tied else sizes["token_embd.weight"]
        return {"head_bytes": head, "step_bytes": sum(sizes.values()) - unread}


def is_table(name):
    return name == HEAD or name.endswith(("embeddings.weight", "embed_tokens.weight"))


# --- The ways: each returns some of the figures load_s, memory_gb, "1", "4", "16" and "prompt", by name ---


def peak_gb(process):
    """The peak memory of a process, including the mapped parts of files."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        found = next(line.split()[1] for line in file if line.startswith("VmHWM:"))
    return int(found) * 1024 / 1e9


def runnel_engine(bench, files):
    sizes = MODELS[files.model]
    command = [bench.runnel, "bench", files.served, "--backend", "cpu", "--what", "engine,prompts", "--json"]
    batches = ",".join(map(str, BATCHES))
    told = json.loads(
        run([*command, "--batch", batches, "--values", sizes["values"], "--prompt", PROMPT, "--seconds", "0"])
    )
    bench.numerics[told["numerics"]] = None
    rates = {str(one["batch"]): one["values_per_s"] for one in told["throughput"]}
    return {**rates, "prompt": told["prompts"]["values_per_s"]}


def runnel_server(bench, files):
    from runnel_client import serving

    rows = ("--sessions", str(SLOTS), "--batch-rows", str(SLOTS), "--backend", "cpu")
    began = time.monotonic()
    with serving.running(bench.runnel, files.served, bench.setup.folder / "serve.log", rows) as (process, address):
        loaded = time.monotonic() - began
        command = [bench.runnel, "bench", "--server", address, "--what", "streams", "--json", "--seconds", "0"]
        values = ["--values", MODELS[files.model]["values"], "--batch", ",".join(map(str, BATCHES))]
        told = json.loads(run([*command, *values]))
        memory = peak_gb(process)
    return {
        "load_s": loaded,
        "memory_gb": memory,
        **{str(one["batch"]): one["values_per_s"] for one in told["throughput"]},
    }


def llama_bench(bench, files):
    """Measures llama-batched-bench, which feeds random values instead of sampling."""

    def rows(*words):
        common = ["-m", files.gguf, "-t", cores(), "-tb", cores(), "-c", SLOTS * PROMPT, "-b", PROMPT, "-ub", PROMPT]
        program = bench.setup.program("llama-batched-bench")
        told = run([program, *common, *words, "--output-format", "jsonl"])
        return [json.loads(line) for line in told.splitlines() if line.startswith("{")]

    decoded = rows("-npp", 1, "-ntg", MODELS[files.model]["values"], "-npl", ",".join(map(str, BATCHES)))
    prompt = rows("-npp", PROMPT, "-ntg", 1, "-npl", 1)
    return {**{str(one["pl"]): one["speed_tg"] for one in decoded}, "prompt": prompt[0]["speed_pp"]}


@contextlib.contextmanager
def llama_serving(bench, files):
    """A llama-server, its address, and the seconds until it was ready."""
    words = ["-m", files.gguf, "-np", SLOTS, "-c", SLOTS * PROMPT, "-t", cores(), "-tb", cores(), "--port", PORT]
    command = [str(word) for word in (bench.setup.program("llama-server"), *words, "--no-webui")]
    began = time.monotonic()
    with open(bench.setup.folder / "llama-server.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{PORT}"
    try:
        while not is_ready(address):
            if process.poll() is not None or time.monotonic() - began > 120:
                raise BenchError(f"llama-server did not start: {log.name}")
            time.sleep(0.05)
        yield process, address, time.monotonic() - began
    finally:
        process.terminate()
        process.wait(timeout=60)


def is_ready(address):
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def complete(address, values, seed):
    """Makes one call for `values` values, which are sampled from the whole distribution, as in runnel."""
    asked = {
        "prompt": [1],
        "n_predict": values,
        "ignore_eos": True,
        "samplers": ["temperature"],
        "temperature": 1.0,
        "seed": seed,
        "cache_prompt": False,
    }
    request = urllib.request.Request(f"{address}/completion", json.dumps(asked).encode())
    with urllib.request.urlopen(request, timeout=600) as answer:
        told = json.load(answer)
    if told["tokens_predicted"] != values:
        raise BenchError(f"llama-server gave {told['tokens_predicted']} of {values} values")


def llama_server(bench, files):
    values = MODELS[files.model]["values"]
    serving = llama_serving(bench, files)
    with serving as (process, address, loaded), concurrent.futures.ThreadPoolExecutor(SLOTS) as pool:

        def seconds(calls, count):
            began = time.monotonic()
            for call in [pool.submit(complete, address, count, seed) for seed in range(calls)]:
                call.result()
            return time.monotonic() - began

        seconds(SLOTS, 4)  # to warm up
        rates = {str(calls): calls * values / seconds(calls, values) for calls in BATCHES}
        return {"load_s": loaded, "memory_gb": peak_gb(process), **rates}


def rwkv_package(bench, files):
    program = ROOT / "bench/report/bench_text_peer.py"
    values = ["--values", MODELS[files.model]["values"], "--prompt", PROMPT]
    return json.loads(run([bench.setup.python, program, files.pth, *values]))


WAYS = {
    "runnel": runnel_engine,
    "runnel, gRPC": runnel_server,
    "llama.cpp": llama_bench,
    "llama-server": llama_server,
    "rwkv": rwkv_package,
}


def distances(bench, files):
    """How far runnel's and llama.cpp's log probabilities are from those of the file's weights in fp32."""
    with llama_serving(bench, files) as (_, address, _):
        asked, theirs = logit_distance.most_likely(address)
    log = bench.setup.folder / "serve.log"
    exact, ours = (
        logit_distance.log_probs(bench.runnel, files.served, precision, asked, log) for precision in ("fp32", "blocks")
    )
    return {"runnel": logit_distance.rms(ours, exact), "llama.cpp": logit_distance.rms(theirs, exact)}


class Bench:
    """Measures the ways in turn, and keeps their results."""

    def __init__(self, runnel, setup, models=None, ways=None):
        self.runnel, self.setup = runnel, setup
        self.models, self.ways = models or MODELS, ways or WAYS
        self.numerics = {}  # numerics ids as keys, in the order in which they were found
        self.runs = {}  # model -> way -> figure -> a number for each round
        self.limits = []  # of every round, model and way
        self.disturbed = 0.0  # the largest share that other programs used during a measurement that counts

    def rounds(self, arguments, name, about, models):
        """The numbers of the rounds to measure. With --add it first reads the results in NAME_figures.json, and the new
        rounds follow the rounds there."""
        if not arguments.add:
            return range(arguments.rounds)
        path = arguments.docs / f"{name}_figures.json"
        if not path.exists():
            raise BenchError(f"--add: there is no {path} to add rounds to; leave out --add")
        earlier = json.loads(path.read_text(encoding="utf-8"))
        if any(earlier["machine"][key] != about[key] for key in ("cpu", "cores", "flags")):
            raise BenchError(f"--add: {path} is of another machine: {earlier['machine']['cpu']}")
        if list(earlier["models"]) != list(models):
            raise BenchError(f"--add: {path} is of other models: {', '.join(earlier['models'])}")
        self.runs, self.limits = earlier["runs"], earlier["limits"]
        self.disturbed = earlier["machine"]["disturbed"]
        self.numerics = dict.fromkeys(earlier["numerics"].split(", "))
        return range(earlier["rounds"], earlier["rounds"] + arguments.rounds)

    def ways_of(self, model):
        """The ways that are available for a model."""
        missing = set(self.setup.missing)
        if "llama.cpp" in missing:
            missing.add("llama-server")
        if self.models[model]["preset"] != "rwkv7" or "kind" in self.models[model]:
            missing.add("rwkv")
        return [way for way in self.ways if way not in missing]

    def undisturbed(self, measure):
        """Calls measure() until other programs disturb it little, at most TRIES times. Returns the result that was
        disturbed the least."""
        tries: list[tuple[float, Any]] = []
        while len(tries) < TRIES and not (tries and tries[-1][0] <= DISTURBED):
            with Others() as others:
                figures = measure()
            tries.append((others.share, figures))
        share, figures = min(tries, key=lambda one: one[0])
        self.disturbed = max(self.disturbed, share)
        return figures

    def measure_round(self, number, model, files):
        files.read()
        ways = self.ways_of(model)
        for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
            self.limits.append(self.undisturbed(self.measure_limits))
            figures = self.undisturbed(lambda way=way: self.ways[way](self, files))
            for name, value in figures.items():
                self.runs.setdefault(model, {}).setdefault(way, {}).setdefault(name, []).append(round(value, 3))
            shown = ", ".join(f"{name}: {value:,.1f}" for name, value in figures.items())
            print(f"{time.strftime('%H:%M:%S')} round {number + 1}: {model}: {way}: {shown}", flush=True)

    def measure_limits(self):
        told = json.loads(run([self.runnel, "bench", "--what", "limits", "--json"]))["limits"]
        return max(told, key=lambda one: one["threads"])


class Others:
    """Sets `share` to the share of the machine that other programs used from entry to exit: the busy time without that
    of this process and its children."""

    @staticmethod
    def read():
        with open("/proc/stat", encoding="ascii") as file:
            numbers = [int(word) for word in file.readline().split()[1:9]]
        ticks = os.sysconf("SC_CLK_TCK")
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        used = sum(one.ru_utime + one.ru_stime for one in own)
        return sum(numbers) / ticks, (sum(numbers) - numbers[3] - numbers[4]) / ticks, used

    def __enter__(self):
        self.share = 0.0
        self.began = self.read()
        return self

    def __exit__(self, *_):
        total, busy, used = (after - before for after, before in zip(self.read(), self.began))
        self.share = max(0.0, round((busy - used) / max(total, 1e-9), 3))


def medians(runs):
    return {
        model: {
            way: {name: statistics.median(values) for name, values in figures.items()} for way, figures in ways.items()
        }
        for model, ways in runs.items()
    }


def chosen(arguments, missing):
    """The models to measure. Without llama.cpp's programs there are no quantized files."""
    cannot = {"llama.cpp", "llama-quantize"} & missing.keys()
    return [
        model
        for model, sizes in MODELS.items()
        if sizes.get("of", model) in arguments.models
        and sizes.get("kind", "bf16").lower() in arguments.kinds
        and not ("kind" in sizes and cannot)
    ]


def measure(arguments):
    """The figures after each round."""
    setup = Setup(arguments.folder)
    setup.make()
    models = chosen(arguments, setup.missing)
    files = {model: (QuantizedFiles if "kind" in MODELS[model] else Files)(setup, model) for model in models}
    for one in files.values():
        one.make()
    about = quiet_machine()
    sizes = {
        model: {**MODELS[model], **one.weight_bytes(), "state_bytes": one.state_bytes(arguments.runnel)}
        for model, one in files.items()
    }
    bench = Bench(arguments.runnel, setup)
    compared = [
        model for model in models if MODELS[model].get("of") == COMPARED and "llama-server" not in setup.missing
    ]
    for model in compared:
        sizes[model]["distances"] = distances(bench, files[model])
    for number in bench.rounds(arguments, "text", about, models):
        for model in models:
            bench.measure_round(number, model, files[model])
        yield {
            "machine": {**about, "disturbed": bench.disturbed},
            "versions": setup.versions(),
            "numerics": ", ".join(bench.numerics),
            "missing": setup.missing,
            "rounds": number + 1,
            "prompt": PROMPT,
            "batches": list(BATCHES),
            "models": sizes,
            "limits": bench.limits,
            "medians": medians(bench.runs),
            "runs": bench.runs,
        }


def make_parser():
    parser = page_parser("text", __doc__)
    add_models(parser, PLAIN, str.endswith, "SIZE,...", "some of 0.1B, 0.4B, 1.5B and 130m (default: all)")
    parser.add_argument(
        "--kinds",
        type=lambda text: text.lower().split(","),
        default=["bf16", *(kind.lower() for kind in KINDS)],
        metavar="KIND,...",
        help="some of bf16, q4_0, q4_k and q8_0 (default: all)",
    )
    return parser


def measure_and_write(arguments):
    for figures in measure(arguments):
        text_page.write(figures, arguments.docs)


if __name__ == "__main__":
    sys.exit(write_page(make_parser(), measure_and_write))
