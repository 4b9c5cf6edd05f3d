"""The distribution: what sdist and wheel hold, and what an installed tool says where a package is missing."""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

from tools import ROOT, tool

PYTHON = str(pathlib.Path(tool("pyproject-build")).parent / "python3")
STUB = "runnel_client/_proto/runnel/v1/inference_pb2.py"


def run(*command, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(word) for word in command],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


class PackageTest(unittest.TestCase):
    folder: pathlib.Path

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="runnel_package_")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        ignored = shutil.ignore_patterns("_proto", "__pycache__", "build", "dist", "*.egg-info")
        for name in ("python", "proto"):
            shutil.copytree(ROOT / name, cls.folder / name, ignore=ignored)
        done = run(tool("pyproject-build"), "--no-isolation", "--outdir", cls.folder / "dist", cls.folder / "python")
        assert done.returncode == 0, done.stdout + done.stderr
        done = run(PYTHON, "-m", "venv", cls.folder / "env")
        assert done.returncode == 0, done.stdout + done.stderr
        [wheel] = (cls.folder / "dist").glob("*.whl")
        done = run(cls.folder / "env/bin/pip", "install", "--no-index", "--no-deps", wheel)
        assert done.returncode == 0, done.stdout + done.stderr

    def test_sdist_and_wheel_hold_the_messages_and_say_that_they_are_typed(self):
        [sdist] = (self.folder / "dist").glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            names = [name.split("/", 1)[-1] for name in archive.getnames()]
        [wheel] = (self.folder / "dist").glob("*.whl")
        for found in (names, zipfile.ZipFile(wheel).namelist()):
            for name in (STUB, "runnel_client/py.typed", "runnel_client/convert.py"):
                self.assertIn(name, found)

    def test_an_installed_tool_shows_its_help(self):
        numpy = run(PYTHON, "-c", "import numpy, pathlib; print(pathlib.Path(numpy.__file__).parents[1])").stdout
        done = run(self.folder / "env/bin/runnel-convert", "--help", PYTHONPATH=numpy.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--heads", done.stdout)

    def test_a_missing_package_is_told_with_what_installs_it_here(self):
        for name, package in (
            ("runnel-convert", "'runnel-client[convert]'"),
            ("runnel-random-bundle", "runnel-client"),
        ):
            done = run(self.folder / "env/bin" / name, "--help")
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertIn("has no module 'numpy'", done.stderr)
            self.assertRegex(done.stderr, r"install it with: \S*/env/bin/python[0-9.]* -m pip install ")
            self.assertTrue(done.stderr.endswith(f"-m pip install {package}\n"), done.stderr)

    def test_installed_messages_need_no_protoc(self):
        [site] = (self.folder / "env/lib").glob("python3*/site-packages")
        if run(sys.executable, "-c", "import google.protobuf").returncode != 0:
            self.skipTest(f"{sys.executable} has no protobuf")
        code = "from runnel_client import messages; print(messages.inference().GenerateRequest(samples=3).samples)"
        done = run(sys.executable, "-c", code, PYTHONPATH=str(site), PATH="")
        self.assertEqual((done.stdout, done.stderr), ("3\n", ""))


if __name__ == "__main__":
    unittest.main()
