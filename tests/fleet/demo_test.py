"""`make fleet` shows a chat that survives its server. It leaves no processes and files, however it ends."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from fleet import PATIENCE, RUNNEL, SKIPPED
from local_fleet import ROOT, answers, find_haproxy

if find_haproxy() is None:
    print("skipped: haproxy is missing; on Debian: scripts/setup proxy")
    sys.exit(SKIPPED)


def commands_with(text: str) -> list[bytes]:
    """The command lines of all processes that have a text in them."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:  # it has ended
            continue
        if text.encode() in command:
            found.append(command)
    return found


class DemoTest(unittest.TestCase):
    def run_demo(self, stop_after: str = "", number: int = signal.SIGINT) -> tuple[int, str]:
        """Returns the exit code and the output. Sends a signal after a line with this text."""
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        command = [sys.executable, "-B", str(ROOT / "scripts/fleet"), RUNNEL]
        can_be_interrupted = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # in the background, too
        # Variables for the commands of other servers, which this one must not follow.
        environment = {**os.environ, "TMPDIR": holder.name, "RUNNEL_TLS": "1", "RUNNEL_PEM": "/nowhere"}
        if stop_after:
            environment["RUNNEL_FLEET_HOLD"] = "1"  # so that the demo has not ended before the signal
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            preexec_fn=can_be_interrupted,
        ) as demo:
            said = ""
            for line in demo.stdout:
                said += line
                if stop_after and stop_after in line:
                    self.assertEqual(len(commands_with(holder.name)), 3, "the replicas have their store there")
                    demo.send_signal(number)
            code = demo.wait(PATIENCE)
        [proxy] = re.findall(r"HAProxy at (\S+)", said)
        self.assertFalse(answers(proxy, "/v1/models"), "HAProxy is still there")
        self.assertEqual(commands_with(holder.name), [])
        self.assertEqual(os.listdir(holder.name), [])
        return code, said

    def test_the_chat_survives(self) -> None:
        code, said = self.run_demo()
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"kill -9 of replica \w+ during this answer: it continued after \d+ ms\n")
        self.assertEqual(len(re.findall(" assistant: ", said)), 3, said)

    def test_control_c_ends_it(self) -> None:
        code, said = self.run_demo(stop_after="HAProxy at")
        self.assertEqual(code, 130, said)
        self.assertNotIn("Traceback", said)

    def test_a_terminal_that_closes_ends_it(self) -> None:
        code, said = self.run_demo(stop_after="HAProxy at", number=signal.SIGHUP)
        self.assertEqual(code, 128 + signal.SIGHUP, said)
        self.assertNotIn("Traceback", said)


if __name__ == "__main__":
    unittest.main()
