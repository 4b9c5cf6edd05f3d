"""bench_chat.py of bench/report: the figures that it reads from answers, and its page."""

import contextlib
import http.server
import json
import threading
import unittest
from typing import Any

import bench_chat


def turn(first, read):
    return {"first_ms": first, "all_ms": 2 * first, "read": read, "prompt": 6400, "memory": 3 << 20}


def figures(peer=True):
    ways = {"runnel": [turn(10.0, 64)] * 49 + [turn(11.0, 64)]}
    if peer:
        ways["llama-server"] = [turn(50.0, 64)] * 49 + [turn(2200.0, 6400)]
    return {
        "machine": {"cpu": "a processor", "cores": 2, "load_average": 0.1},
        "llama": "llama-cpp-python 0.3",
        "turns": 50,
        "missing": {} if peer else {"llama.cpp": "no compiler"},
        "models": {"RWKV-7 0.1B": {"chats": [ways, ways]}},
        "cost": {"model": "RWKV-7 0.1B", "without": 1000.0, "with": 990.0, "cost": 0.01, "runs": [[1000.0], [990.0]]},
    }


class PageTest(unittest.TestCase):
    def test_a_row_has_both_servers(self):
        row = "| 50 | 6,400 | 11 ms | 64 | 3 MiB | 2,200 ms | 6,400 | 3 MiB |"
        self.assertEqual(bench_chat.page(figures()).count(row), 2)

    def test_the_page_compares_figures_with_the_goals(self):
        page = bench_chat.page(figures())
        self.assertIn("of turn 50 takes 1.10x as long as that of turn 5 (goal: at most 1.2x)", page)
        self.assertIn("takes 200.0x as long as runnel's (goal: at least 5x)", page)
        self.assertIn("+1.0% lost (goal: less than 2%)", page)

    def test_the_page_says_why_the_peer_is_missing(self):
        page = bench_chat.page(figures(peer=False))
        self.assertIn("Without llama.cpp: no compiler.", page)
        self.assertIn("| 50 | 6,400 | 11 ms | 64 | 3 MiB | - | - | - |", page)


class Answers(http.server.BaseHTTPRequestHandler):
    """Streams the same events for every request."""

    events: list[dict[str, Any]] = []

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        for event in (*map(json.dumps, self.events), "[DONE]"):
            self.wfile.write(f"data: {event}\n\n".encode())

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def answering(*events):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("These", (Answers,), {"events": list(events)}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def delta(text):
    return {"choices": [{"delta": {"content": text}}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 90}}}


class AskTest(unittest.TestCase):
    def test_values_read_exclude_cached_ones(self):
        with answering(delta(None), delta("a" * bench_chat.ANSWER), USAGE) as port:
            text, found = bench_chat.ask(port, [])
        self.assertEqual(text, "a" * bench_chat.ANSWER)
        self.assertEqual((found["read"], found["prompt"]), (10, 100))
        self.assertLess(found["first_ms"], found["all_ms"])

    def test_llama_server_reports_the_values_read(self):
        with answering(delta("a" * bench_chat.ANSWER), {**USAGE, "timings": {"prompt_n": 7}}) as port:
            self.assertEqual(bench_chat.ask(port, [])[1]["read"], 7)

    def test_a_short_answer_is_an_error(self):
        with answering(delta("a"), USAGE) as port, self.assertRaises(bench_chat.BenchError):
            bench_chat.ask(port, [])


if __name__ == "__main__":
    unittest.main()
