"""Helpers that the tests of the Python tools share.

If a package is missing, a test names it and exits with 77, which ctest shows as skipped.
"""

import contextlib
import importlib
import io
import os
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77


def require(*packages):
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError:
            print(f"skipped: {sys.executable} has no {package}; on Debian: apt install python3-{package}")
            sys.exit(SKIPPED)


require("numpy")

import numpy as np

from runnel_client import bundle
from runnel_client.reference import Reference

__all__ = ["ROOT", "SKIPPED", "Reference", "ToolTest", "bundle", "np", "require"]


class ToolTest(unittest.TestCase):
    """Runs a tool's main() in a temporary directory, self.dir."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="runnel_tools_")
        self.addCleanup(holder.cleanup)
        self.dir = holder.name

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def run_tool(self, tool, argv):
        """Returns exit code, stdout and stderr of tool.main(argv)."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = tool.main(argv)
        return code, out.getvalue(), err.getvalue()

    def assert_refused(self, tool, argv, *parts):
        """The tool exits with 2, prints one line with every part to stderr, and leaves no files."""
        before = sorted(os.listdir(self.dir))
        code, out, err = self.run_tool(tool, argv)
        self.assertEqual(code, 2, f"argv {argv}: printed {out}")
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn(": error: ", err)
        for part in parts:
            self.assertIn(part, err)
        self.assertEqual(sorted(os.listdir(self.dir)), before)
