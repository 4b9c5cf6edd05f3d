"""A runnel server for Python tools: started for one bundle or found at an address, and its calls in plain Python.

Needs protoc, and Python with grpcio and protobuf.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent import futures

from runnel_client.bundle import BundleError, check, read_json

PROTO = os.path.join(os.path.abspath(__file__).rsplit(os.sep, 3)[0], "proto")
CHUNK = 65536  # values in one message


def load_messages(directory):
    """The messages of Inference, as a Python module made in `directory`."""
    try:
        import google.protobuf  # noqa: F401
        import grpc  # noqa: F401
    except ImportError as error:
        raise BundleError(f"{error.name} is missing; on Debian: apt install python3-grpcio python3-protobuf") from None
    command = ["protoc", f"-I{PROTO}", f"--python_out={directory}"]
    try:
        subprocess.run([*command, os.path.join(PROTO, "runnel/v1/inference.proto")], check=True)
    except FileNotFoundError:
        raise BundleError("protoc is missing; on Debian: apt install protobuf-compiler") from None
    sys.path.insert(0, directory)
    try:
        from runnel.v1 import inference_pb2
    finally:
        sys.path.remove(directory)
    return inference_pb2


@contextlib.contextmanager
def running(runnel, bundle, log, flags=()):
    """The process of a server on a free port, and its address, from when it is ready for as long as the block lasts."""
    command = [runnel, "serve", bundle, "--address", "127.0.0.1:0", *flags]
    try:
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(command, stderr=file)
    except OSError as error:
        raise BundleError(f"--runnel: {runnel}: {error.strerror}") from None
    try:
        yield process, ready_address(process, log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()


def ready_address(process, log):
    for _ in range(600):
        with open(log, encoding="utf-8") as file:
            text = file.read()
        found = re.search(r"\bready\b.*address=(\S+)", text)
        if found:
            return found.group(1)
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise BundleError("the server did not start: " + text)


@contextlib.contextmanager
def connect(bundle, runnel=None, address=None, flags=()):
    """A Client of the server at `address`, or of one that `runnel` runs for as long as the block lasts."""
    check(
        (runnel is None) != (address is None),
        "give either --runnel, the program to serve with, or --server, the address of a server",
    )
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        messages = load_messages(directory)
        if address is None:
            _, address = stack.enter_context(running(runnel, bundle, os.path.join(directory, "log"), flags))
        model = read_json(os.path.join(bundle, "config.json"), "BUNDLE")["name"]
        yield stack.enter_context(Client(messages, address, model))


class Client:
    """Score and Generate of one model; many sequences go side by side, so that they share batches."""

    def __init__(self, messages, address, model):
        import grpc

        self.messages, self.model, self.error = messages, model, grpc.RpcError
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", 1 << 26)]
        self.channel = grpc.insecure_channel(address, options=options)
        self.calls = futures.ThreadPoolExecutor(32)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.calls.shutdown(cancel_futures=True)
        self.channel.close()

    def score(self, sequences):
        """For each sequence the log-probabilities of all values but the first, in order."""
        return list(self.calls.map(self._score, sequences))

    def generate(self, prompts, **fields):
        """For each prompt the values of its samples, prompts left out: a list of lists of values."""
        return list(self.calls.map(lambda prompt: self._generate(prompt, **fields), prompts))

    def _score(self, values):
        messages, values = self.messages, [int(value) for value in values]

        def requests():
            for start in range(0, len(values), CHUNK):
                request = messages.ScoreRequest(model=self.model)
                request.values.values.extend(values[start : start + CHUNK])
                yield request

        call = self.channel.stream_stream(
            "/runnel.v1.Inference/Score",
            request_serializer=messages.ScoreRequest.SerializeToString,
            response_deserializer=messages.ScoreResponse.FromString,
        )
        found = []
        with self.failures_told():
            for response in call(requests(), timeout=3600):
                found.extend(response.chunk.log_probs)
        return found

    def _generate(self, prompt, sampling=None, **fields):
        messages = self.messages
        request = messages.GenerateRequest(model=self.model, **fields)
        request.values.values.extend(int(value) for value in prompt)
        for key, value in (sampling or {}).items():
            setattr(request.sampling, key, value)
        call = self.channel.unary_stream(
            "/runnel.v1.Inference/Generate",
            request_serializer=messages.GenerateRequest.SerializeToString,
            response_deserializer=messages.GenerateResponse.FromString,
        )
        samples = [[] for _ in range(fields.get("samples", 1))]
        with self.failures_told():
            for response in call(request, timeout=3600):
                for run in response.values.runs:
                    samples[run.sample].extend(run.values)
        return samples

    @contextlib.contextmanager
    def failures_told(self):
        try:
            yield
        except self.error as error:
            raise BundleError(f"the server said {error.code().name}: {error.details()}") from None
