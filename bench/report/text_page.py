"""Writes the page with the results of bench_text.py."""

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
    """A median, or None if it was not measured."""
    return figures["medians"][model].get(way, {}).get(str(name))


def shown(value, digits=1):
    return "-" if value is None else f"{value:,.{digits}f}"


def times(value, peer):
    return "-" if value is None or peer is None else f"{value / peer:.2f}x"


def share(value, limit):
    return "-" if value is None else f"{value / limit:.0%}"


def limit(figures, name):
    """A limit of all threads together: the median over the run, because the speed of a shared machine varies."""
    return statistics.median(one[name] for one in figures["limits"])


def gflops(figures):
    """The best rate for products of bf16: as bf16, in tiles, or widened to fp32."""
    names = ("fp32_gflops", "bf16_gflops", "tile_gflops")
    return max(limit(figures, name) for name in names if all(name in one for one in figures["limits"]))


def least_seconds(figures, model, batch, reads=1):
    """The least seconds of a step, which reads the weights from memory `reads` times, and reads and writes the states.
    At the same time it computes the products, whose time is not counted for quantized weights."""
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
    """A section of the page. Empty if no log probabilities were compared."""
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
    lines = [f"- {name} is missing: {why}" for name, why in figures["missing"].items()]
    return "\n".join(["", *lines, ""]) if lines else ""


def limits_section(figures):
    return f"""## Share of the machine's limit

A step reads its weights from memory once, reads and writes the state of every sequence, and multiplies its weights by
the activations of every sequence. The limit is set by memory or by arithmetic, whichever takes longer. In this run all
threads together read {limit(figures, "dram_gbps"):.1f} GB/s, read and wrote
{limit(figures, "dram_update_gbps"):.1f} GB/s in place, and computed {gflops(figures):,.0f} GFLOP/s (medians of
{len(figures["limits"])} measurements). A share can exceed 100% because a cache keeps some of the data, and because the
speed of memory varies.

{limits_of_steps(figures)}
For a quantized file, the limit includes only memory. In llama.cpp's bf16 files the small low-rank matrices are in fp32;
the limit does not include these additional bytes. With many sequences (at least 8 for each thread with avx512bf16, 12
with AMX, otherwise 16), each thread of runnel computes its share of the sequences through all layers, and so each
thread reads all weights. The last column compares runnel with the limit of this method
([why](../internals/performance.md#what-each-change-brought)).
"""


def rounds_of(figures):
    return "those of one round" if figures["rounds"] == 1 else f"medians of {figures['rounds']} rounds"


def page(figures):
    about, versions = figures["machine"], figures["versions"]
    disturbed = about["disturbed"]
    busy = ""
    if disturbed > 0.1:
        busy = f" **Other processes used up to {disturbed:.0%} of the machine during a measurement.**"
    return f"""# Published text models on the CPU

`make bench-text` writes this page. It measures RWKV-7 in the three smallest published sizes, and the smallest Mamba-2.
All programs get the same random weights in bf16, each in its own file format:

- runnel reads the files of flash-linear-attention and Hugging Face.
- [llama.cpp](https://github.com/ggml-org/llama.cpp) is built from the sources in PyPI's llama-cpp-python
  {versions["llama-cpp-python"]}. It reads GGUF files in bf16, which its own converter has written.
- BlinkDL's [rwkv](https://pypi.org/project/rwkv/) {versions.get("rwkv", "")} runs with PyTorch
  {versions.get("torch", "")} (`cpu bf16`, TorchScript). It reads `.pth` files.

If a model's name ends with Q4_0, Q4_K or Q8_0, the model is a GGUF file that `llama-quantize` has written (for Q4_K, in
its mixture Q4_K_M). runnel and llama.cpp read the same file, and runnel keeps its [blocks](../decisions/blocks.md).

Each program runs with one thread per core, on {about["cores"]} cores of {about["cpu"]} with
{", ".join(about["flags"]) or "no vector instructions"}. The load average at the start was
{about["load_average"]:.2f}.{busy} The figures are {rounds_of(figures)}.
In each round, the programs are measured one after the other. The numerics of runnel are {figures["numerics"]}.
{missing(figures)}
## Decoding, values per second of all sequences together

{decoding(figures)}
The column `runnel` is for an engine in one process, and includes sampling. The column `llama.cpp` is for
`llama-batched-bench`, which does not sample. Each column without a name has runnel's figure divided by the figure of
the program to its left. For the two servers, a client on the same cores reads one stream per sequence. Both servers
sample from all values, and llama-server has {max(figures["batches"])} slots. The rwkv package advances only one
sequence.

{limits_section(figures)}
## Prompts, values per second of one prompt of {figures["prompt"]}

{prompts(figures)}
The share of arithmetic does not include the head's product, because a prompt needs it only once.

## Loading, from start to ready

{loading(figures)}
The files were in the page cache. runnel reads every file: it hashes the file, checks every number, and packs every
matrix into panels in its own memory ([how long each takes](../internals/performance.md#loading), and why new memory can
take longer than that in a virtual machine). llama-server maps its file, and its first steps read the weights from the
page cache.

## Memory, the most that a server had

{memory(figures)}
The figures of the servers include the states of {max(figures["batches"])} sequences, and the parts of a file that a
server maps.

{distances(figures)}## Reproduce

```sh
make bench-text
```

[text_figures.json](text_figures.json) has every run, and `bench/report/bench_text.py` has every command.
"""


def write(figures, docs):
    write_docs("text", figures, page(figures), docs)
