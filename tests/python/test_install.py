"""Follows the Python part of README in a new virtual environment, like a newcomer. Needs PyPI.

Run by ctest (python.install) for `make test-clients`. The server uses another port.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from runnel_client import serving
from tools import ROOT

RUNNEL = os.environ["RUNNEL"]
README = (ROOT / "README.md").read_text()
SERVE = re.search(r"^build/release/runnel serve (zoo/.*?) --", README, re.MULTILINE)


def block(start, language):
    """README's first block in a language after a text."""
    return re.search(rf"^```{language}\n(.*?)^```$", README[README.index(start) :], re.MULTILINE | re.DOTALL).group(1)


class InstallTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="runnel_install_")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        ignored = shutil.ignore_patterns("_proto", "__pycache__", "build", "*.egg-info")
        for name in ("python", "proto"):
            shutil.copytree(ROOT / name, self.folder / name, ignore=ignored)
        shutil.copy(ROOT / "LICENSE", self.folder)
        # A newcomer's first python3, without protoc.
        (self.folder / "bin").mkdir()
        first = subprocess.run(["python3", "-c", "import sys; print(sys.executable)"], capture_output=True, check=True)
        for name, program in (
            ("python3", first.stdout.decode().strip()),
            ("uname", shutil.which("uname")),
            ("bash", shutil.which("bash")),
        ):
            (self.folder / "bin" / name).symlink_to(program or "missing")

    def run_readme(self, address):
        """The output of README's commands and program."""
        start = "The same from Python"
        program = block(start, "python").replace("127.0.0.1:50051", address)
        (self.folder / "program.py").write_text(program)
        script = f"set -e\n{block(start, 'sh')}\ntype -p python\npython program.py\n"
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**own, "PATH": str(self.folder / "bin")},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_the_readme_works_in_a_fresh_environment(self):
        assert SERVE is not None
        models = [ROOT / bundle for bundle in SERVE[1].split()]
        with serving.running(RUNNEL, models[0], self.folder / "log", [*map(str, models[1:]), "--threads", "1"]) as (
            _,
            address,
        ):
            found = self.run_readme(address)
        self.assertIn(str(self.folder / ".venv/bin/python"), found)
        self.assertRegex(found, r"\d\.\d+\n$")  # bits per dimension
        self.assertTrue((self.folder / "digits.png").exists())


if __name__ == "__main__":
    unittest.main()
