#!/usr/bin/env python3
"""`runnel chat` in terminals of 80 and 40 columns, and commands that read standard input, with a real server.

RUNNEL names the program.
"""

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time
import unittest
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNEL = os.environ.get("RUNNEL") or str(ROOT / "build/release/runnel")
MODEL = "text-endless-small"
PATIENCE = 600.0  # seconds until an event counts as one that never comes
CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """A terminal with this many columns in which the program runs."""

    def __init__(self, columns: int, *words: str) -> None:
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            try:
                os.execve(RUNNEL, [RUNNEL, *words], {**os.environ, "TERM": "xterm"})
            finally:
                os._exit(127)
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.seen = b""

    def send(self, text: str) -> None:
        os.write(self.file, text.encode())

    def wait(self, holds: Callable[[bytes], bool]) -> str:
        """Waits until `holds` is true for the text since the last wait. Returns that text."""
        deadline = time.monotonic() + PATIENCE
        while not holds(self.seen):
            if not select.select([self.file], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise AssertionError(self.seen)
            self.seen += os.read(self.file, 1 << 16)
        seen, self.seen = self.seen, b""
        return seen.decode(errors="replace")

    def prompt(self) -> str:
        """The text up to the next prompt."""
        return self.wait(lambda seen: seen.endswith(b"\n> "))

    def ask(self, line: str) -> str:
        self.send(line + "\r")
        return self.prompt()

    def exit_code(self) -> int:
        """Waits for the program's end. Returns its exit code."""
        with contextlib.suppress(OSError):  # the terminal vanishes with its last program
            while os.read(self.file, 1 << 16):
                pass
        os.close(self.file)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class ChatTerminal(unittest.TestCase):
    server: subprocess.Popen[str]
    address: str

    @classmethod
    def setUpClass(cls):
        template = f"{MODEL}={ROOT / 'examples/plain_chat.jinja'}"
        cls.server = subprocess.Popen(
            [RUNNEL, "serve", str(ROOT / "zoo" / MODEL), "--address", "127.0.0.1:0", "--chat-template", template],
            stderr=subprocess.PIPE,
            text=True,
        )
        log = cls.server.stderr
        assert log is not None
        for line in log:
            if ready := re.search(r"ready.*address=(127\.0\.0\.1:\d+)", line):
                cls.address = ready[1]
                threading.Thread(target=log.read, daemon=True).start()  # keeps the pipe from filling up
                return
        raise AssertionError("the server has not started")

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.server.wait(PATIENCE)

    def chat(self, columns: int, *words: str) -> Terminal:
        terminal = Terminal(columns, "chat", MODEL, "--server", self.address, *words)
        self.assertIn("/help lists the commands", terminal.prompt())
        return terminal

    def sessions(self) -> str:
        command = [RUNNEL, "session", "list", "--server", self.address]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def test_the_terminal_wraps_lines_at_any_width(self):
        question = "Wohin fließt das Wasser? 川の水はどこへ流れるのか、" * 3
        answers = []
        for columns in (80, 40):
            terminal = self.chat(columns, "--seed", "7", "--max-values", "200")
            seen = terminal.ask(question)
            self.assertTrue(seen.startswith(question + "\r\n"), seen)
            answers.append(seen)
            self.assertIn("there is no command '/nonsense'", terminal.ask("/nonsense"))
            terminal.send(CTRL_D)
            self.assertEqual(terminal.exit_code(), 0)
        self.assertEqual(answers[0], answers[1])
        self.assertIn("(cut after 200 values; --max-values)", answers[0])
        self.assertEqual(self.sessions(), "no sessions\n")

    def test_pasted_lines_are_one_message(self):
        for last in ("three", "three\r"):
            with self.subTest(last):
                terminal = self.chat(40, "--max-values", "5")
                terminal.send("one\rtwo\r" + last)
                if not last.endswith("\r"):
                    terminal.send("\r")
                self.assertIn("one\r\ntwo\r\nthree\r\n", terminal.prompt())
                self.assertNotIn("nothing to undo", terminal.ask("/undo"))
                self.assertIn("there is nothing to undo", terminal.ask("/undo"))
                terminal.send("/quit\r")
                self.assertEqual(terminal.exit_code(), 0)

    def test_standard_input_that_cannot_be_read(self):
        generate = f"generate --model {MODEL} --prompt-file - --max-values 3 --server {self.address}"
        for command, code, error in (
            (f"{generate} < {ROOT}", 2, "runnel: standard input cannot be read\n"),
            (f"{generate} <&-", 2, "runnel: standard input cannot be read\n"),
            (f"chat {MODEL} --server {self.address} <&-", 0, ""),
        ):
            with self.subTest(command):
                shell = ["sh", "-c", f'exec "$0" {command}', RUNNEL]
                ended = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=PATIENCE)
                self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (code, "", error))

    def test_a_signal_ends_a_command_that_waits_for_its_input(self):
        for words in (["generate", "--prompt-file", "-"], ["score", "-"]):
            with self.subTest(words):
                command = [RUNNEL, *words, "--model", MODEL, "--server", self.address]
                waiting = subprocess.Popen(command, stdin=subprocess.PIPE)
                assert waiting.stdin is not None
                waiting.stdin.write(b"1 " * 100_000)  # more than a pipe holds: the command reads it
                waiting.stdin.flush()
                waiting.terminate()
                self.assertEqual(waiting.wait(PATIENCE), 130)
                waiting.stdin.close()

    def test_ctrl_c_ends_the_answer_and_then_the_program(self):
        terminal = self.chat(80, "--max-values", "1000000")
        terminal.send("Where does the river go?\r")
        terminal.wait(lambda seen: len(seen) > 200)
        terminal.send(CTRL_C)
        terminal.send("/help\r")
        terminal.wait(lambda seen: b"enable_thinking" in seen and seen.endswith(b"\n> "))
        self.assertNotIn("nothing to undo", terminal.ask("/undo"))
        self.assertIn("there is nothing to undo", terminal.ask("/undo"))
        terminal.send(CTRL_C)
        self.assertEqual(terminal.exit_code(), 130)
        self.assertEqual(self.sessions(), "no sessions\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
