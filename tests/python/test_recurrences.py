"""Small published checkpoints, served unchanged, against the logits of their original code.

They are not part of the project: the test looks for them in ../shared/data/recurrences and is skipped without them.
tests/golden/copy_checkpoints.py has put nine of them into tests/golden.
"""

import json
import pathlib
import sys
import tempfile
import unittest

import support
from support import np

support.require("grpc", "google.protobuf")

from real_server import ROOT, RUNNEL, SKIPPED
from runnel_client import Client, serving

DATA = ROOT.parent / "shared" / "data" / "recurrences"
MODELS = sorted(path.parent for path in DATA.glob("*/expected.npz"))
TOLERANCE = 5e-5  # of log-probabilities in fp32

if not MODELS:
    print(f"skipped: there are no checkpoints in {DATA}")
    sys.exit(SKIPPED)


def log_probs(folder, values):
    """The log-probability of each token except the first, from the expected logits of the vocabulary."""
    with np.load(folder / "expected.npz") as expected:
        logits = expected["logits"][:-1, :values].astype(np.float64)
        after = expected["tokens"][1:]
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True)))[np.arange(len(after)), after]


class RecurrencesTest(unittest.TestCase):
    def test_every_checkpoint_agrees_with_its_original_code(self):
        with tempfile.TemporaryDirectory() as folder:
            words = [*map(str, MODELS), "--precision", "fp32", "--backend", "cpu"]
            log = pathlib.Path(folder) / "log"
            with serving.process_of(RUNNEL, words, log) as (_, address), Client(address) as client:
                values = {model.name: json.loads(model.spec_json)["values"] for model in client.models()}
                for model in MODELS:
                    with self.subTest(model.name):
                        self.check(client, model, values[model.name])

    def check(self, client, folder, values):
        with np.load(folder / "expected.npz") as expected:
            tokens = expected["tokens"]
        found = client.score(tokens.tolist(), model=folder.name).log_probs
        np.testing.assert_allclose(found, log_probs(folder, values), rtol=TOLERANCE, atol=TOLERANCE)


if __name__ == "__main__":
    unittest.main()
