"""Finds the Python tools that scripts/setup test installs."""

import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "python" / "bin"
SKIPPED = 77


def tool(name):
    """The path of a tool in build/python or PATH. Skip the test if it is not installed."""
    found = shutil.which(name, path=str(FOLDER)) or shutil.which(name)
    if found is None:
        print(f"skipped: there is no {name}; scripts/setup test installs it, where PyPI can be reached")
        sys.exit(SKIPPED)
    return found
