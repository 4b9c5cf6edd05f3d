"""`make fleet` shows a chat that survives its server. It leaves no processes running, even after Ctrl-C."""

from __future__ import annotations

import functools
import re
import signal
import subprocess
import sys
import unittest

from fleet import PATIENCE, RUNNEL, SKIPPED
from local_fleet import ROOT, answers, find_haproxy

if find_haproxy() is None:
    print("skipped: haproxy is missing; on Debian: scripts/setup proxy")
    sys.exit(SKIPPED)


class DemoTest(unittest.TestCase):
    def run_demo(self, stop_after: str = "") -> tuple[int, str]:
        """Returns the exit code and the output. Sends SIGINT after a line with this text."""
        command = [sys.executable, "-B", str(ROOT / "scripts/fleet"), RUNNEL]
        can_be_interrupted = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # in the background, too
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=can_be_interrupted
        ) as demo:
            said = ""
            for line in demo.stdout:
                said += line
                if stop_after and stop_after in line:
                    demo.send_signal(signal.SIGINT)
            code = demo.wait(PATIENCE)
        [proxy] = re.findall(r"HAProxy at (\S+)", said)
        self.assertFalse(answers(proxy, "/v1/models"), "HAProxy is still there")
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


if __name__ == "__main__":
    unittest.main()
