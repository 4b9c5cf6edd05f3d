#!/usr/bin/env python3
"""Writes ctest's entries for a test program: a process for several tests of a suite.

A program takes 20 to 500 ms to start, most of the time of a short test, and gtest_discover_tests() starts it for every
test. This script lists at most CHUNK tests of a suite for a process. Tests whose names match EXCLUDE are left out.

usage: list_chunks.py PROGRAM FOLDER EXCLUDE OUTPUT
"""

import collections
import pathlib
import re
import subprocess
import sys

CHUNK = 24
OF_SLOW_ONES = 4  # of suites whose tests take seconds
SLOW = re.compile("LargeModel|WholeModel|Golden|Published|Serve")


def tests_by_suite(program: str) -> dict[str, list[str]]:
    """The names of a program's tests, without the text of their parameters."""
    listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, check=True).stdout
    suites: dict[str, list[str]] = collections.defaultdict(list)
    suite = ""
    for line in listed.decode("utf-8", "replace").splitlines():
        name = line.partition(" #")[0].rstrip()
        if line.startswith("  "):
            suites[suite].append(name.strip())
        elif name.endswith("."):
            suite = name
    return suites


def entries(program: str, folder: str, excluded: re.Pattern) -> str:
    lines, label = [], pathlib.Path(program).name
    for suite, tests in tests_by_suite(program).items():
        kept = [suite + test for test in tests if "DISABLED_" not in suite + test and not excluded.search(suite + test)]
        most = OF_SLOW_ONES if SLOW.search(suite) else CHUNK
        for begin in range(0, len(kept), most):
            chunk = kept[begin : begin + most]
            part = f".{begin // most + 1}" if len(kept) > most else ""
            name = f"{label}.{suite.rstrip('.')}{part}"
            lines.append(f'add_test("{name}" "{program}" "--gtest_filter={":".join(chunk)}")')
            lines.append(f'set_tests_properties("{name}" PROPERTIES WORKING_DIRECTORY "{folder}" LABELS {label})')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    program, folder, exclude, output = sys.argv[1:]
    pathlib.Path(output).write_text(entries(program, folder, re.compile(exclude)))
