"""More completions at once than there are states: they wait for a state, or are refused at once."""

import concurrent.futures
import http.client
import json
import re
import unittest
import urllib.error
import urllib.request
from typing import Any

from hostile_client import PATIENCE, Server, eventually

MODEL = "text-endless-small"
SESSIONS = 16
CALLS = 64
AN_HOUR = "3600000"


class Waiting(unittest.TestCase):
    """Uses HTTP, whose clients do not expect refusals."""

    def serve(self, queue_time: str) -> None:
        addresses = ("--http-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0")
        times = ("--http-queue-time-ms", queue_time, "--stall-timeout-ms", AN_HOUR)
        server = Server(*addresses, "--sessions", str(SESSIONS), *times, bundle=f"zoo/{MODEL}")
        self.addCleanup(server.stop)
        found = re.findall(r" (http|metrics) address=127\.0\.0\.1:(\d+)", server.logged())
        self.ports = {name: int(port) for name, port in found}

    def open(self, **more: Any) -> http.client.HTTPResponse:
        body = {"model": MODEL, "prompt": "The river was ", "ignore_eos": True, **more}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports['http']}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        return urllib.request.urlopen(request, timeout=PATIENCE)

    def complete(self, number: int) -> tuple[int, str]:
        """The status of a completion, and its text or when to try again."""
        try:
            with self.open(max_tokens=40, seed=number) as answer:
                return answer.status, json.load(answer)["choices"][0]["text"]
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("Retry-After", "")

    def waiting(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['metrics']}/metrics", timeout=PATIENCE) as answer:
            found = re.search(r"^runnel_calls_waiting\{[^}]*\} (\d+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    def take_all_states(self) -> list[http.client.HTTPResponse]:
        """Streams that have begun, and that nobody reads. Each has a state until it is closed."""
        streams = [self.open(max_tokens=1_000_000, stream=True) for _ in range(SESSIONS)]
        for stream in streams:
            self.addCleanup(stream.close)
            self.assertNotEqual(stream.readline(), b"")  # an event, or a comment if that takes long
        return streams

    def test_completions_wait_for_a_state_and_all_are_answered(self):
        self.serve(queue_time=AN_HOUR)
        streams = self.take_all_states()
        with concurrent.futures.ThreadPoolExecutor(CALLS) as threads:
            calls = [threads.submit(self.complete, number) for number in range(CALLS)]
            all_wait = eventually(lambda: self.waiting() == CALLS)
            for stream in streams:
                stream.close()
            answers = [call.result() for call in calls]
        self.assertTrue(all_wait)
        self.assertEqual([status for status, _ in answers], [200] * CALLS)
        self.assertEqual(answers[7], self.complete(7), "a call that waits has the text of one that does not")
        self.assertEqual(self.waiting(), 0)

    def test_without_a_queue_time_completions_are_refused(self):
        self.serve(queue_time="0")
        streams = self.take_all_states()
        for status, again in [self.complete(number) for number in range(3)]:
            self.assertEqual(status, 429)
            self.assertTrue(again, "it hears when to try again")
        streams[0].close()
        self.assertTrue(eventually(lambda: self.complete(0)[0] == 200))


if __name__ == "__main__":
    unittest.main()
