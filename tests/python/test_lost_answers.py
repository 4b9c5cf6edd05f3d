"""Calls on a session whose answers are lost. Each names the session's position, so no call takes effect twice."""

import asyncio
import contextlib
import os
import tempfile
import unittest
import unittest.mock

import support

support.require("grpc", "google.protobuf")

import grpc

from real_server import PATIENCE, ROOT, RUNNEL, passed_on, served
from runnel_client import Client, Retry, aio, errors, messages, serving, wire

BUNDLE = ROOT / "zoo" / "text-endless-small"
SETTLING = (*wire.SETTLING, *[0.1] * 1200)  # long enough for a busy machine to end a cancelled call
UNKNOWN, UNAVAILABLE = grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE


class Proxy(grpc.GenericRpcHandler):
    """Forwards calls to a server. Ends Generate calls after some messages, like a proxy whose server dies."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.status = UNKNOWN  # of a call that it ends
        self.cuts = []  # for each next Generate call, the number of messages before its end
        self.calls, self.positions = [], []  # the methods, and expected_position of Generate calls

    def service(self, details):
        name = details.method.split("/")[-1]
        self.calls.append(name)
        if name == "Generate":
            return grpc.unary_stream_rpc_method_handler(lambda request, context: self.stream(details, request, context))
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: passed_on(self.channel, details.method, request, context)
        )

    def stream(self, details, request, context):
        given = messages.inference().GenerateRequest.FromString(request)
        self.positions.append(given.expected_position if given.HasField("expected_position") else None)
        cut = self.cuts.pop(0) if self.cuts else None
        call = self.channel.unary_stream(details.method)(request, timeout=PATIENCE)
        context.add_callback(call.cancel)
        try:
            if cut is None:
                yield from call
            else:
                yield from list(call)[:cut]  # list() waits until the server has finished the call
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        if cut is not None:
            context.abort(self.status, "Stream removed")


class LostAnswersTest(unittest.TestCase):
    server: str

    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel_client_"))
        flags = ("--threads", "1", "--sessions", "8", "--rewind", "64,16")
        _, cls.server = stack.enter_context(serving.running(RUNNEL, BUNDLE, os.path.join(folder, "log"), flags))

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.proxy = Proxy(self.server)
        self.stack.callback(self.proxy.channel.close)
        self.address = served(self.proxy, self.stack)
        self.client = self.stack.enter_context(Client(self.server, timeout=PATIENCE))
        self.stack.enter_context(unittest.mock.patch.object(wire, "SETTLING", SETTLING))

    def through_proxy(self, attempts=6):
        retry = Retry(attempts=attempts, first_delay=0.01)
        return self.stack.enter_context(Client(self.address, retry=retry, timeout=PATIENCE))

    def test_a_stream_that_a_proxy_resets_continues(self):
        whole = "".join(self.client.generate("The ", max_values=100, seed=1).text())
        for status in (UNKNOWN, UNAVAILABLE):
            self.proxy.status = status
            self.proxy.cuts = [0, 3]
            self.proxy.calls.clear()
            text = "".join(self.through_proxy().generate("The ", max_values=100, seed=1).text())
            self.assertEqual((text, self.proxy.calls), (whole, ["Generate"] * 3))

    def test_asyncio_continues_too(self):
        async def text():
            client = aio.Client(self.address, retry=Retry(first_delay=0.01), timeout=PATIENCE)
            async with client, client.session() as session:
                await session.feed("The ")
                return "".join([text async for text in session.generate(max_values=100, seed=1).text()])

        self.proxy.cuts = [1, 2, 3]
        self.assertEqual(asyncio.run(text()), "".join(self.client.generate("The ", max_values=100, seed=1).text()))
        self.assertEqual(self.proxy.positions, [0, 0, 0, 0, 5])  # feed() four times

    def test_each_call_sends_the_position_where_the_last_one_ended(self):
        with self.through_proxy().session() as session:
            session.feed("abc")
            session.generate(max_values=5).samples()
            session.generate(samples=2, max_values=5).samples()
            session.generate(keep=False, max_values=5).samples()
            session.generate(max_values=1).samples()
            session.rewind(4)
            session.generate(max_values=1).samples()
        self.assertEqual(self.proxy.positions, [0, 4, 9, 9, 9, 4])
        self.assertNotIn("GetSession", self.proxy.calls)

    def test_values_that_a_score_has_fed_are_counted(self):
        with self.client.session() as session:
            session.score("a", keep=True)  # the first value of a new sequence may have no log-probability
            session.generate(max_values=2).samples()
            session.score("bcd", keep=True)
            session.score("x")
            session.generate(max_values=1).samples()
            position = session.info().position
            session.score("y", keep=True)
            session.generate(max_values=1, expected_position=position + 1).samples()

    def test_after_an_abandoned_stream_the_position_is_queried(self):
        with self.through_proxy().session() as session:
            with session.generate("abc", max_values=60_000) as stream:
                next(iter(stream))
            self.assertEqual(len(list(session.generate(max_values=3).values())), 3)
        self.assertIn("GetSession", self.proxy.calls)
        self.assertGreater(self.proxy.positions[1], 3)

    def test_a_call_whose_answer_was_lost_is_not_counted_twice(self):
        session = self.through_proxy(attempts=1).session()
        for status in (UNKNOWN, UNAVAILABLE):
            self.proxy.status = status
            before = session.info().position
            self.proxy.cuts = [0]
            with self.assertRaises(errors.CallError) as lost:
                session.feed("abc")
            self.assertEqual(lost.exception.status, status.name)
            with self.assertRaisesRegex(errors.Aborted, "position"):  # the server has counted it
                session.feed("abc")
            after = session.info().position
            self.assertGreaterEqual(after, before + 3)
            session.feed("def")
            self.assertEqual(session.info().position, after + 3)
        session.delete()

    def test_a_session_moved_by_another_client_is_reported(self):
        with self.client.session("shared") as one, self.client.open_session("shared") as other:
            one.feed("abc")
            with self.assertRaisesRegex(errors.Aborted, "position"):
                other.feed("def")
            with self.assertRaisesRegex(errors.Aborted, "position"):
                other.score("def", keep=True)
            self.assertEqual(len(other.score("d", expected_position=None).log_probs), 1)
            other.feed("def", expected_position=None)
            self.assertEqual(other.info().position, 7)
            self.assertEqual(one.info().position, 7)
            one.generate(max_values=1).samples()

    def test_without_the_check_no_position_is_sent(self):
        with self.through_proxy().session() as session:
            session.generate("abc", max_values=1, expected_position=None).samples()
            session.generate(max_values=1).samples()
        self.assertEqual(self.proxy.positions, [None, 5])


if __name__ == "__main__":
    unittest.main()
