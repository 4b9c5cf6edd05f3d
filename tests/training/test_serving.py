"""The server computes what was trained: training/evaluate.py and training/gallery.py against a real server."""

import argparse
import gzip
import io
import json
import os
import re
import shutil
import sys
import tarfile
import unittest

import support
from support import ToolTest, np

support.require("torch", "grpc", "google.protobuf")
RUNNEL = os.environ.get("RUNNEL", "")
for name, path in (("protoc", "protoc"), ("the program runnel, named by $RUNNEL", RUNNEL)):
    if not path or shutil.which(path) is None:
        print(f"skipped: there is no {name}")
        sys.exit(support.SKIPPED)

import evaluate
import gallery
import precisions
import train
from runnel_client.errors import BundleError


class ServingTest(ToolTest):
    def train(self, dataset, *flags):
        """Trains a tiny network for a few steps. Returns its bundle and the trainer's output."""
        code, _, err = self.run_tool(train, [
            dataset, "--data", self.path("data"), "--work", self.path("work"), "--out", self.path("tiny"),
            "--size", "small", "--layers", "2", "--heads", "2", "--batch", "4", "--steps", "6", "--lr", "3e-3",
            "--warmup", "1", "--threads", "1", "--device", "cpu", *flags,
        ])  # fmt: skip
        self.assertEqual(code, 0, err)
        with open(self.path("work", "tiny.json"), encoding="utf-8") as file:
            return json.load(file)["figures"]

    def tool(self, tool, dataset, *flags):
        code, out, err = self.run_tool(tool, [
            "--dataset", dataset, "--data", self.path("data"), "--work", self.path("work"),
            "--runnel", RUNNEL, *flags, self.path("tiny"),
        ])  # fmt: skip
        self.assertEqual((code, err), (0, ""), err)
        return out

    def assert_served_as_trained(self, dataset, *flags, evaluated=()):
        trained = self.train(dataset, *flags)
        served = json.loads(self.tool(evaluate, dataset, "--threads", "1", "--json", "--first", "500", *evaluated))
        self.assertEqual(served.keys(), trained.keys())
        for name, figure in trained.items():
            for key in ("available", "sequences", "items"):
                self.assertEqual(served[name][key], figure[key], key)
            for key in ("bits", "first_100_bits", "standard_error"):
                self.assertAlmostEqual(served[name][key], figure[key], delta=1e-4, msg=f"{name}: {key}")
        return served

    def put(self, path, content):
        os.makedirs(os.path.dirname(self.path("data", path)), exist_ok=True)
        with open(self.path("data", path), "wb") as file:
            file.write(content)

    def png_size(self, name):
        with open(self.path("pictures", name), "rb") as file:
            content = file.read()
        self.assertEqual(content[:8], b"\x89PNG\r\n\x1a\n")
        return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")

    def test_digits(self):
        images = np.random.default_rng(0).integers(256, size=(12, 784), dtype=np.uint8)
        images[:, ::3] = 0
        images[:, 1::7] = 255
        header = b"\0\0\x08\x03" + np.array([12, 28, 28], ">u4").tobytes()
        for part in ("train", "t10k"):
            self.put(f"mnist/{part}-images-idx3-ubyte.gz", gzip.compress(header + images.tobytes()))
        self.assert_served_as_trained("mnist")
        out = self.tool(evaluate, "mnist", "--first", "2")
        self.assertRegex(out, r"tiny: test: \d+\.\d{4} bits per dimension .* the first 2 of 12 sequences")
        self.tool(gallery, "mnist", "--out", self.path("pictures"), "--scale", "1")
        self.assertEqual(self.png_size("samples.png"), (8 * 30 + 2, 8 * 30 + 2))
        self.assertEqual(self.png_size("completions.png"), (8 * 30 + 2, 8 * 30 + 2))
        self.assertEqual(self.png_size("strip.png"), (4 * 30 + 2, 30 + 2))

    def put_books(self):
        book = "*** START OF A BOOK ***\n" + "It was a dark night,\nand é.\n" * 30 + "*** END OF A BOOK ***\n"
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:xz") as tar:
            for name in ("time_machine.txt", "other.txt"):
                member = tarfile.TarInfo(name)
                member.size = len(book.encode())
                tar.addfile(member, io.BytesIO(book.encode()))
        self.put("text/gutenberg-english.tar.xz", content.getvalue())

    def test_text(self):
        self.put_books()
        self.assert_served_as_trained("text", "--length", "60", "--dtype", "f32")
        self.tool(gallery, "text", "--out", self.path("pictures"), "--values", "40")
        self.assertTrue(1 <= os.path.getsize(self.path("pictures", "sample.txt")) <= 41)

    def test_endless_text(self):
        self.put_books()
        length = ("--length", "60")
        served = self.assert_served_as_trained("text", "--endless", *length, "--dtype", "f32", evaluated=length)
        for after in (0, 500):
            [far] = json.loads(self.tool(evaluate, "text", "--json", "--after", str(after))).values()
            self.assertEqual((far["sequences"], far["items"]), (1, len(b"It was a dark night,\nand \xc3\xa9.\n") * 30))
            self.assertAlmostEqual(far["bits"], served["a book held out"]["bits"], delta=0.2)

    def test_text_of_other_families(self):
        self.put_books()
        length = ("--length", "60")
        for family in ("gated_deltanet", "rwkv7"):
            with self.subTest(family):
                flags = ("--family", family, "--fresh", *length)
                self.assert_served_as_trained("text", *flags, "--dtype", "f32", evaluated=length)
                self.assert_served_as_trained("text", *flags, evaluated=length)

    def test_the_copy_task(self):
        served = self.assert_served_as_trained("copy", "--length", "31")["fresh sequences"]
        self.assertTrue(0 <= served["without_fault"] <= served["said_again"] <= 1, served)
        self.assertIn("said again without a fault", self.tool(evaluate, "copy", "--first", "3"))

    def test_the_card_of_the_shipped_copy_matches_the_served_model(self):
        folder = os.path.join(support.ROOT, "zoo", "copy")
        with open(os.path.join(folder, "README.md"), encoding="utf-8") as file:
            row = re.search(r"\| fresh sequences \|(.*)\|", file.read()).group(1).split("|")
        argv = ["--runnel", RUNNEL, "--dataset", "copy", "--first", "100", "--json", folder]
        code, out, err = self.run_tool(evaluate, argv)
        self.assertEqual((code, err), (0, ""))
        figure = json.loads(out)["fresh sequences"]
        self.assertAlmostEqual(figure["bits"], float(row[3]), delta=1e-3)
        self.assertGreater(figure["said_again"], 0.97)

    def test_the_cost_of_precisions_for_the_shipped_copy(self):
        folder = os.path.join(support.ROOT, "zoo", "copy")
        code, out, err = self.run_tool(precisions, ["--runnel", RUNNEL, "--first", "20", folder])
        self.assertEqual((code, err), (0, ""))
        self.assertIn("| model | held out | fp32 | bf16 | int8 | q8_0 | q4_0 |", out)
        name, _, plain, *more, nibbles = out.splitlines()[-1].strip("| ").split(" | ")
        self.assertEqual(name, "copy")
        self.assertGreater(float(plain), 0)
        for bits in more:
            self.assertLess(abs(float(bits)), 0.005)
        self.assertTrue(0.005 < float(nibbles) < 1, nibbles)
        self.assert_refused(precisions, ["--runnel", RUNNEL, "--first", "0"], "--first", "found 0")
        self.assert_refused(precisions, ["--runnel", RUNNEL, self.path("data")], "No such file")
        with self.assertRaisesRegex(BundleError, "quantize .*none --type q8_0: .*none"):
            precisions.bits_quantized(self.path("none"), None, "q8_0", argparse.Namespace(runnel=RUNNEL))

    def test_the_cost_of_precisions_for_a_published_model(self):
        os.makedirs(self.path("data", "text"))
        with open(self.path("data", "text", "tinyshakespeare.txt"), "w", encoding="utf-8") as file:
            file.write("\n !#$" * 250)  # all tokens are below 37, the size of the vocabulary
        folder = os.path.join(support.ROOT, "tests", "golden", "gguf", "qwen35")
        code, out, err = self.run_tool(
            precisions, ["--runnel", RUNNEL, "--data", self.path("data"), "--first", "2", folder]
        )
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"\n\| qwen35 \| Tiny Shakespeare, utf-8 \| \d+\.\d+ \|( [-+]0\.\d+ \|){4}\n")

    def test_a_published_model_has_no_length(self):
        args = argparse.Namespace(bundle="rwkv7", length=60, after=None)
        self.assertEqual(evaluate.sequence_length({"model_type": "rwkv7"}, args), 60)

    def test_refuses(self):
        self.train("copy", "--length", "31")
        common = ["--dataset", "copy", self.path("tiny")]
        for argv, *parts in (
            ([], "--runnel", "--server"),
            (["--runnel", RUNNEL, "--server", "x"], "--runnel", "--server"),
            (["--runnel", self.path("none")], "--runnel", "No such file"),
            (["--server", "127.0.0.1:1"], "UNAVAILABLE"),
            (["--runnel", RUNNEL, "--first", "0"], "--first", "found 0"),
            (["--runnel", RUNNEL, "--length", "9"], "--length", "31 inputs at most"),
            (["--runnel", RUNNEL, "--after", "9"], "--after", "--dataset text"),
        ):
            with self.subTest(argv):
                self.assert_refused(evaluate, [*common, *argv], *parts)
        self.assert_refused(evaluate, ["--dataset", "copy", self.path("none"), "--runnel", RUNNEL], "No such file")
        file = self.write("file", b"")
        argv = ["--dataset", "text", self.path("tiny"), "--runnel", RUNNEL, "--out", file]
        self.assert_refused(gallery, argv, f"--out: {file}: File exists")


if __name__ == "__main__":
    unittest.main()
