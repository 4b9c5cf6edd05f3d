#!/usr/bin/env python3
"""Measures sampling on this machine's CPU, compared with PyTorch, and writes the figures and their page.

It first measures the machine's limits. Then these take turns, in each round and for each batch, with the same random
weights of the paper's MNIST size:
- runnel's engine alone
- its server, called from another process with one stream for each sequence, or with one stream for all sequences
- the recurrent loop of the paper's authors in PyTorch (bench/report/loop_peer.py)
- the same loop, compiled to one function by the newest PyTorch, which is installed from PyPI into build/bench/peers

Before that, the peers are proven to compute the same model. At the end it measures the parts of a step's time, also of
models for text, the time of a value at position 1,000,000, and the memory of a session.

    bench/report/bench_cpu.py                  # make bench: 20 minutes, writes build/bench and docs/benchmarks
    bench/report/bench_cpu.py --quick          # two minutes, to see that it works; writes build/bench alone

Needs a built runnel, and Python with numpy, torch and matplotlib; on Debian: scripts/setup bench
"""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
QUIET = 0.05  # the machine counts as quiet if other programs use at most this share of it
LARGE = 512  # from this batch on, sequences of 256 values are measured in place of whole images
PEER_PACKAGES = ("torch==2.15.0", "rwkv==0.8.32", "safetensors", "transformers", "numpy")
FORMS = ("compiled-bf16", "compiled-fp32")

# The zoo's text-small, but with random features and no last position.
FAVOR = (
    *("--layers", "4", "--width", "128", "--heads", "4", "--query-size", "32", "--value-size", "32", "--ffn", "512"),
    *("--values", "256", "--head", "categorical", "--activation", "gelu", "--feature-map", "favor"),
    *("--position-kind", "sinusoidal", "--endless"),
)
BUNDLES = {"mnist": ("--preset", "mnist"), "endless": ("--preset", "mnist", "--endless"), "text-favor": FAVOR}

FULL = {
    "rounds": 3,
    "batches": [1, 8, 32, 128, 512],
    "seconds": 1.0,
    "steps": 256,
    "positions": [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000],
    "forms": FORMS,
    "threads": sorted({1, len(os.sched_getaffinity(0))}),
}
QUICK = {
    "rounds": 1,
    "batches": [1, 8, 32],
    "seconds": 0.2,
    "steps": 24,
    "positions": [500, 1_000, 5_000],
    "forms": (),  # without the newest PyTorch, a download of gigabytes
    "threads": [1],
}


class BenchError(Exception):
    """What is missing or wrong, in one line."""


def run(command, **options):
    """Runs a command and returns its stdout."""
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise BenchError(f"{pathlib.Path(command[0]).name} {command[1]}: {lines[-1]}")
    return done.stdout


def install_peers(folder):
    """Installs the newest PyTorch and its packages into a virtual environment, and returns its python."""
    mark, python = folder / "installed", folder / "bin/python"
    if not (mark.exists() and mark.read_text(encoding="utf-8") == " ".join(PEER_PACKAGES)):
        print("installing PyTorch and rwkv from PyPI", flush=True)
        run([sys.executable, "-m", "venv", folder])
        try:
            run([python, "-m", "pip", "install", "-q", "--retries", "1", "--timeout", "20", *PEER_PACKAGES])
        except BenchError as error:
            raise BenchError(f"PyTorch cannot be installed from PyPI: {error}") from None
        mark.write_text(" ".join(PEER_PACKAGES), encoding="utf-8")
    return python


def busy_share(seconds=1.0):
    """The share of the machine's time that other programs use while this program sleeps."""

    def read():
        with open("/proc/stat", encoding="ascii") as file:
            numbers = [int(word) for word in file.readline().split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]

    total, idle = read()
    time.sleep(seconds)
    total_after, idle_after = read()
    return round(1 - (idle_after - idle) / max(1, total_after - total), 3)


def processor():
    """The processor's name, and how many of its cores this process may use."""
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    keys = {key: re.search(rf"^{key}\s*:\s*(.*)$", text, re.MULTILINE) for key in ("model name", "cpu family", "model")}
    name, family, model = (found.group(1) if found else "unknown" for found in keys.values())
    return {"cpu": f"{name} (family {family}, model {model})", "cores": len(os.sched_getaffinity(0))}


def machine():
    """The processor, its relevant instruction sets and its caches, as lscpu lists them, and the load average."""
    listed = dict(line.split(":", 1) for line in run(["lscpu", "--bytes"]).splitlines() if ":" in line)
    caches = {name: int(listed.get(f"{name} cache", "0").split()[0]) for name in ("L2", "L3")}
    flags = [
        flag
        for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
        if flag in listed.get("Flags", "").split()
    ]
    return {
        **processor(),
        "flags": flags,
        "l2_bytes": caches["L2"],
        "l3_bytes": caches["L3"],
        "load_average": os.getloadavg()[0],
    }


def quiet_machine():
    """Returns machine(). Prints a warning first if other programs keep the machine busy."""
    about = machine()
    if (busy := busy_share()) > QUIET:
        print(f"warning: the machine is {busy:.0%} busy with something else; the figures will be low", flush=True)
    return about


class Bench:
    """Runs the measurements and keeps their results."""

    def __init__(self, runnel, folder, plan):
        self.runnel, self.folder, self.plan = runnel, folder, plan
        self.began = time.monotonic()
        self.busy = []
        self.runs = {}  # (what, batch) -> values per second, one for each round
        self.peer_threads = {}
        self.limits = {}  # number of threads -> the best of all measurements
        self.torch = {}  # way -> the version of its PyTorch
        self.compiled = {}  # batch -> the fastest form and number of threads
        self.forms = {}  # form that is proven equal -> by how many bits per value it differs
        self.missing = {}  # form -> why it is missing

    def say(self, text):
        seconds = int(time.monotonic() - self.began)
        print(f"{seconds // 60:2}:{seconds % 60:02}  {text}", flush=True)

    def bench(self, *words):
        return json.loads(run([self.runnel, "bench", *words, "--json"]))

    def measure_limits(self):
        """Measures the machine's limits, and keeps the best. Other programs can only make a measurement too low."""
        for one in self.bench("--what", "limits")["limits"]:
            best = self.limits.setdefault(one["threads"], one)
            best.update({name: max(value, best[name]) for name, value in one.items()})

    def make_bundles(self):
        for name, flags in BUNDLES.items():
            run([sys.executable, ROOT / "scripts/runnel-random-bundle", *flags, "--out", self.folder / name])

    @contextlib.contextmanager
    def serving(self, *flags):
        """The address of a server of the model."""
        from runnel_client import serving
        from runnel_client.errors import BundleError

        try:
            with serving.running(
                self.runnel, self.folder / "mnist", self.folder / "serve.log", ("--backend", "cpu", *flags)
            ) as (_, address):
                yield address
        except BundleError as error:
            raise BenchError(" ".join(str(error).split())) from None

    def peer(self, form, *words):
        """Runs bench_peer.py and returns its JSON. The authors' loop uses the system's PyTorch, the fastest for it."""
        python = sys.executable if form == "authors" else self.folder / "peers/bin/python"
        command = [python, ROOT / "bench/report/bench_peer.py", self.folder / "mnist", "--form", form, *words]
        return json.loads(run(command, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor")}))

    def sample(self, address):
        """A file of sequences that the server has sampled."""
        words = ["generate", "--server", address, "--count", "4", "--seed", "7", "--json"]
        sampled = run([self.runnel, *words, "--out", self.folder / "sampled.png"])
        path = self.folder / "sampled.json"
        path.write_text(sampled, encoding="utf-8")
        return path

    def prove_equal(self, address):
        """Checks that the peer gives each value of a server's samples the same probability as the server."""
        return self.peer("authors", "--check", self.sample(address))

    def prove_compiled(self, address):
        """Checks each compiled form in the same way. Leaves out a form that cannot be installed or fails the check."""
        path = self.sample(address)
        for form in self.plan["forms"]:
            try:
                install_peers(self.folder / "peers")
                self.forms[form] = self.peer(form, "--check", path)["bits_per_value_difference"]
            except (BenchError, OSError, ValueError) as error:
                self.missing[form] = " ".join(str(error).split())
                self.say(f"without {form}: {self.missing[form]}")

    def measure_runnel(self, what, batch, address):
        words = [self.folder / "mnist", "--backend", "cpu"] if what == "engine" else ["--server", address]
        if batch >= LARGE:
            words += ["--values", "257"]  # the first is given
        figures = self.bench(*words, "--what", what, "--batch", batch, "--seconds", self.plan["seconds"])
        return figures["throughput"][0]["values_per_s"], figures["numerics"]

    def measure_peer(self, batch):
        threads = self.peer_threads.get(batch)
        told = self.peer(
            "authors", "--batch", batch, "--steps", self.plan["steps"], *(["--threads", threads] if threads else [])
        )
        self.torch["peer"], measured = told["torch"], told["peer"][0]
        self.peer_threads[batch] = measured["threads"]
        return measured["values_per_s"]

    def measure_compiled(self, batch):
        """Values per second of the fastest form and number of threads at this batch. The first call tries all."""

        def rate(form, threads, steps):
            told = self.peer(form, "--batch", batch, "--threads", threads, "--steps", steps)
            self.torch["compiled"] = told["torch"]
            return told["peer"][0]["values_per_s"]

        if batch not in self.compiled:
            ways = [(form, threads) for form in self.forms for threads in self.plan["threads"]]
            few = max(8, self.plan["steps"] // 4)
            tried = {way: rate(way[0], way[1], few) for way in ways} if len(ways) > 1 else {ways[0]: 0.0}
            self.compiled[batch] = max(tried, key=lambda way: tried[way])
        form, threads = self.compiled[batch]
        return rate(form, threads, self.plan["steps"])

    def measure_round(self, number, address):
        """Measures every way at every batch, in turns. Each round begins with another way."""
        self.busy.append(busy_share())
        numerics = ""
        ways = ["engine", "streams", "samples", "peer", *(["compiled"] if self.forms else [])]
        first = number % len(ways)
        for batch in self.plan["batches"]:
            for way in ways[first:] + ways[:first]:
                if way == "peer":
                    rate = self.measure_peer(batch)
                elif way == "compiled":
                    try:
                        rate = self.measure_compiled(batch)
                    except (BenchError, ValueError) as error:
                        self.missing[f"compiled, batch {batch}"] = " ".join(str(error).split())
                        continue
                else:
                    rate, numerics = self.measure_runnel(way, batch, address)
                self.runs.setdefault((way, batch), []).append(rate)
                self.say(f"round {number + 1} of {self.plan['rounds']}: {way} at batch {batch}: {rate:,.0f} values/s")
        return numerics

    def measure(self):
        about = machine()
        self.busy.append(busy_share())
        if self.busy[0] > QUIET:
            self.say(f"warning: the machine is {self.busy[0]:.0%} busy with something else; the figures will be low")
        self.make_bundles()
        self.say("the machine's limits")
        self.measure_limits()
        with self.serving("--precision", "fp32") as address:
            proof = self.prove_equal(address)
            self.prove_compiled(address)
        rows = str(max(self.plan["batches"]))
        with self.serving("--sessions", rows, "--batch-rows", rows, "--samples", rows) as address:
            proof["bits_per_value_difference"] = self.prove_equal(address)["bits_per_value_difference"]
            self.say(
                f"PyTorch and runnel agree on {proof['sequences']} sequences: in fp32 log-probabilities differ by "
                f"{proof['largest_difference']:.1g} at most"
            )
            for number in range(self.plan["rounds"]):
                numerics = self.measure_round(number, address)
                self.measure_limits()
        self.say("where the time of a step goes, and memory")
        inside = self.inside(self.folder / "mnist", "operations,memory")
        texts = {
            path.name: {"model": self.model(path), **self.inside(path, "operations")}
            for path in (ROOT / "zoo/text-small", self.folder / "text-favor")
        }
        self.say(f"positions up to {max(self.plan['positions']):,}")
        positions = self.bench(
            self.folder / "endless",
            "--backend",
            "cpu",
            "--what",
            "positions",
            "--positions",
            ",".join(str(position) for position in self.plan["positions"]),
        )["positions"]
        self.busy.append(busy_share())
        return {
            "machine": {**about, "busy": max(self.busy)},
            "model": self.model(self.folder / "mnist"),
            "numerics": numerics,
            "torch": self.torch,
            "forms": self.forms,
            "missing": self.missing,
            "equal": proof,
            "rounds": self.plan["rounds"],
            "peer_steps": self.plan["steps"],
            "limits": list(self.limits.values()),
            "throughput": self.throughput(),
            "operations": inside["operations"],
            "texts": texts,
            "memory": inside["memory"],
            "positions": positions,
        }

    def inside(self, directory, what):
        """The parts of a bundle's steps, at every batch: `what` lists the measurements of `runnel bench`."""
        batches = ",".join(str(batch) for batch in self.plan["batches"])
        told = self.bench(directory, "--backend", "cpu", "--what", what, "--batch", batches)
        return {name: told[name] for name in what.split(",")}

    def model(self, directory):
        """The sizes in the bundle's config, and the number of the head's outputs."""
        from runnel_client import bundle

        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        return {**config["model"], "outputs": bundle.head_width(config)}

    def form_of(self, what, batch):
        if what == "peer":
            return {"form": "authors", "threads": self.peer_threads[batch]}
        if what == "compiled":
            return dict(zip(("form", "threads"), self.compiled[batch]))
        return {}

    def throughput(self):
        """The median over the rounds for each way and batch, with the runs themselves."""
        return [
            {
                "what": what,
                "batch": batch,
                "values_per_s": round(statistics.median(rates), 1),
                "runs": rates,
                **self.form_of(what, batch),
            }
            for (what, batch), rates in sorted(self.runs.items())
        ]


def check_needs(runnel):
    missing = [name for name in ("numpy", "torch", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise BenchError(
            f"{sys.executable} has no {', '.join(missing)}: run scripts/setup bench, and use Debian's own python3"
        )
    check_program(runnel)


def check_program(runnel):
    if not os.access(runnel, os.X_OK):
        raise BenchError(f"there is no program {runnel}: run make build, or name it with --runnel")


def page_parser(name, about, counts="median"):
    """A parser with the flags that all benchmarks with their own page share."""
    parser = argparse.ArgumentParser(
        prog=f"bench_{name}.py", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runnel", type=pathlib.Path, default=ROOT / "build/release/runnel", help="the program")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs/benchmarks", help="for page and figures")
    parser.add_argument("--rounds", type=int, default=3, help=f"of which the {counts} counts (default: %(default)s)")
    return parser


def add_models(parser, models, matches, metavar, about):
    """Adds --folder, --add, and --models, which takes those of `models` for which matches(name, word) is true."""
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/bench/text", help="for peers and models")
    parser.add_argument(
        "--models",
        type=lambda text: [name for name in models if any(matches(name, word) for word in text.split(","))],
        default=list(models),
        metavar=metavar,
        help=about,
    )
    parser.add_argument("--add", action="store_true", help="add the rounds to those of the figures in --docs")


def write_page(parser, write):
    """Runs a benchmark whose parser is page_parser(): write(arguments) measures, and writes NAME.md into the folder
    --docs. Returns the exit code."""
    arguments = parser.parse_args()
    name = parser.prog.removeprefix("bench_").removesuffix(".py")
    try:
        check_program(arguments.runnel)
        arguments.docs.mkdir(parents=True, exist_ok=True)
        write(arguments)
        print(arguments.docs / f"{name}.md")
    except (BenchError, OSError, ValueError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    return 0


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog="bench_cpu.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runnel", type=pathlib.Path, default=ROOT / "build/release/runnel", help="the program")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/bench", help="for cpu.json and bundles")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs/benchmarks", help="for table and pictures")
    parser.add_argument("--rounds", type=int, default=FULL["rounds"], help="of which the median counts (default: 3)")
    parser.add_argument("--quick", action="store_true", help="short and few; table and pictures go to --folder too")
    return parser.parse_args(argv)


def main(argv=None):
    arguments = parse_arguments(argv)
    try:
        check_needs(arguments.runnel)
        import bench_report

        arguments.folder.mkdir(parents=True, exist_ok=True)
        plan = QUICK if arguments.quick else {**FULL, "rounds": max(1, arguments.rounds)}
        bench = Bench(arguments.runnel, arguments.folder, plan)
        figures = bench.measure()
        docs = arguments.folder if arguments.quick else arguments.docs
        bench_report.write(figures, arguments.folder / "cpu.json", docs)
        bench.say(f"{arguments.folder / 'cpu.json'}, {docs / 'cpu.md'}")
    except (BenchError, OSError, ValueError) as error:
        print(f"bench_cpu.py: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
