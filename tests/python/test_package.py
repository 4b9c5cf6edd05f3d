"""The distribution: what sdist and wheel hold, and what an installed tool or client does in its own environment."""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

from runnel_client import serving
from tools import ROOT, tool

PYTHON = str(pathlib.Path(tool("pyproject-build")).parent / "python3")
RUNNEL = os.environ.get("RUNNEL", "")
STUBS = [f"runnel_client/_proto/runnel/v1/{name}_pb2.py" for name in ("inference", "models", "sessions")]
TYPED = """
import asyncio
from runnel_client import Client, aio

async def main() -> None:
    async with aio.Client() as client:
        reveal_type((await client.score("a")).bits_per_dim)

with Client() as client:
    reveal_type([run.log_probs for run in client.generate("a", max_values=3)])
    client.generate("a", max_values="3")
"""


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
        cls.install("env")
        cls.install("env_with_grpc", "--system-site-packages")

    @classmethod
    def install(cls, name, *flags):
        done = run(PYTHON, "-m", "venv", *flags, cls.folder / name)
        assert done.returncode == 0, done.stdout + done.stderr
        [wheel] = (cls.folder / "dist").glob("*.whl")
        done = run(cls.folder / name / "bin/pip", "install", "--no-index", "--no-deps", wheel)
        assert done.returncode == 0, done.stdout + done.stderr

    def test_sdist_and_wheel_hold_the_messages_and_say_that_they_are_typed(self):
        [sdist] = (self.folder / "dist").glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            names = [name.split("/", 1)[-1] for name in archive.getnames()]
        [wheel] = (self.folder / "dist").glob("*.whl")
        for found in (names, zipfile.ZipFile(wheel).namelist()):
            for name in (*STUBS, "runnel_client/py.typed", "runnel_client/aio.py", "runnel_client/convert.py"):
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

    def test_an_installed_client_calls_a_server(self):
        python = self.folder / "env_with_grpc/bin/python"
        if run(python, "-c", "import google.protobuf, grpc, numpy").returncode != 0:
            self.skipTest("the system's Python lacks grpc, protobuf or numpy")
        if not RUNNEL:
            self.skipTest("there is no program runnel, named by $RUNNEL")
        with serving.running(RUNNEL, ROOT / "zoo/text-small", self.folder / "log") as (_, address):
            done = run(python, "-I", ROOT / "examples/stream_text.py", address, PATH="")
        self.assertEqual(done.stderr, "")
        self.assertIn("The river was ", done.stdout)

    def test_an_installed_client_is_typed(self):
        (self.folder / "typed.py").write_text(TYPED)
        where = ("--python-executable", self.folder / "env_with_grpc/bin/python", "--cache-dir", self.folder / "mypy")
        found = run(tool("mypy"), "--strict", *where, self.folder / "typed.py").stdout
        for text in ('Revealed type is "float"', 'Revealed type is "list[list[float]]"', '"str"; expected "int"'):
            self.assertIn(text, found)
        self.assertIn("Found 1 error in 1 file", found)


if __name__ == "__main__":
    unittest.main()
