"""All Python of the repository passes ruff and mypy and is formatted, with python/pyproject.toml's settings."""

import subprocess
import unittest

from tools import ROOT, tool

RUFF, MYPY = tool("ruff"), tool("mypy")
SETTINGS = "python/pyproject.toml"


def python_files():
    """Every Python file of the repository, found by its name or its first line."""
    listed = ["git", "ls-files", "-co", "--exclude-standard", "*.py", "scripts", "packaging"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in names if (ROOT / name).is_file() and is_python(name)]


def is_python(name):
    return name.endswith(".py") or "python3" in (ROOT / name).read_text().split("\n", 1)[0]


class LintTest(unittest.TestCase):
    def assert_passes(self, *command):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])

    def test_ruff_finds_nothing(self):
        self.assert_passes(RUFF, "check", "--no-cache", "--config", SETTINGS, *python_files())

    def test_everything_is_formatted(self):
        self.assert_passes(RUFF, "format", "--check", "--no-cache", "--config", SETTINGS, *python_files())

    def test_mypy_finds_nothing(self):
        names = [name for name in python_files() if name.endswith(".py")]
        self.assert_passes(MYPY, "--config-file", SETTINGS, "--cache-dir", str(ROOT / "build" / "mypy"), *names)

    def test_scripts_without_a_suffix_are_checked_too(self):
        self.assertIn("scripts/runnel-convert", python_files())


if __name__ == "__main__":
    unittest.main()
