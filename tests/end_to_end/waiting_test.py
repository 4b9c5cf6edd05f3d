"""More completions at once than there are states: they wait for a state, or are refused at once."""

import concurrent.futures
import json
import re
import threading
import unittest
import urllib.error
import urllib.request

from hostile_client import PATIENCE, Server, eventually

SESSIONS = 16
CALLS = 64


class Waiting(unittest.TestCase):
    """Uses HTTP, whose clients do not expect refusals."""

    def serve(self, *flags: str) -> Server:
        server = Server(
            "--http-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0", "--sessions", str(SESSIONS), *flags,
            bundle="zoo/text-small",
        )  # fmt: skip
        self.addCleanup(server.stop)
        addresses = re.findall(r" (http|metrics) address=127\.0\.0\.1:(\d+)", server.logged())
        self.ports = {name: int(port) for name, port in addresses}
        return server

    def complete(self, number: int) -> tuple[int, str]:
        """The status of a completion and its text."""
        body = {"model": "text-small", "prompt": "The river was ", "max_tokens": 40, "seed": number, "ignore_eos": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports['http']}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)["choices"][0]["text"]
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("Retry-After", "")

    def waiting(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['metrics']}/metrics", timeout=PATIENCE) as answer:
            found = re.search(r"^runnel_calls_waiting\{[^}]*\} (\d+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    def complete_all(self) -> list[tuple[int, str]]:
        """Makes all calls at once."""
        together = threading.Barrier(CALLS)

        def one(number: int) -> tuple[int, str]:
            together.wait(PATIENCE)
            return self.complete(number)

        with concurrent.futures.ThreadPoolExecutor(CALLS) as threads:
            return list(threads.map(one, range(CALLS)))

    def test_completions_wait_for_a_state_and_all_are_answered(self):
        self.serve()
        waited = threading.Event()
        done = threading.Event()

        def watch() -> None:
            while not waited.is_set() and not done.is_set():
                if self.waiting() > 0:
                    waited.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        answers = self.complete_all()
        done.set()
        watcher.join()
        self.assertEqual([status for status, _ in answers], [200] * CALLS)
        self.assertTrue(waited.is_set(), "some have waited")
        self.assertEqual(answers[7], self.complete(7), "a call that waits has the text of one that does not")
        self.assertTrue(eventually(lambda: self.waiting() == 0))

    def test_without_a_queue_time_completions_are_refused(self):
        self.serve("--http-queue-time-ms", "0")
        answers = self.complete_all()
        statuses = {status for status, _ in answers}
        self.assertEqual(statuses, {200, 429})
        self.assertTrue(all(text for status, text in answers if status == 429), "each hears when to try again")


if __name__ == "__main__":
    unittest.main()
