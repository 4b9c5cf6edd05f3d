#!/usr/bin/env python3
"""Write chat/cases.json: the output of Jinja2, configured as in transformers, for the templates in chat/.

    python3 -m venv build/golden && build/golden/bin/pip install jinja2==3.1.6
    build/golden/bin/python tests/golden/make_chat.py [--check]

The templates were written for these tests: together they use every statement, filter, test, method and
global that published chat templates use. --check compares the output with the stored file and writes
nothing.
"""

import argparse
import datetime
import json
import pathlib
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent / "chat"
NOW = datetime.datetime(2026, 3, 5, 7, 8, 9)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

FUNCTION = {
    "name": "draw",
    "description": "Draws a \u00e9 <shape>",
    "parameters": {
        "type": "object",
        "required": ["kind"],
        "properties": {
            "kind": {"enum": ["circle", "Quadrat \u00e4"]},
            "size": {"type": ["integer", "null"]},
            "at": {"type": "object", "properties": {"x": {"type": "number"}}},
        },
    },
}
CALL = {
    "function": {
        "name": "draw",
        "arguments": {"kind": "circle", "size": 3, "at": {"x": 1.5}},
    }
}
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "plain": {"messages": [{"role": "user", "content": "River or lake?"}]},
    "turns": {
        "messages": [
            {"role": "system", "content": "  Be kind. "},
            {"role": "user", "content": "Hi"},
            {"role": "user", "content": "R\u00edo \U0001f30a e\u0301\u3000?"},
            {"role": "critic", "content": "no"},
            {"role": "assistant", "content": "<think>a</think>\n\nYes </s>"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "one"}, {"type": "image"}],
            },
            {"role": "assistant", "content": "So.", "reasoning_content": "\nwhy\n"},
        ]
    },
    "tools": {
        "messages": [
            {"role": "user", "content": "Draw!"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "done"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
    },
    "tool": {"messages": [{"role": "tool", "content": "alone"}]},
}


class Generation(jinja2.ext.Extension):
    """{% generation %}: it only opens a scope."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    @staticmethod
    def _render(caller: Any) -> str:
        return str(caller())


def to_json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators)


def refuse(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def environment() -> jinja2.Environment:
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols],
    )
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = NOW.strftime
    return made


def render(source: str, conversation: dict[str, Any], prompt: bool) -> dict[str, Any]:
    messages = [{k: v for k, v in m.items() if v is not None} for m in conversation["messages"]]
    for m in messages:
        if "reasoning_content" in m:
            m["thinking"] = m["reasoning_content"]
    try:
        text = (
            environment()
            .from_string(source)
            .render(
                messages=messages,
                tools=conversation.get("tools"),
                documents=None,
                add_generation_prompt=prompt,
                **TOKENS,
                **({"enable_thinking": False} if prompt else {}),
            )
        )
    except jinja2.exceptions.TemplateError as error:
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"raised": str(error)} if raised else {"fails": type(error).__name__}
    return {"text": text}


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--check", action="store_true")
    cases = [
        {"template": path.name, "conversation": name, "prompt": prompt}
        | render(path.read_bytes().decode(), conversation, prompt)
        for path in sorted(HERE.glob("*.jinja"))
        for name, conversation in CONVERSATIONS.items()
        for prompt in (False, True)
    ]
    made = {"tokens": TOKENS, "conversations": CONVERSATIONS, "cases": cases}
    text = json.dumps(made, ensure_ascii=False, indent=1) + "\n"
    stored = HERE / "cases.json"
    if not arguments.parse_args().check:
        stored.write_text(text)
    elif stored.read_text() != text:
        raise SystemExit(f"{stored} is not what Jinja2 makes")


if __name__ == "__main__":
    main()
