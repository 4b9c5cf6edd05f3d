"""The long form of tests/fleet, run by `make fleet-test`: all scenarios in turn, even after one has failed.

    tests/fleet/long.py [--kills 200] [--minutes 30] [--seed 0] [--only kill]

`--kills`: kills of a replica with each kind of store. `--minutes`: the most time for a scenario. `--seed 0`: each
scenario chooses a random seed and prints it. `--only`: scenarios whose names contain this. Needs all that they need.
"""

from __future__ import annotations

import argparse
import pathlib
import signal
import subprocess
import sys
import time

FOLDER = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
SLACK = 600.0  # seconds
NO_LOG = "--storage-log-bytes=0"
LIMITS = "--seed {seed} --minutes {minutes}"
REDIS = f"--kills {{kills}} {LIMITS} --store redis"
# Name, program and options of each scenario. Words in braces are replaced.
SCENARIOS = (
    ("kill: directory, a state after each call", "kill_test.py", f"--kills {{kills}} {LIMITS} --flags={NO_LOG}"),
    ("kill: directory, log", "kill_test.py", f"--kills {{kills}} {LIMITS}"),
    ("kill: directory, log, a sync of each write", "kill_test.py", f"--kills {{kills}} {LIMITS} --sync each"),
    ("kill: Redis, a state after each call", "kill_test.py", f"{REDIS} --flags={NO_LOG}"),
    ("kill: Redis, log", "kill_test.py", REDIS),
    ("kill: replicas and Redis", "redis_kill_test.py", f"--kills {{tenth}} {LIMITS}"),
    ("rolling updates", "rolling_test.py", "--rounds 10 --seed {seed}"),
    ("race of six replicas", "race_test.py", "--calls 2000 --seed {seed}"),
    ("Redis that hangs, is full, or has lost its tail", "redis_faults_test.py", f"--stalls 10 {LIMITS}"),
    ("a store that hangs when its server stops", "hanging_store_test.py", ""),
    ("two clients in one session", "two_clients_test.py", ""),
    ("full disk", "full_disk_test.py", ""),
)


def run(program: str, words: list[str], minutes: float) -> str:
    """How a scenario ended."""
    # A scenario ends by itself earlier, unless it hangs. On SIGINT it stops its servers.
    with subprocess.Popen([sys.executable, "-B", str(FOLDER / program), *words]) as process:
        try:
            code = process.wait(60 * minutes + SLACK)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            return "FAILED: it did not end"
    return "passed" if code == 0 else "skipped" if code == SKIPPED else f"FAILED with code {code}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    outcomes = []
    for name, program, options in SCENARIOS:
        if args.only not in name:
            continue
        print(f"--- {name}", flush=True)
        words = options.format(
            kills=args.kills, tenth=max(1, args.kills // 10), seed=args.seed, minutes=args.minutes
        ).split()
        begin = time.monotonic()
        outcome = run(program, words, args.minutes)
        outcomes.append(f"{outcome}, {time.monotonic() - begin:.0f} s: {name}")
    print("\n".join(outcomes), flush=True)
    return int(not outcomes or any(outcome.startswith("FAILED") for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
