"""The contents of sdist and wheel, and how installed tools and the installed client behave."""

import os
import pathlib
import re
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
CONTENT = [
    f"runnel_client/{name}" for name in ("_proto/runnel.binpb", "py.typed", "aio.py", "convert.py", "options.py")
]
IGNORED = shutil.ignore_patterns("_proto", "__pycache__", "build", "dist", "*.egg-info", "LICENSE")
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


def check_out(folder):
    """A copy of the files that the package is built from, as in a clone."""
    for name in ("python", "proto"):
        shutil.copytree(ROOT / name, folder / name, ignore=IGNORED)
    shutil.copy(ROOT / "LICENSE", folder)


class PackageTest(unittest.TestCase):
    folder: pathlib.Path

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="runnel_package_")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        check_out(cls.folder)
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

    def files_of(self, pattern):
        """The files of the sdist or wheel, as a map from name to content."""
        [path] = (self.folder / "dist").glob(pattern)
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                return {name: archive.read(name) for name in archive.namelist()}
        with tarfile.open(path) as archive:
            files = [member for member in archive.getmembers() if member.isfile()]
            return {member.name.split("/", 1)[-1]: archive.extractfile(member).read() for member in files}

    def test_sdist_and_wheel_hold_the_contract_and_say_that_they_are_typed(self):
        for pattern in ("*.tar.gz", "*.whl"):
            for name in CONTENT:
                self.assertIn(name, self.files_of(pattern))

    def test_sdist_and_wheel_carry_the_licence(self):
        licence = (ROOT / "LICENSE").read_bytes()
        for pattern, place in (("*.tar.gz", r"LICENSE"), ("*.whl", r"runnel_client-[\w.]+\.dist-info/(\w+/)*LICENSE")):
            files = self.files_of(pattern)
            self.assertEqual([files[name] for name in files if re.fullmatch(place, name)], [licence])
            [metadata] = [files[name] for name in files if re.fullmatch(r"PKG-INFO|.*dist-info/METADATA", name)]
            self.assertIn(b"\nLicense: Apache-2.0\n", metadata)

    def test_the_version_equals_that_of_the_server(self):
        done = run(self.folder / "env/bin/python", "-c", "import runnel_client; print(runnel_client.__version__)")
        [version] = re.findall(r"project\(runnel VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
        self.assertEqual(done.stdout.strip(), version, done.stderr)
        self.assertIn(f"runnel_client-{version}.dist-info/METADATA", self.files_of("*.whl"))

    def test_without_protoc_the_build_requires_grpcio_tools(self):
        copy = self.folder / "without_protoc"
        check_out(copy)
        code = "import os, sys; os.chdir(sys.argv[1]); from setuptools import build_meta as build; "
        code += "print(build.get_requires_for_build_wheel())"
        done = run(PYTHON, "-c", code, copy / "python", PATH="")
        self.assertTrue(done.stdout.endswith("['grpcio-tools']\n"), done.stdout + done.stderr)

    def test_an_import_without_grpc_says_what_to_install(self):
        for line in (
            "from runnel_client import Client",
            "from runnel_client import aio",
            "import runnel_client; runnel_client.Client",
            "import runnel_client.client",
        ):
            done = run(self.folder / "env/bin/python", "-c", line)
            told = done.stderr.splitlines()[-1]
            self.assertRegex(told, r"^ModuleNotFoundError: \S+/env/bin/python\S* has no module '(google|grpc|numpy)")
            self.assertRegex(told, r"install it with: \S*/env/bin/python\S* -m pip install runnel-client$")
        self.assertEqual(run(self.folder / "env/bin/python", "-c", "import runnel_client").returncode, 0)

    def test_an_installed_tool_shows_its_help(self):
        numpy = run(PYTHON, "-c", "import numpy, pathlib; print(pathlib.Path(numpy.__file__).parents[1])").stdout
        done = run(self.folder / "env/bin/runnel-convert", "--help", PYTHONPATH=numpy.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--heads", done.stdout)

    def test_a_missing_package_is_reported_with_its_install_command(self):
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
        for text in ('Revealed type is "float"', 'Revealed type is "list[list[float]]"', 'expected "int | None"'):
            self.assertIn(text, found)
        self.assertIn("Found 1 error in 1 file", found)


if __name__ == "__main__":
    unittest.main()
