#!/usr/bin/env python3
"""Measures the gated linear family, RWKV-5, RWKV-6 and Mamba-1 on this machine's CPU, and writes families.md.

The models have about 340 million random weights in bf16, in the form in which each family is published. In every round,
runnel's engine samples from each model, and the machine's limits are measured, too.

    bench/report/bench_families.py             # make bench-families: writes docs/benchmarks/families.md
    bench/report/bench_families.py --models gla-340m --rounds 1 --docs build/bench/text

Needs a built runnel, Python with numpy, and 8 GB of disk.
"""

import json
import struct
import sys

import text_page
from bench_cpu import add_models, page_parser, quiet_machine, run, write_page
from bench_report import table, write_docs
from bench_text import ROOT, Bench, medians

BATCHES = (1, 16)
GOAL = 0.8  # of the limit, at one sequence
# The name of each family by its preset.
MODELS = {
    "gla-340m": "GLA",
    "retnet-340m": "RetNet",
    "delta-net-340m": "DeltaNet",
    "gated-deltanet-340m": "Gated DeltaNet",
    "kda-340m": "KDA",
    "hgrn2-340m": "HGRN2",
    "rwkv6-0.4b": "RWKV-6",
    "rwkv5-0.4b": "RWKV-5.2",
    "mamba-370m": "Mamba-1",
}
TABLES = ("embeddings.weight", "emb.weight")


def make(preset, folder):
    """The directory of a model, made if it is missing."""
    bundle = folder / "models" / preset
    if not (bundle / "model.safetensors").exists():
        maker = ROOT / "scripts/runnel-random-bundle"
        run([sys.executable, maker, "--preset", preset, "--dtype", "bf16", "--out", bundle])
    for vocabulary in bundle.glob("rwkv_vocab*"):  # with it most values would be padding, which is not computed
        vocabulary.unlink()
    return bundle


def tensor_bytes(bundle):
    with open(bundle / "model.safetensors", "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    spans = ((name, entry["data_offsets"]) for name, entry in header.items() if name != "__metadata__")
    return {name: end - begin for name, (begin, end) in spans}


def step_bytes(sizes):
    """The bytes of the tensors that a step reads. An embedding that is not also the head is left out: a step reads only
    a few of its rows."""
    tied = not {"lm_head.weight", "head.weight"} & sizes.keys()
    return sum(size for name, size in sizes.items() if tied or not name.endswith(TABLES))


def sizes_of(runnel, bundle):
    sizes = tensor_bytes(bundle)
    state = json.loads(run([runnel, "info", bundle, "--json"]))["state_bytes"]
    return {"bytes": sum(sizes.values()), "step_bytes": step_bytes(sizes), "state_bytes": state}


def engine(bench, bundle, values):
    batches = ("--batch", ",".join(map(str, BATCHES)), "--values", values)
    command = [bench.runnel, "bench", bundle, "--backend", "cpu", "--precision", "bf16", "--what", "engine", *batches]
    told = json.loads(run([*command, "--json", "--seconds", "0"]))
    bench.numerics[told["numerics"]] = None
    return {str(one["batch"]): one["values_per_s"] for one in told["throughput"]}


def measure(arguments):
    """The figures after each round."""
    bundles = {preset: make(preset, arguments.folder) for preset in arguments.models}
    about = quiet_machine()
    bench = Bench(arguments.runnel, None, MODELS, {"runnel": None})
    sizes = {preset: sizes_of(arguments.runnel, bundle) for preset, bundle in bundles.items()}
    for number in bench.rounds(arguments, "families", about, arguments.models):
        for preset, bundle in bundles.items():
            bench.limits.append(bench.undisturbed(bench.measure_limits))
            rates = bench.undisturbed(lambda bundle=bundle: engine(bench, bundle, arguments.values))
            for batch, rate in rates.items():
                bench.runs.setdefault(preset, {}).setdefault("runnel", {}).setdefault(batch, []).append(round(rate, 3))
            print(f"round {number + 1}: {preset}: {rates}", flush=True)
        yield {
            "machine": {**about, "disturbed": bench.disturbed},
            "numerics": ", ".join(bench.numerics),
            "rounds": number + 1,
            "models": sizes,
            "limits": bench.limits,
            "medians": medians(bench.runs),
            "runs": bench.runs,
        }


def row(figures, preset):
    sizes = figures["models"][preset]
    cells = [MODELS[preset], f"{sizes['bytes'] / 2e6:,.0f} M", f"{sizes['step_bytes'] / 1e6:,.0f} MB"]
    cells.append(f"{sizes['state_bytes'] / 1e6:,.1f} MB")
    for batch in BATCHES:
        rate = text_page.figure(figures, preset, "runnel", batch)
        least = text_page.least_seconds(figures, preset, batch) / batch
        cells += [f"**{rate:,.1f}**", text_page.share(rate, 1 / least)]
    return cells


def page(figures):
    about = figures["machine"]
    disturbed = about["disturbed"]
    busy = ""
    if disturbed > 0.1:
        busy = f" **Other processes used up to {disturbed:.0%} of the machine during a measurement.**"
    heads = [cell for batch in BATCHES for cell in (f"values/s, {batch} at once", "of the limit")]
    rows = [row(figures, preset) for preset in figures["models"]]
    return f"""# Other families on the CPU

`make bench-families` writes this page. It measures models of about 340 million parameters with random weights in bf16,
in the files in which each family is published ([models.md](../models.md)). An engine in one process samples 1 sequence,
and then 16 sequences at once.

The engine runs with one thread per core, on {about["cores"]} cores of {about["cpu"]} with
{", ".join(about["flags"]) or "no vector instructions"}. The load average at the start was
{about["load_average"]:.2f}.{busy} The figures are {text_page.rounds_of(figures)}. The numerics are
{figures["numerics"]}.

{table(["family", "parameters", "weights a step", "a state", *heads], rows)}
A step reads its weights from memory once, reads and writes the state of every sequence, and multiplies its weights by
the activations of every sequence. The limit is set by memory or by arithmetic, whichever takes longer. In this run all
threads together read {text_page.limit(figures, "dram_gbps"):.1f} GB/s, read and wrote
{text_page.limit(figures, "dram_update_gbps"):.1f} GB/s in place, and computed {text_page.gflops(figures):,.0f} GFLOP/s
(medians of {len(figures["limits"])} measurements). The goal is {GOAL:.0%} of the limit at one sequence. A share can
exceed 100% because a cache keeps some of the data, and because the speed of memory varies. [text.md](text.md) compares
RWKV-7 and Mamba-2 with other programs.

## Reproduce

```sh
make bench-families
```

[families_figures.json](families_figures.json) has every run, and `bench/report/bench_families.py` has every
command.
"""


def make_parser():
    parser = page_parser("families", __doc__)
    add_models(parser, MODELS, str.startswith, "PRESET,...", f"some of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--values", type=int, default=32, help="to sample in a measurement (default: %(default)s)")
    return parser


def measure_and_write(arguments):
    for figures in measure(arguments):
        write_docs("families", figures, page(figures), arguments.docs)


if __name__ == "__main__":
    sys.exit(write_page(make_parser(), measure_and_write))
