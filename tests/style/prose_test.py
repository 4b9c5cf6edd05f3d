#!/usr/bin/env python3
"""Keeps the prose of docs, comments, help texts and error messages plain, and the links of docs whole.

    tests/style/prose_test.py            checks
    tests/style/prose_test.py --lower    writes lower counts to prose_counts.json where phrases were removed
    tests/style/prose_test.py --list DIR prints each phrase that counts in a folder

Some phrases make a reader parse a sentence twice. Text that is not yet rewritten still has them: prose_counts.json has
the number that each folder may contain. A number may only go down.
"""

import collections
import io
import json
import pathlib
import re
import subprocess
import sys
import tokenize
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COUNTS = pathlib.Path(__file__).with_name("prose_counts.json")
PHRASES = [
    re.compile(r"\bso many\b", re.IGNORECASE),
    re.compile(r"\bthose that\b", re.IGNORECASE),
    # "what" as a noun: after a preposition or certain verbs, or at the start of a statement.
    re.compile(r"\b(?:of|from|for|with|by|than|only|to|and|but|is|are|as|at|in|on|after|before) what\b(?! to do\b)"),
    re.compile(r"(?<=[.:] )What\b(?![^.]*\?)|^What\b(?![^.]*\?)"),
    re.compile(r"\bbehind\b(?! (?:(?:a|an|the|its|another) )?(?:proxy|proxies|balancer|load balancer|HAProxy))"),
    re.compile(r"\b(?:goes|go|going|went) on\b", re.IGNORECASE),
    re.compile(r"\b(?:stands?|stood)\b(?! (?:for|in for)\b|-)", re.IGNORECASE),
]
GENERATED = ("docs/map.md",)
OWN = ("tests/style/",)
CODE = (".h", ".cc", ".cu", ".cuh", ".proto")
FENCED = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def files():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [ROOT / line for line in sorted(listed.splitlines()) if (ROOT / line).is_file()]


def pages():
    return [path for path in files() if path.suffix == ".md"]


def texts_of_markdown(text):
    """The paragraphs, list items, rows and headings."""
    text = FENCED.sub("`code`", text)
    return re.split(r"\n\s*\n|\n(?=[-|#*]|\d+\. )", text)


def texts_of_cpp(text):
    """The comments and the string literals. Adjacent lines or literals are joined."""
    token = re.compile(r'((?:[ \t]*//[^\n]*(?:\n|$))+)|((?:(?<!include )"(?:\\.|[^"\\\n])*"\s*)+)')
    for found in token.finditer(text):
        if found[1]:
            yield re.sub(r"\n?[ \t]*//+<?", " ", found[1])
        else:
            yield re.sub(r'"\s*"', "", found[2]).strip('" \n')


def texts_of_python(text):
    """The comments and the strings."""
    comments = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments += " " + token.string.lstrip("#!")
        elif token.type not in (tokenize.NL, tokenize.NEWLINE):
            yield comments
            comments = ""
            if token.type == tokenize.STRING:
                yield token.string.strip("rbfu\"'")
    yield comments


def texts(path):
    """The texts of a file that people read."""
    name = path.relative_to(ROOT).as_posix()
    if name in GENERATED or name.startswith(OWN):
        return
    if path.suffix == ".md":
        yield from texts_of_markdown(path.read_text())
    elif path.suffix in CODE:
        yield from texts_of_cpp(path.read_text())
    elif path.suffix == ".py" or ("." not in path.name and path.read_bytes()[:22] == b"#!/usr/bin/env python3"):
        yield from texts_of_python(path.read_text())
    elif path.suffix == ".sh" or ("." not in path.name and path.read_bytes()[:2] == b"#!"):
        yield from re.findall(r"^\s*# .*(?:\n\s*# .*)*", path.read_text(), re.MULTILINE)


def found_in(path):
    """The phrases of a file, each with its context."""
    for text in texts(path):
        line = " ".join(text.replace("# ", " ").split())
        for phrase in PHRASES:
            for found in phrase.finditer(line):
                yield line[max(found.start() - 50, 0) : found.end() + 40]


def folder_of(path):
    """The folder whose count includes a file. Each folder of docs has its own count."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if parts[0] == "docs" and len(parts) > 2 else parts[0] if len(parts) > 1 else "."


def counts():
    """The number of phrases in each folder."""
    found: collections.Counter[str] = collections.Counter()
    for path in files():
        found[folder_of(path)] += sum(1 for _ in found_in(path))
    return {folder: count for folder, count in sorted(found.items()) if count}


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    seen: collections.Counter[str] = collections.Counter()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        yield slug if not seen[slug] else f"{slug}-{seen[slug]}"
        seen[slug] += 1


class Prose(unittest.TestCase):
    def test_clipped_phrases_become_fewer(self):
        allowed = json.loads(COUNTS.read_text())
        for folder, count in counts().items():
            with self.subTest(folder=folder):
                self.assertLessEqual(
                    count,
                    allowed.get(folder, 0),
                    f"{folder} has more phrases that are hard to read; tests/style/prose_test.py --list {folder}",
                )

    def test_comments_and_strings_are_extracted(self):
        cpp = '#include "so many.h"\n// It goes\n// on.\nint x;  // behind it\nf("so "\n  "many");\n'
        found = [" ".join(text.split()) for text in texts_of_cpp(cpp)]
        self.assertEqual(found, ["It goes on.", "behind it", "so many"])
        python = '"""Doc."""\n# It goes\n# on.\nx = f("so many")\n'
        self.assertEqual(
            [t.split() for t in texts_of_python(python) if t], [["Doc."], ["It", "goes", "on."], ["so", "many"]]
        )
        hits = ["a list of what came", "What is sent. Next", "It stands first", "it goes on", "so many bytes"]
        misses = ["What is it?", "S stands for a state", "behind a proxy", "says what it is", "a stand-in"]
        for line in hits:
            self.assertTrue(any(phrase.search(line) for phrase in PHRASES), line)
        for line in misses:
            self.assertFalse(any(phrase.search(line) for phrase in PHRASES), line)

    def test_links_lead_to_files_and_headings(self):
        faults = []
        for path in pages():
            for link in LINK.findall(FENCED.sub("", path.read_text())):
                if re.match(r"[a-z]+:", link):
                    continue
                name, _, anchor = link.partition("#")
                target = (path.parent / name).resolve() if name else path
                if not target.exists():
                    faults.append(f"{path.relative_to(ROOT)}: {link} is not there")
                elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
                    faults.append(f"{path.relative_to(ROOT)}: {link} names no heading")
        self.assertEqual(faults, [])


def lower():
    """Writes the counts that have decreased."""
    old = json.loads(COUNTS.read_text()) if COUNTS.exists() else None
    new = {folder: count if old is None else min(count, old.get(folder, 0)) for folder, count in counts().items()}
    COUNTS.write_text(json.dumps(new, indent=2) + "\n")


def main():
    if sys.argv[1:] == ["--lower"]:
        lower()
    elif sys.argv[1:2] == ["--list"]:
        for path in files():
            if folder_of(path) == sys.argv[2]:
                for line in found_in(path):
                    print(f"{path.relative_to(ROOT)}: {line}")
    else:
        unittest.main(verbosity=1)


if __name__ == "__main__":
    main()
