#!/usr/bin/env python3
"""Keeps the form of the pages: terms of models in zoo/, the length of README, versions, wrapped Markdown, whole tables.

Run by ctest (test_style_pages), or by hand: tests/style/pages_test.py
"""

import pathlib
import re
import runpy
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README_LINES = 129  # at most
WRAP = runpy.run_path(str(ROOT / "scripts/wrap"))
UNWRAPPED = "tests/golden/"  # programs in that folder write them


def tracked(*patterns):
    """The files that match, if git tracks them or does not ignore them."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(name for name in names if (ROOT / name).is_file())


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

    def test_readme_is_short_and_has_a_line_for_each_folder(self):
        readme = (ROOT / "README.md").read_text()
        self.assertLessEqual(len(readme.splitlines()), README_LINES)
        folders = {name.split("/")[0] for name in tracked() if "/" in name and not name.startswith(".")}
        described = runpy.run_path(str(ROOT / "scripts/map"))["FOLDERS"]
        for folder in sorted(folders):
            with self.subTest(folder):
                self.assertIn(f"\n- [{folder}/]({folder}): {described.get(folder, '')}", readme)

    def test_markdown_is_wrapped(self):
        faults = [
            f"{name}:{line}: scripts/wrap {name}"
            for name in tracked("*.md")
            if not name.startswith(UNWRAPPED)
            for line in WRAP["long_lines"]((ROOT / name).read_text())
        ]
        self.assertEqual(faults, [])

    def test_no_empty_line_cuts_a_table(self):
        for name in tracked("*.md"):
            text = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text(), flags=re.MULTILINE | re.DOTALL)
            for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
                with self.subTest(name):
                    self.assertRegex(table, r"^\|.*\n\|[-:| ]+\|\n", "a table has a header and a line of dashes")

    def test_wrapping_changes_nothing_but_the_ends_of_lines(self):
        words = "word " * 30
        item, table = f"- {words}", f"| {words} |"
        code, picture = f"```\n{words}\n```", f"![{words.strip()}](a.png)"
        page = f"# {words}\n\n{words}- {words}\n\n{item}\n{item}\n  1. {words}\n\n{table}\n\n{code}\n\n{picture}\n"
        wrapped = WRAP["wrapped"](page)
        self.assertEqual(wrapped.split(), page.split())
        self.assertEqual(WRAP["wrapped"](wrapped), wrapped)
        self.assertEqual(WRAP["long_lines"](wrapped), [])
        for kept in (f"# {words}\n", table, code, picture):
            self.assertIn(kept, wrapped)
        long = [line for line in wrapped.splitlines() if len(line) > WRAP["COLUMNS"]]
        self.assertEqual(len(long), 4)
        self.assertEqual(len([line for line in wrapped.splitlines() if line.startswith(("- ", "  1. "))]), 3)
        self.assertEqual(WRAP["filled"]([f"{'a' * 90} `b c d e f`"]), ["a" * 90, "`b c d e f`"])

    def test_pages_name_the_version_of_the_build(self):
        [version] = re.findall(r"^project\(runnel VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
        named = re.findall(r"runnel_(\d[\w.]*)_amd64\.deb", (ROOT / "docs/deploy.md").read_text())
        self.assertEqual(set(named), {version})
        released = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
        self.assertEqual(released[0], "Unreleased")
        self.assertTrue(released[1].startswith(f"{version} ("), released[1])


if __name__ == "__main__":
    unittest.main(verbosity=1)
