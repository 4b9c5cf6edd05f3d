"""A client whose server dies: the same call on another server with the same store continues with the same values."""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest
from concurrent import futures

import support

support.require("grpc", "google.protobuf")
RUNNEL = os.environ.get("RUNNEL", "")
for name, path in (("protoc", "protoc"), ("the program runnel, named by $RUNNEL", RUNNEL)):
    if not path or shutil.which(path) is None:
        print(f"skipped: there is no {name}")
        sys.exit(support.SKIPPED)

import grpc
import numpy as np

from runnel_client import Client, Retry, serving
from runnel_client.known import BUSY

BUNDLE = pathlib.Path(support.ROOT) / "zoo" / "text-endless-small"
PATIENCE = 120.0  # seconds until what must come counts as never coming: the machine may be busy with other things
LONG = 10_000  # values of a call that has not ended when its first values have come
CHUNK = [value % 256 for value in range(100_000)]


class Losing(grpc.GenericRpcHandler):
    """Has one server make the first call and loses its answer. Passes later calls to another server."""

    def __init__(self, first, second):
        self.channels = [grpc.insecure_channel(first), grpc.insecure_channel(second)]

    def service(self, details):
        def answer(request, context):
            try:
                response = self.channels[0].unary_unary(details.method)(request, timeout=PATIENCE)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())
            if len(self.channels) > 1:
                self.channels.pop(0).close()
                context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
            return response

        return grpc.unary_unary_rpc_method_handler(answer)


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
        """Connects to the second server once the first is gone."""
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
            deadline = time.monotonic() + PATIENCE
            while self.other.open_session("cut").info().state not in BUSY:
                self.assertLess(time.monotonic(), deadline, "the call has not begun")
                time.sleep(0.005)
            self.process.kill()
            np.testing.assert_array_equal(score.result(PATIENCE).log_probs, expected.log_probs)
        self.assertEqual(session.info().position, len(CHUNK))

    def test_a_session_that_another_server_made_is_ones_own(self):
        handler = Losing(self.first, self.second)
        server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[handler])
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        self.stack.callback(lambda: server.stop(None).wait(PATIENCE))
        self.assertEqual(self.client(address).session("made").info().position, 0)


if __name__ == "__main__":
    unittest.main()
