"""Requests made from /openapi.json are accepted, and answers match its description.

    RUNNEL=build/release/runnel build/clients/bin/python tests/end_to_end/schema_test.py

schemathesis makes the requests, and makes the same ones in each run. Run by ctest (end_to_end.schema) for
`make test-clients`, which installs the clients.
"""

from __future__ import annotations

import functools
import http.client
import json
import pathlib
import shutil
import tempfile
import unittest
from collections.abc import Callable
from typing import Any

import hypothesis
import jsonschema
import schemathesis
from chat_test import TEMPLATE
from openai_test import ENDLESS, MODEL, PATIENCE, PICTURES, ROOT, Server, serving
from schemathesis.generation import GenerationMode

EXAMPLES = 40  # requests for each operation
SESSION = "s"  # exists when a path names a session
TOKENS = 256  # each model has at least this many
TEXT = "application/json"
EVENTS = "text/event-stream"
BINARY = "application/octet-stream"
# Fields that name something that does not exist: another model, a session, a stored state, an earlier answer.
NAMES = ("model", "session", "state", "state_token", "previous_response_id")
# Fields with conditions that no schema can state: equal to another field, about the last message, or for one choice.
CONDITIONAL = (
    "best_of",
    "max_completion_tokens",
    "add_generation_prompt",
    "continue_final_message",
    "keep",
    "include_state",
)
FILTERS = ("top_k", "top_p", "min_p")  # image models take these only at temperature 0

Schema = dict[str, Any]


def with_template(folder: str, name: str) -> str:
    """A copy of the text model that answers conversations."""
    bundle = pathlib.Path(folder) / name
    shutil.copytree(ROOT / "zoo" / name, bundle)
    (bundle / "chat_template.jinja").write_text(TEMPLATE)
    return str(bundle)


def is_object(text: Any) -> bool:
    try:
        return not isinstance(text, str) or isinstance(json.loads(text), dict)
    except ValueError:
        return False


def with_arguments(value: Any) -> Any:
    """`value` with a JSON object as each text of a call's arguments."""
    if isinstance(value, list):
        return [with_arguments(one) for one in value]
    if isinstance(value, dict):
        return {
            key: "{}" if key == "arguments" and not is_object(one) else with_arguments(one)
            for key, one in value.items()
        }
    return value


def with_tokens(value: Any) -> Any:
    """A prompt with the tokens of the model."""
    if isinstance(value, list):
        return [with_tokens(one) for one in value]
    return value % TOKENS if isinstance(value, (int, float)) else value


def fitted(body: Any, path: str) -> Any:
    """A request from the schema. Values that a schema cannot check are replaced with valid ones."""
    if not isinstance(body, dict):
        return body
    draws = path == "/v1/images/generations"
    dropped = {*NAMES, *CONDITIONAL, "position"} - ({"position"} if path.endswith("/rewind") else set())
    made = {key: with_arguments(value) for key, value in body.items() if key not in dropped}
    for key in {"prompt", "tokens"} & made.keys():
        made[key] = with_tokens(made[key])
    if made.get("logit_bias"):
        made["logit_bias"] = {str(int(token) % TOKENS): bias for token, bias in made["logit_bias"].items()}
    if draws and made.get("temperature") != 0:
        made = {key: value for key, value in made.items() if key not in FILTERS}
    if draws and made.get("size") not in (None, "auto"):
        made["size"] = "28x28"
    if path.endswith("/rewind"):
        made["position"] = 0
    return made


class Served:
    """A server with its own description."""

    def __init__(self, *flags: str, model: str) -> None:
        self.server = Server(*flags, models=(model,))
        self.document: Schema = json.loads(self.ask("GET", "/openapi.json")[2])

    def ask(self, method: str, path: str, body: Any = None, kind: str = TEXT) -> tuple[int, str, bytes]:
        """Status, media type and body of an answer."""
        connection = http.client.HTTPConnection(self.server.http, timeout=PATIENCE)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, {} if data is None else {"Content-Type": kind})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, answer.headers.get_content_type(), text

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        status, _, text = self.ask("POST", path, body)
        return status, json.loads(text)

    @functools.cache  # noqa: B019 - it lives as long as the test
    def validator(self, schema: str) -> Any:
        whole = {**json.loads(schema), "components": self.document["components"]}
        return jsonschema.Draft202012Validator(whole)

    def check(self, schema: Schema, value: Any) -> None:
        self.validator(json.dumps(schema)).validate(value)

    def check_answer(self, operation: Schema, status: int, kind: str, text: bytes) -> None:
        """Asserts that the operation describes this answer."""
        responses = operation["responses"]
        assert str(status) in responses, f"{status} is not described: {text!r}"
        response = responses[str(status)]
        if "$ref" in response:
            response = self.document["components"]["responses"][response["$ref"].rpartition("/")[2]]
        schema = response["content"][kind]["schema"]
        if kind == TEXT:
            self.check(schema, json.loads(text))
        if kind == EVENTS:
            for line in text.decode().splitlines():  # also splits at U+0085 and others, which are escaped
                if line.startswith("data: ") and line != "data: [DONE]":
                    self.check(schema, json.loads(line[6:]))


class TwoServers(unittest.TestCase):
    """Tests with a text model and an image model."""

    text: Served
    pictures: Served

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        key = pathlib.Path(folder.name) / "seal.key"
        key.touch(0o600)
        key.write_bytes(bytes(range(32)))
        few = ("--samples", "4", "--sessions", "64", "--backend", "cpu")
        states = ("--rewind", "64,4", "--seal-keys", str(key))
        cls.text = Served(*few, "--max-values", "16", *states, model=with_template(folder.name, MODEL))
        cls.addClassCleanup(cls.text.server.stop)
        cls.pictures = Served(*few, model=PICTURES)
        cls.addClassCleanup(cls.pictures.server.stop)

    def served_at(self, path: str) -> Served:
        return self.pictures if path == "/v1/images/generations" else self.text


class Generated(TwoServers):
    """The server refuses no request that the schema allows, and its description covers every answer."""

    def is_refused(self, path: str, status: int, text: bytes) -> bool:
        """Whether an answer is a refusal for a reason that the schema excludes."""
        if status == 200 or (status == 409 and path == "/v1/sessions"):
            return False
        if status == 404 and path in ("/v1/models/{model}", "/v1/responses/{response}"):
            return False  # names something else
        if status == 400 and path.endswith("/state"):
            return b"the state file " not in text  # only a server can make a valid one
        return json.loads(text)["error"]["code"] != "context_length_exceeded"

    def run_operation(self, served: Served, path: str, method: str) -> None:
        operation = served.document["paths"][path][method]
        made = schemathesis.openapi.from_dict(served.document)[path][method]

        @hypothesis.settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(case=made.as_strategy(generation_mode=GenerationMode.POSITIVE))
        def ask(case: Any) -> None:
            case.body = fitted(case.body, path)
            case.query = {key: value for key, value in (case.query or {}).items() if key != "model"}
            if "{session}" in path and method != "put":
                served.post("/v1/sessions", {"id": SESSION})
                case.path_parameters = {"session": SESSION}
            answer = case.call(base_url=f"http://{served.server.http}", timeout=PATIENCE)
            kind = answer.headers["content-type"][0].partition(";")[0]
            served.check_answer(operation, answer.status_code, kind, answer.content)
            refused = self.is_refused(path, answer.status_code, answer.content)
            self.assertFalse(refused, f"{answer.content!r} to {case.query} {case.body}"[:2000])
            self.end_sessions(served, path)

        ask()

    def end_sessions(self, served: Served, path: str) -> None:
        if not path.startswith("/v1/sessions"):
            return
        for session in json.loads(served.ask("GET", "/v1/sessions")[2])["data"]:
            served.ask("DELETE", f"/v1/sessions/{session['id']}")

    def test_every_operation(self) -> None:
        for path, operations in self.text.document["paths"].items():
            for method in operations.keys() - {"parameters"}:
                with self.subTest(f"{method} {path}"):
                    self.run_operation(self.served_at(path), path, method)

    def test_a_state_is_saved_and_loaded(self) -> None:
        operations = self.text.document["paths"]["/v1/sessions/{session}/state"]
        self.text.post("/v1/sessions", {"id": SESSION})
        saved = self.text.ask("GET", f"/v1/sessions/{SESSION}/state?any_owner=true&expires_in=60.0")
        self.text.check_answer(operations["get"], *saved)
        loaded = self.text.ask("PUT", "/v1/sessions/again/state", saved[2], BINARY)
        self.assertEqual(loaded[0], 200, loaded)
        self.text.check_answer(operations["put"], *loaded)
        self.end_sessions(self.text, "/v1/sessions")

    def test_a_returned_state_token_is_accepted(self) -> None:
        for path, body in (
            ("/v1/completions", {"prompt": "a", "max_tokens": 2}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}),
            ("/v1/responses", {"input": "a", "max_output_tokens": 2}),
        ):
            token = None
            for _ in range(2):
                tokens = {"include_state": True, "state_token": token}
                answer = self.text.ask("POST", path, {**body, **tokens})
                self.assertEqual(answer[0], 200, answer)
                self.text.check_answer(self.text.document["paths"][path]["post"], *answer)
                told = json.loads(answer[2])
                token = told["choices"][0]["state_token"] if "choices" in told else told["state_token"]


class Bounds(TwoServers):
    """The server takes a number up to the bounds of the schema, and refuses it beyond them."""

    BODIES: dict[str, tuple[str, Schema]] = {
        "CompletionRequest": ("/v1/completions", {"prompt": "a", "max_tokens": 1}),
        "ChatRequest": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
        "ResponseRequest": ("/v1/responses", {"input": "a", "max_output_tokens": 1}),
        "ImageRequest": ("/v1/images/generations", {"temperature": 0}),
    }

    def with_companions(self, schema: str, key: str, body: Schema, value: Any) -> Schema:
        """The request with a field, and with the other fields that it needs."""
        made = {**body, key: value}
        if key == "max_completion_tokens":
            made.pop("max_tokens")
        if key == "best_of" and isinstance(value, (int, float)):
            made["n"] = value
        if key == "top_logprobs":
            made["logprobs" if schema == "ChatRequest" else "include"] = (
                True if schema == "ChatRequest" else ["message.output_text.logprobs"]
            )
        if key == "partial_images":
            made["stream"] = True
        return made

    def ask(self, schema: str, key: str, value: Any) -> tuple[int, Any]:
        path, body = self.BODIES[schema]
        made = self.with_companions(schema, key, body, value)
        status, kind, text = self.served_at(path).ask("POST", path, made)
        return status, json.loads(text)["error"] if status != 200 and kind == TEXT else None

    def numbers(self) -> list[tuple[str, str, Schema]]:
        schemas = self.text.document["components"]["schemas"]
        found = []
        for name in self.BODIES:
            for key, schema in schemas[name]["properties"].items():
                if {"integer", "number"} & set(schema.get("type", ())):
                    found.append((name, key, schema))
        return found

    def each(self, check: Callable[[str, str, Schema], None]) -> None:
        self.assertGreater(len(self.numbers()), 40)
        for name, key, schema in self.numbers():
            with self.subTest(f"{name} {key}"):
                check(name, key, schema)

    def test_numbers_at_their_bounds_are_taken(self) -> None:
        def check(name: str, key: str, schema: Schema) -> None:
            least = schema.get("minimum", 5e-324)  # without a minimum, numbers above 0 are allowed
            for value in (least, schema["maximum"], None):
                status, error = self.ask(name, key, value)
                self.assertIn(status, (409,) if key == "position" and value else (200,), (value, error))

        self.each(check)

    def test_numbers_beyond_their_bounds_are_refused(self) -> None:
        def beyond(bound: float, side: int, schema: Schema) -> float:
            if "integer" in schema["type"]:
                return bound + side * (1 if abs(bound) < 2**53 else 2**12)
            return bound + side * max(abs(bound) / 1000, 1e-8)

        def check(name: str, key: str, schema: Schema) -> None:
            least = beyond(schema["minimum"], -1, schema) if "minimum" in schema else 0
            values = [least, beyond(schema["maximum"], 1, schema), 1e300, "1", True]
            if (name, key) == ("ImageRequest", "top_p"):
                values.remove(0)  # valid at temperature 0
            for value in values:
                status, error = self.ask(name, key, value)
                self.assertEqual(status, 400, (value, error))
                self.assertIn(error["param"], (key, "n"), value)
                if type(value) is int and abs(value) < 2**53:
                    self.assertIn(f" is {value};", error["message"])

        self.each(check)

    def test_whole_numbers_may_be_written_with_a_fraction_of_zeros(self) -> None:
        def check(name: str, key: str, schema: Schema) -> None:
            if "integer" not in schema["type"]:
                return
            value = max(schema["minimum"], 1)
            status, error = self.ask(name, key, float(value))
            self.assertIn(status, (409,) if key == "position" else (200,), error)
            status, error = self.ask(name, key, value + 0.5)
            self.assertEqual(status, 400, error)
            self.assertIn(f"{error['param']} is {value + 0.5}; it must be a whole number", error["message"])

        self.each(check)


class Failures(unittest.TestCase):
    """The events of a failed stream match the description, and the last event has the reason."""

    def events_until_stopped(self, model: str, path: str, body: Schema) -> tuple[list[Any], Schema, Served]:
        """The events of a stream whose server is stopped."""
        served = Served("--grace-ms", "0", model=model)
        try:
            connection = http.client.HTTPConnection(served.server.http, timeout=PATIENCE)
            data = json.dumps({**body, "stream": True})
            connection.request("POST", path, data, {"Content-Type": TEXT})
            answer = connection.getresponse()
            lines = [answer.readline()]
            served.server.process.terminate()
            lines += answer.read().splitlines()
            connection.close()
        finally:
            served.server.stop()
        schema = served.document["paths"][path]["post"]["responses"]["200"]["content"][EVENTS]["schema"]
        events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
        return events, schema, served

    def test_an_error_is_the_last_event(self) -> None:
        long = {"max_tokens": 1 << 20, "ignore_eos": True}
        with tempfile.TemporaryDirectory() as folder:
            talker = with_template(folder, ENDLESS)
            for model, path, body in (
                (ENDLESS, "/v1/completions", {"prompt": "a", **long}),
                (talker, "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], **long}),
                ("cifar10-small", "/v1/images/generations", {"n": 64, "rows": True}),
            ):
                with self.subTest(path):
                    events, schema, served = self.events_until_stopped(model, path, body)
                    for event in events:
                        served.check(schema, event)
                    self.assertEqual(events[-1]["error"]["type"], "server_error")
                    self.assertEqual(events[-1]["error"]["code"], "draining")

    def test_a_response_says_that_it_failed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            body = {"input": "a", "max_output_tokens": 1 << 20, "ignore_eos": True}
            events, schema, served = self.events_until_stopped(with_template(folder, ENDLESS), "/v1/responses", body)
            for event in events:
                served.check(schema, event)
            self.assertEqual(events[-1]["type"], "response.failed")
            self.assertEqual(events[-1]["response"]["error"]["code"], "server_error")


class Limits(unittest.TestCase):
    def test_bounds_follow_the_flags_of_the_server(self) -> None:
        with serving("--samples", "3", "--max-values", "7") as server:
            connection = http.client.HTTPConnection(server.http, timeout=PATIENCE)
            connection.request("GET", "/openapi.json")
            fields = json.load(connection.getresponse())["components"]["schemas"]["CompletionRequest"]["properties"]
            connection.close()
        self.assertEqual((fields["n"]["maximum"], fields["max_tokens"]["maximum"]), (3, 7))


if __name__ == "__main__":
    unittest.main(verbosity=1)
