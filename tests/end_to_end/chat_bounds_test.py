"""Conversations made to harm a server: each takes bounded time and memory, and the refusal gives the reason."""

import concurrent.futures
import json
import pathlib
import re
import shutil
import tempfile
import unittest
import urllib.error
import urllib.request
from typing import Any

from hostile_client import MIB, PATIENCE, ROOT, Server

MODEL = "text-small"
TEMPLATE = """\
{%- for tool in tools or [] %}{{ tool | tojson }}{% endfor -%}
{%- for m in messages -%}
{{- m.role + ': ' + (m.content or '') -}}
{%- for call in m.tool_calls or [] %}{{ '<tool_call>' + call.function | tojson + '</tool_call>' }}{% endfor -%}
{{- '\\n\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ 'assistant:' }}{% endif -%}
"""
# Loops over all messages for each message.
QUADRATIC = "{%- for n in messages %}{% for m in messages %}{% if m.role == 'none' %}{{ m }}{% endif %}{% endfor %}"
QUADRATIC += "{% endfor -%}" + TEMPLATE
DEPTH = 36  # the levels that a body may have
SLACK = MIB  # for pages that no count includes


def messages(count: int) -> list[Any]:
    return [{"role": ("user", "assistant")[index % 2], "content": "x"} for index in range(count)]


def tool(schema: Any) -> list[Any]:
    return [{"type": "function", "function": {"name": "f", "parameters": schema}}]


def nested(depth: int) -> list[Any]:
    """Tools that give a body this many levels. Five of them surround the schema."""
    schema: Any = {}
    for _ in range(depth - 5):
        schema = {"a": schema}
    return tool(schema)


LARGE = tool({str(index): index for index in range(50_000)})  # nearly 1 MiB of members, the JSON that needs most memory


class ChatBounds(unittest.TestCase):
    server: Server
    address: str
    most: int  # bytes of memory that the server may use

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        for name, template in ((MODEL, TEMPLATE), ("quadratic", QUADRATIC)):
            bundle = pathlib.Path(folder.name) / name
            shutil.copytree(ROOT / "zoo" / MODEL, bundle)
            (bundle / "chat_template.jinja").write_text(template)
        words = (f"quadratic={folder.name}/quadratic", "--http-address", "127.0.0.1:0")
        cls.server = Server(*words, bundle=f"{folder.name}/{MODEL}")
        cls.addClassCleanup(cls.server.stop)
        [cls.address] = re.findall(r" http address=(\S+)", cls.server.logged())
        [calls] = re.findall(r" memory .* calls=(\d+)", cls.server.logged())
        cls.most = cls.server.memory() + int(calls) + SLACK

    def tearDown(self) -> None:
        self.assertEqual(self.ask({}), (200, None), "honest clients are served")
        self.assertLess(self.server.memory("VmHWM"), self.most)

    def ask(self, body: Any) -> tuple[int, Any]:
        """The status, and the error of a refusal."""
        data = json.dumps({"model": MODEL, "messages": messages(1), "max_tokens": 3, **body}).encode()
        url = f"http://{self.address}/v1/chat/completions"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, None
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)["error"]

    def check_refused(self, body: Any, code: int, words: str) -> None:
        status, error = self.ask(body)
        self.assertEqual(status, code, error)
        self.assertRegex(error["message"], words)

    def test_many_messages(self):
        self.check_refused({"messages": messages(10_000)}, 400, "more values from position 0 do not fit")

    def test_a_template_that_is_quadratic_in_messages(self):
        self.assertEqual(self.ask({"model": "quadratic", "messages": messages(10)}), (200, None))
        self.check_refused(
            {"model": "quadratic", "messages": messages(10_000)},
            400,
            # On a slow machine, the limit of processor time may come first.
            "the template takes (more than 5000000 evaluations|longer than it may)",
        )

    def test_levels(self):
        self.assertEqual(self.ask({"tools": nested(DEPTH)}), (200, None))
        self.check_refused({"tools": nested(DEPTH + 1)}, 400, f"nested deeper than {DEPTH} levels")
        self.check_refused({"tools": nested(900)}, 400, f"nested deeper than {DEPTH} levels")

    def test_large_schemas_eight_at_once(self):
        bodies: list[Any] = [{"tools": LARGE, "model": model} for model in (MODEL, "quadratic") for _ in range(4)]
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(self.ask, bodies))
        # A body for which there is no memory does not wait: 429.
        self.assertLessEqual({status for status, _ in answers}, {400, 429}, answers)
        self.assertIn(400, [status for status, _ in answers])
        self.check_refused(
            {"tools": LARGE, "metadata": {"more": "x" * MIB}}, 413, rf"{MIB} bytes \(limits.message_bytes\)"
        )


if __name__ == "__main__":
    unittest.main(verbosity=1)
