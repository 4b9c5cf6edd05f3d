#!/usr/bin/env python3
"""bench/gpu/pack_links.py and gpu_relink: the files that they take from a build, and relinking an edited kernel.

The build is a small one, and a C++ compiler replaces nvcc.
"""

import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "bench" / "gpu"

NINJA = """
rule object
  command = g++ -I{root} -x c++ -c $in -o $out
rule archive
  command = rm -f $out && ar qc $out $in
rule link
  command = : && g++ $in -o $out -L{build}/more -Wl,-rpath,{build}/more -lmore -lm && cd {build} && ls -d $out
build cuda_backend.cu.o: object {root}/kernels/cuda/cuda_backend.cu
build other.o: object {root}/other.cc
build more.o: object {root}/more.cc
build main.o: object {root}/main.cc
build alone.o: object {root}/alone.cc
build kernels/librunnel_kernels.a: archive cuda_backend.cu.o other.o
build more/libmore.a: archive more.o
build with_kernels: link main.o kernels/librunnel_kernels.a | more/libmore.a
build without: link alone.o | more/libmore.a
"""
SOURCES = {
    "kernels/cuda/cuda_backend.cu": '#include "kernels/answer.h"\n'
    "int other();\nint answer() { return kAnswer + other(); }",
    "kernels/answer.h": "constexpr int kAnswer = 40;",
    "other.cc": "int more();\nint other() { return more(); }",
    "more.cc": "int more() { return 2; }",
    "main.cc": '#include <cstdio>\nint answer();\nint main() { std::printf("%d", answer()); }',
    "alone.cc": "int main() {}",
}
NVCC = """#!/bin/sh
echo "$@" >nvcc.log
exec g++ -I.. -x c++ -c ../kernels/cuda/cuda_backend.cu -o cuda_backend.cu.o
"""


@unittest.skipUnless(shutil.which("ninja") and shutil.which("g++"), "there is no ninja or no g++")
class GpuRelink(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        place = pathlib.Path(directory.name)
        self.root, self.bundle = place / "root", place / "runnel-gpu"
        self.build = self.root / "build"
        for name, text in SOURCES.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text + "\n", encoding="utf-8")
        self.build.mkdir()
        (self.build / "build.ninja").write_text(NINJA.format(root=self.root, build=self.build), encoding="utf-8")
        command = (
            f"ccache nvcc -forward-unknown-to-host-compiler -I{self.root} -isystem=/usr/include/x -O3 -fmad=false "
            f"-x cu -c {self.root}/kernels/cuda/cuda_backend.cu -o cuda_backend.cu.o"
        )
        (self.build / "compile_commands.json").write_text(
            json.dumps([{"file": f"{self.root}/kernels/cuda/cuda_backend.cu", "command": command}]), encoding="utf-8"
        )
        subprocess.run(["ninja", "-C", self.build], check=True, stdout=subprocess.PIPE)
        subprocess.run(
            [sys.executable, SCRIPTS / "pack_links.py", self.build, self.bundle / "link", "with_kernels", "without"],
            check=True,
        )
        shutil.copytree(self.root / "kernels", self.bundle / "kernels")
        (self.bundle / "bench" / "gpu").mkdir(parents=True)
        shutil.copy(SCRIPTS / "gpu_relink", self.bundle / "bench" / "gpu")
        (self.bundle / "programs").mkdir()
        shutil.rmtree(self.root)  # the bundle has all files that it needs
        self.tools = place / "tools"
        self.tools.mkdir()
        nvcc = self.tools / "nvcc"
        nvcc.write_text(NVCC, encoding="utf-8")
        nvcc.chmod(nvcc.stat().st_mode | stat.S_IXUSR)

    def relink(self, *programs):
        return subprocess.run(
            [self.bundle / "bench" / "gpu" / "gpu_relink", *programs],
            env=dict(os.environ, PATH=f"{self.tools}:{os.environ['PATH']}"),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )

    def answer(self):
        return subprocess.run([self.bundle / "programs" / "with_kernels"], text=True, capture_output=True, check=True)

    def test_a_bundle_has_all_files_that_link_the_programs(self):
        link = self.bundle / "link"
        self.assertEqual([path.name for path in link.glob("*.link")], ["with_kernels.link"])
        words = (link / "with_kernels.link").read_text(encoding="utf-8").split()
        self.assertEqual(words, ["0-main.o", "librunnel_kernels.a", "2-libmore.a", "-lm"])
        flags = (link / "kernels.nvcc").read_text(encoding="utf-8").split()
        self.assertEqual(flags, ["-forward-unknown-to-host-compiler", "-O3", "-fmad=false"])

    def test_relinking_puts_an_edited_kernel_into_the_programs(self):
        self.assertEqual(self.relink().returncode, 0)
        self.assertEqual(self.answer().stdout, "42")
        (self.bundle / "kernels" / "answer.h").write_text("constexpr int kAnswer = 5;\n", encoding="utf-8")
        result = self.relink("with_kernels")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("linked programs/with_kernels", result.stdout)
        self.assertEqual(self.answer().stdout, "7")
        self.assertIn("-O3 -fmad=false", (self.bundle / "link" / "nvcc.log").read_text(encoding="utf-8"))

    def test_programs_that_cannot_be_linked_are_named(self):
        self.assertIn("without is none of with_kernels", self.relink("without").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=1)
