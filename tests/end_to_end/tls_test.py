"""TLS and keys over real connections: `runnel serve`, its commands, and grpcio as a client by others.

    RUNNEL=build/release/runnel tests/end_to_end/tls_test.py

Run by ctest (end_to_end.tls), which sets the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc

from runnel_client import aio, messages, serving
from runnel_client.access import Access
from runnel_client.client import Client
from runnel_client.errors import AccessError

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNEL = os.environ.get("RUNNEL") or str(ROOT / "build/release/runnel")
PATIENCE = 600.0  # seconds until an event counts as one that never comes: the machine may be busy with other things
HEALTH = ("health", "--timeout", str(PATIENCE))
SECRET = "a-key-of-no-use-0123456789"
pb = messages.inference()


def certificates(folder: pathlib.Path, *hosts: str) -> pathlib.Path:
    subprocess.run([ROOT / "scripts/certificates", folder, *hosts], check=True)
    return folder


def wait_until(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def runnel(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    line, environment = [RUNNEL, *words], {**os.environ, **variables}
    return subprocess.run(line, capture_output=True, text=True, check=False, env=environment, timeout=PATIENCE)


def shown(address: str) -> str:
    """The certificate that the server sends on a new connection."""
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)))


class Place:
    """A folder with certificates, and the server that uses them."""

    def __init__(self) -> None:
        self.holder = tempfile.TemporaryDirectory(prefix="runnel_tls_")
        self.folder = pathlib.Path(self.holder.name)
        self.ours = certificates(self.folder / "ours")
        self.others = certificates(self.folder / "others")
        self.log = self.folder / "log"

    def path(self, name: str) -> str:
        return str(self.ours / name)

    def read(self, name: str) -> bytes:
        return (self.ours / name).read_bytes()

    @contextlib.contextmanager
    def serving(self, *flags: str, bundle: str = "zoo/mnist-small") -> Iterator[str]:
        files = ("--tls-cert", self.path("server.pem"), "--tls-key", self.path("server.key"))
        with serving.running(RUNNEL, str(ROOT / bundle), str(self.log), (*files, *flags)) as (_, address):
            yield address

    def said(self, words: str) -> int:
        return self.log.read_text().count(words)


def draw(channel: grpc.Channel, values: int, **fields: Any) -> Any:
    call = channel.unary_stream(
        "/runnel.v1.Inference/Generate",
        request_serializer=pb.GenerateRequest.SerializeToString,
        response_deserializer=pb.GenerateResponse.FromString,
    )
    request = pb.GenerateRequest(**{"model": "mnist-small", "max_values": values, **fields})
    return call(request, timeout=PATIENCE)


def drawn(responses: Any) -> int:
    return sum(len(run.values) for response in responses for run in response.values.runs)


async def drawn_by_asyncio(address: str, access: Access) -> int:
    async with aio.Client(address, access=access) as client:
        return len([value async for value in client.generate([1], max_values=10).values()])


class Tls(unittest.TestCase):
    place: Place

    @classmethod
    def setUpClass(cls) -> None:
        cls.place = Place()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.place.holder.cleanup()

    def credentials(self, **own: Any) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.place.read("ca.pem"), **own)

    def own(self) -> dict[str, bytes]:
        return {"private_key": self.place.read("client.key"), "certificate_chain": self.place.read("client.pem")}

    def fails(self, words: str, *arguments: str, **variables: str) -> None:
        result = runnel(*HEALTH, *arguments, **variables)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn(words, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, "one line")

    def test_everyone_is_served_by_tls(self) -> None:
        ca = self.place.path("ca.pem")
        with self.place.serving() as address:
            with grpc.secure_channel(address, self.credentials()) as channel:
                self.assertEqual(drawn(draw(channel, 100)), 100)
            self.assertEqual(runnel(*HEALTH, "--server", address, "--tls-ca", ca).stdout, "SERVING\n")
            by_environment = runnel("info", "--server", address, RUNNEL_TLS_CA=ca)
            self.assertIn("mnist-small", by_environment.stdout)
            load = (
                "load",
                "--rate",
                "20",
                "--duration",
                "0.5",
                "--warm-up",
                "0",
                "--values",
                "8",
                "--connections",
                "2",
            )
            self.assertIn("calls/s", runnel(*load, "--server", address, "--tls-ca", ca).stdout)
            bench = ("bench", "--what", "streams", "--batch", "2", "--seconds", "0.1")
            measured = runnel(*bench, "--server", address, "--tls-ca", ca)
            self.assertEqual(measured.returncode, 0, measured.stderr)
            with Client(address, access=Access(tls_ca=ca)) as client:
                self.assertEqual(len(list(client.generate([1], max_values=10).values())), 10)
            self.assertEqual(asyncio.run(drawn_by_asyncio(address, Access(tls_ca=ca))), 10)
            self.assertIn('certificate subject="CN=server" expires=20', self.place.log.read_text())

    def test_connections_are_http2_by_tls_1_2_or_later(self) -> None:
        context = ssl.create_default_context(cafile=self.place.path("ca.pem"))
        context.set_alpn_protocols(["http/1.1", "h2"])
        with self.place.serving() as address:
            port = int(address.rpartition(":")[2])
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context.minimum_version = context.maximum_version = version
                with (
                    socket.create_connection(("127.0.0.1", port)) as plain,
                    context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
                ):
                    self.assertEqual(connection.selected_alpn_protocol(), "h2")

    def test_a_server_that_is_not_trusted_is_named_as_such(self) -> None:
        with self.place.serving() as address:
            ca, other = self.place.path("ca.pem"), str(self.place.others / "ca.pem")
            self.fails(f"is not signed by an authority in {other}", "--server", address, "--tls-ca", other)
            self.fails(
                "not for 'example.org', and has these names: DNS:localhost, IP Address:127.0.0.1",
                *("--server", address, "--tls-ca", ca, "--tls-name", "example.org"),
            )
            self.fails(f"{address} speaks TLS: add --tls-ca FILE", "--server", address)
            wrong = grpc.ssl_channel_credentials((self.place.others / "ca.pem").read_bytes())
            with grpc.secure_channel(address, wrong) as channel, self.assertRaises(grpc.RpcError) as refused:
                drawn(draw(channel, 10))
            self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_a_server_of_another_name_needs_the_tls_name(self) -> None:
        elsewhere = certificates(self.place.folder / "elsewhere", "models.example.org")
        files = ("--tls-cert", str(elsewhere / "server.pem"), "--tls-key", str(elsewhere / "server.key"))
        with serving.running(RUNNEL, str(ROOT / "zoo/mnist-small"), str(self.place.log), files) as (_, address):
            known = ("--server", address, "--tls-ca", str(elsewhere / "ca.pem"))
            self.fails("not for '127.0.0.1', and has these names: DNS:models.example.org", *known)
            named = runnel(*HEALTH, *known, "--tls-name", "models.example.org")
            self.assertEqual(named.stdout, "SERVING\n", named.stderr)
            access = Access(tls_ca=str(elsewhere / "ca.pem"), tls_name="models.example.org")
            with Client(address, access=access) as client:
                self.assertEqual(len(list(client.generate([1], max_values=10).values())), 10)

    def test_tls_to_a_server_without_it_is_named_as_such(self) -> None:
        with serving.running(RUNNEL, str(ROOT / "zoo/mnist-small"), str(self.place.log)) as (_, address):
            self.fails("it does not speak TLS", "--server", address, "--tls-ca", self.place.path("ca.pem"))

    def test_clients_need_a_certificate_if_the_server_requires_one(self) -> None:
        ca = self.place.path("ca.pem")
        with self.place.serving("--tls-client-ca", ca) as address:
            self.fails("wants a certificate of its clients", "--server", address, "--tls-ca", ca)
            stranger = [str(self.place.others / name) for name in ("client.pem", "client.key")]
            self.fails(
                "does not take the certificate in",
                *("--server", address, "--tls-ca", ca, "--tls-cert", stranger[0], "--tls-key", stranger[1]),
            )
            own = {"RUNNEL_TLS_CA": ca, "RUNNEL_TLS_CERT": self.place.path("client.pem")}
            served = runnel(*HEALTH, "--server", address, **own, RUNNEL_TLS_KEY=self.place.path("client.key"))
            self.assertEqual(served.stdout, "SERVING\n", served.stderr)
            with grpc.secure_channel(address, self.credentials(**self.own())) as channel:
                self.assertEqual(drawn(draw(channel, 10)), 10)
            with (
                grpc.secure_channel(address, self.credentials()) as channel,
                self.assertRaises(grpc.RpcError) as refused,
            ):
                drawn(draw(channel, 10))
            self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_a_stream_continues_while_certificate_and_authority_change(self) -> None:
        samples, values = 64, 512
        # The client does not read the stream while the certificates change.
        with self.place.serving("--stall-timeout-ms", "600000", bundle="zoo/text-small") as address:
            with grpc.secure_channel(address, self.credentials()) as channel:
                stream = draw(channel, values, model="text-small", samples=samples)
                got = drawn([next(stream), next(stream)])
                before = shown(address)
                self.assertLess(got, samples * values)
                for name in ("ca.key", "ca.pem"):  # for a new authority, so the old certificates lose their trust
                    (self.place.ours / name).unlink()
                certificates(self.place.ours)
                self.assertTrue(wait_until(lambda: shown(address) != before), self.place.log.read_text())
                self.assertEqual(got + drawn(stream), samples * values)
            with grpc.secure_channel(address, self.credentials()) as channel:
                self.assertEqual(drawn(draw(channel, 10, model="text-small")), 10)
        self.assertEqual(self.place.said("info certificate"), 2)

    def test_a_certificate_without_its_key_is_refused_and_the_old_one_stays(self) -> None:
        with self.place.serving() as address:
            before = shown(address)
            new = certificates(self.place.folder / "new")
            for name in ("server.pem", "server.key"):
                self.assertEqual(shown(address), before)
                os.replace(new / name, self.place.ours / name)
                if name == "server.pem":
                    self.assertTrue(wait_until(lambda: self.place.said("is not the key of") == 1))
                    self.assertEqual(shown(address), before)
            self.assertTrue(wait_until(lambda: shown(address) != before))
            self.assertEqual(self.place.said("is not the key of"), 1)
        certificates(self.place.ours)

    def test_an_unfinished_handshake_is_closed(self) -> None:
        with (
            self.place.serving() as address,
            socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as silent,
        ):
            silent.sendall(b"\x16\x03\x01")  # how a handshake begins
            silent.settimeout(PATIENCE)
            self.assertEqual(silent.recv(1), b"")

    def test_a_waiting_client_is_served_by_a_server_that_starts_later(self) -> None:
        path, process = self.place.path, os.getpid()
        # Only this test uses this address, so no other program takes its port before the server starts.
        with socket.create_server((f"127.1.{process >> 8 & 255}.{process & 255}", 0)) as nobody:
            address = "{}:{}".format(*nobody.getsockname())
            known = ("--server", address, "--tls-ca", path("ca.pem"), "--tls-name", "localhost")
            health = [RUNNEL, "health", "--wait", str(PATIENCE), *known]
            waiting = subprocess.Popen(health, stdout=subprocess.PIPE, text=True)
            nobody.accept()[0].close()  # the first attempt fails
        serve = [RUNNEL, "serve", str(ROOT / "zoo/mnist-small"), "--address", address]
        files = ["--tls-cert", path("server.pem"), "--tls-key", path("server.key")]
        with subprocess.Popen([*serve, *files], stderr=subprocess.DEVNULL) as server:
            self.assertEqual(waiting.communicate(timeout=2 * PATIENCE)[0], "SERVING\n")
            server.terminate()

    def test_invalid_files_are_one_error_at_the_start(self) -> None:
        path = self.place.path
        for flags, words in (
            (("--tls-cert", path("server.pem")), "tls.cert is set and tls.key is not"),
            (("--tls-client-ca", path("ca.pem")), "tls.client_ca is set and tls.cert is not"),
            (("--tls-cert", path("none"), "--tls-key", path("server.key")), "none: cannot be opened"),
            (("--tls-cert", path("server.pem"), "--tls-key", path("client.key")), "is not the key of"),
            (("--tls-cert", path("server.key"), "--tls-key", path("server.key")), "has no certificate"),
            (("--tls-cert", path("server.pem"), "--tls-key", path("server.pem")), "has no private key"),
        ):
            result = runnel("serve", str(ROOT / "zoo/mnist-small"), "--address", "127.0.0.1:0", *flags)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(words, result.stderr.splitlines()[-1])


class Recorder(grpc.GenericRpcHandler):
    """A server that records the authorization header of each call."""

    def __init__(self) -> None:
        self.heard: list[str | None] = []

    def service(self, details: Any) -> Any:
        self.heard.append(dict(details.invocation_metadata).get("authorization"))
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"\x08\x01")


class Keys(unittest.TestCase):
    def test_each_call_carries_the_key(self) -> None:
        recorder = Recorder()
        server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[recorder])
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        with tempfile.TemporaryDirectory() as folder:
            file, another = pathlib.Path(folder) / "key", pathlib.Path(folder) / "another"
            file.write_text(SECRET + "\n")
            another.write_text("another\n")
            health = (*HEALTH, "--server", address)
            for words, variables in (
                (("--api-key", SECRET), {}),
                (("--api-key-file", str(file)), {}),
                ((), {"RUNNEL_API_KEY": SECRET}),
                ((), {"RUNNEL_API_KEY_FILE": str(file), "RUNNEL_API_KEY": "another"}),
                (("--api-key", SECRET), {"RUNNEL_API_KEY_FILE": str(another), "RUNNEL_API_KEY": "another"}),
                (("--api-key-file", str(file)), {"RUNNEL_API_KEY_FILE": str(another), "RUNNEL_API_KEY": "another"}),
                (("--api-key-file", str(file), "--api-key", "another"), {}),
            ):
                self.assertEqual(runnel(*health, *words, **variables).stdout, "SERVING\n")
                self.assertEqual(recorder.heard.pop(), f"Bearer {SECRET}")
            runnel(*health)
            self.assertEqual(recorder.heard, [None])
        server.stop(None).wait()

    def test_no_key_is_sent_to_another_machine_without_tls(self) -> None:
        for address in ("192.0.2.1:50051", "localhost.example.org:50051"):
            result = runnel("health", "--server", address, "--api-key", SECRET)
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"the key would go to '{address}' in the clear", result.stderr)
            self.assertNotIn(SECRET, result.stderr)
            with self.assertRaisesRegex(AccessError, "in the clear"):
                Client(address, access=Access(api_key=SECRET))
        self.assertEqual(Access(api_key=SECRET).metadata("127.0.0.1:1"), [("authorization", f"Bearer {SECRET}")])


class Certificates(unittest.TestCase):
    """scripts/certificates says what is wrong, and replaces no authority."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="runnel_tls_")
        self.addCleanup(holder.cleanup)
        self.folder = certificates(pathlib.Path(holder.name, "with a space"))
        self.before = self.files()

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def assert_refused(self, reason: str, *hosts: str) -> None:
        command = [str(ROOT / "scripts/certificates"), str(self.folder), *hosts]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        self.assertEqual(result.returncode, 1)
        self.assertIn(reason, result.stderr)
        self.assertEqual({name: text for name, text in self.files().items() if name in self.before}, self.before)

    def test_a_host_that_cannot_be_in_a_certificate_is_named(self) -> None:
        self.assert_refused("IP:999.1.1.1", "999.1.1.1")
        self.assertEqual(set(self.files()) - set(self.before), {"server.key.new"})

    def test_an_authority_without_its_key_is_kept(self) -> None:
        (self.folder / "ca.key").unlink()
        del self.before["ca.key"]
        self.assert_refused("ca.key is missing")
        self.assertEqual(self.files(), self.before)

    def test_new_certificates_are_signed_by_the_same_authority(self) -> None:
        certificates(self.folder)
        now = self.files()
        self.assertEqual({name for name in now if now[name] == self.before[name]}, {"ca.key", "ca.pem"})


class Recipe(unittest.TestCase):
    def test_the_script_runs(self) -> None:
        result = subprocess.run(
            [ROOT / "scripts/demo_tls", RUNNEL], capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        for words in ("without a certificate: refused", "renewed under load: completed:", "HAProxy"):
            self.assertIn(words, result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
