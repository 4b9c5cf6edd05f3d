#!/usr/bin/env python3
"""Each pattern of each filter in bench/gpu/gpu_check names a test.

test_gpu_filters.py PROGRAM...      test_kernels, test_models, test_golden
"""

import pathlib
import re
import subprocess
import sys

GPU_CHECK = pathlib.Path(__file__).resolve().parents[2] / "bench" / "gpu" / "gpu_check"


def main():
    programs = {pathlib.Path(path).name: path for path in sys.argv[1:]}
    filters = re.findall(
        r"(?m)^filter_(test_[a-z]+)_([a-z]+)='([^']+)'$",
        GPU_CHECK.read_text(encoding="utf-8"),
    )
    if len(filters) < 8:
        sys.exit(f"{GPU_CHECK} has only {len(filters)} filters")
    wrong = []
    for program, name, patterns in filters:
        for pattern in re.split("[:-]", patterns):
            told = subprocess.run(
                [programs[program], "--gtest_list_tests", f"--gtest_filter={pattern}"],
                text=True,
                stdout=subprocess.PIPE,
                check=True,
            )
            if not re.search(r"(?m)^  \S", told.stdout):
                wrong.append(f"filter_{program}_{name}: '{pattern}' names no test")
    print("\n".join(wrong) or f"{len(filters)} filters name tests")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
