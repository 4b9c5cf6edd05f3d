"""Commands on GGUF files and on bundles in blocks: describe, quantize, serve."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest
from typing import Any

from runnel_client import serving

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNEL = os.environ["RUNNEL"]
FILES = ROOT / "tests/golden/gguf"


def runnel(*words: str | pathlib.Path) -> str:
    return subprocess.run([RUNNEL, *words], text=True, stdout=subprocess.PIPE, check=True).stdout


class GgufTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ask(self, model: pathlib.Path, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Serves the model. Returns its description and 8 values sampled after three given ones."""
        flags = ("--backend", "cpu", "--sessions", "2", "--log-access=false", *words)
        with serving.running(RUNNEL, model, self.folder / "log", flags) as (_, address):
            [about] = json.loads(runnel("info", "--server", address, "--json"))["models"]
            drawn = runnel(
                *("generate", "--server", address, "--values", "1,2,3", "--max-values", "8", "--seed", "1", "--json")
            )
        return about, json.loads(drawn)

    def test_a_file_is_described(self) -> None:
        for name in ("rwkv7", "mamba2", "qwen35", "lfm2"):
            with self.subTest(name):
                self.assertIn(" of F32", runnel("info", FILES / f"{name}.gguf"))
                told = json.loads(runnel("info", FILES / f"{name}.gguf", "--json"))
                self.assertEqual(told["name"], name)

    def test_a_file_is_served(self) -> None:
        for name in ("rwkv7", "mamba2", "qwen35", "lfm2"):
            with self.subTest(name):
                about, drawn = self.ask(FILES / f"{name}.gguf")
                self.assertEqual(about["name"], name)
                told = json.loads(runnel("info", FILES / f"{name}.gguf", "--json"))
                self.assertEqual(about["weight_digest"], told["weight_digest"])
                self.assertEqual(len(drawn["samples"][0]["values"]), 8)

    def test_a_model_is_quantized_and_served_in_blocks(self) -> None:
        for kind in ("q4_0", "q8_0"):
            with self.subTest(kind):
                quantized = self.folder / kind
                runnel("quantize", ROOT / "zoo/text-small", "--type", kind, "--out", quantized)
                self.assertIn(f" of {kind.upper()}", runnel("info", quantized))
                about, drawn = self.ask(quantized)
                self.assertRegex(about["numerics"], "^cpu/[a-z0-9]+/blocks/block32")
                self.assertEqual(len(drawn["samples"][0]["values"]), 8)
                wide, _ = self.ask(quantized, "--precision", "fp32")
                self.assertIn("/fp32/", wide["numerics"])

    def test_a_file_that_is_cut_is_refused(self) -> None:
        cut = self.folder / "cut.gguf"
        cut.write_bytes((FILES / "rwkv7.gguf").read_bytes()[:-1])
        done = subprocess.run([RUNNEL, "serve", cut], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(str(cut), done.stderr)


if __name__ == "__main__":
    unittest.main()
