"""A conversation that is sent again at every turn outlives its server: the next server gives the same answers."""

import json
import re
import signal
import unittest
import urllib.request

from hostile_client import PATIENCE, ROOT, Server

MODEL = "text-endless-small"
TEMPLATE = f"--chat-template={MODEL}={ROOT / 'examples/plain_chat.jinja'}"
TURNS, KILLED_AFTER = 12, 6


class Talk:
    """A client that keeps the conversation and sends all of it."""

    def __init__(self) -> None:
        self.messages: list[dict[str, str]] = []

    def ask(self, server: Server, turn: int) -> tuple[str, int, int]:
        """The answer, and the tokens of the prompt, all of them and the cached ones."""
        [port] = re.findall(r" http address=127\.0\.0\.1:(\d+)", server.logged())
        self.messages.append({"role": "user", "content": f"Where does the river go, at turn {turn}?"})
        body = {"model": MODEL, "messages": self.messages, "max_completion_tokens": 24, "seed": turn}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            told = json.load(answer)
        content = told["choices"][0]["message"]["content"]
        self.messages.append({"role": "assistant", "content": content})
        usage = told["usage"]
        return content, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class Turns(unittest.TestCase):
    """One conversation, on servers that die and on one that does not."""

    def serve(self) -> Server:
        server = Server("--http-address", "127.0.0.1:0", TEMPLATE, bundle=f"zoo/{MODEL}")
        self.addCleanup(server.stop)
        return server

    def test_a_server_that_is_killed_loses_no_conversation(self):
        whole, cut = Talk(), Talk()
        lasting, dying = self.serve(), self.serve()
        for turn in range(TURNS):
            if turn == KILLED_AFTER:
                dying.process.send_signal(signal.SIGKILL)
                dying.process.wait(PATIENCE)
                dying = self.serve()
            expected, prompt, cached = whole.ask(lasting, turn)
            answer, again, cached_again = cut.ask(dying, turn)
            self.assertEqual((answer, again), (expected, prompt), turn)
            if turn > 0:
                self.assertGreater(cached, prompt // 2, turn)
            self.assertEqual(cached_again, 0 if turn == KILLED_AFTER else cached, turn)


if __name__ == "__main__":
    unittest.main()
