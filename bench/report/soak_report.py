"""Judges, draws and describes the measurements of soak.py."""

from __future__ import annotations

import pathlib

import numpy

MIB = 1 << 20
# A line is fitted to the samples of the last half of the run. Over that half, it may rise by this share of their mean
# or by this amount, whichever is larger.
FLAT = {"resident": (0.02, 2.0 * MIB), "files": (0.02, 4.0)}


def growth(figures: dict, what: str) -> tuple[float, float]:
    """The rise of the line through the samples of the last half, and the largest rise that is allowed."""
    half = [sample for sample in figures["samples"] if sample["second"] >= figures["seconds"] / 2]
    seconds = numpy.array([sample["second"] for sample in half])
    taken = numpy.array([sample[what] for sample in half])
    slope = float(numpy.polyfit(seconds, taken, 1)[0])
    part, least = FLAT[what]
    return slope * float(seconds[-1] - seconds[0]), max(part * float(taken.mean()), least)


def grown(figures: dict) -> list[str]:
    """Describes each figure that has grown too much."""
    both = {what: growth(figures, what) for what in FLAT}
    return [
        f"{what} grew by {added:.0f} in the last half; at most {allowed:.0f} is flat"
        for what, (added, allowed) in both.items()
        if added > allowed
    ]


def draw(figures: dict, path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (memory, files) = pyplot.subplots(1, 2, figsize=(11, 3.2), dpi=120)
    minutes = [sample["second"] / 60 for sample in figures["samples"]]
    for axes, what, scale, title in ((memory, "resident", MIB, "memory, MiB"), (files, "files", 1, "open files")):
        axes.plot(minutes, [sample[what] / scale for sample in figures["samples"]], color="#1f5fa8", linewidth=1)
        axes.axvspan(figures["seconds"] / 120, minutes[-1], color="#8c8c8c", alpha=0.15, linewidth=0)
        axes.set_ylim(bottom=0)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("minutes; the grey half must be flat", fontsize=9)
        axes.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(path)


def report(figures: dict) -> str:
    rows = [
        f"| {kind} | {sum(ended.values()):,} | "
        + ", ".join(f"{status} {count:,}" for status, count in sorted(ended.items(), key=lambda one: -one[1]))
        + " |"
        for kind, ended in figures["calls"].items()
    ]
    flat = []
    for what, unit, scale in (("resident", "MiB of memory", MIB), ("files", "open files", 1)):
        added, allowed = growth(figures, what)
        last = figures["samples"][-1][what]
        flat.append(
            f"{last / scale:,.1f} {unit} at the end; growth in the last half: {added / scale:+.2f} (limit: "
            f"{allowed / scale:.2f})"
        )
    machine = figures["machine"]
    reloads = ", ".join(f"{name} {count}" for name, count in figures["reloads"].items())
    return "\n".join(
        [
            "# A long run",
            "",
            "![memory and open files of the server over the run](soak.png)",
            "",
            f"{figures['sessions']:,} sessions on one server for {figures['seconds'] / 60:.0f} minutes, with its "
            f"clients on the same {machine['cores']} cores of {machine['cpu']}; load average {machine['load']:.1f} at "
            f"the start. Clients received {figures['values']:,} values, and compared each with the value that "
            f"its seed determines. Their keys were rotated {figures['rotations']} times. Reloads by their effect on a "
            f"model: {reloads}.",
            "",
            f"- {flat[0]}.",
            f"- {flat[1]}.",
            f"- {len(figures['faults'])} faults: calls with a wrong end, wrong values, sessions that are missing or at "
            "a wrong position, states that were not freed.",
            "",
            "The limit: a straight line fitted to the samples of the last half may grow by 2% of their mean, or by 2 "
            "MiB or 4 files if that is more.",
            "",
            "| clients | calls | ended with |",
            "| --- | --- | --- |",
            *rows,
            "",
            "UNAUTHENTICATED: the key was removed during the call. NOT_FOUND: the model had been retired.",
            "",
            "Reproduce with `make soak` (an hour; `SOAK_QUICK=1`: ten minutes).",
            "",
        ]
    )
