"""How the Python client turns arguments into requests. Needs no server."""

import asyncio
import contextlib
import functools
import inspect
import math
import pydoc
import re
import sys
import threading
import types
import unittest
import unittest.mock
from typing import Any, cast

import support

support.require("grpc", "google.protobuf")

import numpy as np

from runnel_client import Client, Generation, Session, aio, errors, messages, pictures, results, wire
from runnel_client.conversation import Message, ToolCall
from runnel_client.options import CONVERSATION, Options
from runnel_client.results import SessionInfo

OPTIONS: Options = {
    "model": "m",
    "state": "s",
    "token": b"t",
    "include_state": True,
    "samples": 2,
    "max_values": 0,
    "max_time": 1.5,
    "max_queue_time": 2.5,
    "seed": 2**64 - 1,
    "temperature": 0.5,
    "top_k": 3,
    "top_p": 0.25,
    "min_p": 0.125,
    "greedy": False,
    "repetition_penalty": 1.25,
    "presence_penalty": -0.5,
    "frequency_penalty": 0.5,
    "logit_bias": {3: -100, 5: 1.5},
    "stop": [".", [1, 2]],
    "ignore_eos": True,
    "top_log_probs": 4,
    "keep": False,
    "begin": True,
    "expected_position": 0,
    "request_id": "r",
    "values_per_message": 5,
    "message_delay": 0.02,
    "timeout": 9.0,
    "progress": print,
}


class WireTest(unittest.TestCase):
    def test_every_option_sets_its_field(self):
        self.assertEqual({*OPTIONS, *CONVERSATION}, set(Options.__annotations__))
        options = {name: value for name, value in OPTIONS.items() if name not in ("state", "token")}
        request = wire.generate_request("text", "mine", cast(Options, options))
        expected = messages.inference().GenerateRequest(
            model="m", text="text", samples=2, max_values=0, stop_text=["."], ignore_eos=True, top_log_probs=4,
            keep=False, begin=True, expected_position=0, request_id="r", include_state=True,
        )  # fmt: skip
        expected.origin.session = "mine"
        expected.max_time.FromMilliseconds(1500)
        expected.max_queue_time.FromMilliseconds(2500)
        expected.stop.add().values.extend([1, 2])
        sampling = {"seed": 2**64 - 1, "temperature": 0.5, "top_k": 3, "top_p": 0.25, "min_p": 0.125, "greedy": False}
        sampling |= {"repetition_penalty": 1.25, "presence_penalty": -0.5, "frequency_penalty": 0.5}
        for name, value in sampling.items():
            setattr(expected.sampling, name, value)
        expected.sampling.logit_bias.update({3: -100, 5: 1.5})
        expected.delivery.max_values = 5
        expected.delivery.max_delay.FromMilliseconds(20)
        self.assertEqual(request, expected)

    def test_a_conversation_is_a_prompt(self):
        call: ToolCall = {"id": "1", "type": "function", "function": {"name": "depth", "arguments": {"of": "Rhine"}}}
        talk: list[Message] = [
            {"role": "user", "content": "How deep?"},
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
            {"role": "tool", "content": "6 m", "tool_call_id": "1", "name": "depth"},
        ]
        tool = {"type": "function", "function": {"name": "depth"}}
        variables: dict[str, Any] = {"a": True, "b": 2, "c": 0.5, "d": "x", "e": None}
        options: Options = {"messages": talk, "tools": [tool], "variables": variables, "continues": True}
        request = wire.generate_request(None, "mine", options)
        self.assertEqual(request.WhichOneof("prompt"), "conversation")
        found = request.conversation
        self.assertEqual([message.HasField("content") for message in found.messages], [True, False, True])
        question, answer, result = found.messages
        self.assertEqual((question.role, question.content), ("user", "How deep?"))
        self.assertEqual((answer.reasoning, answer.tool_calls[0].name), ("Hm.", "depth"))
        self.assertEqual(answer.tool_calls[0].arguments, '{"of": "Rhine"}')
        self.assertEqual((result.content, result.tool_call_id, result.name), ("6 m", "1", "depth"))
        self.assertEqual(list(found.tools), ['{"type": "function", "function": {"name": "depth"}}'])
        kinds = {one.name: one.WhichOneof("value") for one in found.variables}
        self.assertEqual(kinds, {"a": "flag", "b": "integer", "c": "number", "d": "text", "e": None})
        self.assertTrue(found.continues)

    def test_a_call_has_one_prompt(self):
        wrongs: list[tuple[str | None, Any, str]] = [
            ("x", {"messages": []}, "takes a prompt, or messages"),
            (None, {"tools": []}, "takes a prompt, or messages"),
            (None, {"messages": [{"role": "user", "contents": "x"}]}, "Message has no member 'contents'"),
            (None, {"messages": [{"tool_calls": [{"name": "x"}]}]}, "ToolCall has no member 'name'"),
        ]
        for prompt, options, expected in wrongs:
            with self.assertRaisesRegex(TypeError, expected):
                wire.generate_request(prompt, "", options)

    def test_without_options_only_the_request_id_is_set(self):
        first, second = (wire.generate_request([1, 2], "", {}) for _ in range(2))
        self.assertEqual([field.name for field, _ in first.ListFields()], ["values", "request_id"])
        self.assertNotEqual(first.request_id, second.request_id)

    def test_an_option_that_is_none_is_left_out(self):
        options = cast(Options, {**dict.fromkeys(Options.__annotations__), "request_id": "r"})
        for prompt in ("a", None):
            self.assertEqual(
                wire.generate_request(prompt, "", options), wire.generate_request(prompt, "", {"request_id": "r"})
            )
        request = wire.generate_request("a", "mine", options)
        self.assertFalse(wire.lacks_position(request, options))
        self.assertTrue(wire.lacks_position(request, {}))

    def test_only_a_given_time_to_wait_replaces_the_servers_own(self):
        for request in wire.generate_request("a", "", {}), wire.score_requests(["a"], "m")[0]:
            self.assertFalse(request.HasField("max_queue_time"))
        self.assertTrue(wire.generate_request("a", "", {"max_queue_time": 0}).HasField("max_queue_time"))
        self.assertTrue(wire.score_requests(["a"], "m", max_queue_time=0)[0].HasField("max_queue_time"))

    def test_a_time_that_no_message_can_have_is_named(self):
        for seconds in (math.inf, -math.inf, math.nan, 1e300):
            for name, call in (
                ("max_time", lambda seconds: wire.generate_request("a", "", {"max_time": seconds})),
                ("max_queue_time", lambda seconds: wire.score_requests(["a"], "m", max_queue_time=seconds)),
                ("message_delay", lambda seconds: wire.generate_request("a", "", {"message_delay": seconds})),
                ("expires_in", lambda seconds: wire.export_request("a", "m", False, seconds)),
            ):
                with self.assertRaisesRegex(
                    ValueError, f"^{name} is {re.escape(str(seconds))}; expected at most 315,576,000,000 seconds"
                ):
                    call(seconds)

    def test_a_stored_state_starts_a_sequence_without_a_session(self):
        self.assertEqual(wire.generate_request("a", "", {"state": "s"}).origin.state, "s")
        self.assertEqual(wire.score_requests(["a"], "m", state="s")[0].origin.state, "s")
        self.assertEqual(wire.generate_request("a", "", {"token": b"t"}).origin.token, b"t")

    def test_a_call_has_one_beginning(self):
        both: list[tuple[str, Options, str]] = [
            ("mine", {"state": "s"}, "session and state"),
            ("mine", {"token": b"t"}, "session and token"),
            ("", {"state": "s", "token": b"t"}, "state and token"),
        ]
        for session, options, found in both:
            with self.assertRaisesRegex(TypeError, f"one of session, state and token, found {found}"):
                wire.generate_request("a", session, options)

    def test_an_option_that_a_function_sets_itself_is_refused(self):
        async def ask():
            client = aio.Client()
            session = aio.Session(client, SessionInfo("mine", "m", 0, "IDLE", 0, 0.0), keep=True)
            for refused, call in calls(client, session):
                with self.assertRaisesRegex(TypeError, refused):
                    await call()

        def calls(client, session):
            yield r"image\(\) has no option 'samples'", lambda: client.image(samples=2)
            yield r"images\(\) has no option 'messages'", lambda: client.images(2, messages=[])
            yield r"feed\(\) has no option 'max_values'", lambda: session.feed("a", max_values=1)
            yield r"generate\(\) has no option 'model'", lambda: session.generate("a", model="n").samples()
            yield r"generate\(\) has no option 'state'", lambda: session.generate("a", state="s").samples()

        with Client() as client:
            session = Session(client, SessionInfo("mine", "m", 0, "IDLE", 0, 0.0), keep=True)
            for refused, call in calls(client, session):
                with self.assertRaisesRegex(TypeError, refused):
                    call()
        asyncio.run(ask())

    def test_a_single_string_is_one_stop_text(self):
        stops: list[tuple[Any, list[str], list[list[int]]]] = [
            ("abc", ["abc"], []),
            (["abc", "d"], ["abc", "d"], []),
            ([[1, 2], "a"], ["a"], [[1, 2]]),
            ([], [], []),
        ]
        for given, texts, values in stops:
            request = wire.generate_request("x", "", {"stop": given})
            self.assertEqual((list(request.stop_text), [list(one.values) for one in request.stop]), (texts, values))

    def test_help_shows_every_option_and_what_it_means(self):
        for module in (Client, aio.Client):
            shown = pydoc.plain(pydoc.render_doc(module.generate))
            for name in Options.__annotations__:
                self.assertRegex(shown, rf"\b{name}: [^=]+ = \.\.\.")
                self.assertRegex(shown, rf"\n +{name}: [a-z]")
        self.assertNotIn("samples", inspect.signature(Client.image).parameters)
        self.assertNotIn("messages", inspect.signature(Client.image).parameters)
        self.assertIn("seed", inspect.signature(Client.image).parameters)
        self.assertIn("prompt", inspect.signature(Session.generate).parameters)
        self.assertNotIn("model", inspect.signature(Session.generate).parameters)

    def test_asyncio_has_the_same_calls_with_the_same_arguments(self):
        pairs: list[tuple[type, type]] = [(Client, aio.Client), (Session, aio.Session), (Generation, aio.Generation)]
        for one, other in pairs:
            names, others = ({name for name in vars(kind) if not name.startswith("_")} for kind in (one, other))
            self.assertEqual(names, others)
            for name in ("__init__", *names):
                given, awaited = (inspect.signature(getattr(kind, name)).parameters for kind in (one, other))
                self.assertEqual(list(given), list(awaited), name)
                self.assertEqual([str(each) for each in given.values()], [str(each) for each in awaited.values()], name)

    def test_values_are_read_in_order_whatever_their_form(self):
        for given in ([1, 2, 3, 4], (1, 2, 3, 4), np.array([[1, 2], [3, 4]], np.uint8), [[1, 2], [3, 4]]):
            self.assertEqual(wire.values_of(given), [1, 2, 3, 4])
        self.assertEqual(wire.values_of([]), [])
        wrongs: list[Any] = [[1.5], [True], ["a"], [None]]
        for wrong in wrongs:
            with self.assertRaisesRegex(TypeError, "expected text or integers"):
                wire.values_of(wrong)

    def test_an_image_of_another_mode_is_refused(self):
        for mode, channels, wanted in (("P", 1, "L"), ("1", 1, "L"), ("RGBA", 3, "RGB")):
            image = cast(Any, types.SimpleNamespace(mode=mode))  # as of Pillow
            with self.assertRaisesRegex(ValueError, f'mode {wanted}, found {mode}: use image.convert\\("{wanted}"\\)'):
                pictures.first_rows(image, (2, 2, channels))
        self.assertEqual(pictures.first_rows(np.array([[1, 2]], np.uint8), (2, 2, 1)), [1, 2])

    def test_a_score_names_model_and_session_once_and_cuts_values(self):
        requests = wire.score_requests(["ab", range(wire.CHUNK + 1)], "m", "mine", begin=False)
        self.assertEqual([(one.model, one.origin.session) for one in requests], [("m", "mine"), ("", ""), ("", "")])
        self.assertEqual([one.WhichOneof("chunk") for one in requests], ["text", "values", "values"])
        self.assertEqual([len(one.values.values) for one in requests], [0, wire.CHUNK, 1])
        self.assertEqual([one.HasField("begin") for one in requests], [True, False, False])

    def test_an_export_sets_its_owner_and_its_expiry(self):
        plain, bound = (wire.export_request("a", "m", *terms) for terms in ((False, None), (True, 1.5)))
        self.assertEqual([field.name for field, _ in plain.ListFields()], ["model", "id"])
        self.assertEqual((bound.any_owner, bound.expires_in.ToMilliseconds()), (True, 1500))

    def test_an_import_is_cut_into_pieces(self):
        first, *pieces = wire.import_requests(bytes(wire.FILE_PIECE + 1), "m", "mine", True)
        self.assertEqual((first.target.model, first.target.id, first.target.allow_inexact), ("m", "mine", True))
        self.assertEqual([len(piece.data) for piece in pieces], [wire.FILE_PIECE, 1])
        with self.assertRaises(TypeError):
            wire.import_requests(b"", cast(Any, 5), "mine", True)

    def test_a_score_without_a_total_is_an_error_of_the_call(self):
        with self.assertRaisesRegex(errors.CallError, "^INTERNAL: the server ended the call without a result"):
            results.score_of([])

    def test_unknown_states_and_reasons_of_a_newer_server_are_accepted(self):
        session = messages.load("sessions").Session(id="a", state=99)
        self.assertEqual(results.session_of(session).state, "99")
        finished = messages.inference().Finished(reason=99)
        self.assertEqual(results.finished_of(finished).reason, "99")

    def test_a_checkout_that_cannot_be_written_is_reported(self):
        nowhere = messages.PACKAGE / "py.typed" / "_proto" / "runnel.binpb"
        expected = self.assertRaisesRegex(errors.BundleError, "py.typed/_proto: .*; the description .* is missing")
        with unittest.mock.patch.object(messages, "DESCRIPTION", nowhere), expected:
            messages.generate()

    def test_threads_get_the_same_classes(self):
        begin, found = threading.Barrier(4), set()

        def load():
            begin.wait()
            found.add(messages.load("inference").GenerateRequest)

        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(1e-6)
        for _ in range(5):
            found.clear()
            with contextlib.ExitStack() as stack:
                for name in ("_load", "_pool", "_factory"):  # as in a new process
                    again = functools.cache(getattr(messages, name).__wrapped__)
                    stack.enter_context(unittest.mock.patch.object(messages, name, again))
                threads = [threading.Thread(target=load) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            self.assertEqual(len(found), 1)


if __name__ == "__main__":
    unittest.main()
