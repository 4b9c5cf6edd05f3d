"""OpenAI's own client against a server, and every recipe of docs/integrations.md with another port.

    RUNNEL=build/release/runnel build/clients/bin/python tests/end_to_end/openai_test.py

Run by ctest (end_to_end.openai) for `make test-clients`, which installs the clients.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import openai
import PIL.Image
import scripted

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNEL = os.environ.get("RUNNEL") or str(ROOT / "build/release/runnel")
RECIPE = re.compile(r"^<!-- needs: ([^>]*?) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECIPE_ADDRESS = "127.0.0.1:8000"
PATIENCE = 600.0  # seconds until an event counts as one that never comes: the machine may be busy with other things
MODEL = "text-small"
ENDLESS = "text-endless-small"
PICTURES = "mnist-small"
PROMPT = "The river was "


def run(*words: str) -> str:
    return subprocess.run([RUNNEL, *words], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout


def pixels(b64_json: str) -> bytes:
    with PIL.Image.open(io.BytesIO(base64.b64decode(b64_json))) as image:
        assert (image.format, image.mode, image.size) == ("PNG", "L", (28, 28))
        return image.tobytes()


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Server:
    """`runnel serve` with small models, by default only the text model, on both ports."""

    def __init__(self, *flags: str, models: tuple[str, ...] = (MODEL,)) -> None:
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")  # noqa: SIM115 - closed by stop()
        command = [RUNNEL, "serve", *(str(ROOT / "zoo" / model) for model in models)]
        command += ["--address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", *flags]
        self.process = subprocess.Popen(command, stderr=self.log)
        if not eventually(lambda: " ready " in self.text()):
            raise AssertionError(self.text())
        self.http = self.address_of("http")

    def text(self) -> str:
        return pathlib.Path(self.log.name).read_text()

    def address_of(self, port: str) -> str:
        return re.search(rf" {port} address=(\S+)", self.text()).group(1)

    def client(self, **options: Any) -> openai.OpenAI:
        options = {"api_key": "none", "max_retries": 0, "timeout": PATIENCE, **options}
        return openai.OpenAI(base_url=f"http://{self.http}/v1", **options)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.log.close()


@contextlib.contextmanager
def serving(*flags: str, models: tuple[str, ...] = (MODEL,)) -> Iterator[Server]:
    server = Server(*flags, models=models)
    try:
        yield server
    finally:
        server.stop()


class OpenAiClient(unittest.TestCase):
    server: Server
    client: openai.OpenAI
    complete: Any  # completions.create() with a prompt

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server("--sessions", "64")
        cls.addClassCleanup(cls.server.stop)
        cls.client = cls.server.client()
        cls.complete = functools.partial(cls.client.completions.create, model=MODEL, prompt=PROMPT, seed=7)

    def test_models_are_listed(self) -> None:
        self.assertEqual([model.id for model in self.client.models.list()], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)

    def test_a_completion_is_what_the_command_line_generates(self) -> None:
        answer = self.complete(max_tokens=40)
        address = self.server.address_of("ready models=1")
        text = run("generate", "--server", address, "--prompt", PROMPT, "--max-values", "40", "--seed", "7")
        self.assertEqual(answer.choices[0].text, text.removesuffix("\n"))
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 40)

    def test_a_stream_is_the_completion(self) -> None:
        whole = self.complete(max_tokens=40, n=2, logprobs=2)
        texts, usage = ["", ""], None
        for chunk in self.complete(max_tokens=40, n=2, logprobs=2, stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        self.assertEqual(texts, [choice.text for choice in whole.choices])
        self.assertEqual(usage, whole.usage)
        self.assertEqual(len(whole.choices[0].logprobs.tokens), 40)

    def test_closing_a_stream_ends_its_call(self) -> None:
        trace = "0af7651916cd43dd8448eb211c80319c"
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        # Longer than the buffers of a connection.
        long = {"max_tokens": 450, "n": 64, "logprobs": 5, "extra_body": {"ignore_eos": True}}
        stream = self.complete(stream=True, extra_headers=headers, **long)
        next(iter(stream))
        stream.close()
        line = re.compile(rf" call .* code=(\S+) .* trace={trace}")
        self.assertTrue(eventually(lambda: line.search(self.server.text()) is not None))
        self.assertEqual(line.search(self.server.text()).group(1), "CANCELLED")

    def test_refusals_are_the_clients_errors(self) -> None:
        with self.assertRaises(openai.NotFoundError) as missing:
            self.complete(model="other")
        self.assertEqual((missing.exception.code, missing.exception.param), ("model_not_found", "model"))
        with self.assertRaises(openai.BadRequestError) as bad:
            self.complete(presence_penalty=3)
        self.assertEqual(bad.exception.param, "presence_penalty")
        with self.assertRaises(openai.BadRequestError):
            self.complete(prompt="x" * 100000)
        with self.assertRaises(openai.NotFoundError):
            self.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hello"}])

    def test_a_session_continues(self) -> None:
        whole = self.complete(max_tokens=30).choices[0].text
        first = self.complete(max_tokens=10, extra_body={"keep": True}).choices[0]
        session = {"session": first.session, "position": first.position}
        more = self.complete(prompt=None, max_tokens=20, extra_body=session).choices[0]
        self.assertEqual(first.text + more.text, whole)
        with self.assertRaises(openai.ConflictError):
            self.complete(prompt=None, max_tokens=20, extra_body=session)
        run("session", "delete", first.session, "--server", self.server.address_of("ready models=1"))


class Pictures(unittest.TestCase):
    server: Server
    generate: Any  # images.generate()

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server(models=(PICTURES,))
        cls.addClassCleanup(cls.server.stop)
        cls.generate = functools.partial(cls.server.client().images.generate, model=PICTURES, prompt="")

    def test_pictures_are_what_the_command_line_draws(self) -> None:
        answer = self.generate(n=3, extra_body={"seed": 7})
        self.assertEqual((answer.size, answer.output_format), ("28x28", "png"))
        self.assertEqual(answer.usage.output_tokens, 3 * 784)
        pictures = [pixels(image.b64_json) for image in answer.data]
        self.assertEqual(len(set(pictures)), 3)
        with tempfile.TemporaryDirectory() as folder:
            address = self.server.address_of("ready models=1")
            run("generate", "--server", address, "--count", "1", "--seed", "7", "--out", f"{folder}/one.png")
            sheet = PIL.Image.open(f"{folder}/one.png")
            self.assertEqual(sheet.resize((28, 28), PIL.Image.Resampling.NEAREST).tobytes(), pictures[0])

    def test_a_stream_has_rows_parts_and_pictures(self) -> None:
        options = {"seed": 7, "prompt": [0] * 196}  # a quarter, which is the first part
        whole = [pixels(image.b64_json) for image in self.generate(n=2, extra_body=options).data]
        rows, parts, done = [b"", b""], 0, {}
        for event in self.generate(n=2, stream=True, partial_images=3, extra_body={**options, "rows": True}):
            if event.type == "image_generation.row":
                self.assertEqual(event.row, len(rows[event.index]) // 28)
                rows[event.index] += base64.b64decode(event.b64_bytes)
            elif event.type == "image_generation.partial_image":
                given = 28 * (7 * (event.partial_image_index + 1))
                self.assertEqual(pixels(event.b64_json)[:given], whole[event.index][:given])
                parts += 1
            else:
                self.assertEqual(event.type, "image_generation.completed")
                self.assertEqual(event.usage.total_tokens, 784)
                done[event.index] = pixels(event.b64_json)
        self.assertEqual(rows, whole)
        self.assertEqual([done[0], done[1]], whole)
        self.assertIn(parts, range(1, 7))

    def test_a_digit_continues_from_its_upper_half(self) -> None:
        first = pixels(self.generate(extra_body={"seed": 7}).data[0].b64_json)
        again = self.generate(extra_body={"seed": 8, "prompt": list(first[:392])})
        picture = pixels(again.data[0].b64_json)
        self.assertEqual(picture[:392], first[:392])
        self.assertNotEqual(picture, first)
        self.assertEqual((again.usage.input_tokens, again.usage.output_tokens), (392, 392))

    def test_refusals_are_the_clients_errors(self) -> None:
        for options, param in (({"prompt": "a cat"}, "prompt"), ({"size": "1024x1024"}, "size")):
            with self.assertRaises(openai.BadRequestError) as bad:
                self.generate(**options)
            self.assertEqual(bad.exception.param, param)
        with self.assertRaises(openai.BadRequestError) as bad:
            self.server.client().completions.create(model=PICTURES, prompt="a cat")
        self.assertEqual(bad.exception.param, "prompt")


class Description(unittest.TestCase):
    """The server's answers match its own description."""

    server: Server
    document: Any

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.document = cls.ask("/openapi.json")

    @classmethod
    def ask(cls, path: str, body: Any = None, method: str | None = None) -> Any:
        return cls.ask_at(cls.server.http, path, body, method)

    @staticmethod
    def ask_at(address: str, path: str, body: Any = None, method: str | None = None) -> Any:
        headers = {"Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{address}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as refused:
            text = refused.read().decode()
        if text.startswith(("data: ", "event: ")):
            return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        return json.loads(text)

    def check(self, schema: str, value: Any) -> None:
        whole = {"$ref": f"#/components/schemas/{schema}", "components": self.document["components"]}
        jsonschema.Draft202012Validator(whole).validate(value)

    def test_every_schema_is_valid(self) -> None:
        for schema in self.document["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)

    def test_answers_are_as_described(self) -> None:
        self.check("Models", self.ask("/v1/models"))
        self.check("Model", self.ask(f"/v1/models/{MODEL}"))
        self.check("Tokens", self.ask("/tokenize", {"prompt": "a"}))
        self.check("Text", self.ask("/detokenize", {"tokens": [97]}))
        for path, body in (("/v1/models/other", None), ("/nothing", None), ("/v1/completions", {"n": 0})):
            self.check("Error", self.ask(path, body))
        self.check("Error", self.ask("/v1/chat/completions", {}))

    def test_sessions_are_as_described(self) -> None:
        self.check("CreateSessionRequest", {"model": MODEL, "id": "a"})
        self.check("Session", self.ask("/v1/sessions", {"model": MODEL, "id": "a"}))
        self.ask("/v1/completions", {"session": "a", "prompt": PROMPT, "max_tokens": 3})
        self.check("ForkSessionRequest", {"children": ["b"]})
        self.check("Sessions", self.ask("/v1/sessions/a/fork", {"children": ["b"]}))
        listed = self.ask(f"/v1/sessions?model={MODEL}&limit=1")
        self.check("Sessions", listed)
        self.assertTrue(listed["has_more"])
        self.check("Session", self.ask("/v1/sessions/b"))
        for name in ("a", "b"):
            self.check("DeletedSession", self.ask(f"/v1/sessions/{name}", method="DELETE"))
        self.check("Error", self.ask("/v1/sessions/a"))

    def test_completions_are_as_described(self) -> None:
        more = {"logprobs": 2, "return_token_ids": True, "stop": ["."], "top_k": 5}
        for extra in ({}, more, {"keep": True}, {"prompt": [[84], [85, 86]], "n": 2}):
            request = {"model": MODEL, "prompt": PROMPT, "max_tokens": 20, "seed": -7, **extra}
            self.check("CompletionRequest", request)
            self.check("Completion", self.ask("/v1/completions", request))
            request |= {"stream": True, "stream_options": {"include_usage": True}}
            self.check("CompletionRequest", request)
            chunks = self.ask("/v1/completions", request)
            self.assertGreaterEqual(len(chunks), 2)  # the last chunk has the usage
            for chunk in chunks:
                self.check("CompletionChunk", chunk)

    def test_pictures_are_as_described(self) -> None:
        with serving(models=(PICTURES,)) as server:
            ask = functools.partial(self.ask_at, server.http)
            self.check("Models", ask("/v1/models"))
            for extra in ({"prompt": ""}, {"prompt": [0] * 28, "n": 2, "size": "28x28"}):
                request = {"model": PICTURES, "seed": 7, **extra}
                self.check("ImageRequest", request)
                self.check("Images", ask("/v1/images/generations", request))
                request |= {"stream": True, "rows": True, "partial_images": 3}
                self.check("ImageRequest", request)
                events = ask("/v1/images/generations", request)
                self.assertGreaterEqual(len(events), 29)
                for event in events:
                    self.check("ImageEvent", event)


class Keys(unittest.TestCase):
    def test_keys_and_quotas_are_the_clients_errors(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/keys.json"
            key = run("key", "new", "alice", "--file", path, "--calls", "1").strip().splitlines()[-1]
            with serving("--keys", path, models=(ENDLESS,)) as server:
                with self.assertRaises(openai.AuthenticationError):
                    server.client(api_key="wrong").models.list()
                client = server.client(api_key=key)
                complete = functools.partial(client.completions.create, model=ENDLESS)
                self.assertEqual(len(complete(prompt=["a", "b"]).choices), 2)
                with complete(prompt="a", max_tokens=1_000_000, stream=True) as stream:
                    next(iter(stream))
                    with self.assertRaises(openai.RateLimitError) as limited:
                        client.with_options(max_retries=0).completions.create(model=ENDLESS, prompt="a")
                    self.assertEqual(limited.exception.code, "quota_calls")
                patient = client.with_options(max_retries=10)  # the server may still be ending the stream
                self.assertEqual(len(patient.completions.create(model=ENDLESS, prompt="a", max_tokens=3).choices), 1)


class Recipes(unittest.TestCase):
    def test_every_recipe_works(self) -> None:
        recipes = RECIPE.findall((ROOT / "docs/integrations.md").read_text())
        self.assertGreaterEqual(len(recipes), 4)
        runners = {"python": [sys.executable, "-B", "-c"], "sh": ["bash", "-euc"]}
        template = f"--chat-template={MODEL}={ROOT / 'examples/plain_chat.jinja'}"
        path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        working = tempfile.TemporaryDirectory()
        self.addCleanup(working.cleanup)
        tool_model = pathlib.Path(working.name) / "my-model"
        scripted.write_scripted(tool_model)
        with serving(template, models=(MODEL, PICTURES, str(tool_model))) as server:
            for _, language, text in recipes:
                self.assertIn(RECIPE_ADDRESS, text)
                command = [*runners[language], text.replace(RECIPE_ADDRESS, server.http)]
                with self.subTest(text.splitlines()[0]):
                    done = subprocess.run(
                        command,
                        capture_output=True,
                        text=True,
                        check=False,
                        timeout=PATIENCE,
                        cwd=working.name,
                        env=environment,
                    )
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertGreater(len(done.stdout.strip()), 5)


if __name__ == "__main__":
    unittest.main(verbosity=1)
