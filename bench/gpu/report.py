#!/usr/bin/env python3
"""Write gpu.json, gpu.md and costs.json from the logs that bench/gpu/gpu_check left in OUT. Missing logs are no error.

    report.py OUT

gpu.json is a list of {what, model, numerics, batch, per_s, unit, gpu, driver, ratio_to_paper,
ratio_to_peer, share_of_limit}; a ratio is null if there is no figure to compare with. `what` is engine, grpc, or the
engine with one fixed way to step: operations, or clusters of N times M.

The limit of a step is the time to move its bytes at the bandwidth that the same run measured: the bandwidth of the
cache if everything fits there, else the bandwidth of copies. A step reads the weights once, and reads and writes each
state. With replay it reads a state with half its log, and writes the state once in L steps. Launches and arithmetic do
not count. The peer is the fastest of the linear loops in PyTorch at that batch.

costs.json has the constants of layer_cycles() (kernels/cuda/layer_costs.h), as the ceilings of this run measured them.
`gpu_steps BUNDLE --costs OUT/costs.json` chooses the shapes of clusters with them. Other constants keep their defaults.
"""

import json
import pathlib
import re
import statistics
import sys

# Images per second of Katharopoulos et al. (2020): one at a time on a GPU, and at their best batch.
PAPER = {"random-mnist": (1 / 7.3, 142.8), "random-cifar10": (1 / 61.3, 17.85)}

# Defaults of LayerCosts in kernels/cuda/layer_costs.h, in cycles or in bytes a cycle, and the ceilings that estimate
# them. A ceiling in gigabytes per second is for one block, or for all blocks together.
LAYER_COSTS = {"meeting": 700, "cache_block": 48, "cache": 4200, "memory_block": 40, "memory": 2400}
MEETING_BYTES = 512  # from each block, in the meetings whose median becomes the cost
COSTS = {
    "st_async_hop_us": ("a hop between two of {} blocks", None),
    "meeting_us": ("a meeting, blocks x bytes from each: {}", "meeting"),
    "bulk_latency_us": ("a bulk copy of 2 KiB from the cache", None),
}
RATES = {
    "bulk_gb_s_block": ("bulk copies from the cache, one block", "cache_block"),
    "bulk_gb_s_all": ("bulk copies from the cache, all blocks", "cache"),
    "bulk_gb_s_all_in_step": ("bulk copies of the same bytes, all blocks", None),
    "multicast_gb_s_read": ("read by multicast, blocks of a cluster: {}", None),
    "multicast_gb_s_delivered": ("delivered by multicast, blocks of a cluster: {}", None),
    "state_gb_s_block": ("states read and written, one block", "memory_block"),
    "state_gb_s_all": ("states read and written, all blocks", "memory"),
}


def layer_costs(ceilings):
    """The costs measured by these ceilings, in the form that read_layer_costs() of kernels/cuda/layer_costs.h reads."""
    mhz = ceilings.get("clock_mhz")
    if not mhz:
        return {}
    found = {}
    meetings = [
        us
        for size, us in ceilings.get("meeting_us", {}).items()
        if us is not None and size.endswith(f"x{MEETING_BYTES}")
    ]
    if meetings:
        found["meeting"] = statistics.median(meetings) * mhz
    for key, (_, cost) in RATES.items():
        if cost and ceilings.get(key) is not None:
            found[cost] = ceilings[key] * 1000 / mhz
    return {cost: max(1, round(figure)) for cost, figure in found.items()}


def costs(ceilings):
    """Rows of a table: each ceiling, also in cycles, and the constant of layer_cycles() that it estimates."""
    mhz = ceilings.get("clock_mhz")
    for names, unit, per_cycle, cycles in (
        (COSTS, "us", "cycles", lambda us: us * mhz),
        (RATES, "GB/s", "bytes a cycle", lambda rate: rate * 1000 / mhz),
    ):
        for key, (what, constant) in names.items():
            found = ceilings.get(key)
            for size, figure in found.items() if isinstance(found, dict) else [("", found)]:
                if figure is None:
                    continue
                yield [
                    what.format(size.replace("_one", ", one cluster").replace("_all", ", all clusters")),
                    f"{figure:,.4g}" if unit == "us" else f"{figure:,.0f}",
                    unit,
                    f"{cycles(figure):,.0f} {per_cycle}" if mhz else "",
                    f"{constant} = {LAYER_COSTS[constant]}" if constant else "",
                ]


def lines(path):
    """The JSON objects among the lines of a log. Lines that were cut are skipped, and a missing log has none."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def limit_of(step, ceilings):
    """The values per second that the memory bandwidth allows, or None."""
    if "copy_gb_s" not in ceilings:
        return None
    weights = step["parameters"] * (2 if "/bf16/" in step["numerics"] else 4)
    state = step["state_bytes"]
    states = step.get("slot_bytes", state) * step["batch"]
    replay = re.search(r"\+replay(\d+)", step["numerics"])
    if replay:  # half of the log is read on average
        rare = 1 / int(replay.group(1))
        moved = weights + step["batch"] * (state * (1 + rare) + (step["slot_bytes"] - state) * (0.5 + rare))
    else:
        moved = weights + step["batch"] * 2 * state
    bandwidth = ceilings["copy_gb_s"]
    if weights + states < ceilings.get("l2_bytes", 0):
        cached = {int(mib): rate for mib, rate in ceilings.get("read_gb_s", {}).items()}
        holds = [mib for mib in sorted(cached) if mib << 20 >= weights + states]
        if holds:
            bandwidth = max(bandwidth, cached[holds[0]])
    return step["batch"] * bandwidth * 1e9 / moved


def ratio(figure, to):
    return round(figure / to, 4) if figure and to else None


class Report:
    def __init__(self, out):
        self.out = out
        device = (out / "device.txt").read_text(encoding="utf-8").splitlines() if (out / "device.txt").exists() else []
        self.gpu: str
        self.driver: str
        self.gpu, self.driver = [*device[0].split(", "), "", ""][:2] if device else ["", ""]
        self.ceilings: dict = next(iter(lines(out / "ceilings.log")), {})
        self.peers = [one for path in sorted(out.glob("peers*.log")) for one in lines(path) if "values_per_s" in one]
        self.steps = [one for path in sorted(out.glob("steps_*.log")) for one in lines(path) if "batch" in one]
        self.threads = [one for one in lines(out / "cpu_threads.log") if "threads" in one]
        self.prompts = [one for path in sorted(out.glob("steps_*.log")) for one in lines(path) if "prompt" in one]

    def entry(self, what, step, values_per_s):
        model, batch = step["model"], step["batch"]
        each = step["image_values"] or 1
        per_s = values_per_s / each
        alone, best = PAPER.get(model, (None, None))
        linear = [
            one["values_per_s"]
            for one in self.peers
            if one["peer"] != "softmax" and (one["model"], one["batch"]) == (model, batch)
        ]
        return {
            "what": what,
            "model": model,
            "numerics": step["numerics"],
            "batch": batch,
            "per_s": round(per_s, 3),
            "unit": "images" if each > 1 else "values",
            "gpu": self.gpu,
            "driver": self.driver,
            "ratio_to_paper": ratio(per_s, alone if batch == 1 else best),
            "ratio_to_peer": ratio(values_per_s, max(linear, default=None)),
            "share_of_limit": ratio(values_per_s, limit_of(step, self.ceilings)),
        }

    def entries(self):
        found = [self.entry(step.get("what", "engine"), step, step["values_per_s"]) for step in self.steps]
        sizes = {step["model"]: step for step in self.steps}
        for run in lines(self.out / "serving.log"):
            for one in run.get("throughput", []):
                if run.get("model") in sizes:
                    step = {**sizes[run["model"]], "batch": one["batch"], "numerics": run["numerics"]}
                    found.append(self.entry("grpc", step, one["values_per_s"]))
        return found

    def text(self, entries):
        yield f"# {self.gpu or 'no GPU named'}, driver {self.driver or 'not named'}\n"
        if self.ceilings:
            yield f"Copies reach {self.ceilings['copy_gb_s']:.0f} GB/s.\n"
        measured = list(costs(self.ceilings))
        if measured:
            yield from table(("ceiling", "measured", "unit", "by the clock", "layer_cycles() has"), measured)
        if entries:
            yield from table(
                ("what", "model", "numerics", "batch", "per second", "unit", "x paper", "x peer", "of the limit"),
                [
                    [
                        e["what"],
                        e["model"],
                        e["numerics"],
                        e["batch"],
                        f"{e['per_s']:,.1f}",
                        e["unit"],
                        shown(e["ratio_to_paper"], "{:.1f}"),
                        shown(e["ratio_to_peer"], "{:.1f}"),
                        shown(e["share_of_limit"], "{:.0%}"),
                    ]
                    for e in entries
                ],
            )
        if self.prompts:
            yield from table(
                ("model", "numerics", "prompt", "values per second"),
                [[p["model"], p["numerics"], p["prompt"], f"{p['values_per_s']:,.0f}"] for p in self.prompts],
            )
        if self.peers:
            yield from table(
                ("peer", "model", "batch", "values per second"),
                [[p["peer"], p["model"], p["batch"], f"{p['values_per_s']:,.0f}"] for p in self.peers],
            )
        if self.threads:
            yield from table(
                ("CPU threads", "model", "batch", "values per second"),
                [
                    [run["threads"], figures["model"], one["batch"], f"{one['values_per_s']:,.0f}"]
                    for run in self.threads
                    for figures in [run["figures"]]
                    for one in figures["throughput"]
                ],
            )
        for name in ("compare", "sessions", "churn"):
            for figures in lines(self.out / f"{name}.log"):
                yield f"- {name}: " + ", ".join(f"{key} {value}" for key, value in figures.items())


def shown(value, how):
    return "" if value is None else how.format(value)


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "| --- " * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(map(str, row)) + " |"
    yield ""


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: report.py OUT")
    report = Report(pathlib.Path(sys.argv[1]))
    entries = report.entries()
    text = "\n".join(report.text(entries)) + "\n"
    (report.out / "gpu.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    (report.out / "gpu.md").write_text(text, encoding="utf-8")
    measured = layer_costs(report.ceilings)
    if measured:
        (report.out / "costs.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    print("\n" + text, end="")


if __name__ == "__main__":
    main()
