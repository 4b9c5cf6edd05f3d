#!/usr/bin/env python3
"""bench/gpu/gpu_bundle with a fake build: the contents of a lean bundle, and its small size."""

import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Configures nothing, and builds programs of SIZE incompressible bytes.
CMAKE = """#!/bin/sh
echo "$@" >>"$CALLS"
[ "$1" = --build ] || exit 0
mkdir -p "$2"
build=$2
while [ "$1" != --target ]; do shift; done
shift
for program in "$@"; do head -c "$SIZE" /dev/urandom >"$build/$program"; chmod +x "$build/$program"; done
"""
STRIP = '#!/bin/sh\ncp "$3" "$2"\n'


def has_numpy(python):
    return subprocess.run([python, "-c", "import numpy"], stderr=subprocess.DEVNULL, check=False).returncode == 0


class GpuBundle(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)
        self.root = self.place / "root"
        for path in (
            "bench/gpu/gpu_bundle",
            "bench/gpu/gpu_check",
            "bench/gpu/cuda_graph.py",
            "bench/gpu/peers.py",
            "bench/gpu/report.py",
            "bench/gpu/serving",
            "scripts/demo",
            "scripts/start_server",
            "scripts/runnel-random-bundle",
            "tests/golden/mnist_test_100.idx3-ubyte",
        ):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, self.root / path)
        shutil.copytree(ROOT / "zoo" / "mnist-small", self.root / "zoo" / "mnist-small")
        shutil.copytree(
            ROOT / "python" / "runnel_client",
            self.root / "python" / "runnel_client",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        self.tools = self.place / "tools"
        self.tools.mkdir()
        for name, text in (("cmake", CMAKE), ("strip", STRIP)):
            tool = self.tools / name
            tool.write_text(text)
            tool.chmod(tool.stat().st_mode | stat.S_IXUSR)

    def bundle(self, *arguments, size=1000, **environment):
        return subprocess.run(
            [self.root / "bench" / "gpu" / "gpu_bundle", *arguments],
            env=dict(
                os.environ,
                PATH=f"{self.tools}:{os.environ['PATH']}",
                CALLS=str(self.place / "calls"),
                SIZE=str(size),
                **environment,
            ),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=900,  # seconds until it counts as hung
            check=False,
        )

    def test_a_lean_bundle_has_the_programs_and_the_generator(self):
        out = self.place / "lean.tar.gz"
        told = self.bundle("--lean", out)
        self.assertEqual(told.returncode, 0, told.stdout)
        with tarfile.open(out) as archive:
            names = set(archive.getnames())
            archive.extractall(self.place)
        programs = {name.removeprefix("runnel-gpu/programs/") for name in names if "/programs/" in name}
        self.assertEqual(
            programs,
            {
                "test_kernels",
                "test_models",
                "gpu_ceilings",
                "gpu_steps",
                "gpu_compare",
                "gpu_sessions",
                "runnel",
            },
        )
        for absent in ("models", "link", "kernels"):
            self.assertNotIn(f"runnel-gpu/{absent}", names)
        images = {name for name in names if "/tests/golden/" in name}
        self.assertEqual(images, {"runnel-gpu/tests/golden/mnist_test_100.idx3-ubyte"})
        calls = (self.place / "calls").read_text()
        self.assertIn("-DRUNNEL_WATCHDOG=OFF -DRUNNEL_CUDA_ARCHITECTURES=90a-real\n", calls)
        # The generator runs with the files of the bundle alone.
        python = next((one for one in (sys.executable, "/usr/bin/python3") if has_numpy(one)), None)
        if python is None:
            self.skipTest("there is no python3 with numpy")
        model = self.place / "model"
        subprocess.run(
            [
                python,
                self.place / "runnel-gpu" / "scripts" / "runnel-random-bundle",
                "--preset",
                "tiny",
                "--out",
                model,
            ],
            check=True,
            stdout=subprocess.PIPE,
        )
        self.assertTrue((model / "config.json").exists())

    def test_the_watchdog_is_built_in_when_asked_for(self):
        self.assertEqual(self.bundle("--lean", self.place / "lean.tar.gz", WATCHDOG="ON").returncode, 0)
        self.assertIn("-DRUNNEL_WATCHDOG=ON ", (self.place / "calls").read_text())

    def test_a_lean_bundle_that_is_too_large_is_an_error(self):
        told = self.bundle("--lean", self.place / "lean.tar.gz", size=9_000_000)
        self.assertEqual(told.returncode, 1)
        self.assertIn("a lean bundle may have 60000000", told.stdout)

    def test_unknown_flags_are_refused(self):
        for arguments in ((), ("--fat", "out"), ("--lean",), ("a", "b")):
            told = self.bundle(*arguments)
            self.assertEqual(told.returncode, 2, arguments)
            self.assertIn("usage:", told.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=1)
