"""The Python client against a real server, over a broken connection, and against a full server."""

import asyncio
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from concurrent import futures

import support

support.require("grpc", "google.protobuf", "PIL")

import grpc
import numpy as np
import PIL.Image

from cutting_proxy import CuttingProxy
from real_server import ROOT, RUNNEL, eventually
from runnel_client import Access, Client, Retry, Session, aio, errors, messages, pictures, serving, wire
from runnel_client.conversation import Message
from runnel_client.options import Options
from runnel_client.results import SessionInfo

MODELS = [ROOT / "zoo" / name for name in ("mnist-small", "cifar10-small", "text-small", "text-endless-small")]
# Seconds until an event counts as one that never comes. The longest call takes a few seconds on an idle machine.
PATIENCE = 600.0
SETTLING = (*wire.SETTLING, *[0.1] * 6000)  # the same for the end of a cancelled call
pb = messages.inference()


@contextlib.contextmanager
def at_first_pause(client, act):
    """Lets another thread act as soon as the client waits before a retry."""
    paused, wait = threading.Event(), client._closed.wait

    def announced_wait(pause):
        paused.set()
        return wait(pause)

    def act_once():
        if paused.wait(PATIENCE):
            act()

    thread = threading.Thread(target=act_once)
    thread.start()
    with unittest.mock.patch.object(client._closed, "wait", announced_wait):
        yield
    thread.join()


class ServedTest(unittest.TestCase):
    """Has a server at self.address and a client that is connected to it."""

    address: str

    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel_client_"))
        template = f"--chat-template=text-small={ROOT / 'examples' / 'plain_chat.jinja'}"
        flags = (*map(str, MODELS[1:]), "--threads", "1", "--sessions", "20", "--rewind", "64,16", template)
        running = serving.running(RUNNEL, MODELS[0], os.path.join(folder, "log"), flags)
        _, cls.address = stack.enter_context(running)

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.client = self.stack.enter_context(Client(self.address, timeout=PATIENCE))
        self.stack.enter_context(unittest.mock.patch.object(wire, "SETTLING", SETTLING))

    def wait_until_idle(self, session):
        is_idle = eventually(lambda: session.info().state == "IDLE", PATIENCE)
        self.assertTrue(is_idle, "the session is still busy")
        return session.info().position


class CallsTest(ServedTest):
    def test_models(self):
        self.assertEqual([model.name for model in self.client.models()], sorted(path.name for path in MODELS))
        model = self.client.model("mnist-small")
        self.assertEqual((model.image, model.vocabulary, model.max_length), ((28, 28, 1), 256, 784))
        self.assertEqual((model.has_begin, model.has_text, model.head), (True, False, "mixture_of_logistics"))
        self.assertIsNone(self.client.model("text-small").image)

    def test_values_are_delivered_in_runs(self):
        stream = self.client.generate([0] * 4, model="mnist-small", max_values=40, seed=7, top_log_probs=0)
        self.assertIsNone(stream.started)
        runs = list(stream)
        self.assertEqual((stream.started.seed, stream.started.position), (7, 0))
        self.assertEqual([run.position for run in runs], list(np.cumsum([4, *(len(run.values) for run in runs)]))[:-1])
        self.assertEqual(sum(len(run.log_probs) for run in runs), 40)
        self.assertEqual((stream.finished[0].reason, stream.finished[0].position), ("LENGTH", 44))
        again = self.client.generate(np.zeros((1, 4), np.uint8), model="mnist-small", max_values=40, seed=7)
        self.assertEqual(list(again.values()), [value for run in runs for value in run.values])

    def test_text_is_streamed(self):
        counted: list[int] = []
        options: Options = {"model": "text-small", "max_values": 60, "seed": 3, "top_log_probs": 2}
        options["progress"] = counted.append
        stream = self.client.generate("The river was ", **options)
        text = "".join(stream.text())
        [sample] = self.client.generate("The river was ", **options).samples()
        self.assertEqual((text, sum(counted)), (sample.text, 2 * 60))
        self.assertEqual(text, bytes(sample.values).decode())
        for value, log_prob, top in zip(sample.values, sample.log_probs, sample.top_log_probs):
            self.assertEqual(len(top), 2)
            self.assertIn(dict(top).get(value), (None, log_prob))

    def test_messages_are_answered(self):
        question: Message = {"role": "user", "content": "How wide?"}
        options: Options = {"model": "text-small", "max_values": 20, "seed": 3}
        asked: Options = {**options, "messages": [question]}
        plain: Options = {**options, "begin": False}
        stream = self.client.generate(**asked)
        text = "".join(stream.text())
        self.assertEqual(stream.finished[0].cached_values, 0)
        expected = self.client.generate("User: How wide?\n\nAssistant:", **plain)
        self.assertEqual(text, "".join(expected.text()))
        with self.client.session(model="text-small") as talk:
            for turn in range(2):
                [answer] = talk.generate(messages=[question], max_values=20, seed=3).samples()
                self.assertEqual(answer.text == text, turn == 0, "the second turn has read the first one")
        self.assertTrue(self.client.model("text-small").chat.endswith(".jinja"))
        self.assertIn("not text", self.client.model("mnist-small").no_chat)

    def test_messages_are_refused_in_the_words_of_the_client(self):
        strange: Message = {"role": "king", "content": "x"}
        with self.assertRaisesRegex(errors.InvalidArgument, r": messages\[0\]\.role is 'king'"):
            self.client.generate(messages=[strange], model="text-small").samples()
        with self.assertRaisesRegex(errors.NotFound, "has no chat template"):
            self.client.generate(messages=[strange], model="mnist-small").samples()

    def test_samples_of_one_prompt(self):
        stream = self.client.generate("A", model="text-small", samples=3, max_values=5, stop=["e", [32]], seed=1)
        samples = stream.samples()
        self.assertEqual([sample.position for sample in samples], [2, 2, 2])  # after the begin value
        for sample in samples:
            stopped = sample.values[-1:] in ([ord("e")], [32])
            self.assertEqual(sample.finished.reason, "STOP" if stopped else "LENGTH")
        with self.assertRaisesRegex(ValueError, "the call has 3 samples"):
            self.client.generate("A", model="text-small", samples=3).text()

    def test_penalties_change_the_choice_and_no_log_probability(self):
        plain = self.most_likely()
        banned = self.most_likely(logit_bias={plain.values[0]: -100})
        self.assertNotIn(plain.values[0], banned.values)
        for name, penalty in (("repetition_penalty", 5), ("presence_penalty", 2), ("frequency_penalty", 2)):
            penalized = self.most_likely(**{name: penalty})
            self.assertNotEqual(penalized.values, plain.values, name)
            same = [a == b for a, b in zip(plain.values, penalized.values, strict=True)].index(False)
            self.assertEqual(penalized.log_probs[:same], plain.log_probs[:same])
        with self.assertRaisesRegex(errors.InvalidArgument, "^INVALID_ARGUMENT: presence_penalty is 3"):
            self.most_likely(presence_penalty=3)

    def most_likely(self, **options):
        options = {"model": "text-small", "max_values": 60, "greedy": True, **options}
        [sample] = self.client.generate("The river ", **options).samples()
        return sample

    def test_a_picture_is_drawn_and_completed(self):
        digit = self.client.image(model="mnist-small", seed=5)
        self.assertEqual((digit.shape, digit.dtype), ((28, 28), np.uint8))
        for given in (digit[:14], PIL.Image.fromarray(digit[:14])):
            completed = self.client.images(3, given, model="mnist-small", seed=5)
            self.assertEqual(completed.shape, (3, 28, 28))
            np.testing.assert_array_equal(completed[:, :14], np.stack([digit[:14]] * 3))
        self.assertFalse(np.array_equal(completed[0], completed[1]))
        started = self.client.image(digit[:1], model="mnist-small", max_values=28)
        self.assertTrue((started[2:] == pictures.NOT_DRAWN).all())
        colours = self.client.image(np.zeros((31, 32, 3), np.uint8), model="cifar10-small")
        self.assertEqual(colours.shape, (32, 32, 3))
        self.assertEqual(pictures.to_pil(colours, 2).size, (64, 64))

    def test_a_single_string_is_one_stop_text(self):
        [sample] = self.client.generate("The ", model="text-small", max_values=200, stop="the", seed=1).samples()
        self.assertTrue(sample.text.endswith("the"), sample.text)

    def test_scores_equal_the_log_probabilities_of_sampling(self):
        stream = self.client.generate("The ", model="text-small", max_values=50, seed=2)
        [sample] = stream.samples()
        whole = self.client.score("The ", sample.values, model="text-small")
        np.testing.assert_allclose(whole.log_probs[-50:], sample.log_probs, rtol=1e-5)
        self.assertEqual((whole.position, len(whole.log_probs)), (1, 54))
        self.assertAlmostEqual(whole.log_prob, float(whole.log_probs.sum(dtype=np.float64)), places=6)
        self.assertAlmostEqual(whole.bits_per_dim, -whole.log_prob / 54 / np.log(2))
        digits = np.zeros((28, 28), np.uint8)
        self.assertEqual(len(self.client.score(digits, model="mnist-small").log_probs), 783)

    def test_a_sequence_of_several_messages_is_scored_as_one(self):
        values = np.arange(70_000) % 256
        scored = self.client.score(values, model="text-endless-small")
        self.assertEqual((scored.position, len(scored.log_probs)), (1, 69_999))

    def test_errors_have_the_message_of_the_server(self):
        for kind, call, message in (
            (errors.NotFound, lambda: self.client.model("none"), "no model 'none'; this server has 'cifar10-small', "),
            (errors.InvalidArgument, lambda: list(self.client.generate([1])), "name"),
            (errors.InvalidArgument, lambda: self.client.score([256], model="mnist-small"), "values of model "),
            (errors.OutOfRange, lambda: self.client.score(np.zeros(785, int), model="mnist-small"), "at most 784"),
            (errors.InvalidArgument, lambda: self.client.image(model="mnist-small", temperature=-1e-4), " temperature"),
            (errors.InvalidArgument, lambda: self.client.image(model="mnist-small", message_delay=-1), "message_delay"),
            (
                errors.DeadlineExceeded,
                lambda: self.client.images(8, model="cifar10-small", timeout=0.01),
                "give it more time with timeout=",
            ),
        ):
            with self.assertRaisesRegex(kind, message) as raised:
                call()
            self.assertIsInstance(raised.exception, errors.RunnelError)
            self.assertTrue(str(raised.exception).startswith(raised.exception.status + ": "))

    def test_wrong_arguments_are_reported_before_a_call(self):
        for kind, call, message in (
            (
                TypeError,
                lambda: self.client.generate("a", max_value=1),  # type: ignore[call-arg]
                "no option 'max_value'; it has model, messages",
            ),
            (TypeError, lambda: self.client.generate([0.5]), "expected text or integers, found float64"),
            (ValueError, lambda: self.client.score(model="mnist-small"), "at least one value"),
            (ValueError, lambda: self.client.image(model="text-small"), "'text-small' has symbols, not pictures"),
            (ValueError, lambda: self.client.image(np.zeros((29, 28), np.uint8), model="mnist-small"), "up to 28 rows"),
            (ValueError, lambda: self.client.image(np.zeros((2, 28)), model="mnist-small"), "found float64 of shape"),
        ):
            with self.assertRaisesRegex(kind, message):
                call()

    def test_an_abandoned_stream_is_cancelled(self):
        with self.client.session(model="text-endless-small") as session:
            for _ in session.generate("A", max_values=60_000):
                break
            self.assertLess(self.wait_until_idle(session), 60_000)
            with session.generate(max_values=60_000) as stream:
                next(iter(stream))
            self.assertEqual(list(stream), [])
            # The next call waits until the server has released the session.
            self.assertEqual(len(list(session.generate(max_values=3).values())), 3)

    def test_a_closed_client_does_not_try_again(self):
        client = Client(self.address, timeout=PATIENCE)
        stream = iter(client.generate("A", model="text-endless-small", max_values=60_000))
        next(stream)
        client.close()
        with self.assertRaises(errors.Cancelled):
            list(stream)

    def test_a_client_that_is_closed_while_it_waits_to_try_again_is_cancelled(self):
        client = Client("127.0.0.1:1", retry=Retry(attempts=9, first_delay=60))
        with (
            at_first_pause(client, client.close),
            self.assertRaisesRegex(errors.Cancelled, "the client was closed"),
        ):
            client.models()


class SessionTest(ServedTest):
    def test_calls_continue_where_the_last_one_ended(self):
        with self.client.session("story", "text-small") as story:
            story.feed("The river was ")
            first = "".join(story.generate(max_values=10, seed=1).text())
            position = story.info().position
            second = "".join(story.generate(" Then ", max_values=10, seed=2).text())
            self.assertEqual(position, 1 + len("The river was ") + len(first))
            [again] = self.client.generate(
                "The river was " + first + " Then ", model="text-small", max_values=10, seed=2
            ).samples()
            self.assertEqual(again.text, second)
            before = story.info().position
            self.assertEqual(len(story.score(" end").log_probs), 4)
            self.assertEqual(story.info().position, before)
            self.assertEqual([one.id for one in self.client.sessions("text-small")], ["story"])
            with self.assertRaisesRegex(errors.AlreadyExists, "story"):
                self.client.session("story", "text-small")
        self.assertEqual(list(self.client.sessions("text-small")), [])

    def test_a_session_that_is_kept_outlives_its_block(self):
        with self.client.session(model="text-small", keep=True) as first:
            first.feed("abc")
        with self.client.open_session(first.id, "text-small") as second:
            self.assertEqual(second.info().position, 4)
            second.keep = False
        with self.assertRaisesRegex(errors.NotFound, first.id):
            self.client.open_session(first.id, "text-small")

    def test_a_session_forks_and_rewinds(self):
        with self.client.session(model="text-small") as session:
            session.feed("The river was ")
            text = "".join(session.generate(max_values=30, seed=1, repetition_penalty=1.5).text())
            self.assertEqual(session.rewind(15).position, 15)
            forks = session.fork(2)
            self.assertEqual([fork.info().position for fork in forks], [15, 15])
            for one in (session, *forks):
                with one:
                    again = one.generate(max_values=30, seed=1, repetition_penalty=1.5)
                    self.assertEqual("".join(again.text()), text)
        self.assertEqual(list(self.client.sessions("text-small")), [])
        with self.client.session(model="text-small") as session:
            session.feed("x" * 100)
            with self.assertRaisesRegex(errors.OutOfRange, "the oldest that it can go back to is 37"):
                session.rewind(36)
            with self.assertRaisesRegex(errors.OutOfRange, "is at position 101"):
                session.rewind(102)

    def test_an_error_in_the_block_is_raised_and_the_session_deleted(self):
        with self.assertRaisesRegex(KeyError, "mine"), self.client.session(model="text-small"):
            raise KeyError("mine")
        with self.assertRaisesRegex(KeyError, "mine"), self.client.session(model="text-small") as session:
            session.delete()
            raise KeyError("mine")
        with self.client.session(model="text-small") as session:
            session.delete()
        self.assertEqual(list(self.client.sessions("text-small")), [])

    def test_a_generation_can_become_a_session(self):
        stream = self.client.generate("abc", model="text-small", max_values=2, keep=True)
        stream.samples()
        with self.client.open_session(stream.started.session, "text-small", keep=False) as session:
            self.assertEqual(session.info().position, 6)


class StateTest(ServedTest):
    """States as files, and states on the server from which sequences start."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))

    def test_a_session_is_saved_and_loaded(self):
        with self.client.session(model="text-small") as session:
            session.feed("The river was ")
            session.save(self.folder / "story.state")
            self.assertEqual(session.export(), (self.folder / "story.state").read_bytes())
            text = "".join(session.generate(max_values=20, seed=1, repetition_penalty=1.5).text())
        for file in (self.folder / "story.state", (self.folder / "story.state").read_bytes()):
            with self.client.load_session(file, "again", "text-small") as loaded:
                self.assertEqual((loaded.id, loaded.info().position), ("again", 15))
                again = loaded.generate(max_values=20, seed=1, repetition_penalty=1.5)
                self.assertEqual("".join(again.text()), text)
        self.assertEqual(list(self.client.sessions("text-small")), [])
        with self.assertRaisesRegex(errors.InvalidArgument, "state file"):
            self.client.load_session(b"nonsense", model="text-small")
        with self.client.session("taken", "text-small") as taken, self.assertRaises(errors.AlreadyExists):
            self.client.load_session(taken.export(), "taken", "text-small")

    def test_asyncio_saves_and_loads_too(self):
        async def body():
            async with aio.Client(self.address, timeout=PATIENCE) as client:
                async with client.session(model="text-small") as session:
                    await session.feed("abc")
                    await session.save(self.folder / "a.state")
                async with client.load_session(self.folder / "a.state", model="text-small") as loaded:
                    return await client.states("text-small"), await loaded.export()

        self.assertEqual(asyncio.run(body()), ([], (self.folder / "a.state").read_bytes()))

    def test_a_sequence_can_begin_at_a_stored_state(self):
        with self.client.session(model="text-small") as session:
            session.feed("The river was ")
            (self.folder / "stored").mkdir()
            session.save(self.folder / "stored" / "river.state")
            text = "".join(session.generate(max_values=20, seed=1).text())
        flags = ("--threads", "1", "--stored-states", str(self.folder / "stored"))
        _, address = self.stack.enter_context(serving.running(RUNNEL, MODELS[2], self.folder / "log", flags))
        with Client(address, timeout=PATIENCE) as client:
            [stored] = client.states()
            self.assertEqual((stored.name, stored.position), ("river", 15))
            self.assertEqual("".join(client.generate(state="river", max_values=20, seed=1).text()), text)
            self.assertEqual(client.score("wide", state="river").position, 15)
            with self.assertRaises(errors.NotFound):
                client.generate(state="lake").samples()

    def test_a_session_keeps_scored_values(self):
        with self.client.session(model="text-small") as session:
            session.feed("The river was ")
            before = session.score("wide").log_probs
            self.assertEqual(session.info().position, 15)
            np.testing.assert_array_equal(session.score("wide", keep=True).log_probs, before)
            self.assertEqual(session.info().position, 19)

    def test_a_session_does_not_keep_scored_values_twice(self):
        # With an expected position the server refuses the retry. Without one the client does not retry.
        for expected, error, tries in ((0, errors.Aborted, 2), (None, errors.Unavailable, 1)):
            with self.client.session(model="text-endless-small") as session:
                proxy = self.stack.enter_context(CuttingProxy(self.address, (700,)))
                client = self.stack.enter_context(
                    Client(proxy.address, retry=Retry(first_delay=0.01), timeout=PATIENCE)
                )
                again = Session(client, session.info(), keep=True)
                with self.assertRaises(error):
                    again.score(np.arange(1000) % 256, keep=True, expected_position=expected)
                self.assertEqual(proxy.connections, tries)
                self.assertLessEqual(self.wait_until_idle(session), 1000)


class TokensTest(unittest.TestCase):
    """Converts text to values and back, on the HTTP port."""

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        new = [RUNNEL, "key", "new", "alice", "--file", str(folder / "keys")]
        self.key = subprocess.run(new, capture_output=True, text=True, check=True).stdout.strip()
        flags = [str(MODELS[0]), "--threads", "1", "--http-address", "127.0.0.1:0", "--keys", str(folder / "keys")]
        _, self.address = self.stack.enter_context(serving.running(RUNNEL, MODELS[2], folder / "log", flags))
        [port] = re.findall(r" http address=(\S+)", (folder / "log").read_text())
        self.http = f"http://{port}"

    def test_a_text_and_its_values(self):
        async def both():
            async with aio.Client(self.address, access=Access(api_key=self.key), http=self.http) as client:
                values = await client.tokenize("The river", "text-small")
                return values, await client.detokenize(values, "text-small")

        self.assertEqual(asyncio.run(both()), (list(b"The river"), "The river"))
        with Client(self.address, access=Access(api_key=self.key), http=self.http) as client:
            self.assertEqual(client.tokenize("The river", "text-small"), list(b"The river"))
            self.assertEqual(client.detokenize(np.array(list(b"The river")), "text-small"), "The river")
            for kind, call, message in (
                (errors.NotFound, lambda: client.tokenize("a", "none"), "no model 'none'"),
                (errors.InvalidArgument, lambda: client.tokenize("a", "mnist-small"), "has no tokenizer"),
            ):
                with self.assertRaisesRegex(kind, message):
                    call()
        wrong = self.stack.enter_context(Client(self.address, access=Access(api_key="wrong"), http=self.http))
        with self.assertRaises(errors.Unauthenticated):
            wrong.tokenize("a", "text-small")

    def test_an_invalid_http_address_is_reported(self):
        with Client(self.address) as client, self.assertRaisesRegex(errors.AccessError, r"--http-address HOST:PORT"):
            client.tokenize("a")
        for wrong in ("127.0.0.1:8000", "ftp://a", "http://a/v1", "http://"):
            with self.assertRaisesRegex(errors.AccessError, "expected http://HOST:PORT or https://HOST"):
                Client(self.address, http=wrong)
        with self.assertRaisesRegex(errors.AccessError, "the key would go to example.org:8000 in the clear"):
            Client(self.address, access=Access(api_key="k"), http="http://example.org:8000")
        for wrong in ("http://127.0.0.1:1", f"http://{self.address}"):
            with Client(self.address, http=wrong) as client, self.assertRaisesRegex(errors.Unavailable, "no answer fr"):
                client.tokenize("a")


class BrokenConnectionTest(ServedTest):
    """An answer is the same as on an unbroken connection, wherever the connection is cut."""

    CUTS = (700, 1500, 2500)

    def through_proxy(self, **policy):
        proxy = self.stack.enter_context(CuttingProxy(self.address, self.CUTS))
        return proxy, self.stack.enter_context(
            Client(proxy.address, retry=Retry(first_delay=0.01, **policy), timeout=PATIENCE)
        )

    def test_a_stream_continues(self):
        whole = self.client.generate([0], model="mnist-small", seed=4, samples=2).samples()
        proxy, client = self.through_proxy()
        counted: list[int] = []
        stream = client.generate([0], model="mnist-small", seed=4, samples=2, progress=counted.append)
        found = stream.samples()
        self.assertEqual(proxy.connections, len(self.CUTS) + 1)
        self.assertEqual(sum(counted), 2 * 783)
        for one, other in zip(found, whole):
            self.assertEqual((one.position, one.values, one.log_probs), (other.position, other.values, other.log_probs))
            self.assertEqual((one.finished.reason, one.finished.position), ("END", 784))

    def test_a_stream_without_a_seed_continues(self):
        proxy, client = self.through_proxy()
        stream = client.generate("The ", model="text-small", max_values=400)
        text = "".join(stream.text())
        self.assertEqual(proxy.connections, len(self.CUTS) + 1)
        again = self.client.generate("The ", model="text-small", max_values=400, seed=stream.started.seed)
        self.assertEqual(text, "".join(again.text()))

    def test_a_retry_does_not_advance_a_session_twice(self):
        proxy, client = self.through_proxy()
        with self.client.session("mine", "text-small"):
            session = client.open_session("mine", "text-small")
            text = "".join(session.generate("The ", max_values=400, seed=9).text())
            self.assertEqual(session.info().position, 405)
        self.assertEqual(proxy.connections, len(self.CUTS) + 1)
        again = self.client.generate("The ", model="text-small", max_values=400, seed=9)
        self.assertEqual(text, "".join(again.text()))

    def test_a_score_is_retried(self):
        proxy, client = self.through_proxy()
        values = np.arange(1000) % 256
        scored = client.score(values, model="text-endless-small")
        self.assertEqual(proxy.connections, len(self.CUTS) + 1)
        whole = self.client.score(values, model="text-endless-small")
        np.testing.assert_array_equal(scored.log_probs, whole.log_probs)

    def test_without_another_attempt_it_fails(self):
        proxy, client = self.through_proxy(attempts=1)
        stream = client.generate([0], model="mnist-small", seed=4)
        with self.assertRaises(errors.Unavailable):
            stream.samples()
        self.assertEqual(proxy.connections, 1)

    def test_a_missing_server_is_reported_after_some_attempts(self):
        retry = Retry(attempts=3, first_delay=0.01)
        with Client("127.0.0.1:1", retry=retry) as client, self.assertRaises(errors.Unavailable):
            client.models()


class Refusing(grpc.GenericRpcHandler):
    """Refuses `refusals` calls, each with a pushback, and answers the next one."""

    def __init__(self, refusals, pushback):
        self.left, self.pushback, self.asked = refusals, pushback, []

    def service(self, details):
        def answer(request, context):
            self.asked.append((time.monotonic(), request.request_id))
            if self.left > 0:
                self.left -= 1
                context.set_trailing_metadata((("grpc-retry-pushback-ms", self.pushback),))
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no state is free")
            yield pb.GenerateResponse(started=pb.Started(seed=1))
            yield pb.GenerateResponse(values=pb.Values(runs=[pb.ValueRun(values=[5], log_probs=[-1])]))
            yield pb.GenerateResponse(finished=pb.Finished(reason="LENGTH"))

        return grpc.unary_stream_rpc_method_handler(
            answer, pb.GenerateRequest.FromString, pb.GenerateResponse.SerializeToString
        )


class Recorder(grpc.GenericRpcHandler):
    """Has no methods, but records the metadata of each call."""

    def __init__(self):
        self.calls = []

    def service(self, details):
        self.calls.append((details.method.split("/")[-1], dict(details.invocation_metadata).get("x-session-id")))


class Losing(grpc.GenericRpcHandler):
    """Forwards calls to a server, and loses the first `lost` answers."""

    def __init__(self, address, lost):
        self.channel, self.left = grpc.insecure_channel(address), lost

    def service(self, details):
        def answer(request, context):
            try:
                response = self.channel.unary_unary(details.method)(request, timeout=PATIENCE)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())
            if self.left > 0:
                self.left -= 1
                context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
            return response

        return grpc.unary_unary_rpc_method_handler(answer)


def serve(test, handler):
    """The address of a server in this process that runs until the test ends."""
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    test.addCleanup(lambda: server.stop(None).wait())
    return f"127.0.0.1:{port}"


class LostAnswerTest(ServedTest):
    """A session is made and deleted once, even if the answer is lost and the client retries."""

    def losing(self, lost=1):
        handler = Losing(self.address, lost)
        self.stack.callback(handler.channel.close)
        return {"address": serve(self, handler), "retry": Retry(first_delay=0.01), "timeout": PATIENCE}

    def test_a_session_is_made_and_deleted(self):
        for id in ("", "named"):
            with Client(**self.losing()) as client:
                session = client.session(id, "text-small", keep=True)
            self.assertEqual(self.client.open_session(session.id, "text-small").info().state, "NEW")
            with Client(**self.losing()) as client:
                client.open_session(session.id, "text-small").delete()
            with self.assertRaises(errors.NotFound):
                self.client.open_session(session.id, "text-small")

    def test_a_retry_does_not_adopt_an_existing_session(self):
        with self.client.session("taken", "text-small") as session, Client(**self.losing(0)) as client:
            with self.assertRaises(errors.AlreadyExists):
                client.session("taken", "text-small")
            session.generate("The ", max_values=1).samples()
            with Client(**self.losing()) as other, self.assertRaises(errors.AlreadyExists):
                other.session("taken", "text-small")

    def test_asyncio_forks_and_rewinds_too(self):
        async def positions():
            client = aio.Client(self.address, timeout=PATIENCE)
            async with client, await client.session(model="text-small") as session:
                await session.feed("The river was ")
                [child] = await session.fork()
                back = await session.rewind(3)
                found = [one.position for one in (await child.info(), back, await session.info())]
                await child.delete()
                return found

        self.assertEqual(asyncio.run(positions()), [15, 3, 3])

    def test_a_client_for_asyncio_can_be_made_before_the_loop_and_serves_one(self):
        client = aio.Client(self.address, timeout=PATIENCE)

        async def names():
            return [model.name for model in await client.models()]

        self.assertEqual(asyncio.run(names()), [model.name for model in self.client.models()])
        with self.assertRaisesRegex(RuntimeError, "in another event loop.*make a Client in each loop"):
            asyncio.run(names())
        unused = aio.Client(self.address)
        asyncio.run(unused.close())
        with self.assertRaisesRegex(errors.Cancelled, "the client was closed"):
            asyncio.run(unused.models())

    def test_a_retry_creates_children_only_once(self):
        with self.client.session(model="text-small") as session:
            session.feed("abc")
            with Client(**self.losing()) as client:
                [child] = client.open_session(session.id, "text-small").fork(keep=True)
            self.assertEqual(self.client.open_session(child.id, "text-small").info().position, 4)
            self.assertEqual(len(list(self.client.sessions("text-small"))), 2)
            self.client.open_session(child.id, "text-small").delete()

    def test_a_session_that_never_existed_is_not_found(self):
        with Client(**self.losing(0)) as client:
            session = Session(client, SessionInfo("none", "text-small", 0, "IDLE", 0, 0.0), keep=True)
            with self.assertRaises(errors.NotFound):
                session.delete()

    def test_asyncio_makes_and_deletes_too(self):
        async def whole():
            async with aio.Client(**self.losing()) as client:
                session = await client.session("awaited", "text-small", keep=True)
            async with aio.Client(**self.losing()) as client:
                await (await client.open_session("awaited", "text-small")).delete()
            return session.id

        self.assertEqual(asyncio.run(whole()), "awaited")
        with self.assertRaises(errors.NotFound):
            self.client.open_session("awaited", "text-small")


class FullServerTest(unittest.TestCase):
    def test_calls_of_a_session_carry_its_id_for_proxies(self):
        recorder = Recorder()
        with Client(serve(self, recorder)) as client:
            session = Session(client, SessionInfo("mine", "m", 0, "IDLE", 0, 0.0), keep=True)
            for call in (
                lambda: client.session("mine"),
                session.info,
                session.delete,
                session.fork,
                lambda: session.rewind(0),
                session.export,
                lambda: client.load_session(b"x", "mine"),
                lambda: session.score([1]),
                lambda: list(session.generate(expected_position=0)),
                client.models,
            ):
                with self.assertRaises(errors.Unimplemented):
                    call()
        names = [f"{verb}Session" for verb in ("Create", "Get", "Delete", "Fork", "Rewind", "Export", "Import")]
        self.assertEqual(
            recorder.calls, [*((name, "mine") for name in (*names, "Score", "Generate")), ("ListModels", None)]
        )

    def test_a_full_server_is_retried_after_the_time_that_it_gives(self):
        handler = Refusing(8, "50")  # more than the allowed number of lost connections
        with Client(serve(self, handler)) as client:
            stream = client.generate([1])
            self.assertEqual(list(stream.values()), [5])
        times, ids = zip(*handler.asked)
        self.assertEqual(ids, (stream.request_id,) * 9)
        for before, after in zip(times, times[1:]):
            self.assertGreaterEqual(after - before, 0.05)

    def test_a_client_does_not_wait_longer_than_its_timeout(self):
        for pushback, seconds in (("900000", 900), ("-1", float("inf"))):
            handler = Refusing(9, pushback)
            with Client(serve(self, handler), timeout=PATIENCE) as client:
                with self.assertRaisesRegex(errors.ResourceExhausted, "no state is free") as raised:
                    list(client.generate([1]))
                self.assertEqual((raised.exception.retry_after, len(handler.asked)), (seconds, 1))

    def test_asyncio_waits_too(self):
        handler = Refusing(2, "50")

        async def values(address):
            async with aio.Client(address) as client:
                return [value async for value in client.generate([1]).values()]

        self.assertEqual(asyncio.run(values(serve(self, handler))), [5])
        self.assertEqual(len(handler.asked), 3)

    def test_calls_wait_for_room_on_a_real_server(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            flags = ("--threads", "1", "--sessions", "1")
            running = serving.running(RUNNEL, MODELS[2], os.path.join(folder, "log"), flags)
            _, address = stack.enter_context(running)
            client = stack.enter_context(Client(address))
            held = client.session(keep=True)
            with Client(address, retry=Retry(attempts=1)) as impatient, self.assertRaises(errors.ResourceExhausted):
                list(impatient.generate("A", max_values=1))
            with at_first_pause(client, held.delete):
                self.assertEqual(len(list(client.generate("A", max_values=3).values())), 3)


class AsyncioTest(ServedTest):
    def run_with_client(self, body, address=None, **options):
        async def whole():
            async with aio.Client(address or self.address, timeout=PATIENCE, **options) as client:
                return await body(client)

        return asyncio.run(whole())

    def test_calls_run_side_by_side(self):
        async def body(client):
            names = [model.name for model in await client.models()]
            digits = await asyncio.gather(*(client.image(model="mnist-small", seed=seed) for seed in range(4)))
            score = await client.score(digits[0], model="mnist-small")
            return names, digits, score

        names, digits, score = self.run_with_client(body)
        self.assertIn("mnist-small", names)
        for seed, digit in enumerate(digits):
            np.testing.assert_array_equal(digit, self.client.image(model="mnist-small", seed=seed))
        whole = self.client.score(digits[0], model="mnist-small")
        np.testing.assert_array_equal(score.log_probs, whole.log_probs)

    def test_a_session(self):
        async def body(client):
            async with client.session(model="text-endless-small") as session:
                await session.feed("The river was ")
                text = "".join([text async for text in session.generate(max_values=20, seed=1).text()])
                async with session.generate(max_values=60_000) as stream:
                    async for _ in stream:
                        break
                values = [value async for value in session.generate(max_values=3).values()]
                position = (await session.info()).position
                await session.score("x")
                [listed] = [one async for one in client.sessions("text-endless-small")]
            with self.assertRaises(errors.NotFound):
                await client.open_session(session.id, session.model)
            return text, values, position, listed.id == session.id

        text, values, position, listed = self.run_with_client(body)
        [again] = self.client.generate("The river was ", model="text-endless-small", max_values=20, seed=1).samples()
        self.assertEqual((text, len(values), listed), (again.text, 3, True))
        self.assertLess(position, 60_000)

    def test_a_stream_continues_after_a_broken_connection(self):
        async def body(client):
            return await client.generate([0], model="mnist-small", seed=4).samples()

        with CuttingProxy(self.address, BrokenConnectionTest.CUTS) as proxy:
            [found] = self.run_with_client(body, proxy.address, retry=Retry(first_delay=0.01))
            self.assertEqual(proxy.connections, len(BrokenConnectionTest.CUTS) + 1)
        [whole] = self.client.generate([0], model="mnist-small", seed=4).samples()
        self.assertEqual((found.values, found.log_probs), (whole.values, whole.log_probs))

    def test_a_closed_client_ends_its_streams(self):
        async def body(client):
            async with client.session(model="text-endless-small", keep=True) as session:
                stream = aiter(session.generate("A", max_values=60_000))
                await anext(stream)
                await client.close()
                with self.assertRaisesRegex(errors.Cancelled, "the client was closed"):
                    async for _ in stream:
                        pass
                return session.id

        self.client.open_session(self.run_with_client(body), "text-endless-small").delete()

    def test_errors(self):
        async def body(client):
            await client.model("none")

        with self.assertRaisesRegex(errors.NotFound, "no model 'none'"):
            self.run_with_client(body)


class ExamplesTest(ServedTest):
    def test_every_example_runs(self):
        examples = sorted((ROOT / "examples").glob("*.py"))
        self.assertGreaterEqual(len(examples), 4)
        for example in examples:
            with self.subTest(example.name), tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [sys.executable, "-B", example, self.address],
                    cwd=folder,
                    env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=PATIENCE,
                )
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertNotEqual(done.stdout, "")


class PicturesTest(unittest.TestCase):
    def test_a_sheet_is_wider_than_tall(self):
        sheet = pictures.sheet(np.full((3, 2, 2), 7, np.uint8))
        self.assertEqual(sheet.shape, (7, 7))
        self.assertEqual((sheet == 7).sum(), 12)
        colours = pictures.sheet(np.zeros((2, 2, 3, 3), np.uint8), columns=1, gap=0)
        self.assertEqual(colours.shape, (4, 3, 3))


if __name__ == "__main__":
    unittest.main()
