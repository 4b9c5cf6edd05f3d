#!/usr/bin/env python3
"""Compares softmax with linear attention in one program: time per value, memory of a session, images per second.

Two models of the paper's MNIST size (8 layers, width 256, 8 heads of 32) with random weights differ only in their
attention. runnel measures both in turns, at several positions of a long sequence and with whole images, and the best of
several rounds counts. If the zoo's models of MNIST exist, their bits per dimension are added. Writes softmax.md,
softmax.png and softmax_figures.json.

    bench/report/bench_softmax.py                                          # make bench-softmax
    bench/report/bench_softmax.py --positions 64,512,2048 --rounds 1 --docs build/bench/softmax

Needs a built runnel, and Python with numpy and matplotlib: the extra [bench] of ./python; on Debian:
scripts/setup bench
"""

import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from bench_cpu import BenchError, page_parser, quiet_machine, run, write_page
from bench_report import table, write_docs
from runnel_client import serving
from runnel_client.errors import BundleError

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ("linear", "softmax")
BATCHES = (1, 8, 32, 128)
POSITIONS = (100, 500, 1000, 2000, 4000, 8000)
SAMPLED = 128  # values that `runnel bench --what positions` samples at each position
PAGE = 64  # positions of a page of a cache
IMAGE_VALUES = 784
ZOO = {
    "MNIST small": {"linear": "zoo/mnist-small", "softmax": "zoo/mnist-softmax-small"},
    "MNIST": {"linear": "zoo/mnist", "softmax": "zoo/mnist-softmax"},
}
TEST_IMAGES = ROOT / "tests/golden/mnist_test_100.idx3-ubyte"

# Katharopoulos et al. 2020, tables 1 and 2: bits per dimension and images per second on a GPU.
PAPER = {
    "MNIST": {"softmax": (0.621, 0.45), "linear": (0.644, 142.8)},
    "CIFAR-10": {"softmax": (3.47, 0.004), "linear": (3.40, 17.85)},
}


# --- Measuring ---


def make_bundle(folder, kind, *flags):
    out = folder / f"{kind}{len(flags)}"
    maker = ROOT / "scripts/runnel-random-bundle"
    run([sys.executable, maker, "--preset", "mnist", "--attention", kind, *flags, "--out", out])
    return out


def measure_kind(arguments, long, images):
    """One round of one kind of attention."""

    def bench(bundle, *words):
        return json.loads(run([arguments.runnel, "bench", bundle, "--json", *words]))

    positions = ",".join(map(str, arguments.positions))
    points = bench(long, "--what", "positions", "--positions", positions)["positions"]["points"]
    batches = ",".join(map(str, BATCHES))
    drawn = bench(images, "--what", "engine", "--batch", batches, "--seconds", str(arguments.seconds))
    for one in drawn["throughput"]:  # the first values of an image cost less than the last ones
        if "cut_from" in one:
            raise BenchError(
                f"a batch of {one['batch']} takes more than twice {arguments.seconds} s: give --seconds more"
            )
    return {
        "numerics": drawn["numerics"],
        "us_per_value": {str(one["position"]): one["us_per_value"] for one in points},
        "images_per_s": {str(one["batch"]): one["values_per_s"] / IMAGE_VALUES for one in drawn["throughput"]},
    }


def best_of(rounds):
    """The least time and the highest rate of several rounds."""
    first = rounds[0]
    return {
        "numerics": first["numerics"],
        "us_per_value": {at: min(one["us_per_value"][at] for one in rounds) for at in first["us_per_value"]},
        "images_per_s": {at: max(one["images_per_s"][at] for one in rounds) for at in first["images_per_s"]},
    }


def session_bytes(kind, position):
    """The bytes of a session at a position: a state of constant size, or the pages of keys and values so far."""
    if kind["position_bytes"] == 0:
        return kind["state_bytes"]
    stored = kind["position_bytes"] // (2 if "+cache-bf16" in kind["numerics"] else 1)
    return -(-position // PAGE) * PAGE * stored


def bits_per_dim(runnel, bundle):
    """The mean over the first 100 test images of MNIST in fp32, or None if the bundle is missing."""
    if not (ROOT / bundle / "config.json").exists():
        return None
    flags = ("--precision", "fp32")
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        with serving.running(runnel, ROOT / bundle, log, flags) as (_, address):
            return json.loads(run([runnel, "score", "--server", address, "--json", TEST_IMAGES]))["mean_bits_per_dim"]


def measure(arguments):
    about = quiet_machine()
    rounds: dict[str, list] = {kind: [] for kind in KINDS}
    told = {}
    with tempfile.TemporaryDirectory() as name:
        length = ("--length", str(max(arguments.positions) + SAMPLED))
        bundles = {
            kind: (make_bundle(pathlib.Path(name), kind, *length), make_bundle(pathlib.Path(name), kind))
            for kind in KINDS
        }
        for kind, (_, images) in bundles.items():
            info = json.loads(run([arguments.runnel, "info", images, "--json"]))
            told[kind] = {key: info[key] for key in ("state_bytes", "position_bytes")}
        for number in range(arguments.rounds):
            for kind in KINDS:
                print(f"round {number + 1} of {arguments.rounds}: {kind}", flush=True)
                rounds[kind].append(measure_kind(arguments, *bundles[kind]))
    return {
        "machine": about,
        "rounds": arguments.rounds,
        "positions": arguments.positions,
        "kinds": {kind: told[kind] | best_of(rounds[kind]) for kind in KINDS},
        "bits_per_dim": {
            name: {kind: bits_per_dim(arguments.runnel, bundle) for kind, bundle in bundles.items()}
            for name, bundles in ZOO.items()
        },
    }


# --- The picture and the page ---


def draw(figures, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture, (time, memory) = pyplot.subplots(1, 2, figsize=(9, 3.8), dpi=120)
    for kind, colour in (("softmax", "#c44e52"), ("linear", "#1f5fa8")):
        found = figures["kinds"][kind]
        label = f"{kind} attention"
        micros = [found["us_per_value"][str(at)] for at in figures["positions"]]
        time.plot(figures["positions"], micros, color=colour, marker="o", markersize=4, label=label)
        at = range(1, max(figures["positions"]) + 1, PAGE)
        memory.plot(at, [session_bytes(found, one) / 1e6 for one in at], color=colour, label=label, clip_on=False)
    for axes, what in ((time, "time per value, microseconds"), (memory, "memory of a session, MB")):
        axes.set_xlabel("position in the sequence")
        axes.set_ylabel(what)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(True, alpha=0.25)
        axes.legend(frameon=False, fontsize=9)
    about = figures["machine"]
    picture.suptitle(f"runnel, 8 layers of width 256; {about['cores']} cores of {about['cpu']}", fontsize=9)
    picture.tight_layout()
    picture.savefig(path)


def positions_table(figures):
    kinds = figures["kinds"]
    rows = []
    for at in figures["positions"]:
        micros = [f"{kinds[kind]['us_per_value'][str(at)]:,.0f}" for kind in KINDS]
        size = [f"{session_bytes(kinds[kind], at) / 1e6:,.2f}" for kind in KINDS]
        rows.append([f"{at:,}", *micros, *size])
    return table(["position", *(f"{kind}, us a value" for kind in KINDS), *(f"{kind}, MB" for kind in KINDS)], rows)


def images_table(figures):
    rows = []
    for batch in BATCHES:
        linear, softmax = (figures["kinds"][kind]["images_per_s"][str(batch)] for kind in KINDS)
        rows.append([f"{batch}", f"{linear:,.2f}", f"{softmax:,.2f}", f"{linear / softmax:.2f}x"])
    return table(["images at once", "linear, images/s", "softmax, images/s", "linear against softmax"], rows)


def bits_table(figures):
    rows = []
    for kind in KINDS:
        found = (figures["bits_per_dim"][name][kind] for name in ZOO)
        here = ("not trained yet" if bits is None else f"{bits:.4f}" for bits in found)
        paper = (f"{number}" for name in PAPER for number in PAPER[name][kind])
        rows.append([kind, *here, *paper])
    heads = (f"paper: {name}, {what}" for name in PAPER for what in ("bits per dimension", "images/s"))
    return table(["attention", *(f"zoo: {name}, bits per dimension" for name in ZOO), *heads], rows)


def page(figures):
    about, numerics = figures["machine"], " and ".join(sorted({one["numerics"] for one in figures["kinds"].values()}))
    return f"""# Softmax and linear attention

Written by `make bench-softmax`. Two models of the paper's MNIST size (8 layers, width 256, 8 heads of 32) have random
weights and differ in their attention alone. One program serves both.

{about["cores"]} cores of {about["cpu"]}, load average at start {about["load_average"]:.2f}. Best of
{figures["rounds"]} rounds, in turns. Numerics: {numerics}.

![Time per value and memory of a session against the position](softmax.png)

## One sequence

{positions_table(figures)}
A later value of softmax attention reads the keys and values of all positions before it. runnel takes the memory of all
positions when a session begins; the column shows the part in use.

## Images of 28 x 28 bytes

{images_table(figures)}
## Quality

{bits_table(figures)}
The cards of the zoo's models say how each was trained, far shorter than the paper's; their figures are of the first 100
test images. "MNIST small" has half of the width and of the layers of the paper's model, "MNIST" has its size.
The paper's are of [Katharopoulos et al. 2020](https://arxiv.org/abs/2006.16236), tables 1 and 2, on a GPU. Its softmax
transformer keeps no keys and values, but reads the whole image again for each value.

## Reproduce

```sh
make bench-softmax
```

[softmax_figures.json](softmax_figures.json) has every figure.
"""


def make_parser():
    parser = page_parser("softmax", __doc__, counts="best")
    parser.add_argument("--seconds", type=float, default=10, help="of each batch of images (default: %(default)s)")
    parser.add_argument(
        "--positions",
        type=lambda text: sorted(int(word) for word in text.split(",")),
        default=list(POSITIONS),
        metavar="N,...",
        help="of the long sequence (default: up to 8,000)",
    )
    return parser


def measure_and_write(arguments):
    try:
        figures = measure(arguments)
    except BundleError as error:
        raise BenchError(str(error)) from None
    write_docs("softmax", figures, page(figures), arguments.docs)
    draw(figures, arguments.docs / "softmax.png")


if __name__ == "__main__":
    sys.exit(write_page(make_parser(), measure_and_write))
