#!/usr/bin/env python3
"""Plot the figures of bench/gpu/report.py: values per second by batch, with the limit of the memory bandwidth.

plot.py GPU_JSON OUT.png
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: plot.py GPU_JSON OUT.png")
    with open(sys.argv[1], encoding="utf-8") as file:
        entries = json.load(file)
    models = sorted({entry["model"] for entry in entries})
    if not models:
        sys.exit(f"{sys.argv[1]} holds no figures")
    figure, all_axes = plt.subplots(1, len(models), figsize=(6 * len(models), 4.5), squeeze=False)
    for axes, model in zip(all_axes[0], models):
        mine = [entry for entry in entries if entry["model"] == model]
        for what, numerics in sorted({(entry["what"], entry["numerics"]) for entry in mine}):
            points = sorted(
                (entry["batch"], entry["per_s"], entry["share_of_limit"])
                for entry in mine
                if (entry["what"], entry["numerics"]) == (what, numerics)
            )
            (line,) = axes.loglog(
                [p[0] for p in points],
                [p[1] for p in points],
                "o-" if what == "engine" else "s--",
                label=f"{what}: {numerics}",
            )
            limits = [(batch, per_s / share) for batch, per_s, share in points if share]
            if what == "engine" and limits:
                axes.loglog(*zip(*limits), ":", color=line.get_color(), label="what the memory allows it")
        axes.set(title=model, xlabel="sequences side by side", ylabel=f"{mine[0]['unit']} per second")
        axes.grid(True, which="both", alpha=0.2)
        axes.legend(fontsize=7)
    figure.suptitle(f"{entries[0]['gpu']}, driver {entries[0]['driver']}")
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=110)


if __name__ == "__main__":
    main()
