"""Limits of the system, from too low to high enough: a server names a limit that is too low, or it serves."""

import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import unittest

from hostile_client import MIB, PATIENCE, ROOT, RUNNEL, Server, ask_readiness, eventually, honest

PLAIN_USER = 54321  # has no other process
# A plain user that can read the checkout anywhere. Root has no limit of threads.
AS_PLAIN_USER = [
    "setpriv", f"--reuid={PLAIN_USER}", f"--regid={PLAIN_USER}", "--clear-groups",
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
]  # fmt: skip
SERVE = [RUNNEL, "serve", str(ROOT / "zoo/mnist-small"), "--address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"]
SERVE += ["--connections", "16"]
ENOUGH = 3  # consecutive values at which the server serves


class Limits(unittest.TestCase):
    """Each limit of the system."""

    def serves(self, limited: list[str], named: str) -> bool:
        """Whether a server starts under a limit and answers many calls. If not, its error must name the limit."""
        with subprocess.Popen([*limited, *SERVE], stderr=subprocess.PIPE, text=True) as process:
            try:
                return self.serves_or_names(process, named)
            finally:
                process.kill()

    def serves_or_names(self, process: subprocess.Popen[str], named: str) -> bool:
        """What `serves` says, of a process that runs."""
        said = ""
        for line in process.stderr:
            said += line
            if ready := re.search(r" ready .*address=(\S+)", line):
                load = [RUNNEL, "load", "--server", ready[1], "--rate", "200", "--duration", "0.5", "--warm-up", "0"]
                load += ["--values", "2", "--prompt", "2", "--grace", str(PATIENCE)]
                done = subprocess.run(load, capture_output=True, text=True, timeout=4 * PATIENCE, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, r"\ngiven +200\.0 +\d+ +\d+ +0 ", "no call fails but by a refusal")
                process.terminate()
                process.stderr.read()
                self.assertEqual(process.wait(PATIENCE), 0)
                return True
        self.assertEqual(process.wait(PATIENCE), 1, said)
        self.assertRegex(said.splitlines()[-1], f" error failed code=[A-Z_]+ .*{named}", said)
        return False

    def first_enough(self, values: range, limited, named: str) -> int:
        """The first of ENOUGH consecutive values at which the server serves."""
        served = 0
        for value in values:
            with self.subTest(value):
                if self.serves(limited(value), named):
                    served += 1
                else:
                    self.assertEqual(served, 0, "more of it is not less")
            if served == ENOUGH:
                return value
        raise AssertionError(f"not even {values[-1]} is enough")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "only root can be another user")
    def test_threads(self):
        def limited(threads: int) -> list[str]:
            return [*AS_PLAIN_USER, "prlimit", f"--nproc={threads}:{threads}"]

        self.first_enough(range(2, 1000), limited, r"ulimit -u")

    def test_addresses(self):
        def limited(mib: int) -> list[str]:
            return ["prlimit", f"--as={mib * MIB}:{mib * MIB}"]

        named = r"(ulimit -v|memory)"
        first = self.first_enough(range(128, 64 << 10, 128), limited, named)
        for mib in range(first - 128, first, 8):  # if any part gets too little memory, the process must end
            with self.subTest(mib):
                self.serves(limited(mib), named)

    def test_open_files(self):
        def limited(files: int) -> list[str]:
            return ["prlimit", f"--nofile={files}:{files}"]

        self.first_enough(range(5, 1000), limited, r"ulimit -Hn")


class Files(unittest.TestCase):
    """The limit of open files, which connections reach first."""

    def refusal(self, soft: int, hard: int, *flags: str) -> str:
        """The log of a server that does not start under these limits."""
        command = [RUNNEL, "serve", str(ROOT / "zoo/mnist-small"), "--address", "127.0.0.1:0", *flags]
        limited = ["prlimit", f"--nofile={soft}:{hard}", *command]
        done = subprocess.run(limited, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertNotIn("ready", done.stderr)
        return done.stderr

    def test_too_few_files_for_the_connections_are_an_error_at_start(self):
        self.assertIn("the process may open 20 files", self.refusal(20, 20))
        said = self.refusal(100, 400, "--http-address", "127.0.0.1:0")
        self.assertIn("may open 400 files and needs up to 1152 for limits.connections = 256", said)
        self.assertIn("set limits.connections to at most 68", said)

    def test_the_soft_limit_is_raised_to_the_hard_one(self):
        server = Server("--connections", "68", files=(100, 400))
        try:
            limits = pathlib.Path(f"/proc/{server.process.pid}/limits").read_text(encoding="ascii")
            self.assertRegex(limits, r"Max open files +400 +400 ")
            self.assertTrue(server.serves())
        finally:
            self.assertEqual(server.stop(), 0)

    def test_without_free_files_accepting_pauses_and_calls_continue(self):
        server = Server(
            "--http-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0", bundle="zoo/text-endless-small"
        )
        try:
            ports = [int(port) for port in re.findall(r" (?:http|metrics) address=127\.0\.0\.1:(\d+)", server.logged())]
            stream = honest(server, stdout=subprocess.PIPE)
            assert stream.stdout is not None
            self.assertNotEqual(stream.stdout.read(1), b"", "the stream has begun")
            before = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
            waiting = [socket.create_connection(("127.0.0.1", port)) for port in (*ports, server.port) * 4]
            stream.communicate(timeout=PATIENCE)
            self.assertEqual(stream.returncode, 0, "a stream that has begun continues")
            self.assertTrue(eventually(lambda: "the system gives no more open files" in server.logged()))
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, before)
            for port in ports:
                self.assertNotEqual(ask_readiness(port), b"", "it is answered")
            self.assertTrue(server.serves())
            for each in waiting:
                each.close()
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
