#!/usr/bin/env python3
"""Draws the results of `runnel load --sweep 0.5,1,2 --out load.json`: goodput, time to the first value and latency of
refusals, each by load. Dots are runs, and the line goes through the median of the runs at each load.

    bench/report/plot_load.py load.json load.png

Needs Python with matplotlib: the extra [bench] of ./python; on Debian: scripts/setup bench
"""

import argparse
import json
import pathlib
import statistics
import sys


def load_runs(path):
    """The JSON of a file, and its runs by multiple of the capacity."""
    try:
        figures = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        runs: dict = {}
        for run in figures["runs"]:
            if "multiple" in run:
                runs.setdefault(run["multiple"], []).append(run)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"plot_load.py: {path}: not a file of 'runnel load --out': {error!r}") from error
    if not runs:
        raise SystemExit(f"plot_load.py: {path} has no runs of a sweep: make it with --sweep 0.5,1,2")
    return figures, dict(sorted(runs.items()))


def refusal(run, quantile):
    """A quantile of the latency of the most frequent refusal, in milliseconds. None: the run has no refusals."""
    refused = max(run["refused"].values(), key=lambda entry: entry["count"], default=None)
    return refused["latency_ms"][quantile] if refused else None


def draw_line(axes, runs, figure, label, colour):
    """Draws a line through the medians of figure(run), and a dot for every run."""
    points = []
    for multiple, alike in runs.items():
        values = [value for value in map(figure, alike) if value is not None]
        axes.plot([multiple] * len(values), values, ".", color=colour, alpha=0.35, markersize=6)
        if values:
            points.append((multiple, statistics.median(values)))
    if points:
        axes.plot(*zip(*points), "-o", color=colour, markersize=4, linewidth=2, label=label)


def goodputs(figures):
    """The goodputs of all runs by multiple of the capacity, in the order of the rounds. 'closed': the runs that found
    the capacity."""
    by_load: dict = {}
    for run in figures["runs"]:
        by_load.setdefault(run.get("multiple", "closed"), []).append(run["goodput"])
    return by_load


def best_goodput(figures):
    """The largest median goodput of all loads, including the runs that found the capacity."""
    return max(map(statistics.median, goodputs(figures).values()))


def shares_of_the_best(figures):
    """For each load, the median over rounds of its goodput divided by the goodput, in the same round, of the load with
    the largest median."""
    by_load = goodputs(figures)
    best = max(by_load.values(), key=statistics.median)
    return {
        load: statistics.median(one / other for one, other in zip(values, best)) for load, values in by_load.items()
    }


def draw(figures, runs, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    blue, red = "#1f5fa8", "#c44e52"
    figure, (good, first, refused) = pyplot.subplots(1, 3, figsize=(11, 3.6), dpi=120)
    best = best_goodput(figures)
    good.axhline(best, color="#8c8c8c", linewidth=1, linestyle="--", label="best")
    good.axhline(0.95 * best, color="#8c8c8c", linewidth=1, linestyle=":", label="95% of the best")
    draw_line(good, runs, lambda run: run["goodput"], "completed calls", blue)
    good.set_ylim(bottom=0)
    good.set_title("goodput, values/s", fontsize=10)
    draw_line(first, runs, lambda run: run["first_value_ms"]["p99"], "p99", red)
    draw_line(first, runs, lambda run: run["first_value_ms"]["p50"], "p50", blue)
    first.set_yscale("log")
    first.set_title("time to first value, ms (log scale)", fontsize=10)
    refused.axhline(5, color="#8c8c8c", linewidth=1, linestyle=":", label="target of p99")
    draw_line(refused, runs, lambda run: refusal(run, "p99"), "p99", red)
    draw_line(refused, runs, lambda run: refusal(run, "p50"), "p50", blue)
    refused.set_ylim(bottom=0)
    refused.set_title("latency of a refusal, ms", fontsize=10)
    for axes in (good, first, refused):
        axes.set_xlim(0, max(runs) * 1.05)
        axes.set_xlabel("load, multiples of the capacity")
        axes.grid(True, alpha=0.25)
        axes.legend(frameon=False, fontsize=8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    machine = figures["machine"]
    figure.suptitle(
        f"model {figures['model']}, capacity {figures['capacity']:,.0f} calls/s, server and clients on "
        f"{machine['cores']} cores of {machine['cpu']}",
        fontsize=10,
    )
    figure.tight_layout()
    figure.savefig(path)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", help="file that 'runnel load --sweep ... --out' wrote")
    parser.add_argument("png", help="file to write")
    arguments = parser.parse_args(argv)
    figures, runs = load_runs(arguments.json)
    draw(figures, runs, arguments.png)
    print(arguments.png)


if __name__ == "__main__":
    sys.exit(main())
