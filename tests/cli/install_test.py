#!/usr/bin/env python3
"""The places where `make install` puts files, and that the manual page and the completions work.

RUNNEL names the program; its folder is the build.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNEL = pathlib.Path(os.environ.get("RUNNEL") or ROOT / "build/release/runnel").resolve()
COMMANDS = ["serve", "generate", "chat", "draw", "score", "session", "info", "health", "load", "bench", "help"]


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


class Install(unittest.TestCase):
    holder: tempfile.TemporaryDirectory[str]
    prefix: pathlib.Path  # inside the staging folder
    share: pathlib.Path

    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory(prefix="runnel_install_")
        cls.prefix = pathlib.Path(cls.holder.name) / "opt/runnel"
        installed = run(
            *("cmake", "--install", str(RUNNEL.parent), "--prefix", "/opt/runnel"),
            env={**os.environ, "DESTDIR": cls.holder.name},
        )
        assert installed.returncode == 0, installed.stderr
        cls.share = cls.prefix / "share"

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def test_the_program_runs_from_where_it_is_installed(self):
        version = run(str(self.prefix / "bin/runnel"), "--version")
        self.assertEqual(version.returncode, 0, version.stderr)
        self.assertRegex(version.stdout, r"^runnel \d+\.\d+\.\d+\n$")

    def test_nothing_else_is_installed(self):
        found = sorted(str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if path.is_file())
        self.assertEqual(
            found,
            [
                "bin/runnel",
                "share/bash-completion/completions/runnel",
                "share/doc/runnel/LICENSE",
                "share/man/man1/runnel.1",
                "share/zsh/site-functions/_runnel",
            ],
        )

    def test_the_manual_page_has_every_command_and_flag(self):
        page = self.share / "man/man1/runnel.1"
        shown = run("groff", "-man", "-Tutf8", "-ww", "-P-c", str(page))
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        text = re.sub(".\b", "", shown.stdout)  # bold letters are printed twice
        for command in COMMANDS:
            self.assertIn(f"runnel {command}", text)
        for flag in ("--prompt-image", "--top-log-probs", "--log-json", "-n, --count", "--version"):
            self.assertIn(flag, text)

    def complete_in_bash(self, *words):
        script = self.share / "bash-completion/completions/runnel"
        quoted = " ".join(f"'{word}'" for word in ("runnel", *words))
        program = (
            f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _runnel; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        result = run("bash", "-c", program)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.split()

    def test_bash_completes_commands_and_flags(self):
        self.assertEqual(self.complete_in_bash("gen"), ["generate"])
        self.assertEqual(self.complete_in_bash("generate", "--prompt-"), ["--prompt-image", "--prompt-file"])
        self.assertEqual(self.complete_in_bash("session", "de"), ["delete"])
        self.assertEqual(self.complete_in_bash("session", "list", "--js"), ["--json"])
        self.assertEqual(self.complete_in_bash("serve", "zoo/mn"), [], "a file: the shell's own completion")

    def test_bash_completes_the_words_of_a_setting(self):
        self.assertEqual(self.complete_in_bash("serve", "--precision", "b"), ["bf16", "blocks"])
        self.assertEqual(self.complete_in_bash("serve", "--precision", "=", "f"), ["fp32"])
        self.assertEqual(self.complete_in_bash("serve", "zoo", "--isa", "avx5"), ["avx512", "avx512bf16"])
        self.assertEqual(self.complete_in_bash("completion", "z"), ["zsh"])
        self.assertEqual(self.complete_in_bash("serve", "--config", ""), [], "a file")

    def test_zsh_reads_its_completion(self):
        script = self.share / "zsh/site-functions/_runnel"
        result = run("zsh", "-f", "-n", str(script))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        text = script.read_text()
        self.assertTrue(text.startswith("#compdef runnel\n"))
        for command in COMMANDS:
            self.assertIn(f"'{command}:", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
