#!/usr/bin/env python3
"""Measures hybrid models on this machine's CPU, in runnel and llama.cpp, and writes docs/benchmarks/hybrids.md.

Both load the same random weights of published sizes in bf16: runnel the files of transformers, llama.cpp GGUF. In every
round each model is measured in both, one program at a time: `runnel bench` and llama-batched-bench.

    bench/report/bench_hybrids.py              # make bench-hybrids: builds what is missing, writes hybrids.md
    bench/report/bench_hybrids.py --models 350M --rounds 1 --docs build/bench/text

llama.cpp is built from the sources in PyPI's llama-cpp-python, under build/bench/text, as bench_text.py does. If it
cannot be built, the page has runnel's figures only and says why. Needs a built runnel, Python with numpy and venv, a
C++ compiler and cmake, 16 GB of memory and of disk.
"""

import json
import operator
import re
import subprocess
import sys

import text_page
from bench_cpu import BenchError, add_models, page_parser, quiet_machine, run, write_page
from bench_report import table, write_docs
from bench_text import BATCHES, ROOT, SLOTS, Bench, Files, Setup, cores, medians

POSITIONS = (0, 1000, 4000)
PROMPTS = (512, 4096)
CONTEXT = 4352  # positions of a sequence, for the longest prompt and the values after it
SESSION = 4096  # positions of a session whose memory is compared
UBATCH = 512

# Values to decode for a measurement: a few seconds of them.
MODELS = {
    "LFM2 350M": {"preset": "lfm2-350m", "values": 48},
    "Granite 4.0-H 350M": {"preset": "granite-4.0-h-350m", "values": 48},
    "Qwen3.5 0.8B": {"preset": "qwen3.5-0.8b", "values": 32},
}


class HybridFiles(Files):
    """The files of a hybrid model for runnel and llama.cpp. make() makes the missing ones."""

    def make(self):
        if not (self.bundle / "model.safetensors").exists():
            maker = ROOT / "scripts/runnel-random-bundle"
            preset = ("--preset", MODELS[self.model]["preset"])
            run([sys.executable, maker, *preset, "--dtype", "bf16", "--out", self.bundle])
        if not {"llama.cpp", "rwkv"} & self.setup.missing.keys() and not self.gguf.exists():
            part = self.beside(".part")
            writer = ROOT / "bench/report/write_gguf.py"
            run([self.setup.python, writer, self.setup.source(), self.bundle, part])
            part.rename(self.gguf)

    def sizes(self, runnel):
        """Bytes that a step reads: weights, the recurrent part of a state, and a cache of bf16 for each position."""
        told = json.loads(run([runnel, "info", self.bundle, "--json"]))  # assumes a cache in fp32
        positions = told["max_length"] - 1
        recurrent = told["state_bytes"] - positions * told["position_bytes"]
        return {
            **MODELS[self.model],
            **self.weight_bytes(),
            "state_bytes": recurrent,
            "position_bytes": told["position_bytes"] // 2,
        }


# --- The ways: each returns figures by name: POSITION/SEQUENCES, prompt/VALUES, session_bytes ---


def runnel_engine(bench, files):
    def told(what, *words, context=CONTEXT):
        common = [bench.runnel, "bench", files.bundle, "--backend", "cpu", "--precision", "bf16", "--seconds", "0"]
        return json.loads(run([*common, "--json", "--context", context, "--what", what, *words]))

    batches = ("--batch", ",".join(map(str, BATCHES)), "--values", MODELS[files.model]["values"])
    figures: dict[str, float] = {}
    for position in POSITIONS:
        found = told("engine", *batches, "--from", position)
        bench.numerics[found["numerics"]] = None
        figures |= {f"{position}/{one['batch']}": one["values_per_s"] for one in found["throughput"]}
    for prompt in PROMPTS:
        figures[f"prompt/{prompt}"] = told("prompts", "--batch", 1, "--prompt", prompt)["prompts"]["values_per_s"]
    figures["session_bytes"] = told("memory", "--batch", 1, context=SESSION)["memory"]["state_bytes"]
    return figures


def llama_bench(bench, files):
    """Measures llama-batched-bench, which feeds random values instead of sampling. Each sequence reads its own prompt,
    because llama-batched-bench would read a shared prompt only once."""

    def output(*words, context=CONTEXT):
        common = ["-m", files.gguf, "-t", cores(), "-tb", cores(), "-c", SLOTS * context, "-b", UBATCH, "-ub", UBATCH]
        command = [bench.setup.program("llama-batched-bench"), *common, "--output-format", "jsonl", *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"llama-batched-bench: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
        return done.stdout + done.stderr

    def rows(*words):
        return [json.loads(line) for line in output(*words).splitlines() if line.startswith("{")]

    figures = {}
    for position in POSITIONS:
        fed = ("-npp", max(position, 1), "-ntg", MODELS[files.model]["values"])
        for one in rows(*fed, "-npl", ",".join(map(str, BATCHES))):
            figures[f"{position}/{one['pl']}"] = one["speed_tg"]
    for prompt in PROMPTS:
        figures[f"prompt/{prompt}"] = rows("-npp", prompt, "-ntg", 1, "-npl", 1)[0]["speed_pp"]
    # At this verbosity, llama.cpp logs the sizes of its buffers.
    log = output("-npp", 1, "-ntg", 1, "-npl", SLOTS, "--verbosity", 4, context=SESSION)
    if memory := memory_of(log):
        figures["session_bytes"] = memory / SLOTS
    return figures


def memory_of(log):
    """Bytes of the caches and recurrent states of all sequences."""
    return sum(float(size) for size in re.findall(r"(?:KV|RS) buffer size = +([\d.]+) MiB", log)) * 2**20


WAYS = {"runnel": runnel_engine, "llama.cpp": llama_bench}


def measure(arguments):
    """The figures after each round."""
    setup = Setup(arguments.folder)
    setup.make(without=("llama-server", "llama-quantize"))
    if "rwkv" in setup.missing:  # its environment has what the converter needs
        setup.missing.setdefault("llama.cpp", setup.missing["rwkv"])
    files = {model: HybridFiles(setup, model) for model in arguments.models}
    for one in files.values():
        one.make()
    about = quiet_machine()
    sizes = {model: one.sizes(arguments.runnel) for model, one in files.items()}
    bench = Bench(arguments.runnel, setup, MODELS, WAYS)
    for number in bench.rounds(arguments, "hybrids", about, arguments.models):
        for model in arguments.models:
            bench.measure_round(number, model, files[model])
        yield {
            "machine": {**about, "disturbed": bench.disturbed},
            "versions": setup.versions(),
            "numerics": ", ".join(bench.numerics),
            "missing": {name: why for name, why in setup.missing.items() if name in WAYS},
            "rounds": number + 1,
            "models": sizes,
            "limits": bench.limits,
            "medians": medians(bench.runs),
            "runs": bench.runs,
        }


# --- The page ---


def least_seconds(figures, model, position, batch):
    """The least time of a step: to read weights, caches and states and write states, or to compute the products."""
    sizes = figures["models"][model]
    read = sizes["step_bytes"] + batch * position * sizes["position_bytes"]
    states = 2 * batch * sizes["state_bytes"] / text_page.limit(figures, "dram_update_gbps")
    products = batch * sizes["step_bytes"] / text_page.gflops(figures)
    return max(read / text_page.limit(figures, "dram_gbps") + states, products) / 1e9


def pair(figures, model, name, digits=1):
    """Both figures, and the ratio of the first to the second."""
    ours, theirs = (text_page.figure(figures, model, way, name) for way in WAYS)
    shown = (text_page.shown(ours, digits), text_page.shown(theirs, digits), text_page.times(ours, theirs))
    return ours, [f"**{shown[0]}**", shown[1], f"**{shown[2]}**"]


def decoding(figures):
    rows = []
    for model in figures["models"]:
        for position in POSITIONS:
            for batch in BATCHES:
                ours, cells = pair(figures, model, f"{position}/{batch}")
                limit = batch / least_seconds(figures, model, position, batch)
                rows.append([model, f"{position:,}", f"{batch}", *cells, text_page.share(ours, limit)])
    return table(["model", "position", "sequences", "runnel", "llama.cpp", "", "runnel's share of the limit"], rows)


def prompts(figures):
    rows = []
    for model in figures["models"]:
        for prompt in PROMPTS:
            rows.append([model, f"{prompt:,}", *pair(figures, model, f"prompt/{prompt}", 0)[1]])
    return table(["model", "values", "runnel", "llama.cpp", ""], rows)


def memory(figures):
    rows = []
    for model, sizes in figures["models"].items():
        found = [text_page.figure(figures, model, way, "session_bytes") for way in WAYS]
        cells = [text_page.shown(bytes_ and bytes_ / 1e6) for bytes_ in found]
        rows.append([model, f"{sizes['state_bytes'] / 1e6:,.1f}", f"{sizes['position_bytes']:,}", *cells])
    heads = ["model", "recurrent MB", "bytes a position", f"runnel, MB at {SESSION:,}", f"llama.cpp, MB at {SESSION:,}"]
    return table(heads, rows)


def page(figures):
    about, disturbed = figures["machine"], figures["machine"]["disturbed"]
    busy = (
        "" if disturbed <= 0.1 else f" **Other programs used up to {disturbed:.0%} of the processors during a round.**"
    )
    return f"""# Hybrids on the CPU

`make bench-hybrids` wrote this page. The models have published sizes and random weights in bf16. runnel loads the files
of transformers, and [llama.cpp](https://github.com/ggml-org/llama.cpp) loads the same weights as GGUF, written by its
own converter. llama.cpp was built from the sources in PyPI's llama-cpp-python
{figures["versions"]["llama-cpp-python"]}. Both keep keys and values in 16 bits.

The machine: {about["cores"]} cores of {about["cpu"]} with {", ".join(about["flags"]) or "no vectors"}, one thread on
each, load average {about["load_average"]:.2f} at the start.{busy} The figures are {text_page.rounds_of(figures)}. One
program ran at a time, in turns. runnel's numerics are {figures["numerics"]}.
{text_page.missing(figures)}
## Decoding, values per second of all sequences together

Before the measurement, each sequence has read as many values as the column `position` says.

{decoding(figures)}
`runnel` is an engine in one process; its figures include sampling and the copies of the first sequence's state.
`llama.cpp` is `llama-batched-bench`, which does not sample. A step reads the weights once, reads the keys and values of
all sequences, and reads and writes their recurrent states. Memory or arithmetic, whichever is slower, sets the limit.

## Prompts, values per second of one prompt

{prompts(figures)}
## Memory of a session

{memory(figures)}
runnel allocates this memory for every session when the server starts.

## Reproduce

```sh
make bench-hybrids
```

[hybrids_figures.json](hybrids_figures.json) has every run. `bench/report/bench_hybrids.py` has every command.
"""


def make_parser():
    parser = page_parser("hybrids", __doc__)
    add_models(parser, MODELS, operator.contains, "PART,...", "those whose names contain one of these (default: all)")
    return parser


def measure_and_write(arguments):
    for figures in measure(arguments):
        write_docs("hybrids", figures, page(figures), arguments.docs)


if __name__ == "__main__":
    sys.exit(write_page(make_parser(), measure_and_write))
