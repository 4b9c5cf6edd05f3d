"""A client's server dies. The call continues with the same values on another server with the same store."""

import contextlib
import pathlib
import tempfile
import unittest
from concurrent import futures

import support

support.require("grpc", "google.protobuf")

import grpc
import numpy as np

from real_server import PATIENCE, ROOT, RUNNEL, eventually, passed_on, served
from runnel_client import Client, Retry, serving
from runnel_client.known import BUSY

BUNDLE = ROOT / "zoo" / "text-endless-small"
LONG = 10_000  # values of a call that still runs when its first values arrive
VALUES = 1500  # values of a call whose answer the store keeps
CHUNK = [value % 256 for value in range(100_000)]


class Losing(grpc.GenericRpcHandler):
    """Lets one server make the first call, but loses its answer. Forwards later calls to another server."""

    def __init__(self, first, second):
        self.channels = [grpc.insecure_channel(first), grpc.insecure_channel(second)]

    def service(self, details):
        def answer(request, context):
            response = passed_on(self.channels[0], details.method, request, context)
            if len(self.channels) > 1:
                self.channels.pop(0).close()
                context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
            return response

        return grpc.unary_unary_rpc_method_handler(answer)


class Cutting(grpc.GenericRpcHandler):
    """Forwards calls to one server until it has cut a Generate call, and later calls to another server."""

    def __init__(self, first, second, lose):
        """`lose` ends a call on the first server. It returns the messages that the client gets."""
        self.channels = [grpc.insecure_channel(first), grpc.insecure_channel(second)]
        self.lose = lose
        self.cuts = False  # whether to cut the next Generate call
        self.generated = 0  # the number of Generate calls

    def service(self, details):
        if details.method.endswith("/Generate"):
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: self.stream(details.method, request, context)
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: passed_on(self.channels[0], details.method, request, context)
        )

    def stream(self, method, request, context):
        self.generated += 1
        call = self.channels[0].unary_stream(method)(request, timeout=PATIENCE)
        context.add_callback(call.cancel)
        if self.cuts:
            self.cuts = False
            yield from self.lose(call)
            self.channels.pop(0).close()
            context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        try:
            yield from call
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())


class ReplicasTest(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel_client_")))
        self.process, self.first = self.serve("first")
        _, self.second = self.serve("second")
        self.other = self.client(self.second)

    def serve(self, name):
        flags = ("--threads", "1", "--sessions", "8", "--storage", f"dir:{self.folder / 'store'}")
        return self.stack.enter_context(serving.running(RUNNEL, BUNDLE, self.folder / name, flags))

    def client(self, address):
        return self.stack.enter_context(Client(address, retry=Retry(first_delay=0.01), timeout=PATIENCE))

    def client_of_both(self):
        """Connects to the second server after the first is gone."""
        return self.client(f"ipv4:{self.first},{self.second}")

    def test_a_stream_continues_on_another_server(self):
        whole = self.other.session("whole")
        whole.feed("The river was ")
        session = self.client_of_both().session("cut")
        session.feed("The river was ")
        with session.generate(max_values=LONG, seed=1) as stream:
            runs = [next(iter(stream))]
            self.process.kill()
            runs += stream
        expected = whole.generate(max_values=LONG, seed=1).samples()[0]
        self.assertEqual([value for run in runs for value in run.values], expected.values)
        self.assertEqual(
            session.generate(" and ", max_values=20, seed=2).samples()[0].text,
            whole.generate(" and ", max_values=20, seed=2).samples()[0].text,
        )

    def test_a_score_that_the_session_keeps_continues(self):
        expected = self.other.session("whole").score(CHUNK, keep=True)
        session = self.client_of_both().session("cut")
        with futures.ThreadPoolExecutor(1) as pool:
            score = pool.submit(session.score, CHUNK, keep=True)
            seen = self.other.open_session("cut")
            begun = eventually(lambda: score.done() or seen.info().state in BUSY)
            self.assertTrue(begun, "the call has not begun")
            self.process.kill()
            np.testing.assert_array_equal(score.result(PATIENCE).log_probs, expected.log_probs)
        self.assertEqual(session.info().position, len(CHUNK))

    def check_cut_call(self, first, lose, name="cut"):
        """`lose` ends a call on the first server. Its client gets the whole call from the second server."""
        handler = Cutting(first, self.second, lose)
        for channel in handler.channels:
            self.stack.callback(channel.close)
        session = self.client(served(handler, self.stack)).session(name)
        whole = self.other.session(f"{name}-whole")
        for one in (session, whole):
            one.feed("The river was ")
        handler.cuts, handler.generated = True, 0
        stream = session.generate(max_values=VALUES, seed=1, top_log_probs=2)
        runs = list(stream)
        self.assertEqual(handler.generated, 2)
        expected = whole.generate(max_values=VALUES, seed=1, top_log_probs=2)
        sample = expected.samples()[0]
        self.assertEqual([value for run in runs for value in run.values], sample.values)
        self.assertEqual([log_prob for run in runs for log_prob in run.log_probs], sample.log_probs)
        self.assertEqual("".join(run.text for run in runs), sample.text)
        places = [place for run in runs for place in range(run.position, run.position + len(run.values))]
        self.assertEqual(places, list(range(places[0], places[0] + VALUES)))
        self.assertEqual(stream.finished[0].reason, expected.finished[0].reason)
        self.assertEqual(stream.finished[0].position, expected.finished[0].position)
        # The next call names the session's position itself.
        self.assertEqual(
            session.generate(" and ", max_values=20, seed=2).samples()[0].values,
            whole.generate(" and ", max_values=20, seed=2).samples()[0].values,
        )

    def test_another_server_answers_a_saved_call_whose_answer_was_lost(self):
        for heard in (0, 1, 5):  # number of messages: none, only the first, some values
            process, first = self.serve(f"first-{heard}")

            def lose(call, heard=heard, process=process):
                messages = list(call)  # list() waits until the server has saved the call
                process.kill()
                process.wait()
                return messages[:heard]

            self.check_cut_call(first, lose, f"cut-{heard}")

    def test_a_call_that_was_cancelled_continues_on_another_server(self):
        def lose(call):
            messages = [next(call) for _ in range(5)]
            call.cancel()
            seen = self.other.open_session("cut")
            self.assertTrue(eventually(lambda: seen.info().state not in BUSY), "the call has not ended")
            return messages

        self.check_cut_call(self.first, lose)

    def test_a_retry_accepts_a_session_that_another_server_created(self):
        address = served(Losing(self.first, self.second), self.stack)
        self.assertEqual(self.client(address).session("made").info().position, 0)


if __name__ == "__main__":
    unittest.main()
