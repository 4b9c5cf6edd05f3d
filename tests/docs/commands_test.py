#!/usr/bin/env python3
"""The commands of README.md and docs/ work as written.

    RUNNEL=build/release/runnel tests/docs/commands_test.py

Runs every ```sh block of README.md, docs/*.md and docs/internals/*.md in a clone of this tree, with one shell for each
document, and then its ```python blocks. If a block needs more than a build, a comment before it names what it needs:
<!-- needs: docker -->. The test lists such blocks but does not run them.
"""

import contextlib
import fcntl
import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNEL = pathlib.Path(os.environ.get("RUNNEL") or ROOT / "build/release/runnel").resolve()
OWN_NETWORK = "RUNNEL_TEST_HAS_ITS_OWN_NETWORK"
PORT_LOCK = pathlib.Path(tempfile.gettempdir()) / "runnel-docs-port.lock"
SECONDS = 1000  # for the blocks of one document, even if the machine is busy with other work

BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>[^>]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
CODE = re.compile(r"^```\w*\n.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|[\s`/])runnel ([a-z]+)([^`\n#|]*)")
FLAG = re.compile(r"(?<!\S)(--[a-z][a-z-]*)")


@dataclass
class Block:
    document: str
    line: int  # of the block's first command
    language: str
    text: str
    needs: str


def documents():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/internals").glob("*.md"))]


def blocks_of(path):
    text = path.read_text()
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        name = str(path.relative_to(ROOT))
        yield Block(name, line, found["language"], found["text"], found["needs"] or "")


def enter_own_network():
    """Restarts this program in a network where port 50051 is free. If it cannot, runs take turns."""
    if os.environ.get(OWN_NETWORK):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return None
    for way in (["unshare", "-n"], ["unshare", "-rn"]):
        try:
            tried = subprocess.run([*way, "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
        except FileNotFoundError:
            break
        if tried.returncode == 0:
            os.environ[OWN_NETWORK] = "1"
            os.execvp(way[0], [*way, sys.executable, "-B", *sys.argv])
    lock = PORT_LOCK.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def clone(to):
    """Makes a clone of this tree as it is now, with the build."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    (to / "build").mkdir()
    (to / "build" / "release").symlink_to(RUNNEL.parent)


def script_of(blocks, folder):
    """A shell script that stops at the first failing command and names it."""
    lines = [
        "set -Eeuo pipefail",
        "trap 'echo \"failed: $BASH_SOURCE, line $LINENO: $BASH_COMMAND\" >&2' ERR",
        "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT",
    ]
    name = blocks[0].document.replace("/", "_")
    for block in blocks:
        if block.language == "sh":
            file = folder / f"{name}.{block.line}"
            file.write_text("\n" * (block.line - 1) + block.text)  # keeps line numbers
            lines.append(f"source {file}")
    python = "\n".join(block.text for block in blocks if block.language == "python")
    if python:
        file = folder / f"{name}.py"
        file.write_text(python)
        lines.append(f"{sys.executable} -B {file}")
    return "\n".join(lines) + "\n"


def environment():
    """A newcomer's environment, with the python3 of the tests."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**own, "PATH": f"{pathlib.Path(sys.executable).parent}:{own['PATH']}"}


def run_blocks(blocks):
    """Runs the blocks of a document in order. Returns the exit code and the output."""
    with tempfile.TemporaryDirectory(prefix="runnel_docs_") as holder:
        folder = pathlib.Path(holder)
        tree = folder / "runnel"
        tree.mkdir()
        clone(tree)
        with (folder / "output").open("w+") as output:
            shell = subprocess.Popen(
                ["bash", "-c", script_of(blocks, folder)],
                cwd=tree,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = shell.wait(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                code = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            output.seek(0)
            return code, output.read()


@functools.cache
def help_of(words):
    """The --help text of a command, or None if there is no such command."""
    result = subprocess.run([RUNNEL, *words, "--help"], capture_output=True, text=True, check=False)
    return result.stdout if result.returncode == 0 else None


class Documents(unittest.TestCase):
    def test_every_command_works_as_written(self):
        for path in documents():
            with self.subTest(document=path.name):
                blocks = [one for one in blocks_of(path) if one.language in ("sh", "python")]
                for block in blocks:
                    if block.needs:
                        print(f"not run: {block.document}:{block.line} needs {block.needs}")
                runnable = [one for one in blocks if not one.needs]
                if not runnable:
                    continue
                code, output = run_blocks(runnable)
                self.assertEqual(code, 0, f"{path.name}:\n{output[-4000:]}")
                print(f"run: {path.name}, {len(runnable)} blocks")

    def test_every_command_that_is_named_exists(self):
        for path in [*documents(), *sorted((ROOT / "zoo").glob("*/README.md"))]:
            code = "\n".join(CODE.findall(path.read_text()))
            for found in COMMAND.finditer(code):
                words = found[2].split() if found[1] in ("session", "key") else []
                where = f"{path.relative_to(ROOT)}:{found[0]}"
                text = help_of((found[1], *words[:1]))
                self.assertIsNotNone(text, where)
                for flag in FLAG.findall(found[2]):
                    self.assertIn(flag, text, where)

    def test_messages_of_the_troubleshooting_page_exist_in_the_program(self):
        sources = ""
        for folder in ("base", "cli", "client", "config", "server", "engine", "models", "storage"):
            for file in sorted((ROOT / folder).rglob("*.cc")):
                sources += file.read_text()
        joined = re.sub(r'"\s*\n?\s*"', "", sources)  # C++ joins adjacent literals
        rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/troubleshooting.md").read_text(), re.M)
        self.assertGreater(len(rows), 5)
        for message in rows:
            for part in message.split("..."):
                self.assertTrue(part.strip() in joined, message)


if __name__ == "__main__":
    held = enter_own_network()
    unittest.main(verbosity=2)
