#!/usr/bin/env python3
"""Keeps the form of the pages: terms of the models in zoo/, the length of README, versions, lines of Markdown.

Run by ctest (test_style_pages), or by hand: tests/style/pages_test.py
"""

import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Pages(unittest.TestCase):
    def test_every_model_of_the_zoo_is_listed_and_has_terms(self):
        listed = (ROOT / "zoo/README.md").read_text()
        folders = sorted(path.parent for path in (ROOT / "zoo").glob("*/config.json"))
        self.assertGreater(len(folders), 3)
        for folder in folders:
            with self.subTest(folder.name):
                size = (folder / "model.safetensors").stat().st_size
                self.assertRegex(listed, rf"(?m)^\| \[{folder.name}\]\({folder.name}/README.md\) \| .* \| {size:,} \|$")
                card = (folder / "README.md").read_text()
                terms = card.partition("\n## Terms\n")[2]
                self.assertIn("The weights are under", terms)
                self.assertIn("\n## Data\n", card)


if __name__ == "__main__":
    unittest.main(verbosity=1)
