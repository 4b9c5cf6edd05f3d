"""Runs the tests of OpenAI's client for completions, chat and models against a server.

    RUNNEL=build/release/runnel build/clients/bin/python tests/end_to_end/openai_own_test.py

They were written for a server that makes up answers of the right types. So this leaves out the tests
that send every field of the API, and those of the Responses API, which send no input. Run by
ctest (end_to_end.openai_own) for `make test-clients`; scripts/setup fetches the client's source.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import unittest

import openai
from openai_test import MODEL, PATIENCE, ROOT, serving

SOURCE = pathlib.Path(sys.prefix) / f"openai-{openai.__version__}"
FILES = [
    f"tests/api_resources/{name}" for name in ("chat/test_completions.py", "test_completions.py", "test_models.py")
]
CHOSEN = "(create_overload or (Models and (list or retrieve))) and not all_params"
NAMES = ("gpt-6-astra", "gpt-3.5-turbo-instruct")  # the models that the tests ask for


class OwnTests(unittest.TestCase):
    def test_the_tests_of_the_client_pass(self) -> None:
        if not (SOURCE / "tests").is_dir():
            self.skipTest(f"{SOURCE} is not there; scripts/setup test-clients fetches it")
        models = [f"{name}={ROOT / 'zoo' / MODEL}" for name in NAMES]
        template = f"--chat-template={NAMES[0]}={ROOT / 'examples/plain_chat.jinja'}"
        with serving(*models, template, models=()) as server:
            done = subprocess.run(
                [
                    sys.executable,
                    "-B",
                    "-m",
                    "pytest",
                    "-q",
                    "-p",
                    "no:cacheprovider",
                    "-o",
                    "addopts=",
                    "-k",
                    CHOSEN,
                    *FILES,
                ],
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE,
                cwd=SOURCE,
                env={**os.environ, "TEST_API_BASE_URL": f"http://{server.http}/v1"},
            )
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        [passed] = re.findall(r"(\d+) passed", done.stdout)
        self.assertGreater(int(passed), 80, done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=1)
