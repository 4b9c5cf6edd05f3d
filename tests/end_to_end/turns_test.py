"""A conversation that the client sends again at every turn survives its server: the next server gives the same answers.
Another conversation starts from a stored state, and one continues with state tokens.
"""

import json
import pathlib
import re
import signal
import tempfile
import unittest
import urllib.request
from typing import Any

from hostile_client import PATIENCE, ROOT, Server

MODEL = "text-endless-small"
TEMPLATE = f"--chat-template={MODEL}={ROOT / 'examples/plain_chat.jinja'}"
TURNS, KILLED_AFTER = 12, 6
TOKEN_TURNS = 4


def request(server: Server, path: str, body: Any = None) -> bytes:
    """The answer to a GET, or to a POST of a body."""
    [port] = re.findall(r" http address=127\.0\.0\.1:(\d+)", server.logged())
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        return bytes(answer.read())


class Talk:
    """A client that keeps the conversation and sends all of it."""

    def __init__(self) -> None:
        self.messages: list[dict[str, str]] = []

    def ask(self, server: Server, turn: int) -> tuple[str, int, int]:
        """The answer, and the number of prompt tokens: all, and those from the cache."""
        self.messages.append({"role": "user", "content": f"Where does the river go, at turn {turn}?"})
        body = {"model": MODEL, "messages": self.messages, "max_completion_tokens": 24, "seed": turn}
        told = json.loads(request(server, "/v1/chat/completions", body))
        content = told["choices"][0]["message"]["content"]
        self.messages.append({"role": "assistant", "content": content})
        usage = told["usage"]
        return content, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class Turns(unittest.TestCase):
    """The same conversation on servers that are killed and on one that is not."""

    def serve(self, *flags: str) -> Server:
        server = Server("--http-address", "127.0.0.1:0", TEMPLATE, *flags, bundle=f"zoo/{MODEL}")
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

    def test_tokens_are_valid_after_their_server_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            key = pathlib.Path(folder) / "tokens.key"
            key.touch(0o600)
            key.write_bytes(bytes(32))
            lasting, dying, other = (self.serve("--seal-keys", str(key)) for _ in range(3))
        request(lasting, "/v1/sessions", {"id": "talk"})
        server, token = dying, None
        for turn in range(TOKEN_TURNS):
            words = [{"role": "user", "content": f"Where does the river go, at turn {turn}?"}]
            body = {"messages": words, "max_completion_tokens": 24, "seed": turn}
            whole = json.loads(request(lasting, "/v1/chat/completions", {**body, "session": "talk"}))
            body |= {"include_state": True, "state_token": token}
            told = json.loads(request(server, "/v1/chat/completions", body))
            token = told["choices"][0]["state_token"]
            self.assertEqual(told["choices"][0]["message"], whole["choices"][0]["message"], turn)
            self.assertEqual(told["usage"], whole["usage"], turn)
            if turn == 1:
                dying.process.send_signal(signal.SIGKILL)
                dying.process.wait(PATIENCE)
                server = other

    def test_a_public_server_without_keys_caches_no_conversation(self):
        server, talk = self.serve("--insecure-public"), Talk()
        for turn in range(3):
            self.assertEqual(talk.ask(server, turn)[2], 0, "how fast an answer comes would tell of others' prompts")

    def test_a_conversation_can_begin_at_a_stored_state(self):
        with tempfile.TemporaryDirectory() as folder:
            first = self.serve()
            request(first, "/v1/sessions", {"id": "s"})
            request(first, "/v1/completions", {"session": "s", "prompt": "Long ago ", "max_tokens": 5, "seed": 3})
            state = request(first, f"/v1/sessions/s/state?model={MODEL}")
            (pathlib.Path(folder) / "start.state").write_bytes(state)
            server = self.serve("--stored-states", folder)
        options = {"state": "start", "seed": 7, "max_tokens": 20}
        messages = [{"role": "user", "content": "Who?"}]
        chat = json.loads(request(server, "/v1/chat/completions", {**options, "messages": messages}))
        prompt = "User: Who?\n\nAssistant:"
        plain = {**options, "prompt": prompt, "stop": "\n\nUser:"}
        whole = json.loads(request(server, "/v1/completions", plain))
        self.assertEqual(chat["choices"][0]["message"]["content"], whole["choices"][0]["text"].lstrip())
        self.assertEqual(chat["choices"][0]["position"], whole["choices"][0]["position"])
        self.assertEqual(chat["usage"]["prompt_tokens"], len(prompt))


if __name__ == "__main__":
    unittest.main()
