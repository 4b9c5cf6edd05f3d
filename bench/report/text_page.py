"""The page about what bench_text.py measured."""

import statistics

import logit_distance
from bench_report import table, write_docs

NAMES = {
    "runnel": "runnel",
    "runnel, gRPC": "runnel, gRPC",
    "llama.cpp": "llama.cpp",
    "llama-server": "llama-server",
    "rwkv": "rwkv",
}


def figure(figures, model, way, name):
    """A median, or None where it was not measured."""
    return figures["medians"][model].get(way, {}).get(str(name))


def shown(value, digits=1):
    return "-" if value is None else f"{value:,.{digits}f}"


def times(value, peer):
    return "-" if value is None or peer is None else f"{value / peer:.2f}x"


def share(value, limit):
    return "-" if value is None else f"{value / limit:.0%}"


def limit(figures, name):
    """Of all threads together; the median over the run, as what a shared machine gives changes."""
    return statistics.median(one[name] for one in figures["limits"])


def gflops(figures):
    """Of products of bf16, which a processor may compute as bf16, in tiles, or widened to fp32."""
    names = ("fp32_gflops", "bf16_gflops", "tile_gflops")
    return max(limit(figures, name) for name in names if all(name in one for one in figures["limits"]))


def least_seconds(figures, model, batch, reads=1):
    """Of a step: its weights from memory so often, and states there and back; at the same time its products, unless the
    weights are quantized."""
    sizes = figures["models"][model]
    weights = reads * sizes["step_bytes"] / limit(figures, "dram_gbps")
    states = 2 * batch * sizes["state_bytes"] / limit(figures, "dram_update_gbps")
    products = 0 if "kind" in sizes else batch * sizes["step_bytes"] / gflops(figures)
    return max(weights + states, products) / 1e9


def decoding(figures):
    rows = []
    for model in figures["models"]:
        for batch in figures["batches"]:
            rates = {way: figure(figures, model, way, batch) for way in NAMES}
            rows.append(
                [
                    model,
                    f"{batch}",
                    f"**{shown(rates['runnel'])}**",
                    shown(rates["llama.cpp"]),
                    f"**{times(rates['runnel'], rates['llama.cpp'])}**",
                    shown(rates["runnel, gRPC"]),
                    shown(rates["llama-server"]),
                    times(rates["runnel, gRPC"], rates["llama-server"]),
                    shown(rates["rwkv"]),
                ]
            )
    return table(
        ["model", "sequences", "runnel", "llama.cpp", "", "runnel, gRPC", "llama-server", "", "rwkv"],
        rows,
    )


def limits_of_steps(figures):
    rows, most = [], max(figures["batches"])
    for model, sizes in figures["models"].items():
        cells = [model, f"{sizes['step_bytes'] / 1e6:,.0f} MB", f"{sizes['state_bytes'] / 1e6:,.1f} MB"]
        for batch in figures["batches"]:
            least = least_seconds(figures, model, batch) / batch
            for way in ("runnel", "llama.cpp"):
                cells.append(share(figure(figures, model, way, batch), 1 / least))
        apart = least_seconds(figures, model, most, figures["machine"]["cores"]) / most
        rows.append([*cells, share(figure(figures, model, "runnel", most), 1 / apart)])
    heads = [f"{way}, {batch}" for batch in figures["batches"] for way in ("runnel", "llama.cpp")]
    return table(["model", "weights a step", "a state", *heads, f"runnel, {most}, weights read by each thread"], rows)


def prompts(figures):
    rows = []
    for model, sizes in figures["models"].items():
        rates = {way: figure(figures, model, way, "prompt") for way in ("runnel", "llama.cpp", "rwkv")}
        limit_rate = gflops(figures) * 1e9 / (sizes["step_bytes"] - sizes["head_bytes"])
        rows.append(
            [
                model,
                f"**{shown(rates['runnel'], 0)}**",
                shown(rates["llama.cpp"], 0),
                f"**{times(rates['runnel'], rates['llama.cpp'])}**",
                shown(rates["rwkv"], 0),
                "-" if "kind" in sizes else share(rates["runnel"], limit_rate),
            ]
        )
    return table(["model", "runnel", "llama.cpp", "", "rwkv", "runnel's share of arithmetic"], rows)


def loading(figures):
    ways = ("runnel, gRPC", "llama-server", "rwkv")
    rows = [[model, *(shown(figure(figures, model, way, "load_s")) for way in ways)] for model in figures["models"]]
    return table(["seconds", "runnel serve", "llama-server", "rwkv"], rows)


def memory(figures):
    ways = ("runnel, gRPC", "llama-server")
    rows = [
        [
            model,
            f"{sizes['step_bytes'] / 1e9:.2f}",
            *(shown(figure(figures, model, way, "memory_gb"), 2) for way in ways),
        ]
        for model, sizes in figures["models"].items()
    ]
    return table(["GB", "weights a step", "runnel serve", "llama-server"], rows)


def distances(figures):
    """A section, or nothing where no log probabilities were compared."""
    rows = [
        [model, *(f"{sizes['distances'][way]:.1e}" for way in ("runnel", "llama.cpp"))]
        for model, sizes in figures["models"].items()
        if "distances" in sizes
    ]
    if not rows:
        return ""
    return f"""## Distance from the file's own weights

{table(["RMS of log probabilities", "runnel", "llama.cpp"], rows)}
The {len(logit_distance.LENGTHS)} prompts have {min(logit_distance.LENGTHS)} to {max(logit_distance.LENGTHS)} random
values. After each, the log probabilities of the {logit_distance.LIKELY} values that llama.cpp finds most likely are
compared with the ones of runnel for the same file with its weights widened to fp32 (`--precision fp32`).

"""


def missing(figures):
    lines = [f"- {name} could not be had: {why}" for name, why in figures["missing"].items()]
    return "\n".join(["", *lines, ""]) if lines else ""


def page(figures):
    about, versions = figures["machine"], figures["versions"]
    disturbed = about["disturbed"]
    busy = "" if disturbed <= 0.1 else f" **Others used up to {disturbed:.0%} of the machine beside a measurement.**"
    return f"""# Published text models on the CPU

Written by `make bench-text`. RWKV-7 in the three smallest published sizes and the smallest Mamba-2. All programs get
the same random weights in bf16, each in its own format:

- runnel: the files of flash-linear-attention and Hugging Face
- [llama.cpp](https://github.com/ggml-org/llama.cpp), built from the sources in PyPI's llama-cpp-python
  {versions["llama-cpp-python"]}: GGUF in bf16, written by its own converter
- BlinkDL's [rwkv](https://pypi.org/project/rwkv/) {versions.get("rwkv", "")} with PyTorch {versions.get("torch", "")}
  (`cpu bf16`, TorchScript): `.pth`

Models named with Q4_0, Q4_K or Q8_0 are GGUF files of `llama-quantize` (Q4_K: its mixture Q4_K_M), the same for runnel
and llama.cpp; runnel keeps their [blocks](../decisions/blocks.md).

{about["cores"]} cores of {about["cpu"]} with {", ".join(about["flags"]) or "no vectors"}, a thread on each;
load average at start {about["load_average"]:.2f}.{busy} Medians of {figures["rounds"]} rounds, in which the programs
take turns; runnel's numerics are {figures["numerics"]}.
{missing(figures)}
## Decoding, values per second of all sequences together

{decoding(figures)}
`runnel` is an engine in one process, sampling included; `llama.cpp` is `llama-batched-bench`, which does not sample.
For the servers, a client on the same cores reads this number of streams. Both servers sample from all values;
llama-server has {max(figures["batches"])} slots. The rwkv package advances one sequence.

## Share of the machine's limit

A step reads its weights from memory once, reads and writes the state of every sequence, and multiplies its weights with
every sequence; memory or arithmetic, whichever is slower, is the limit. In this run two threads together read
{limit(figures, "dram_gbps"):.1f} GB/s, read and wrote {limit(figures, "dram_update_gbps"):.1f} GB/s in place, and made
{gflops(figures):,.0f} GFLOP/s (medians of {len(figures["limits"])} measurements). More than 100%
comes from data that a cache keeps, and from memory whose speed varies.

{limits_of_steps(figures)}
For a quantized file the limit is memory alone. llama.cpp's files in bf16 have the small matrices of low rank in fp32,
which is not counted against it. With many
sequences (avx512bf16: 8 for each thread, otherwise 16), each thread of runnel computes its share of them through all
layers, and so reads all weights. The last column compares with the limit of this way to compute ([why](../internals/performance.md#what-each-change-brought)).

## Prompts, values per second of one prompt of {figures["prompt"]}

{prompts(figures)}
The head's product is needed only once for a prompt, and is not counted.

## Loading, from start to ready

{loading(figures)}
The files were in the page cache. runnel reads every file to hash it, to check every number and to pack every matrix
into panels, in memory of its own ([how long each takes](../internals/performance.md#loading)); llama-server maps its
file, and its first steps find it in the page cache.

## Memory, the most that a server had

{memory(figures)}
With the states of {max(figures["batches"])} sequences. The parts of a file that a server maps count.

{distances(figures)}## Reproduce

```sh
make bench-text
```

[text_figures.json](text_figures.json) has every run, `bench/report/bench_text.py` every command.
"""


def write(figures, docs):
    write_docs("text", figures, page(figures), docs)
