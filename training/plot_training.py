#!/usr/bin/env python3
"""Draw the loss curves of what training/train.py trained.

    training/plot_training.py build/train/mnist.json build/train/copy.json --out docs/images/training.png

Each REPORT is what a training left in its --work. Writes the picture, and beside it a JSON file with all reports, from
which the picture can be drawn again. Needs matplotlib; on Debian: apt install python3-matplotlib.
"""

import argparse
import json
import pathlib

COLUMNS = 3  # of plots in a row


def load(paths):
    """The reports of all files, by name; a later one replaces an earlier."""
    reports = {}
    for path in paths:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        for report in content if isinstance(content, list) else [content]:
            reports[report["name"]] = report
    return list(reports.values())


def draw(reports, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = -(-len(reports) // COLUMNS)
    figure, axes = pyplot.subplots(rows, COLUMNS, figsize=(4.6 * COLUMNS, 3.4 * rows), squeeze=False)
    for axis in axes.flat[len(reports) :]:
        axis.set_axis_off()
    for axis, report in zip(axes.flat, reports):
        steps, _, bits = zip(*report["curve"])
        axis.plot(steps, bits, color="#1f5fa8", linewidth=1.2, label="training")
        for (name, found), color in zip(report["figures"].items(), ("#c0392b", "#2e8b57")):
            axis.axhline(found["bits"], color=color, linewidth=1, linestyle="--", label=f"{name}: {found['bits']:.3f}")
        axis.set_title(report["name"])
        axis.set_xlabel(f"steps ({report['seconds'] / 60:.0f} minutes on {report['device']})")
        axis.set_ylabel(f"bits per {report['unit']}")
        low = min([*bits, *(found["bits"] for found in report["figures"].values())])
        axis.set_ylim(0.9 * low, max(bits) * 1.02)
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", nargs="+", metavar="REPORT", help="NAME.json of a training, or a picture's JSON file")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="FILE.png")
    args = parser.parse_args()
    reports = load(args.report)
    draw(reports, args.out)
    text = ",\n".join(json.dumps(report) for report in reports)
    args.out.with_suffix(".json").write_text(f"[\n{text}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
