#!/usr/bin/env python3
"""Writes the results of bench/report/bench_cpu.py: cpu.json for programs, a page with tables, and two pictures.

Draws docs/benchmarks again from the figures of the last run on each processor family:

    bench/report/bench_report.py docs/benchmarks/cpu_figures.json --docs docs/benchmarks

Needs Python with matplotlib: the extra [bench] of ./python; on Debian: scripts/setup bench
"""

import argparse
import json
import pathlib
import re
import sys

NAMES = {
    "engine": "engine alone",
    "streams": "gRPC, a stream each",
    "samples": "gRPC, one stream",
    "peer": "PyTorch, the authors' loop",
    "compiled": "PyTorch, compiled",
}
COLOURS = {"engine": "#1f5fa8", "streams": "#3a9188", "samples": "#8cb84a", "peer": "#c44e52", "compiled": "#d98c2b"}
PARTS = {
    "embed": "#b8b8b8",
    "qkv": "#1f5fa8",
    "features": "#e3b778",
    "recur": "#d98c2b",
    "out": "#4f86c6",
    "norm": "#7a5ea8",
    "ffn1": "#2f7f79",
    "ffn2": "#56aaa2",
    "head": "#8c8c8c",
    "sample": "#c44e52",
    "other": "#dddddd",
}


TILE_ROWS = 4  # kFewestRows of kernels/cpu/isa_amx.cc


class Limits:
    """The limits that the machine sets to a model, by the roofline method: arithmetic, caches and memory work at the
    same time, and the slowest of them decides. A step reads the weights once, and reads and writes the states."""

    def __init__(self, figures):
        self.model, self.machine = figures["model"], figures["machine"]
        self.limits = max(figures["limits"], key=lambda one: one["threads"])
        self.is_bf16 = "/bf16/" in figures["numerics"]
        model = self.model
        queries, values = model["heads"] * model["query_size"], model["heads"] * model["value_size"]
        width, ffn, layers = model["width"], model["ffn"], model["layers"]
        self.products = {
            "qkv": layers * width * (2 * queries + values),
            "out": layers * values * width,
            "ffn1": layers * width * ffn,
            "ffn2": layers * ffn * width,
            "head": width * model["outputs"],
        }
        # The last products of a mixture are always in fp32.
        is_mixture = model.get("head", {}).get("kind") == "mixture_of_logistics"
        self.in_fp32 = {"ffn2": ffn * width, "head": width * model["outputs"]} if is_mixture else {}
        if not self.is_bf16:
            self.in_fp32 = self.products
        self.state_elements = layers * queries * (model["value_size"] + 1)

    def state_bytes(self):
        return 4 * self.state_elements

    def weight_bytes(self):
        return sum(self.part_bytes(part) for part in self.products)

    def part_bytes(self, part):
        return 2 * (self.products[part] + self.in_fp32.get(part, 0))

    def operations_per_value(self):
        return 2 * sum(self.products.values()) + 4 * self.state_elements

    def bf16_gflops(self, batch):
        """The rate of the fastest products for this batch. On Intel's processors vdpbf16ps is slower than fp32. Tiles
        need at least TILE_ROWS rows. Old figures have no rate of tiles."""
        tiles = self.limits.get("tile_gflops", 0) if batch >= TILE_ROWS else 0
        return max(tiles, self.limits["bf16_gflops"], self.limits["fp32_gflops"])

    def arithmetic(self, part, batch):
        """The least seconds for the arithmetic of a product."""
        in_fp32 = self.in_fp32.get(part, 0)
        bf16 = (self.products[part] - in_fp32) / self.bf16_gflops(batch)
        return 2 * batch * (bf16 + in_fp32 / self.limits["fp32_gflops"]) / 1e9

    def home(self, size):
        """The memory that can hold `size` bytes from one step to the next."""
        if size <= self.machine["l2_bytes"]:
            return "L2"
        return "L3" if size <= self.machine["l3_bytes"] else "DRAM"

    def seconds(self, part, batch):
        """The least time of one part of a step on each resource: {"arithmetic": s, "L3": s}."""
        if part in self.products:
            home = self.home(self.weight_bytes())
            return {
                "arithmetic": self.arithmetic(part, batch),
                home: self.part_bytes(part) / self.limits[f"{home.lower()}_gbps"] / 1e9,
            }
        if part == "recur":
            home = self.home(batch * self.state_bytes())
            rate = self.limits["dram_update_gbps" if home == "DRAM" else f"{home.lower()}_gbps"]
            return {
                "arithmetic": 4 * batch * self.state_elements / self.limits["fp32_gflops"] / 1e9,
                home: 2 * batch * self.state_bytes() / rate / 1e9,
            }
        return {}

    def least(self, part, batch):
        """The least time of one part by itself. None: the part has no known limit."""
        return max(self.seconds(part, batch).values(), default=None)

    def sum_of_parts(self, batch):
        """The least time of a step if its parts run one after the other."""
        return sum(self.least(part, batch) for part in (*self.products, "recur"))

    def step(self, batch):
        """The least time of a step, and the resource that determines it."""
        sums: dict[str, float] = {}
        for part in (*self.products, "recur"):
            for resource, seconds in self.seconds(part, batch).items():
                sums[resource] = sums.get(resource, 0) + seconds
        resource = max(sums, key=lambda one: sums[one])
        return sums[resource], resource

    def values_per_s(self, batch):
        return batch / self.step(batch)[0]


def rates(figures, what):
    """Values per second by batch."""
    return {one["batch"]: one["values_per_s"] for one in figures["throughput"] if one["what"] == what}


def strongest(figures):
    """Values per second of the fastest peer, by batch."""
    peers = [rates(figures, what) for what in ("peer", "compiled")]
    return {batch: max(one.get(batch, 0) for one in peers) for batch in peers[0]}


def entry(what, batch, rate, peer, limit):
    return {
        "what": what,
        "batch": batch,
        "values_per_s": rate,
        "strongest_peer_values_per_s": peer,
        "ratio_to_strongest_peer": round(rate / peer, 2) if peer else None,
        "share_of_limit": round(rate / limit, 3),
    }


def entries(figures):
    """The entries of cpu.json."""
    limits, peer = Limits(figures), strongest(figures)
    listed = [
        entry(NAMES[what], batch, rate, peer.get(batch), limits.values_per_s(batch))
        for what in ("engine", "streams", "samples")
        for batch, rate in rates(figures, what).items()
    ]
    for point in figures["positions"]["points"]:
        rate = round(1e6 / point["us_per_value"], 1)
        listed.append(entry(f"position {point['position']}", 1, rate, peer.get(1), limits.values_per_s(1)))
    return listed


# --- The page ---


def write_docs(name, figures, text, docs):
    """Writes the page NAME.md, and all figures to NAME_figures.json in the same folder."""
    (docs / f"{name}_figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (docs / f"{name}.md").write_text(text, encoding="utf-8")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def peer_cell(figures, what, batch):
    found = next((one for one in figures["throughput"] if (one["what"], one["batch"]) == (what, batch)), None)
    if found is None:
        return "-"
    form = found.get("form", "").removeprefix("compiled-")
    about = f"{form}, {found['threads']}" if what == "compiled" else f"{found['threads']}"
    return f"{found['values_per_s']:,.0f} ({about})"


def throughput_table(figures):
    by_way, best = {what: rates(figures, what) for what in NAMES}, strongest(figures)
    rows = [
        [
            f"{batch}",
            f"**{engine:,.0f}**",
            *(f"{by_way[way][batch]:,.0f} ({by_way[way][batch] / engine:.0%})" for way in ("streams", "samples")),
            peer_cell(figures, "peer", batch),
            peer_cell(figures, "compiled", batch),
            f"**{engine / best[batch]:.1f}x**",
        ]
        for batch, engine in by_way["engine"].items()
    ]
    return table(
        [
            "sequences",
            "engine, values/s",
            "gRPC, a stream each",
            "gRPC, one stream",
            "authors' loop (threads)",
            "PyTorch compiled (products, threads)",
            "engine to the faster one",
        ],
        rows,
    )


def shares_table(figures):
    limits, rows = Limits(figures), []
    for batch, engine in rates(figures, "engine").items():
        seconds, resource = limits.step(batch)
        parts = limits.sum_of_parts(batch)
        rows.append(
            [
                f"{batch}",
                f"{batch / seconds:,.0f} ({resource})",
                f"{engine * seconds / batch:.0%}",
                f"{batch / parts:,.0f}",
                f"{engine * parts / batch:.0%}",
            ]
        )
    return table(
        ["sequences", "limit, all at once: values/s", "reached", "limit, one part after the other", "reached"], rows
    )


def losses_table(figures):
    """A table of the times in a step that exceed the limits of its parts, the largest first."""
    limits, rows = Limits(figures), []
    for step in figures["operations"]:
        lost = {
            one["name"]: one["us"] - 1e6 * (limits.least(one["name"], step["batch"]) or 0) for one in step["operations"]
        }
        lost["between them"] = step["step_us"] - sum(one["us"] for one in step["operations"])
        largest = sorted((name for name in lost if lost[name] > 0), key=lambda name: -lost[name])[:5]
        cells = [f"{name} {lost[name]:,.0f} us, {lost[name] / step['step_us']:.0%}" for name in largest]
        rows.append([f"{step['batch']}", *cells, *["-"] * (5 - len(cells))])
    return table(["sequences", "largest", "second", "third", "fourth", "fifth"], rows)


def readme_rows(figures):
    """The table of README.md."""
    engine, best = rates(figures, "engine"), strongest(figures)
    rows = {
        "values/s": [f"{rate:,.0f}" for rate in engine.values()],
        "through gRPC, one stream per sequence: percent of the row above": [
            f"{rate / engine[batch]:.0%}" for batch, rate in rates(figures, "streams").items()
        ],
        "against the fastest PyTorch": [f"{rate / best[batch]:.1f}x" for batch, rate in engine.items()],
    }
    return table(["sequences at once", *(f"{batch}" for batch in engine)], [[name, *row] for name, row in rows.items()])


def operations_table(figures):
    limits = Limits(figures)
    steps = figures["operations"]
    rows = []
    for part in PARTS:
        cells = []
        for step in steps:
            found = next((one for one in step["operations"] if one["name"] == part), None)
            least = limits.least(part, step["batch"])
            share = f" ({least * 1e6 / found['us']:.0%})" if found and least else ""
            cells.append(f"{found['us']:,.1f}{share}" if found else "-")
        if any(cell != "-" for cell in cells):
            rows.append([part, *cells])
    rows.append(
        ["between them", *(f"{step['step_us'] - sum(one['us'] for one in step['operations']):,.1f}" for step in steps)]
    )
    rows.append(["**a step**", *(f"**{step['step_us']:,.1f}**" for step in steps)])
    return table(["microseconds of a step of", *(f"batch {step['batch']}" for step in steps)], rows)


def limits_table(figures):
    columns = {
        "fp32_gflops": "fp32 GFLOP/s",
        "bf16_gflops": "bf16 GFLOP/s",
        "tile_gflops": "bf16 by tiles, GFLOP/s",
        "l2_gbps": "L2 GB/s",
        "l3_gbps": "L3 GB/s",
        "dram_gbps": "DRAM GB/s",
        "dram_update_gbps": "DRAM in place GB/s",
    }
    rows = [
        [f"{one['threads']}", *(f"{one[key]:,.0f}" if one.get(key) else "-" for key in columns)]
        for one in figures["limits"]
    ]
    return table(["threads", *columns.values()], rows)


def positions_table(figures):
    rows = [
        [f"{one['position']:,}", f"{one['us_per_value']:,.1f}", f"{one['ratio']:.3f}"]
        for one in figures["positions"]["points"]
    ]
    return table(["position", "microseconds a value", "against the first"], rows)


def slug(family):
    """A processor family as a part of a file's name."""
    return re.sub("[^a-z0-9]+", "-", family.lower()).strip("-")


def page(families):
    """`families`: the figures of the last run on each processor family, by its name."""
    head = """# The CPU

Written by `make bench`, which replaces the section of the processor family that it runs on;
[performance.md](../internals/performance.md) says how it is measured and what it means.
[cpu-amx.md](cpu-amx.md) has the figures of an Intel processor with AMX.
"""
    return head + "".join(section(figures) for _, figures in sorted(families.items()))


def compiled(figures):
    """Describe the step that PyTorch compiled: how far its results differ, and which forms could not be measured."""
    if "compiled" in figures["torch"]:
        differ = ", ".join(f"{form} by {bits:.1g}" for form, bits in figures["forms"].items())
        told = (
            f"Its step as one function, compiled by PyTorch {figures['torch']['compiled']}: the best of the forms that "
            f"were shown to be the same model (bits per value that they differ from runnel in fp32: {differ})."
        )
    else:
        told = ""
    for form, why in figures["missing"].items():
        told += f" {form} is missing: {why}."
    return told.strip()


def by_tiles(figures):
    """Says that products use tiles. The numerics id does not say so, because tiles give the same bits as vectors."""
    has_tiles = any(one.get("tile_gflops", 0) for one in figures["limits"])
    return f", products by AMX's tiles for {TILE_ROWS} sequences or more" if has_tiles else ""


def texts_section(figures):
    """The same section for models of text: zoo/text-small, and a model with random features and no last position. Empty
    for old figures without these models."""
    return "".join(
        f"""### Where the time of a step of {name} goes

{one["model"]["layers"]} layers of width {one["model"]["width"]}, {one["model"]["attention"]["feature_map"]} features;
`embed` has the sinusoids of positions{
            ", read from a table" if "length" in one["model"]["position"] else ", made anew: no last position"
        }.

{operations_table({**figures, **one})}
{losses_table({**figures, **one})}
"""
        for name, one in figures.get("texts", {}).items()
    )


def section(figures):
    about, limits, positions = figures["machine"], Limits(figures), figures["positions"]
    prompt = positions["prompt_values_per_s"]
    alone = rates(figures, "engine").get(1)
    equal, memory = figures["equal"], figures["memory"]
    faster = f", {prompt / alone:.1f} times as fast as values are sampled" if alone else ""
    busy = "" if about["busy"] <= 0.05 else f" **Something else kept it {about['busy']:.0%} busy: measure again.**"
    return f"""
## {about["cpu"]}

{about["cores"]} cores with {", ".join(about["flags"]) or "no vectors"}; load average at start
{about["load_average"]:.2f}.{busy} Model: the paper's MNIST size with random weights, {figures["numerics"]}{
        by_tiles(figures)
    }. Medians of
{figures["rounds"]} rounds in turns; the authors' loop in PyTorch {figures["torch"]["peer"]} over
{figures["peer_steps"]} steps, with the better of one thread and one per core.
{compiled(figures)}
Before, PyTorch gave every one of {equal["sequences"]} x {equal["values"]} values that
runnel had sampled in fp32 the same log-probability, to {equal["largest_difference"]:.1g}; as measured here runnel
differs from it by {equal["bits_per_value_difference"]:.1g} bits per value of a sequence at most.

![Values per second against the number of sequences, and where the time of a step goes](cpu-{slug(about["cpu"])}.png)

### Values per second

{throughput_table(figures)}
{shares_table(figures)}
A value costs {limits.operations_per_value() / 1e6:.1f} MFLOP; a step reads {limits.weight_bytes() / 1e6:.1f} MB of
weights, and reads and writes {limits.state_bytes():,} bytes of state for each sequence. In brackets: the part of
the engine's speed that is left through gRPC; what PyTorch's products are in, and its threads; what sets the limit.

### Where the time of a step goes

{operations_table(figures)}
In brackets: how much of it the machine's own limit explains. What it does not explain, and what share of a step that
is, the largest first ([why](../internals/performance.md#what-is-lost)):

{losses_table(figures)}
{texts_section(figures)}### Limits of the machine

{limits_table(figures)}
### Position

![Time of a value against its position](position-{slug(about["cpu"])}.png)

{positions_table(figures)}
A given prompt is read at {prompt:,.0f} values/s{faster}.
The process grew by {max(0, positions["resident_growth_bytes"]) / 1e6:.1f} MB between the first position and the last.

### Memory

A session takes {memory["resident_bytes_per_session"]:,} bytes, measured over {memory["sessions"]:,}
of them; its state is {memory["state_bytes"]:,}.
"""


# --- The pictures ---


def draw_throughput(axes, figures):
    limits, engine, peer = Limits(figures), rates(figures, "engine"), strongest(figures)
    batches = list(engine)
    axes.plot(
        batches,
        [limits.values_per_s(batch) for batch in batches],
        "--",
        color="#8c8c8c",
        linewidth=1.5,
        label="the machine's limit",
    )
    for what, name in NAMES.items():
        found = rates(figures, what)
        if not found:
            continue
        axes.plot(
            list(found),
            list(found.values()),
            "-o",
            color=COLOURS[what],
            label=name,
            markersize=5,
            linewidth=2.5 if what in ("engine", "peer") else 1.5,
            zorder=3 if what == "engine" else 2,
        )
    for batch in batches:
        axes.annotate(
            f"{engine[batch] / peer[batch]:.1f}x",
            (batch, (engine[batch] * peer[batch]) ** 0.5),
            ha="center",
            va="center",
            fontsize=9,
            color="#555555",
        )
        axes.plot([batch, batch], [peer[batch] * 1.1, engine[batch] / 1.1], color="#dddddd", linewidth=1, zorder=0)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(batches, [f"{batch}" for batch in batches])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("sequences side by side")
    axes.set_title("values per second", fontsize=11)
    axes.grid(True, alpha=0.25)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def draw_operations(axes, figures):
    """Draws a bar for each batch, with the share of each operation in a step. Full colour marks the operation's least
    time."""
    limits, steps = Limits(figures), figures["operations"]
    for row, step in enumerate(steps):
        left = 0.0
        for one in step["operations"]:
            share = one["us"] / step["step_us"]
            least = (limits.least(one["name"], step["batch"]) or 0) * 1e6 / one["us"]
            colour = PARTS[one["name"]]
            axes.barh(row, share, left=left, color=colour, alpha=0.35, height=0.62)
            axes.barh(row, share * min(1, least), left=left, color=colour, height=0.62)
            if share > 0.055:
                axes.text(
                    left + share / 2, row - 0.34, one["name"], ha="center", va="bottom", fontsize=8, color="#444444"
                )
            left += share
    axes.set_yticks(range(len(steps)), [f"{step['batch']}" for step in steps])
    axes.set_ylim(len(steps) - 0.4, -0.8)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_ylabel("sequences side by side")
    axes.set_title("where the time of a step goes (in full colour: what the limit explains)", fontsize=11)


def draw_positions(axes, figures):
    from matplotlib import ticker

    points = figures["positions"]["points"]
    positions, ratios = [one["position"] for one in points], [one["ratio"] for one in points]
    axes.axhspan(0.98, 1.02, color="#1f5fa8", alpha=0.1, linewidth=0)
    axes.axhline(1, color="#8c8c8c", linewidth=1)
    axes.plot(positions, ratios, "-o", color="#1f5fa8", linewidth=2.5, markersize=6)
    for one in points:
        axes.annotate(
            f"{one['us_per_value']:,.0f} us",
            (one["position"], one["ratio"]),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color="#444444",
        )
    spread = max(0.105, *(abs(ratio - 1) * 1.3 for ratio in ratios))
    axes.set_ylim(1 - spread, 1 + spread)
    axes.yaxis.set_major_locator(ticker.MultipleLocator(0.02 if spread < 0.15 else 0.1))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("position of the value in its sequence")
    axes.set_title(f"cost of a value, against that at position {positions[0]:,} (band: 2%)", fontsize=11)
    axes.grid(True, alpha=0.25)


def save(figure, path):
    for axes in figure.axes:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def draw(figures, docs):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 4.8), dpi=120)
    draw_throughput(left, figures)
    draw_operations(right, figures)
    figure.suptitle(
        f"8 layers of width 256, {figures['numerics']}, {figures['machine']['cores']} cores of "
        f"{figures['machine']['cpu']}",
        fontsize=10,
        color="#444444",
    )
    name = slug(figures["machine"]["cpu"]) + ".png"
    save(figure, docs / f"cpu-{name}")
    figure, axes = pyplot.subplots(figsize=(8, 3.6), dpi=120)
    draw_positions(axes, figures)
    save(figure, docs / f"position-{name}")


def write(figures, listed, docs):
    """Writes everything. `listed`: the path of cpu.json. `docs`: the folder of the page, its pictures and its figures.
    The figures of other processor families are kept."""
    docs.mkdir(parents=True, exist_ok=True)
    listed.write_text("[\n" + ",\n".join(" " + json.dumps(one) for one in entries(figures)) + "\n]\n", encoding="utf-8")
    path = docs / "cpu_figures.json"
    families = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    families[figures["machine"]["cpu"]] = figures
    path.write_text(json.dumps(families, indent=1) + "\n", encoding="utf-8")
    (docs / "cpu.md").write_text(page(families), encoding="utf-8")
    draw(figures, docs)


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="bench_report.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", type=pathlib.Path, help="cpu_figures.json of earlier runs")
    parser.add_argument("--docs", type=pathlib.Path, required=True, help="folder for the page and the pictures")
    arguments = parser.parse_args(argv)
    try:
        families = json.loads(arguments.figures.read_text(encoding="utf-8"))
        for figures in families.values():
            write(figures, arguments.docs / "cpu.json", arguments.docs)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        print(f"bench_report.py: error: {arguments.figures}: not the figures of a run: {error!r}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
