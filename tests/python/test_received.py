"""How the Python client joins the attempts of a call and waits between them. Needs no server."""

import asyncio
import math
import pickle
import unittest
import unittest.mock

import support

support.require("grpc", "google.protobuf")

import grpc

from runnel_client import Client, Session, aio, errors, messages, pictures, results, wire
from runnel_client.received import Received
from runnel_client.results import SessionInfo
from runnel_client.retry import Retry, Tries

pb = messages.inference()


def started(seed=7, session=""):
    return pb.GenerateResponse(started=pb.Started(seed=seed, position=0, numerics="cpu", session=session))


def values(position, given, text="", sample=0):
    run = pb.ValueRun(sample=sample, position=position, values=given, log_probs=[-value for value in given], text=text)
    for value in given:
        run.top_log_probs.add().top.add(value=value, log_prob=-1)
    return pb.GenerateResponse(values=pb.Values(runs=[run]))


def finished(reason="LENGTH"):
    return pb.GenerateResponse(finished=pb.Finished(reason=reason))


class ReceivedTest(unittest.TestCase):
    def setUp(self):
        self.received = Received(2)

    def take(self, *responses):
        """The runs that another attempt with these responses adds."""
        self.received.begin_attempt()
        return [run for response in responses for run in self.received.take(response)]

    def test_a_later_attempt_yields_only_new_values(self):
        first = self.take(started(), values(4, [1, 2], "ab"), values(6, [3], "c"))
        second = self.take(started(), values(4, [1], "a"), values(5, [2, 3, 4], "bcd"), values(8, [5], "e"), finished())
        self.assertEqual([(run.position, run.values, run.text) for run in first], [(4, [1, 2], "ab"), (6, [3], "c")])
        self.assertEqual([(run.position, run.values, run.text) for run in second], [(7, [4], "d"), (8, [5], "e")])
        self.assertEqual([(run.log_probs, run.top_log_probs) for run in second[:1]], [([-4.0], [[(4, -1.0)]])])
        self.assertEqual(self.received.finished[0].reason, "LENGTH")

    def test_text_that_ends_within_a_character_is_delivered_once(self):
        first = self.take(started(), values(0, [1, 2], "a"), values(2, [], "\ufffd"))
        second = self.take(started(), values(0, [1, 2], "a"), values(2, [], "\ufffd"), finished())
        self.assertEqual([run.text for run in first], ["a", "\ufffd"])
        self.assertEqual(second, [])

    def test_samples_are_tracked_separately(self):
        self.take(started(), values(0, [1, 2], sample=0), values(0, [9], sample=1))
        runs = self.take(started(), values(0, [9, 8], sample=1), values(0, [1, 2], sample=0), values(2, [3], sample=0))
        self.assertEqual([(run.sample, run.position, run.values) for run in runs], [(1, 1, [8]), (0, 2, [3])])

    def test_another_stream_is_not_joined(self):
        for again in (
            [started(seed=8)],
            [started(), values(0, [1, 5, 3])],
            [started(), values(0, [1]), values(1, [5, 3])],
            [started(), values(0, [1]), finished()],
            [started(), values(3, [4])],
        ):
            with self.subTest(again=again):
                self.setUp()
                self.take(started(), values(0, [1, 2]))
                with self.assertRaisesRegex(errors.Aborted, "the stream broke off"):
                    self.take(*again)

    def test_a_gap_is_an_error(self):
        with self.assertRaisesRegex(errors.Aborted, "sample 0 has a gap: position 1 is followed by 3"):
            self.take(started(), values(0, [1]), values(3, [1]))

    def test_a_sample_ended_by_time_may_end_earlier_in_a_retry(self):
        self.take(started(), values(0, [1, 2]))
        self.assertEqual(self.take(started(), values(0, [1]), finished("TIME")), [])

    def test_a_sample_that_the_call_does_not_have_is_an_error(self):
        for sample in (-1, 2):
            with self.assertRaisesRegex(
                errors.CallError, f"^INTERNAL: the server sent sample {sample}, and the call has 2"
            ):
                self.take(started(), values(0, [1], sample=sample))

    def test_values_outside_of_a_picture_are_an_error(self):
        def drawn(position, values):
            return pictures.put_together([7], [results.Run(0, position, values, [], "", [])], 1, (2, 2, 1)).tolist()

        self.assertEqual(drawn(1, [0, 255, 3]), [[[7, 0], [255, 3]]])
        for position, values in ((1, [1, 2, 3, 4]), (-1, [1]), (4, [1]), (5, []), (1, [256]), (1, [-1])):
            with self.assertRaisesRegex(errors.CallError, "^INTERNAL: .* outside of a picture of 4 bytes"):
                drawn(position, values)

    def test_runs_are_joined_by_sample(self):
        runs = self.take(started(), values(3, [1], "x", 1), values(0, [7], "y", 0), values(4, [2], "z", 1), finished())
        first, second = results.samples_of(runs, self.received.finished, 2)
        self.assertEqual((second.position, second.values, second.log_probs), (3, [1, 2], [-1.0, -2.0]))
        self.assertEqual((second.text, second.finished), ("xz", None))
        self.assertEqual((first.values, first.finished.reason), ([7], "LENGTH"))


class TriesTest(unittest.TestCase):
    def setUp(self):
        self.now = 0.0

    def tries(self, timeout=60.0, **policy):
        return Tries(Retry(**policy), timeout, lambda: self.now)

    def test_a_server_that_gives_a_retry_time_is_retried_until_the_timeout(self):
        tries, full = self.tries(timeout=10), errors.ResourceExhausted("full", retry_after=2)
        for _ in range(4):
            pause = tries.pause_after(full)
            self.assertTrue(2 <= pause <= 2.2, pause)
            self.now += pause
        with self.assertRaises(errors.ResourceExhausted):
            tries.pause_after(full)

    def test_a_server_that_asks_for_no_pause_is_not_asked_in_a_loop(self):
        tries, full = self.tries(), errors.ResourceExhausted("full", retry_after=0)
        for _ in range(20):
            self.assertGreaterEqual(tries.pause_after(full), 0.01)

    def test_a_busy_session_is_retried_within_the_timeout(self):
        busy = errors.call_error("ABORTED", "busy with a call on another server", [("grpc-retry-pushback-ms", "3000")])
        tries = self.tries(timeout=5)
        self.assertTrue(3 <= tries.pause_after(busy) <= 3.3)
        self.assertFalse(tries.lost)
        with self.assertRaises(errors.Aborted):
            self.tries(timeout=2).pause_after(busy)

    def test_without_an_answer_of_the_store_the_outcome_is_unknown(self):
        tries = self.tries()
        error = errors.Unavailable("the store has not answered", retry_after=1)
        tries.pause_after(error)
        self.assertTrue(tries.lost)
        with self.assertRaises(errors.Unavailable):
            Tries(Retry(), 60, repeatable=False).pause_after(error)

    def test_pauses_after_lost_connections_grow(self):
        tries, lost = self.tries(attempts=5, first_delay=1, longest_delay=3), errors.Unavailable("gone")
        for longest in (1, 2, 3, 3):
            pause = tries.pause_after(lost)
            self.assertTrue(0.8 * longest <= pause <= longest, pause)
        with self.assertRaises(errors.Unavailable):
            tries.pause_after(lost)

    def test_any_number_of_attempts_and_any_timeout_are_possible(self):
        tries = self.tries(attempts=5000, first_delay=1e-9, longest_delay=1e-9)
        for _ in range(4000):
            self.assertLessEqual(tries.pause_after(errors.Unavailable("gone")), 1e-9)
        self.assertLess(self.tries(timeout=math.inf).left(), math.inf)  # for gRPC infinity is over at once

    def test_received_values_restart_the_count_of_attempts(self):
        tries = self.tries(attempts=2)
        for _ in range(5):
            tries.pause_after(errors.Unavailable("gone"))
            tries.progressed()

    def test_other_errors_and_a_single_attempt_are_final(self):
        for error in (
            errors.InvalidArgument("no"),
            errors.ResourceExhausted("message too long"),
            errors.Aborted("busy"),
        ):
            with self.assertRaises(type(error)):
                self.tries().pause_after(error)
        with self.assertRaises(errors.ResourceExhausted):
            self.tries(attempts=1).pause_after(errors.ResourceExhausted("full", retry_after=1))

    def test_an_invalid_pushback_prevents_retries(self):
        for pushback, seconds in (("1500", 1.5), ("0", 0.0), ("9" * 5000, math.inf), ("-1", math.inf)):
            error = errors.call_error("UNAVAILABLE", "gone", [("grpc-retry-pushback-ms", pushback)])
            self.assertEqual((type(error), error.retry_after), (errors.Unavailable, seconds))
        error = errors.call_error("UNAVAILABLE", "gone", [("grpc-retry-pushback-ms", "soon")])
        self.assertEqual(error.retry_after, math.inf)
        with self.assertRaises(errors.Unavailable):
            self.tries().pause_after(error)

    def test_every_status_has_an_exception_class_of_its_name(self):
        for status in ("NOT_FOUND", "DATA_LOSS", "UNAUTHENTICATED"):
            error = errors.call_error(status, "why", [])
            self.assertEqual((type(error).__name__, str(error)), (status.title().replace("_", ""), f"{status}: why"))
        error = errors.call_error("INTERNAL", "why", [])
        self.assertEqual((type(error), str(error)), (errors.CallError, "INTERNAL: why"))

    def test_an_error_survives_a_copy_to_another_process(self):
        error = errors.call_error("INTERNAL", "why", [("grpc-retry-pushback-ms", "1500")])
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.status, again.details), ("INTERNAL: why", "INTERNAL", "why"))
        self.assertEqual(again.retry_after, 1.5)


TIMEOUT = 600  # seconds of a call; a query that is no part of it has 30
CALLS = (
    lambda one: one.feed([1], timeout=TIMEOUT),
    lambda one: one.score([1], keep=True, timeout=TIMEOUT),
)


class Stop(Exception):
    """Ends a call at its last request."""


class Refusal(grpc.RpcError):
    def code(self):
        return grpc.StatusCode.ALREADY_EXISTS

    def details(self):
        return "it exists"

    def trailing_metadata(self):
        return ()


class QueriesTest(unittest.TestCase):
    """Calls that first ask the server for something."""

    def setUp(self):
        self.methods = unittest.mock.Mock()
        self.methods.generate.side_effect = self.methods.score.side_effect = Stop
        self.session = messages.load("sessions").Session(id="mine", position=3, state="IDLE")
        self.model = messages.load("models").ModelInfo(name="m")
        self.model.image.height = self.model.image.width = self.model.image.channels = 1
        self.busy = SessionInfo("mine", "m", 0, "GENERATING", 0, 0.0)

    def check(self, query):
        """The query and the call have had the timeout together."""
        [asked] = query.call_args_list
        [called] = self.methods.generate.call_args_list + self.methods.score.call_args_list
        self.assertLessEqual(asked.kwargs["timeout"], TIMEOUT)
        self.assertLess(called.kwargs["timeout"], asked.kwargs["timeout"])
        self.methods.reset_mock()
        return called.args[0]

    def test_a_query_is_part_of_its_call(self):
        self.methods.get_session.return_value, self.methods.get_model.return_value = self.session, self.model
        with Client() as client, unittest.mock.patch.object(client, "_methods", self.methods):
            for call in CALLS:
                with self.assertRaises(Stop):
                    call(Session(client, self.busy, keep=True))
                request = self.check(self.methods.get_session)
                first = request if hasattr(request, "expected_position") else next(request)
                self.assertEqual((first.HasField("expected_position"), first.expected_position), (True, 3))
            with self.assertRaises(Stop):
                client.image(timeout=TIMEOUT)
            self.check(self.methods.get_model)
            with self.assertRaisesRegex(ValueError, "at least 1, found 0"):
                client.images(0)

    def test_a_stream_without_its_end_is_an_error(self):
        """Otherwise a part of an answer would pass for the whole."""

        async def ask(responses, samples):
            async def stream():
                for response in responses:
                    yield response

            client = aio.Client()
            client._methods_of_channel, client._loop = self.methods, asyncio.get_running_loop()
            self.methods.generate.return_value = unittest.mock.MagicMock(__aiter__=lambda call: stream())
            return await client.generate([1], samples=samples).samples()

        self.methods.generate.side_effect = None
        whole = [started(), values(0, [7], "y"), finished()]
        for responses, samples, missing in ((whole[:2], 1, 0), ([], 1, 0), (whole, 2, 1)):
            expected = self.assertRaisesRegex(errors.CallError, f"^INTERNAL: .* before sample {missing} ended")
            with Client() as client, unittest.mock.patch.object(client, "_methods", self.methods), expected:
                self.methods.generate.return_value = unittest.mock.MagicMock(
                    __iter__=lambda _, all=responses: iter(all)
                )
                client.generate([1], samples=samples).samples()
            with expected:
                asyncio.run(ask(responses, samples))

    def test_a_state_file_without_end_is_an_error(self):
        pieces = [messages.load("sessions").ExportSessionResponse(data=b"abc")] * 3

        async def stream():
            for piece in pieces:
                yield piece

        async def export():
            self.methods.export_session.return_value = call = unittest.mock.MagicMock(__aiter__=lambda _: stream())
            client = aio.Client()
            client._methods_of_channel, client._loop = self.methods, asyncio.get_running_loop()
            try:
                return await aio.Session(client, self.busy, keep=True).export()
            finally:
                call.cancel.assert_called_once()

        too_long = self.assertRaisesRegex(errors.CallError, "^INTERNAL: .* a state file of more than 8 bytes")
        with Client() as client, unittest.mock.patch.object(client, "_methods", self.methods):
            session = Session(client, self.busy, keep=True)
            self.methods.export_session.return_value = call = unittest.mock.MagicMock(__iter__=lambda _: iter(pieces))
            self.assertEqual((session.export(), asyncio.run(export())), (b"abcabcabc", b"abcabcabc"))
            call.cancel.reset_mock()
            with unittest.mock.patch.object(wire, "FILE_BYTES", 8):
                with too_long:
                    asyncio.run(export())
                self.methods.export_session.return_value = call
                with too_long:
                    session.export()
                call.cancel.assert_called_once()

    def test_a_session_that_exists_is_not_asked_for(self):
        """The answer could be another error, if the session is deleted or its server is lost."""

        async def ask():
            client = aio.Client()
            client._methods_of_channel, client._loop = self.methods, asyncio.get_running_loop()
            await client.session("mine")

        self.methods.create_session.side_effect = Refusal()
        expected = self.assertRaises(errors.AlreadyExists)
        with Client() as client, unittest.mock.patch.object(client, "_methods", self.methods), expected:
            client.session("mine")
        with expected:
            asyncio.run(ask())
        self.assertEqual(self.methods.create_session.call_count, 2)
        self.methods.get_session.assert_not_called()

    def set_pages(self, token_after):
        """Lets the server list no sessions, in pages whose tokens follow each other so."""
        kind = messages.load("sessions").ListSessionsResponse

        def page(request, **_):
            return kind(next_page_token=token_after(request.page_token))

        self.methods.list_sessions.reset_mock()
        self.methods.list_sessions.side_effect = page

    def check_pages(self, listed):
        """`listed` lists the sessions of self.methods."""
        self.set_pages({"": "a", "a": "b", "b": ""}.get)
        self.assertEqual((listed(), self.methods.list_sessions.call_count), ([], 3))
        self.set_pages(lambda token: "same")
        with self.assertRaisesRegex(errors.CallError, "^INTERNAL: .* a page names itself as the next one"):
            listed()
        self.assertEqual(self.methods.list_sessions.call_count, 2)
        self.set_pages(lambda token: str(int(token or 0) + 1))
        with self.assertRaisesRegex(errors.CallError, "^INTERNAL: .* has more than 10,000 pages"):
            listed()
        self.assertEqual(self.methods.list_sessions.call_count, wire.PAGES)

    def test_a_list_of_sessions_without_end_is_an_error(self):
        with Client() as client, unittest.mock.patch.object(client, "_methods", self.methods):
            self.check_pages(lambda: list(client.sessions()))

    def test_a_list_of_sessions_without_end_is_an_error_for_asyncio(self):
        self.methods.list_sessions = unittest.mock.AsyncMock()

        async def listed():
            client = aio.Client()
            client._methods_of_channel, client._loop = self.methods, asyncio.get_running_loop()
            return [one async for one in client.sessions()]

        self.check_pages(lambda: asyncio.run(listed()))

    def test_the_same_for_asyncio(self):
        self.methods.get_session = unittest.mock.AsyncMock(return_value=self.session)
        self.methods.get_model = unittest.mock.AsyncMock(return_value=self.model)

        async def ask():
            client = aio.Client()
            client._methods_of_channel, client._loop = self.methods, asyncio.get_running_loop()
            for call in CALLS:
                with self.assertRaises(Stop):
                    await call(aio.Session(client, self.busy, keep=True))
                request = self.check(self.methods.get_session)
                first = request if hasattr(request, "expected_position") else next(request)
                self.assertEqual((first.HasField("expected_position"), first.expected_position), (True, 3))
            with self.assertRaises(Stop):
                await client.image(timeout=TIMEOUT)
            self.check(self.methods.get_model)
            with self.assertRaisesRegex(ValueError, "at least 1, found 0"):
                await client.images(0)

        asyncio.run(ask())


if __name__ == "__main__":
    unittest.main()
