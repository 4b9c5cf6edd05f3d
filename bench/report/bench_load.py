#!/usr/bin/env python3
"""Measures a server under load and writes docs/benchmarks/load.{json,md,png}.

    bench/report/bench_load.py RUNNEL BUNDLE OUT_DIRECTORY

It measures three things, on one server with its clients on the same machine:
  load   calls at 0.5, 1 and 2 times the server's capacity, which each round finds again: goodput, latencies, refusals
  stall  the gaps between the values of 8 streams, with and without a ninth stream that is never read
  doors  values per second and the processor time of a value: of an engine, over gRPC, with keys, with keys and TLS; and
         the processor time of a refused call

BUNDLE must be of a model without a last position (scripts/runnel-random-bundle --endless). Rounds alternate, and
medians are reported. Have the machine to yourself: `uptime` should say 0.

Needs protoc, and Python with grpcio, protobuf and matplotlib; on Debian: scripts/setup bench
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import plot_load
from runnel_client import messages, serving
from runnel_client.errors import BundleError

ROOT = pathlib.Path(__file__).resolve().parents[2]
SWEEP = (0.5, 1, 2)
SESSIONS = 64
WARM_UP = 2  # seconds at the start of a run that do not count; the sessions are all in use after a quarter of a second
NEIGHBOURS = 8
AT_ONCE = (32, 128)  # numbers of concurrent calls for which doors are compared
VALUES = 100  # values of each of these calls, when the cost of a value is measured
LONG = 512  # values of each of these calls, when values per second are measured
REFUSED = 2000  # calls to measure the cost of a refusal
ONE_THREAD = ("--backend", "cpu", "--threads", "1")
SERVED = ("--sessions", str(SESSIONS), "--stall-timeout-ms", "600000", "--stream-room", "64")


def load(runnel, address, *flags):
    """Runs `runnel load` and returns its JSON. Its progress goes to the terminal."""
    done = subprocess.run([runnel, "load", "--server", address, "--json", *flags], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise SystemExit("bench_load.py: runnel load failed")
    return json.loads(done.stdout)


def measure_load(runnel, address, rounds, seconds):
    """The JSON of all rounds. A round finds the capacity by running as many calls at once as there are sessions, and
    then offers multiples of it."""
    pace = ("--warm-up", str(WARM_UP), "--duration", str(seconds))
    figures = {}
    runs = []
    capacities = []
    for number in range(1, rounds + 1):
        seed = ("--seed", str(number))
        figures = load(runnel, address, "--find-capacity", *pace, *seed)
        capacity = figures["capacity"]
        multiples = ("--sweep", ",".join(map(str, SWEEP)), "--capacity", str(capacity))
        runs += figures["runs"] + load(runnel, address, *multiples, *pace, *seed)["runs"]
        capacities.append(capacity)
    return {**figures, "capacity": statistics.median(capacities), "runs": runs}


def cpu_seconds(process):
    """The processor time that a process has used so far, in seconds."""
    times = pathlib.Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def is_idle(process):
    before = cpu_seconds(process)
    time.sleep(0.5)
    return cpu_seconds(process) - before < 0.05


def check_stalled(runnel, process, address):
    """Checks that the stream has stalled: it still has its state, and the server is idle."""
    idle = is_idle(process)
    told = json.loads(
        subprocess.run([runnel, "info", "--server", address, "--json"], stdout=subprocess.PIPE, check=True).stdout
    )
    free = told.get("models", [told])[0]["sessions_free"]
    if free != SESSIONS - 1 or not idle:
        raise SystemExit(f"bench_load.py: the stream that is not read has not stalled: {free} sessions are free")


@contextlib.contextmanager
def stalled_stream(runnel, process, address):
    """A stream that is read only once, so that its flow-control window and its buffer in the server are full."""
    import grpc

    contract = messages.inference()

    options = [("grpc.enable_http_proxy", 0), ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16384)]
    with grpc.insecure_channel(address, options=options) as channel:
        generate = channel.unary_stream(
            "/runnel.v1.Inference/Generate",
            request_serializer=contract.GenerateRequest.SerializeToString,
            response_deserializer=contract.GenerateResponse.FromString,
        )
        request = contract.GenerateRequest(max_values=1 << 20, top_log_probs=16)  # large messages, to fill the window
        request.values.values.append(1)
        call = generate(request, timeout=600)
        next(call)
        for _ in range(60):
            if is_idle(process):
                break
        check_stalled(runnel, process, address)
        yield
        check_stalled(runnel, process, address)
        call.cancel()


def measure_stall(runnel, process, address, rounds, seconds):
    """The p99 of the gaps between values, in ms, of each round: without and with a stalled stream on the server."""
    neighbours = (
        "--find-capacity",
        "--concurrency",
        str(NEIGHBOURS),
        "--prompt",
        "1",
        "--values",
        "400",
        "--values-per-message",
        "1",
        "--warm-up",
        "1",
        "--duration",
        str(seconds),
    )

    def gap():
        return load(runnel, address, *neighbours)["runs"][0]["gap_ms"]["p99"]

    gaps: dict[str, list[float]] = {"alone": [], "beside": []}
    for _ in range(rounds):
        gaps["alone"].append(gap())
        with stalled_stream(runnel, process, address):
            gaps["beside"].append(gap())
        time.sleep(1)  # its state becomes free
    return gaps


def cost_of_a_value(runnel, process, address, calls, seconds, *flags):
    """The server's processor time for one value, in microseconds."""
    before = cpu_seconds(process)
    at_once = ("--find-capacity", "--concurrency", str(calls), "--prompt", "1", "--values", str(VALUES))
    pace = ("--warm-up", "0", "--duration", str(seconds))
    run = load(runnel, address, *at_once, *pace, *flags)["runs"][0]
    return 1e6 * (cpu_seconds(process) - before) / (run["completed"] * VALUES)


def values_per_s(runnel, what, calls, seconds):
    """Values per second of calls that begin together, of an engine or through a door."""
    at_once = ("--batch", str(calls), "--values", str(LONG), "--seconds", str(seconds), "--json")
    done = subprocess.run(
        [runnel, "bench", *what, *at_once], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    return json.loads(done.stdout)["throughput"][0]["values_per_s"]


def new_key(runnel, folder):
    """Makes keys.jsonl with one key, whose quotas are too large to be used up. Writes the key to the file `key`."""
    quotas = ("--calls", "1000000", "--values-per-second", "100000000")
    command = (runnel, "key", "new", "bench", "--file", f"{folder}/keys.jsonl", *quotas)
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    pathlib.Path(folder, "key").write_bytes(made.stdout)


@contextlib.contextmanager
def doors(runnel, bundle):
    """Servers by the name of their door, each with its process, address and flags for its clients; and a folder."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        subprocess.run([ROOT / "scripts/certificates", folder], check=True)
        new_key(runnel, folder)
        most = str(max(AT_ONCE))
        own = (*ONE_THREAD, "--sessions", most, "--batch-rows", most)
        keys = ("--keys", f"{folder}/keys.jsonl")
        tls = ("--tls-cert", f"{folder}/server.pem", "--tls-key", f"{folder}/server.key")
        key = ("--api-key-file", f"{folder}/key")
        kinds = {
            "gRPC": ((), ()),
            "gRPC + keys": (keys, key),
            "gRPC + TLS + keys": ((*keys, *tls), (*key, "--tls-ca", f"{folder}/ca.pem")),
        }
        yield (
            {
                name: (stack.enter_context(serving.running(runnel, bundle, f"{folder}/log", (*own, *flags))), shown)
                for name, (flags, shown) in kinds.items()
            },
            folder,
        )


def cost_of_a_refusal(process, address, key, values, code):
    """The server's processor time, in milliseconds, for a Generate call that is refused with `code`."""
    import grpc

    contract = messages.inference()
    request = contract.GenerateRequest(max_values=1)
    request.values.values.extend(values)
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        generate = channel.unary_stream(
            "/runnel.v1.Inference/Generate",
            request_serializer=contract.GenerateRequest.SerializeToString,
            response_deserializer=contract.GenerateResponse.FromString,
        )

        def call():
            ended = generate(request, metadata=(("authorization", f"Bearer {key}"),), timeout=60).code().name
            if ended != code:
                raise SystemExit(f"bench_load.py: a call ended with {ended}; expected {code}")

        call()
        before = cpu_seconds(process)
        for _ in range(REFUSED):
            call()
        return 1e3 * (cpu_seconds(process) - before) / REFUSED


def measure_doors(runnel, bundle, rounds, seconds):
    """For each round: values per second and the cost of a value, by the number of concurrent calls, and the costs of
    refusals."""
    with doors(runnel, bundle) as (servers, folder):
        speeds: dict[str, dict[str, list[float]]] = {}
        costs: dict[str, dict[str, list[float]]] = {}
        for calls in AT_ONCE:
            speed = speeds.setdefault(str(calls), {name: [] for name in ("engine", *servers)})
            cost = costs.setdefault(str(calls), {name: [] for name in servers})
            for _ in range(rounds):
                engine = (bundle, *ONE_THREAD, "--what", "engine")
                speed["engine"].append(values_per_s(runnel, engine, calls, seconds))
                for name, ((process, address), shown) in servers.items():
                    streams = ("--server", address, "--what", "streams", *shown)
                    speed[name].append(values_per_s(runnel, streams, calls, seconds))
                    cost[name].append(cost_of_a_value(runnel, process, address, calls, seconds, *shown))
        (process, address), _ = servers["gRPC + keys"]
        key = pathlib.Path(folder, "key").read_text(encoding="ascii").strip()
        refusals: dict[str, list[float]] = {"wrong key": [], "wrong value": []}
        for _ in range(rounds):
            refusals["wrong key"].append(cost_of_a_refusal(process, address, "rnl_0", [1], "UNAUTHENTICATED"))
            refusals["wrong value"].append(cost_of_a_refusal(process, address, key, [1 << 30], "INVALID_ARGUMENT"))
        return {
            "load_average": os.getloadavg()[0],
            "values_per_s": speeds,
            "us_of_a_value": costs,
            "ms_of_a_refusal": refusals,
        }


def table_of_doors(measured, unit):
    """A line for each number of calls. In brackets: the ratio to the first column, as the median over rounds."""
    names = list(next(iter(measured.values())))
    lines = [f"| calls at once | {' | '.join(names)} |", "| --- " * (len(names) + 1) + "|"]
    for calls, rounds in measured.items():
        cells = [unit(statistics.median(rounds[name])) for name in names]
        for place, name in enumerate(names[1:], 1):
            shares = [one / first for one, first in zip(rounds[name], rounds[names[0]])]
            cells[place] += f" ({100 * statistics.median(shares):.0f}%)"
        lines.append(f"| {calls} | {' | '.join(cells)} |")
    return lines


def median_of(runs, figure):
    return statistics.median(map(figure, runs))


def table_of_loads(runs, shares):
    lines = [
        "| load | calls/s | completed | refused | goodput, values/s | of the best | first value p50 / p99 | "
        "gap p50 / p99 | refusal p50 / p99 |",
        "| --- " * 9 + "|",
    ]
    for multiple, alike in runs.items():
        goodput = median_of(alike, lambda run: run["goodput"])
        quantiles = [
            " / ".join(f"{statistics.median(run[figure][q] for run in alike):.1f} ms" for q in ("p50", "p99"))
            for figure in ("first_value_ms", "gap_ms")
        ]
        some = [run for run in alike if run["refused"]]
        refusals = [
            f"{statistics.median(plot_load.refusal(run, q) for run in some):.1f}" for q in ("p50", "p99") if some
        ]
        refusal = " / ".join(refusals) + " ms" if some else "-"
        count = median_of(alike, lambda run: sum(entry["count"] for entry in run["refused"].values()))
        lines.append(
            f"| {multiple}x | {median_of(alike, lambda run: run['rate']):.1f} | "
            f"{median_of(alike, lambda run: run['completed']):.0f} | "
            f"{count:.0f} | {goodput:,.0f} | {100 * shares[multiple]:.0f}% | {quantiles[0]} | {quantiles[1]} | "
            f"{refusal} |"
        )
    return lines


def on_all_cores(figures):
    """A sentence about goodput and refusals at the highest load."""
    share = plot_load.shares_of_the_best(figures)[SWEEP[-1]]
    refusals = [
        entry["latency_ms"]["p99"]
        for run in figures["runs"]
        if run.get("multiple") == SWEEP[-1]
        for entry in run["refused"].values()
    ]
    return (
        "If the model uses all cores, clients interrupt its threads, and a step waits for the slowest thread. Then, at "
        f"{SWEEP[-1]}x, the goodput is {100 * share:.0f}% of the best, and the p99 of refusals is "
        f"{statistics.median(refusals):.1f} ms."
    )


def report(figures, runs, uptime):
    machine = figures["machine"]
    shares = plot_load.shares_of_the_best(figures)
    best = plot_load.best_goodput(figures)
    alone, beside = (statistics.median(figures["stall_gap_p99_ms"][kind]) for kind in ("alone", "beside"))
    return "\n".join(
        [
            "# Under load",
            "",
            "![goodput, time to the first value and latency of refusals against the load](load.png)",
            "",
            f"{machine['cores']} cores of {machine['cpu']}: the model runs on one thread, and the server's other "
            f"threads and the clients share the remaining cores; {uptime}. Model of the paper's MNIST size with random "
            f"weights, {SESSIONS} sessions, numerics `{figures['numerics']}`. Calls arrive at random (Poisson), with "
            f"{figures['prompt']} values of prompt and {figures['values']} values to sample. Latencies begin when a "
            f"call is due. The capacity is the rate at which {SESSIONS} concurrent calls complete, measured at the "
            f"beginning of each round: {figures['capacity']:.1f} calls/s. Medians of {len(next(iter(runs.values())))} "
            f"rounds; each run measures {figures['runs'][0]['seconds']:.0f} s, after {WARM_UP} s of the same load.",
            "",
            *table_of_loads(runs, shares),
            "",
            f"The best goodput, {best:,.0f} values/s, is that of all loads and of the {SESSIONS} concurrent calls. The "
            "shares of it are computed within each round; the table has their medians. A full server refuses a call at "
            "once instead of letting it wait in an unbounded queue.",
            "",
            on_all_cores(figures["on_all_cores"]),
            "",
            "## Next to a client that has stopped reading",
            "",
            f"{NEIGHBOURS} streams with one value in a message are read, first alone, then while another stream is not "
            f"read. The p99 of the gap between two values is {alone:.2f} ms alone and {beside:.2f} ms with the other "
            f"stream ({beside / alone:.3f} times; medians of {len(figures['stall_gap_p99_ms']['alone'])} alternating "
            "rounds).",
            "",
            "## Keys and TLS",
            "",
            f"Values a second of calls of {LONG} values that begin at the same time. The model runs on one thread; the "
            "server's other threads and the client share the other core. The engine is measured without a server, in "
            "a separate process. In brackets: percent of the engine's speed in the same round.",
            "",
            *table_of_doors(figures["doors"]["values_per_s"], "{:,.0f}".format),
            "",
            f"The processor time that the server's threads together use for a value, in calls of {VALUES} values that "
            "follow each other. In brackets: percent of the time with plain gRPC in the same round.",
            "",
            *table_of_doors(figures["doors"]["us_of_a_value"], "{:.2f} us".format),
            "",
            f"Medians of {len(figures['doors']['us_of_a_value'][str(AT_ONCE[0])]['gRPC'])} alternating rounds, at a "
            f"load average of {figures['doors']['load_average']:.1f}.",
            "",
            "A call with a wrong key costs the server "
            f"{statistics.median(figures['doors']['ms_of_a_refusal']['wrong key']):.3f} ms of processor time, and a "
            f"call with a wrong value {statistics.median(figures['doors']['ms_of_a_refusal']['wrong value']):.3f} ms "
            f"({REFUSED:,} calls one after another in each round).",
            "",
            "Reproduce with `make bench-load` on an idle machine.",
            "",
        ]
    )


def server_of(arguments, folder, *flags):
    """A server of the bundle, as serving.running() gives it."""
    return serving.running(arguments.runnel, arguments.bundle, os.path.join(folder, "log"), (*flags, *SERVED))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runnel", help="the program")
    parser.add_argument("bundle", help="of a model without a last position")
    parser.add_argument("out", type=pathlib.Path, help="directory for load.json, load.md and load.png")
    parser.add_argument("--seconds", type=float, default=3, help="of every other run (default: %(default)s)")
    parser.add_argument("--load-seconds", type=float, default=8, help="of a run of a load (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each kind (default: %(default)s)")
    arguments = parser.parse_args(argv)
    uptime = f"load average {os.getloadavg()[0]:.2f} at the start"
    with tempfile.TemporaryDirectory() as folder:
        with server_of(arguments, folder, *ONE_THREAD) as (_, address):
            figures = measure_load(arguments.runnel, address, arguments.rounds, arguments.load_seconds)
        with server_of(arguments, folder, "--backend", "cpu") as (process, address):
            figures["on_all_cores"] = measure_load(arguments.runnel, address, 3, arguments.load_seconds)
            figures["stall_gap_p99_ms"] = measure_stall(
                arguments.runnel, process, address, arguments.rounds, arguments.seconds
            )
    figures["doors"] = measure_doors(arguments.runnel, arguments.bundle, arguments.rounds, arguments.seconds)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "load.json"
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    figures, runs = plot_load.load_runs(path)
    plot_load.draw(figures, runs, arguments.out / "load.png")
    (arguments.out / "load.md").write_text(report(figures, runs, uptime), encoding="utf-8")
    print((arguments.out / "load.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    try:
        main()
    except (BundleError, OSError) as error:
        sys.exit(f"bench_load.py: error: {error}")
