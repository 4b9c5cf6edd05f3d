"""Tokenizers give the values of their originals, for random texts with each kind of file and for stored texts."""

import os
import pathlib
import subprocess
import sys
import unittest

from tools import FOLDER, ROOT, SKIPPED

PYTHON = FOLDER / "python3"
SCRIPT = ROOT / "tests" / "golden" / "make_tokenizers.py"
TEXTS = os.environ.get("RUNNEL_TOKENIZER_TEXTS", "2000")  # for each kind of file; `make long` compares more
if not PYTHON.exists() or subprocess.run([PYTHON, "-c", "import rwkv, tokenizers"], check=False).returncode != 0:
    print(f"skipped: {PYTHON} has no tokenizers and rwkv; scripts/setup test installs them, where PyPI can be reached")
    sys.exit(SKIPPED)


class TokenizersTest(unittest.TestCase):
    def assert_agrees(self, *arguments):
        done = subprocess.run([PYTHON, "-B", SCRIPT, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-4000:])
        return done.stdout

    def test_stored_values_match_the_original_tokenizers(self):
        self.assert_agrees("--check")

    def test_random_texts_encode_and_decode_alike(self):
        told = self.assert_agrees("--compare", os.environ["ENCODE_TEXTS"], "--texts", TEXTS)
        kinds = len(list(pathlib.Path(ROOT, "tests/golden/tokenizers").iterdir()))
        self.assertEqual(told.count(f": {TEXTS} texts encode alike"), kinds, told)


if __name__ == "__main__":
    unittest.main()
