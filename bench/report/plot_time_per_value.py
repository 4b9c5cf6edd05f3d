#!/usr/bin/env python3
"""Measures the time of one value against its position, and draws it.

runnel is measured through its server: one stream of an endless model with random weights, at the paper's MNIST size
(8 layers, width 256, 8 heads of 32). Beside it, in plain PyTorch on the same cores and of the same size: softmax
attention with a preallocated cache (its keys transposed, the faster of two ways to multiply, at the better number of
threads), and linear attention as a recurrence. Both leave out the sampling and the network, which runnel's figure
includes. The three take turns, and every figure is the best of several rounds, so that what else the machine does
stays out of it. Writes the picture, and beside it a JSON file with every figure and the machine.

    bench/report/plot_time_per_value.py --runnel build/release/runnel --out docs/images/time_per_value.png

Needs protoc, and Python with grpcio, protobuf, numpy, torch and matplotlib: the extra [bench] of ./python; on Debian:
scripts/setup bench
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from bench_cpu import processor
from runnel_client import messages, serving
from runnel_client.errors import BundleError

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS, WIDTH, HEADS, FFN = 8, 256, 8, 1024
HEAD_SIZE = WIDTH // HEADS
MESSAGE_VALUES = 100


# --- runnel ---


def stream_times(address, values):
    """(position, seconds since the start) of every message of one generation, and the numerics id."""
    import grpc

    contract = messages.inference()
    request = contract.GenerateRequest(max_values=values)
    request.sampling.seed = 1
    request.delivery.max_values = MESSAGE_VALUES
    request.delivery.max_delay.seconds = 10
    points, numerics = [], ""
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_stream(
            "/runnel.v1.Inference/Generate",
            request_serializer=contract.GenerateRequest.SerializeToString,
            response_deserializer=contract.GenerateResponse.FromString,
        )
        began = time.perf_counter()
        for response in call(request, timeout=3600):
            numerics = response.started.numerics or numerics
            for run in response.values.runs:
                points.append((run.position + len(run.values), time.perf_counter() - began))
    return points, numerics


def binned(points, bins):
    """The median time per value in each of `bins` equal stretches, as (middle, microseconds)."""
    last = points[-1][0]
    rates = [((a[0] + b[0]) / 2, (b[1] - a[1]) / (b[0] - a[0]) * 1e6) for a, b in itertools.pairwise(points)]
    result = []
    for index in range(bins):
        low, high = last * index / bins, last * (index + 1) / bins
        inside = [micros for position, micros in rates if low <= position < high]
        if inside:
            result.append(((low + high) / 2, statistics.median(inside)))
    return result


@contextlib.contextmanager
def endless_model(runnel):
    """The address of a server of the endless model."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = pathlib.Path(folder) / "bundle"
        subprocess.run(
            [
                sys.executable,
                str(ROOT / "scripts/runnel-random-bundle"),
                "--preset",
                "mnist",
                "--endless",
                "--out",
                str(bundle),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with serving.running(runnel, str(bundle), pathlib.Path(folder) / "log") as (_, address):
            stream_times(address, 2000)  # warms up
            yield address


# --- PyTorch ---


class PlainModel:
    """One value at a time through 8 layers of random weights, batch 1, with one of two attentions."""

    def __init__(self, torch, attention, positions):
        self.torch, self.attention = torch, attention
        generator = torch.Generator().manual_seed(1)

        def weight(rows, columns):
            return torch.randn(rows, columns, generator=generator) / columns**0.5

        self.layers = [
            {
                "qkv": weight(3 * WIDTH, WIDTH),
                "out": weight(WIDTH, WIDTH),
                "up": weight(FFN, WIDTH),
                "down": weight(WIDTH, FFN),
            }
            for _ in range(LAYERS)
        ]
        self.zeros = {size: torch.zeros(size) for size in (3 * WIDTH, WIDTH, FFN)}
        self.input = torch.randn(1, WIDTH, generator=generator)
        self.by_head = False  # one product per head instead of one batched product; faster for long caches
        if attention == "softmax":
            self.keys = torch.empty(LAYERS, HEADS, HEAD_SIZE, positions).uniform_(-1, 1, generator=generator)
            self.values = torch.empty(LAYERS, HEADS, positions, HEAD_SIZE).uniform_(-1, 1, generator=generator)
        self.state = torch.zeros(LAYERS, HEADS, HEAD_SIZE, HEAD_SIZE)
        self.normalizer = torch.zeros(LAYERS, HEADS, 1, HEAD_SIZE)

    def softmax(self, layer, position, q, k, v):
        torch, past = self.torch, position + 1
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, position:past] = k.transpose(1, 2)
        values[:, position:past] = v
        if not self.by_head:
            scores = torch.bmm(q, keys[:, :, :past]) / HEAD_SIZE**0.5
            return torch.bmm(torch.softmax(scores, dim=2), values[:, :past])
        scores = torch.stack([torch.mv(keys[head, :, :past].t(), q[head, 0]) for head in range(HEADS)])
        weights = torch.softmax(scores / HEAD_SIZE**0.5, dim=1)
        return torch.stack([torch.mv(values[head, :past].t(), weights[head]) for head in range(HEADS)])

    def linear(self, layer, q, k, v):
        elu = self.torch.nn.functional.elu
        q, k = elu(q) + 1, elu(k) + 1
        self.state[layer].baddbmm_(k.transpose(1, 2), v)
        self.normalizer[layer] += k
        return self.torch.bmm(q, self.state[layer]) / ((q * self.normalizer[layer]).sum(2, keepdim=True) + 1e-6)

    def step(self, position):
        torch, x = self.torch, self.input
        for index, layer in enumerate(self.layers):
            qkv = torch.addmm(self.zeros[3 * WIDTH], x, layer["qkv"].t()).view(3, HEADS, 1, HEAD_SIZE)
            y = self.softmax(index, position, *qkv) if self.attention == "softmax" else self.linear(index, *qkv)
            y = torch.addmm(self.zeros[WIDTH], y.reshape(1, WIDTH), layer["out"].t())
            x = torch.layer_norm(x + y, (WIDTH,))
            up = torch.relu(torch.addmm(self.zeros[FFN], x, layer["up"].t()))
            x = torch.layer_norm(x + torch.addmm(self.zeros[WIDTH], up, layer["down"].t()), (WIDTH,))
        return x


def time_steps(model, position, steps):
    """The median microseconds of a step at one position."""
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        model.step(position)
        times.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times)


def measure_pytorch(model, positions, steps, threads):
    """Microseconds of a step at each of `positions`, at each number of threads and in each way to multiply. Keys and
    values of the past are random numbers, as the cost does not depend on what they are."""
    lines = []
    with model.torch.inference_mode():
        for count in sorted({1, threads}):
            model.torch.set_num_threads(count)
            for by_head in (False, True) if model.attention == "softmax" else (False,):
                model.by_head = by_head
                time_steps(model, 0, 5)  # warms up
                lines.append([(position, time_steps(model, position, steps)) for position in positions])
    return lines


# --- All of them ---


def best_of(lines):
    """The least of several measurements of the same positions."""
    return [[round(points[0][0]), round(min(micros for _, micros in points), 1)] for points in zip(*lines)]


def measure(arguments, cores):
    """Each of the three in turn, several rounds, so that no one has the machine at its best or its worst alone."""
    import torch

    parts = (0, 0.02, 0.05, *(part / 10 for part in range(1, 11)))
    positions = [max(1, round(arguments.values * part)) - 1 for part in parts]
    models = {name: PlainModel(torch, name, max(positions) + 1) for name in ("linear", "softmax")}
    steps = {"linear": 50, "softmax": arguments.steps}
    lines: dict[str, list] = {"runnel": [], "linear": [], "softmax": []}
    numerics = ""
    with endless_model(arguments.runnel) as address:
        for _ in range(arguments.rounds):
            points, numerics = stream_times(address, arguments.values)
            lines["runnel"].append(binned(points, arguments.bins))
            for name, model in models.items():
                lines[name] += measure_pytorch(model, positions, steps[name], cores)
    about = {
        "runnel": {"numerics": numerics},
        "linear": {"torch": torch.__version__},
        "softmax": {"torch": torch.__version__},
    }
    return {name: {**about[name], "points": best_of(measured)} for name, measured in lines.items()}


# --- The picture ---


def precision(figures):
    """runnel takes what the device multiplies fastest; the numerics id says what that was."""
    return "fp32" if "/fp32/" in figures["runnel"]["numerics"] else "runnel in bf16, PyTorch in fp32"


def draw(figures, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = [
        ("softmax", "softmax attention with a cache, PyTorch", "#c44e52", "o"),
        ("linear", "linear attention as a recurrence, PyTorch", "#8c8c8c", "s"),
        ("runnel", "runnel, through its server", "#1f5fa8", ""),
    ]
    figure, axes = pyplot.subplots(figsize=(8, 4.2), dpi=120)
    for name, label, colour, marker in lines:
        x, y = zip(*figures[name]["points"])
        axes.plot(
            x, [micros / 1000 for micros in y], color=colour, marker=marker, markersize=4, label=label, linewidth=2
        )
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel("position of the value in its sequence")
    axes.set_ylabel("time per value, ms (log scale)")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_title(
        f"One sequence, 8 layers of width 256, {precision(figures)}; "
        f"{figures['machine']['cores']} cores of {figures['machine']['cpu']}",
        fontsize=9,
    )
    axes.grid(True, which="both", alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 0.08), fontsize=9)
    figure.tight_layout()
    figure.savefig(path)


def as_lines(figures):
    """JSON with one point a line."""
    text = json.dumps(figures, indent=1)
    return re.sub(r"\[\s+([-\d.]+),\s+([-\d.]+)\s+\]", r"[\1, \2]", text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runnel", default=str(ROOT / "build/release/runnel"))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/images/time_per_value.png")
    parser.add_argument("--values", type=int, default=100_000, help="length of the sequence (default: %(default)s)")
    parser.add_argument("--bins", type=int, default=50)
    parser.add_argument("--steps", type=int, default=5, help="PyTorch steps timed at each position")
    parser.add_argument("--rounds", type=int, default=3, help="of which the best counts")
    arguments = parser.parse_args()
    if not os.access(arguments.runnel, os.X_OK):
        parser.error(f"there is no program {arguments.runnel}: build it, or name it with --runnel")
    about = processor()
    figures = {
        "what": f"microseconds per value against position; one sequence alone; best of {arguments.rounds} rounds",
        "machine": about,
        "model": {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "ffn": FFN, "weights": "random"},
        **measure(arguments, about["cores"]),
    }
    points = [micros for _, micros in figures["runnel"]["points"]]
    fifth = max(1, len(points) // 5)
    figures["runnel_last_fifth_over_first"] = round(
        statistics.median(points[-fifth:]) / statistics.median(points[:fifth]), 3
    )
    draw(figures, arguments.out)
    arguments.out.with_suffix(".json").write_text(as_lines(figures), encoding="utf-8")
    print(
        f"{arguments.out}: the last fifth of the values costs {figures['runnel_last_fifth_over_first']:.3f} of the "
        "first fifth"
    )


if __name__ == "__main__":
    try:
        main()
    except BundleError as error:
        sys.exit(f"plot_time_per_value.py: error: {error}")
