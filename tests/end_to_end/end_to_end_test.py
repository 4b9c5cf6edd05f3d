#!/usr/bin/env python3
"""The shipped program with a shipped bundle, used as a person uses it: real processes and a real socket.

    tests/end_to_end/end_to_end_test.py build/release/runnel

Needs only Python's standard library.
"""

import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "zoo" / "mnist-small"
ENDLESS = ROOT / "zoo" / "text-endless-small"
IMAGES = ROOT / "tests" / "golden" / "mnist_test_100.idx3-ubyte"
EXPECTED_BITS = ROOT / "tests" / "golden" / "zoo_mnist" / "bits_per_dim.json"
RUNNEL = ""
PATIENCE = 600  # seconds until an event counts as one that never comes: the machine may be busy with other things


def run(*arguments):
    return subprocess.run([RUNNEL, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, check=False)


def run_json(*arguments):
    result = run(*arguments, "--json")
    if result.returncode != 0:
        raise AssertionError(f"{arguments}: exit {result.returncode}: {result.stderr}")
    return json.loads(result.stdout)


class Server:
    """`runnel serve` on a free port."""

    def __init__(self, *flags, bundle=BUNDLE):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")  # noqa: SIM115 - closed with the server
        self.process = subprocess.Popen(
            [RUNNEL, "serve", str(bundle), "--address", "127.0.0.1:0", *flags], stderr=self.log, stdout=self.log
        )
        self.address = ""
        for _ in range(10 * PATIENCE):
            found = re.search(r"ready.*address=(\S+)", self.text())
            if found:
                self.address = found.group(1)
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError("the server did not start:\n" + self.text())

    def text(self):
        return pathlib.Path(self.log.name).read_text()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE)


def read_png(path):
    """(width, height, channels, rows of bytes) of an 8-bit PNG without interlacing."""
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, header = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        if kind == b"IDAT":
            packed += body
        at += 12 + length
    return header, zlib.decompress(packed)


class EndToEnd(unittest.TestCase):
    server: Server
    directory: tempfile.TemporaryDirectory
    dir: pathlib.Path

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.directory = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.directory.name)

    @classmethod
    def tearDownClass(cls):
        if cls.server.process.poll() is None:
            cls.server.stop()

    def call(self, command, *arguments):
        return run_json(command, *arguments, "--server", self.server.address)

    def test_a_session_forks_and_travels_to_another_server(self):
        picture, file = self.dir / "moved.png", self.dir / "a.state"

        def go_on(session, *where):
            drawn = run_json("generate", "--session", session, "--seed", 7, "--out", picture, *where)
            return drawn["samples"][0]["values"]

        kept = self.call("generate", "--values", "0,0,9", "--max-values", 100, "--keep", "--out", picture)
        forked = run("session", "fork", kept["session"], "one", "two", "--server", self.server.address)
        self.assertEqual((forked.returncode, forked.stdout), (0, "one\ntwo\n"))
        saved = run("session", "save", "one", file, "--server", self.server.address)
        self.assertEqual(saved.returncode, 0, saved.stderr)
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        found = run_json("session", "inspect", file)
        self.assertEqual(found["model"], run_json("info", BUNDLE)["digest"])
        self.assertEqual(found["model"], run_json("info", "--server", self.server.address)["models"][0]["digest"])
        self.assertEqual(found["position"], 103)
        self.assertEqual(found["numerics"], kept["numerics"])
        there = Server()
        loaded = run("session", "load", file, "--id", "moved", "--server", there.address)
        self.assertEqual((loaded.returncode, loaded.stdout), (0, "moved\n"), loaded.stderr)
        self.assertEqual(go_on("moved", "--server", there.address), go_on("two", "--server", self.server.address))
        self.assertEqual(there.stop(), 0)
        stored = Server("--stored-states", str(self.dir))
        drawn = run_json("generate", "--from", "a", "--seed", 7, "--out", picture, "--server", stored.address)
        self.assertEqual(drawn["samples"][0]["values"], go_on("one", "--server", self.server.address))
        self.assertEqual(stored.stop(), 0)
        file.write_bytes(file.read_bytes()[:-1])
        cut = run("session", "inspect", file)
        self.assertEqual(cut.returncode, 1)
        self.assertIn("cut short", cut.stderr)

    def test_a_session_is_rewound(self):
        server, picture = Server("--rewind", "64,16"), self.dir / "back.png"
        self.addCleanup(server.stop)

        def call(*words):
            return run_json(*words, "--server", server.address)

        kept = call("generate", "--values", "0,0,9", "--seed", 7, "--max-values", 100, "--keep", "--out", picture)
        back = run("session", "rewind", kept["session"], "63", "--server", server.address)
        self.assertEqual((back.returncode, back.stdout), (0, f"{kept['session']}: position 63\n"), back.stderr)
        drawn = call("generate", "--session", kept["session"], "--seed", 7, "--max-values", 40, "--out", picture)
        self.assertEqual(drawn["samples"][0]["values"], kept["samples"][0]["values"][60:])
        self.assertEqual(call("session", "rewind", kept["session"], 60)["position"], 60)
        refused = run("session", "rewind", kept["session"], "3", "--server", server.address)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("the oldest that it can go back to is", refused.stderr)

    def test_scores_are_those_of_pytorch(self):
        expected = json.loads(EXPECTED_BITS.read_text())["bits_per_dim"]
        for precision, each, mean in (("fp32", 1e-3, 1e-4), ("bf16", 2e-3, 1e-3)):
            server = Server("--precision", precision)
            scored = run_json("score", IMAGES, "--first", 100, "--server", server.address)
            self.assertEqual(server.stop(), 0)
            self.assertIn(f"/{precision}/", scored["numerics"])
            bits = [item["bits_per_dim"] for item in scored["items"]]
            self.assertEqual(len(bits), 100)
            worst = max(abs(a - b) for a, b in zip(bits, expected))
            self.assertLess(worst, each)
            self.assertAlmostEqual(scored["mean_bits_per_dim"], sum(expected) / 100, delta=mean)

    def test_the_same_seed_draws_the_same_digits(self):
        first = self.call("generate", "--count", 4, "--seed", 7, "--out", self.dir / "a.png")
        again = self.call("generate", "--count", 4, "--seed", 7, "--out", self.dir / "b.png")
        other = self.call("generate", "--count", 4, "--seed", 8, "--out", self.dir / "c.png")
        pictures = [(self.dir / name).read_bytes() for name in ("a.png", "b.png", "c.png")]
        self.assertEqual(pictures[0], pictures[1])
        self.assertNotEqual(pictures[0], pictures[2])
        self.assertEqual(first["values"], 4 * 784)
        self.assertEqual(first["samples"], again["samples"])
        self.assertNotEqual(first["samples"], other["samples"])
        header, _ = read_png(self.dir / "a.png")
        self.assertEqual(header[0], header[1])  # 2 x 2 square pictures

    def test_a_single_sample_equals_the_first_of_many(self):
        many = self.call("generate", "--count", 3, "--seed", 5, "--out", self.dir / "many.png")
        one = self.call("generate", "--count", 1, "--seed", 5, "--out", self.dir / "one.png")
        self.assertEqual(one["samples"][0]["values"], many["samples"][0]["values"])
        self.assertEqual(one["samples"][0]["log_probs"], many["samples"][0]["log_probs"])

    def test_a_picture_is_completed_from_its_upper_half(self):
        given = IMAGES.read_bytes()[16 : 16 + 14 * 28]
        result = self.call(
            "generate", "--prompt-image", f"{IMAGES}#0", "--rows", 14, "--seed", 1, "--out", self.dir / "completed.png"
        )
        sample = result["samples"][0]
        self.assertEqual(sample["position"], 14 * 28)
        self.assertEqual(len(sample["values"]), 784 - len(given))
        self.assertTrue((self.dir / "completed.png").exists())

    def test_info_and_health(self):
        self.assertEqual(run("health", "--server", self.server.address, "--timeout", PATIENCE).returncode, 0)
        info = self.call("info")
        self.assertEqual(info["models"][0]["name"], "mnist-small")
        self.assertEqual(info["models"][0]["state_bytes"], 4 * 4 * (32 * 32 + 32) * 4)
        bundle = run_json("info", BUNDLE)
        self.assertIn("mnist-small", json.dumps(bundle))

    def test_supervisors_can_check_health_by_http(self):
        server = Server("--metrics-address", "127.0.0.1:0")
        url = "http://" + re.search(r"metrics address=(\S+)", server.text()).group(1)
        with urllib.request.urlopen(url + "/healthz", timeout=PATIENCE) as answer:
            self.assertEqual((answer.status, answer.read()), (200, b"ok\n"))
        with urllib.request.urlopen(url + "/readyz", timeout=PATIENCE) as answer:
            self.assertEqual((answer.status, answer.read()), (200, b"ready\n"))
        with urllib.request.urlopen(url + "/metrics", timeout=PATIENCE) as answer:
            self.assertTrue(answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"))
            self.assertIn("\nrunnel_build_info{", answer.read().decode())
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url + "/metrics", data=b"", timeout=PATIENCE)
        self.assertEqual((refused.exception.code, refused.exception.headers["Allow"]), (405, "GET, HEAD"))
        refused.exception.close()
        self.assertEqual(server.stop(), 0)

    def test_a_missing_server_is_named(self):
        for command in (["health"], ["info"], ["generate"]):
            result = run(*command, "--server", "127.0.0.1:1")
            self.assertEqual(result.returncode, 1, command)
            self.assertIn("127.0.0.1:1", result.stderr)

    def test_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w") as full:
            for command in (["info"], ["info", BUNDLE], ["score", f"{IMAGES}#0"], ["--help"], ["man"]):
                server = [] if command[-1] in (BUNDLE, "--help", "man") else ["--server", self.server.address]
                result = subprocess.run(
                    [RUNNEL, *map(str, command), *server],
                    stdout=full,
                    stderr=subprocess.PIPE,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                )
                self.assertEqual(result.returncode, 1, command)
                self.assertEqual(
                    result.stderr,
                    "runnel: standard output could not be written: is its disk full, or its reader gone?\n",
                )

    def test_a_reader_that_is_gone_does_not_kill_a_command(self):
        keys = self.dir / "unseen-keys.json"
        reader, writer = os.pipe()
        os.close(reader)
        self.addCleanup(os.close, writer)
        for command, message in (
            (["info", BUNDLE], "standard output could not be written"),
            (["key", "new", "ada", "--file", keys], "the key could not be written to standard output, and is removed"),
        ):
            result = subprocess.run(
                [RUNNEL, *map(str, command)],
                stdout=writer,
                stderr=subprocess.PIPE,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            self.assertEqual(result.returncode, 1, command)
            self.assertIn(message, result.stderr)
        self.assertEqual(run_json("key", "list", "--file", keys)["keys"], [])

    def test_a_busy_port_is_logged_once(self):
        result = run("serve", BUNDLE, "--address", self.server.address, "--log-json")
        self.assertEqual(result.returncode, 1)
        events = [json.loads(line)["event"] for line in result.stderr.splitlines()]
        self.assertEqual(events, ["machine", "start", "failed"])
        self.assertIn("the address is already in use", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_more_samples_than_states_are_refused_permanently(self):
        server = Server("--sessions", "4")
        result = run("generate", "--count", 5, "--out", self.dir / "never.png", "--server", server.address)
        self.assertEqual(result.returncode, 1)
        self.assertIn("--count asks for 5 states, and the server keeps 4 in all", result.stderr)
        self.assertEqual(server.stop(), 0)

    def test_sighup_drains_and_exits_0(self):
        server = Server()
        server.process.send_signal(signal.SIGHUP)
        self.assertEqual(server.process.wait(timeout=PATIENCE), 0)
        self.assertIn("drained", server.text())

    def test_nohup_keeps_a_server_running(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            server = Server()
        finally:
            signal.signal(signal.SIGHUP, before)
        server.process.send_signal(signal.SIGHUP)
        self.assertEqual(run("health", "--server", server.address, "--timeout", PATIENCE).returncode, 0)
        self.assertEqual(server.stop(), 0)
        self.assertIn("signal=15", server.text())

    def test_sigterm_drains_and_exits_0(self):
        server = Server("--grace-ms", str(6_000 * PATIENCE))  # an hour, and stop() does not wait so long
        self.assertEqual(server.stop(), 0)
        self.assertIn("drain", server.text())

    def test_sigterm_ends_a_call_that_outlasts_the_grace_period(self):
        server = Server("--grace-ms", "0", "--threads", "1", bundle=ENDLESS)
        call = subprocess.Popen(
            [RUNNEL, "generate", "--server", server.address, "--prompt", "The ", "--max-values", "1000000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.assertNotEqual(call.stdout.read(1), "", "a call that runs for long")
        self.assertEqual(server.stop(), 0)
        _, errors = call.communicate(timeout=PATIENCE)
        self.assertEqual(call.returncode, 1)
        self.assertIn("UNAVAILABLE", errors)


if __name__ == "__main__":
    RUNNEL = sys.argv.pop(1) if len(sys.argv) > 1 else str(ROOT / "build/release/runnel")
    unittest.main(verbosity=2)
