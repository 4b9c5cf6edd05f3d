"""OpenAI's own client against /v1/chat/completions and /v1/responses. All answers are checked strictly.

    RUNNEL=build/release/runnel build/clients/bin/python tests/end_to_end/chat_test.py

Most tests use zoo/text-small with an added template. It was never trained on conversations, so its
answers make no sense. Tests of reasoning and tool calls use a model with a script (scripted.py).
Run by ctest (end_to_end.chat) for `make test-clients`, which installs the clients.
"""

from __future__ import annotations

import functools
import json
import pathlib
import shutil
import sys
import tempfile
import unittest
import urllib.error
import urllib.request
from typing import Any

import jsonschema
import openai
import scripted
from openai_test import ENDLESS, MODEL, PATIENCE, PROMPT, ROOT, Server, run, serving

TEMPLATE = """\
{%- for tool in tools or [] %}{{ 'Tool: ' + tool | tojson + '\\n\\n' }}{% endfor -%}
{%- for m in messages -%}
{{- {'system': 'System', 'user': 'User', 'assistant': 'Assistant', 'tool': 'Result'}[m.role] + ': ' -}}
{{- m.content or '' -}}
{%- for call in m.tool_calls or [] -%}
{{- '<tool_call>' + {'name': call.function.name, 'arguments': call.function.arguments} | tojson + '</tool_call>' -}}
{%- endfor -%}
{{- '\\n\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}
"""
MESSAGES: Any = [{"role": "user", "content": PROMPT}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "depth", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
}


def ask(server: Server, path: str, body: Any = None) -> Any:
    """The answer as JSON, or the events of a stream."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{server.http}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        text = answer.read().decode()
    if text.startswith(("data: ", "event: ")):
        return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
    return json.loads(text)


class Chat(unittest.TestCase):
    server: Server
    client: openai.OpenAI
    chat: Any  # chat.completions.create() with messages

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        bundle = pathlib.Path(folder.name) / MODEL
        shutil.copytree(ROOT / "zoo" / MODEL, bundle)
        (bundle / "chat_template.jinja").write_text(TEMPLATE)
        cls.server = Server("--sessions", "64", "--prefix-cache-bytes", "0", models=(str(bundle),))
        cls.addClassCleanup(cls.server.stop)
        cls.client = cls.server.client(_strict_response_validation=True)
        cls.chat = functools.partial(
            cls.client.chat.completions.create, model=MODEL, messages=MESSAGES, seed=7, max_completion_tokens=40
        )

    def test_an_answer_is_the_completion_of_the_rendering(self) -> None:
        answer = self.chat()
        prompt = f"User: {PROMPT}\n\nAssistant:"
        plain = self.client.completions.create(
            model=MODEL, prompt=list(prompt.encode()), seed=7, max_tokens=40, stop="\n\nUser:"
        )
        self.assertEqual(answer.choices[0].message.content, plain.choices[0].text.lstrip())
        self.assertEqual(answer.choices[0].finish_reason, plain.choices[0].finish_reason)
        self.assertEqual(answer.usage.prompt_tokens, len(prompt))
        self.assertEqual(answer.usage.completion_tokens_details.reasoning_tokens, 0)
        self.assertEqual(answer.usage.prompt_tokens_details.cached_tokens, 0)

    def test_a_stream_is_the_answer(self) -> None:
        options = {"n": 2, "logprobs": True, "top_logprobs": 2}
        whole = self.chat(**options)
        tokens: list[list[Any]] = [[], []]
        texts, reasons, usage = ["", ""], [None, None], None
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}, **options):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                tokens[choice.index] += choice.logprobs.content
                reasons[choice.index] = choice.finish_reason or reasons[choice.index]
        self.assertEqual(texts, [choice.message.content for choice in whole.choices])
        self.assertEqual(tokens, [choice.logprobs.content for choice in whole.choices])
        self.assertEqual(reasons, [choice.finish_reason for choice in whole.choices])
        self.assertEqual(usage, whole.usage)
        self.assertEqual(len(tokens[0]), 40)

    def test_the_streaming_helper_takes_the_stream(self) -> None:
        options: dict[str, Any] = {"seed": 7, "stop": ["t"]}  # the helper raises at finish_reason "length"
        with self.client.chat.completions.stream(model=MODEL, messages=MESSAGES, **options) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        answer = self.chat(**options, max_completion_tokens=openai.NOT_GIVEN)
        self.assertEqual(final.choices[0].message.content, answer.choices[0].message.content)

    def test_conversations_with_tools_are_taken(self) -> None:
        call = {"id": "call_1", "type": "function", "function": {"name": "depth", "arguments": '{"at": "the ford"}'}}
        messages = [
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
            *MESSAGES,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "2 m"},
        ]
        answer = self.chat(messages=messages, tools=[TOOL], tool_choice="auto", parallel_tool_calls=False)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        again = [*messages, answer.choices[0].message, {"role": "user", "content": "And now?"}]
        self.assertEqual(self.chat(messages=again).choices[0].message.role, "assistant")

    def test_refusals_are_the_clients_errors(self) -> None:
        for options, param in (
            ({"messages": []}, "messages"),
            ({"tool_choice": "required", "tools": [TOOL]}, "tool_choice"),
            ({"response_format": {"type": "json_object"}}, "response_format"),
            ({"presence_penalty": 3}, "presence_penalty"),
            ({"extra_body": {"chat_template": "{{ messages }}"}}, "chat_template"),
        ):
            with self.assertRaises(openai.BadRequestError) as bad:
                self.chat(**options)
            self.assertEqual(bad.exception.param, param)
        with self.assertRaises(openai.NotFoundError) as missing:
            self.chat(model="other")
        self.assertEqual(missing.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as long:
            self.chat(messages=[{"role": "user", "content": "x" * 2000}])
        self.assertEqual(long.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.APIStatusError) as large:
            self.chat(messages=[{"role": "user", "content": "x" * (1 << 20)}])
        self.assertEqual(large.exception.status_code, 413)

    def test_a_response_is_the_answer_of_the_chat(self) -> None:
        response = self.client.responses.create(model=MODEL, input=PROMPT, max_output_tokens=40, extra_body={"seed": 7})
        answer = self.chat()
        self.assertEqual(response.output_text, answer.choices[0].message.content)
        self.assertEqual(
            response.status, {"length": "incomplete", "stop": "completed"}[answer.choices[0].finish_reason]
        )
        self.assertEqual(response.usage.input_tokens, answer.usage.prompt_tokens)
        self.assertEqual(response.usage.output_tokens, answer.usage.completion_tokens)

    def test_a_response_streams(self) -> None:
        options: Any = {
            "model": MODEL,
            "input": [{"role": "user", "content": [{"type": "input_text", "text": PROMPT}]}],
            "include": ["message.output_text.logprobs"],
            "top_logprobs": 2,
            "extra_body": {"seed": 7},
        }
        whole = self.client.responses.create(**options, max_output_tokens=40)
        self.assertEqual(len(whole.output[0].content[0].logprobs), 40)
        text, types = "", []
        for event in self.client.responses.create(**options, max_output_tokens=40, stream=True):
            types.append(event.type)
            if event.type == "response.output_text.delta":
                text += event.delta
            self.assertEqual(event.sequence_number, len(types) - 1)
        self.assertEqual(types[:2], ["response.created", "response.in_progress"])
        self.assertEqual(types[-1], f"response.{whole.status}")
        self.assertEqual(text, whole.output_text)

    def test_the_helper_of_responses_takes_the_stream(self) -> None:
        # The answer must be complete, because the helper raises an error if it is cut off.
        with self.client.responses.stream(model=MODEL, input=PROMPT, extra_body={"seed": 7}) as stream:
            kinds = {event.type for event in stream}
            self.assertLessEqual({"response.output_text.delta", "response.output_text.done"}, kinds)
            if "response.completed" in kinds:
                self.assertEqual(stream.get_final_response().status, "completed")

    def test_responses_take_results_of_tools(self) -> None:
        items: Any = [
            {"role": "user", "content": PROMPT},
            {"type": "function_call", "call_id": "call_1", "name": "depth", "arguments": '{"at": "the ford"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "2 m"},
        ]
        tool: Any = {"type": "function", "strict": False, **TOOL["function"]}
        response = self.client.responses.create(
            model=MODEL, input=items, tools=[tool], instructions="Be brief.", max_output_tokens=20, metadata={"a": "b"}
        )
        self.assertEqual(response.tools[0].name, "depth")
        self.assertEqual(response.metadata, {"a": "b"})
        again: Any = [*items, *response.output, {"role": "user", "content": "And now?"}]
        self.assertEqual(self.client.responses.create(model=MODEL, input=again, max_output_tokens=9).object, "response")

    def test_a_response_continues_another(self) -> None:
        first = self.client.responses.create(model=MODEL, input=PROMPT, max_output_tokens=9)
        self.assertEqual(self.client.responses.retrieve(first.id).output_text, first.output_text)
        options: Any = {"model": MODEL, "input": "And now?", "max_output_tokens": 9, "extra_body": {"seed": 7}}
        branches = [self.client.responses.create(previous_response_id=first.id, **options) for _ in range(2)]
        self.assertEqual(branches[0].output_text, branches[1].output_text)
        self.assertGreater(branches[0].usage.input_tokens, first.usage.total_tokens)
        self.client.responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError) as gone:
            self.client.responses.create(previous_response_id=first.id, **options)
        self.assertEqual(gone.exception.code, "previous_response_not_found")

    def test_refused_responses_name_the_parameter(self) -> None:
        for options, param in (
            ({"input": []}, "input"),
            ({"background": True}, "background"),
            ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ):
            with self.assertRaises(openai.BadRequestError) as bad:
                self.client.responses.create(**{"model": MODEL, "input": PROMPT, **options})
            self.assertEqual(bad.exception.param, param)

    def test_answers_are_as_described(self) -> None:
        document = ask(self.server, "/openapi.json")

        def check(schema: str, value: Any) -> None:
            whole = {"$ref": f"#/components/schemas/{schema}", "components": document["components"]}
            jsonschema.Draft202012Validator(whole).validate(value)

        more = {"n": 2, "logprobs": True, "top_logprobs": 1, "return_token_ids": True, "stop": ["."], "tools": [TOOL]}
        for extra in ({}, more, {"keep": True}):
            request = {"model": MODEL, "messages": MESSAGES, "max_tokens": 20, "seed": -7, **extra}
            check("ChatRequest", request)
            check("ChatCompletion", ask(self.server, "/v1/chat/completions", request))
            request |= {"stream": True, "stream_options": {"include_usage": True}}
            check("ChatRequest", request)
            chunks = ask(self.server, "/v1/chat/completions", request)
            self.assertGreaterEqual(len(chunks), 3)
            for chunk in chunks:
                check("ChatChunk", chunk)
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": PROMPT}]}
        tool = {"type": "function", **TOOL["function"]}
        more = {"include": ["message.output_text.logprobs"], "top_logprobs": 1, "tools": [tool], "input": [item]}
        for extra in ({}, more):
            request = {"model": MODEL, "input": PROMPT, "max_output_tokens": 20, "seed": -7, **extra}
            check("ResponseRequest", request)
            check("Response", ask(self.server, "/v1/responses", request))
            check("ResponseRequest", request | {"stream": True})
            for event in ask(self.server, "/v1/responses", request | {"stream": True}):
                check("ResponseEvent", event)


class Scripted(unittest.TestCase):
    """Reasoning and tool calls of a model that follows a script."""

    server: Server
    client: openai.OpenAI
    chat: Any  # chat.completions.create() with messages and the tool

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        bundle = pathlib.Path(folder.name) / "scripted"
        scripted.write_scripted(bundle)
        cls.server = Server(models=(str(bundle),))
        cls.addClassCleanup(cls.server.stop)
        cls.client = cls.server.client(_strict_response_validation=True)
        cls.chat = functools.partial(
            cls.client.chat.completions.create, model="scripted", messages=MESSAGES, tools=[TOOL]
        )

    def check_calls(self, calls: Any) -> None:
        """Checks calls given as (id, name, arguments)."""
        self.assertEqual([(name, json.loads(arguments)) for _, name, arguments in calls], scripted.CALLS)
        self.assertEqual(len({call for call, _, _ in calls}), len(calls))

    def test_an_answer_has_thinking_and_calls(self) -> None:
        [choice] = self.chat().choices
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertEqual(choice.message.reasoning_content, scripted.THINKING)
        self.assertEqual(choice.message.content, scripted.REMARK)
        self.check_calls([(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls])

    def test_a_stream_has_thinking_and_calls_in_parts(self) -> None:
        thinking, content, reasons = "", "", set()
        calls: list[list[str]] = []
        for chunk in self.chat(stream=True):
            [choice] = chunk.choices
            reasons.add(choice.finish_reason)
            thinking += getattr(choice.delta, "reasoning_content", "")
            content += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                if part.id is not None:
                    self.assertEqual((part.index, part.type), (len(calls), "function"))
                    calls.append([part.id, part.function.name, ""])
                calls[part.index][2] += part.function.arguments
        self.assertEqual((thinking, content), (scripted.THINKING, scripted.REMARK))
        self.assertEqual(reasons, {None, "tool_calls"})
        self.check_calls(calls)

    def test_the_streaming_helper_tells_of_calls(self) -> None:
        with self.client.chat.completions.stream(model="scripted", messages=MESSAGES, tools=[TOOL]) as stream:
            events = list(stream)
            [choice] = stream.get_final_completion().choices
        done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
        self.check_calls([(event.index, event.name, event.arguments) for event in done])
        self.assertEqual([event.content for event in events if event.type == "content.done"], [scripted.REMARK])
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.check_calls([(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls])

    def test_an_answer_follows_the_results(self) -> None:
        asked = self.chat().choices[0].message
        results = [{"role": "tool", "tool_call_id": call.id, "content": "2 m"} for call in asked.tool_calls]
        [choice] = self.chat(messages=[*MESSAGES, asked, *results]).choices
        self.assertEqual((choice.message.content, choice.finish_reason), (scripted.ANSWER, "stop"))
        self.assertEqual(choice.message.reasoning_content, scripted.THINKING_AGAIN)

    def test_a_long_conversation_is_taken(self) -> None:
        answer = self.chat(messages=[{"role": "user", "content": "x" * 300_000}])
        self.assertGreater(answer.usage.prompt_tokens, 300_000)
        self.assertEqual(answer.choices[0].finish_reason, "tool_calls")

    def test_without_parallel_calls_an_answer_has_one_call(self) -> None:
        [choice] = self.chat(parallel_tool_calls=False).choices
        self.assertEqual(
            [json.loads(call.function.arguments) for call in choice.message.tool_calls], [{"at": "the ford"}]
        )
        self.assertEqual(choice.finish_reason, "tool_calls")

    def test_a_response_has_items_of_thinking_and_calls(self) -> None:
        tool: Any = {"type": "function", "strict": False, **TOOL["function"]}
        options: Any = {"model": "scripted", "tools": [tool]}
        whole = self.client.responses.create(**options, input=PROMPT)
        thinking, message, *calls = whole.output
        self.assertEqual((thinking.type, thinking.content[0].text), ("reasoning", scripted.THINKING))
        self.assertEqual((message.type, whole.output_text, whole.status), ("message", scripted.REMARK, "completed"))
        self.check_calls([(call.call_id, call.name, call.arguments) for call in calls])
        with self.client.responses.stream(**options, input=PROMPT) as stream:
            events = list(stream)
        self.assertEqual(
            "".join(event.delta for event in events if event.type == "response.reasoning_text.delta"), scripted.THINKING
        )
        done = [event for event in events if event.type == "response.function_call_arguments.done"]
        self.check_calls([(event.item_id, event.name, event.arguments) for event in done])
        results: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "2 m"} for call in calls]
        answer = self.client.responses.create(**options, previous_response_id=whole.id, input=results)
        self.assertEqual([item.type for item in answer.output], ["reasoning", "message"])
        self.assertEqual(answer.output_text, scripted.ANSWER)
        self.assertGreater(answer.usage.input_tokens_details.cached_tokens, 0)

    def test_open_webui_is_answered(self) -> None:
        for case in json.loads(pathlib.Path(__file__).with_name("webui_bodies.json").read_text())["bodies"]:
            with self.subTest(case["name"]):
                if "param" in case:
                    with self.assertRaises(urllib.error.HTTPError) as refused:
                        ask(self.server, "/v1/chat/completions", case["body"])
                    self.assertEqual(refused.exception.code, 400)
                    self.assertEqual(json.load(refused.exception)["error"]["param"], case["param"])
                    continue
                answer = ask(self.server, "/v1/chat/completions", case["body"])
                parts = answer if case["body"]["stream"] else [answer]
                reasons = [choice["finish_reason"] for part in parts for choice in part["choices"]]
                self.assertEqual(reasons[-1], "tool_calls" if case.get("calls") else "stop")
                self.assertEqual("usage" in parts[-1], "stream_options" in case["body"] or not case["body"]["stream"])


class Endless(unittest.TestCase):
    """A model that never ends its answer."""

    TEMPLATE = f"--chat-template={ENDLESS}={ROOT / 'examples/plain_chat.jinja'}"
    LONG: Any = {"model": ENDLESS, "messages": MESSAGES, "max_completion_tokens": 1 << 20, "stream": True}

    def test_a_quota_is_the_clients_error(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/keys.json"
            key = run("key", "new", "alice", "--file", path, "--calls", "1").strip().splitlines()[-1]
            with serving("--keys", path, self.TEMPLATE, models=(ENDLESS,)) as server:
                client = server.client(api_key=key, _strict_response_validation=True)
                with client.chat.completions.create(**self.LONG) as stream:
                    next(iter(stream))
                    with self.assertRaises(openai.RateLimitError) as limited:
                        client.chat.completions.create(**self.LONG)
                    self.assertEqual(limited.exception.code, "quota_calls")

    def test_an_error_in_a_stream_is_the_clients_error(self) -> None:
        with serving("--grace-ms", "0", self.TEMPLATE, models=(ENDLESS,)) as server:
            stream = server.client(_strict_response_validation=True).chat.completions.create(**self.LONG)
            next(iter(stream))
            server.process.terminate()
            with self.assertRaises(openai.APIError) as failed:
                for _ in stream:
                    pass
            self.assertEqual(failed.exception.code, "draining")


if __name__ == "__main__":
    print(f"openai {openai.__version__}", file=sys.stderr)
    unittest.main()
