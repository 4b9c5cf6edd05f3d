#!/usr/bin/env python3
"""Measures a bundle's model in plain PyTorch, with the recurrent loop of the paper's authors, as a peer of runnel.

The model is built from torch.nn modules as the authors' library builds it, layer by layer, with the state updated in
place by einsum. Each value is drawn as in their code and fed back. As there, nothing is compiled or fused. The loop is
measured after a warm-up, with the number of threads that was fastest in a few steps.

    bench/report/bench_peer.py zoo/mnist-small --batch 1,32                     # values per second
    build/release/runnel generate --count 4 --seed 7 --json | bench/report/bench_peer.py zoo/mnist-small --check -

--check proves that both compute the same model: it feeds the sequences that runnel has sampled to the loop, and
compares the log-probability of every value.

Needs Python with numpy and torch: the extra [bench] of ./python; on Debian: scripts/setup bench
"""

import argparse
import json
import math
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from runnel_client import command, openblas
from runnel_client.errors import BundleError, check

# An OpenMP team that spins between two small products makes them several times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
openblas.use_vectors()

try:
    import torch

    from compiled_peer import CompiledPeer
    from loop_peer import Peer
except ImportError as error:
    command.exit_missing("bench_peer.py", error, "bench")

TOLERANCE = 1e-3  # of every log-probability, in nats, if runnel computes in fp32
BF16_TOLERANCE = 1e-2  # of every sequence, in bits per value, if products are in bf16
WARM_UP = 8  # steps


@torch.no_grad()
def forced_log_probs(peer, values):
    """values [N, L] -> the log-probabilities of all but the first, [N, L - 1]."""
    states, log_probs = None, []
    for position in range(values.shape[1] - 1):
        _, head, states = peer.advance(values[:, position], position, states)
        log_probs.append(peer.log_prob(head, values[:, position + 1]))
    return torch.stack(log_probs, dim=1)


def differences(peer, values, log_probs):
    """How far the peer is from the given log-probabilities, which leave out the first value of each sequence: the
    largest difference of a value in nats, and of a sequence's mean in bits per value."""
    found = forced_log_probs(peer, values) - log_probs
    return float(found.abs().max()), float(found.mean(dim=1).abs().max() / math.log(2))


@torch.no_grad()
def seconds_of_steps(peer, batch, steps):
    """The seconds that `steps` steps of the loop take, with sampling. Sequences that reach their end start again."""
    values, states = torch.zeros(batch, dtype=torch.long), None
    began = 0.0
    for step in range(-WARM_UP, steps):
        if step == 0:
            began = time.perf_counter()
        position = (step + WARM_UP) % (peer.length or 1 << 30)
        if position == 0:
            states = None
        values, _, states = peer.advance(values, position, states)
    return time.perf_counter() - began


def measure(peer, batch, steps, threads):
    """Values per second with the fastest number of threads. If `threads` has several, each is first tried for an eighth
    of the steps."""

    def rate(count, over):
        torch.set_num_threads(count)
        return batch * over / seconds_of_steps(peer, batch, over)

    best = threads[0]
    if len(threads) > 1:
        best = max(threads, key=lambda count: rate(count, max(8, steps // 8)))
    return {"batch": batch, "steps": steps, "threads": best, "values_per_s": round(rate(best, steps), 1)}


def read_sequences(path):
    """Values [N, L], log-probabilities [N, L - 1] and the numerics id, of a file of `runnel generate --json`."""
    try:
        with sys.stdin if path == "-" else open(path, encoding="utf-8") as file:
            generated = json.load(file)
        samples = generated["samples"]
        check(all(sample["position"] == 0 for sample in samples), f"{path}: expected sequences from their beginning")
        values = torch.tensor([sample["values"] for sample in samples])
        log_probs = torch.tensor([sample["log_probs"][1:] for sample in samples])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"--check: {path}: not a file of 'runnel generate --json': {error!r}") from None
    check(values.dim() == 2 and values.shape[1] > 1, f"--check: {path}: expected sequences of two values or more")
    return values, log_probs, generated["numerics"]


def check_equal(peer, path, is_bf16=False):
    """Refuses a model that differs from the one that made the file. `is_bf16`: the peer's products are in bf16."""
    values, log_probs, numerics = read_sequences(path)
    largest, bits = differences(peer, values, log_probs)
    if is_bf16 or "/bf16/" in numerics:
        check(
            bits <= BF16_TOLERANCE,
            f"--check: {path}: not the same model: a sequence differs by {bits:.2g} bits per "
            f"value; expected at most {BF16_TOLERANCE:g}",
        )
    else:
        check(
            largest <= TOLERANCE,
            f"--check: {path}: not the same model: a log-probability differs by {largest:.2g}; "
            f"expected at most {TOLERANCE:g}",
        )
    return {
        "sequences": values.shape[0],
        "values": values.shape[1],
        "numerics": numerics,
        "largest_difference": largest,
        "bits_per_value_difference": bits,
    }


def numbers(text):
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"expected whole numbers above 0, as in 1,8,32; found '{text}'")
    return found


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog="bench_peer.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", help="its directory")
    parser.add_argument(
        "--batch",
        type=numbers,
        default=[1, 8, 32, 128, 512],
        metavar="N,...",
        help="sequences side by side (default: 1,8,32,128,512)",
    )
    parser.add_argument("--steps", type=int, default=256, help="that are timed (default: %(default)s)")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--threads",
        type=numbers,
        default=sorted({1, cores}),
        metavar="N,...",
        help=f"of which the best counts for each batch (default: 1 and one per core, {cores})",
    )
    parser.add_argument(
        "--form",
        choices=("authors", "compiled-bf16", "compiled-fp32"),
        default="authors",
        help="the authors' loop, or a step as one compiled function (PyTorch 2) with products in bf16 or fp32 "
        "(default: %(default)s)",
    )
    parser.add_argument("--check", metavar="FILE", help="instead: compare with sequences of runnel generate --json")
    arguments = parser.parse_args(argv)
    check(arguments.steps > 0, f"--steps: expected a number above 0, found {arguments.steps}")
    return arguments


def peer_of(arguments):
    if arguments.form == "authors":
        return Peer(arguments.bundle)
    return CompiledPeer(arguments.bundle, arguments.form.removeprefix("compiled-"))


def main(argv=None):
    try:
        arguments = parse_arguments(argv)
        peer = peer_of(arguments)
        if arguments.check:
            result = check_equal(peer, arguments.check, arguments.form == "compiled-bf16")
        else:
            result = {
                "torch": torch.__version__,
                "peer": [measure(peer, batch, arguments.steps, arguments.threads) for batch in arguments.batch],
            }
    except (BundleError, OSError) as error:
        print(f"bench_peer.py: error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
