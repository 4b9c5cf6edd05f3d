"""Calls to a runnel server in plain Python. Needs grpcio and protobuf."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from typing import Any

from runnel_client import command, messages
from runnel_client.access import Access
from runnel_client.errors import BundleError

CHUNK = 65536  # values in one message


class Client:
    """Score and Generate of one model; many sequences go side by side, so that they share batches."""

    def __init__(self, address: str, model: str, access: Access | None = None):
        """Without `access`, as the environment says: RUNNEL_TLS_CA, RUNNEL_API_KEY and so on."""
        access = access or Access.from_environment()
        try:
            import grpc
        except ImportError as error:
            raise command.missing(error) from None
        self.messages, self.model, self.error = messages.inference(), model, grpc.RpcError
        options: list[tuple[str, str | int]] = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", 1 << 26),
        ]
        self.channel, self.metadata = access.channel(address, options), access.metadata(address)
        self.calls = futures.ThreadPoolExecutor(32)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.shutdown(cancel_futures=True)
        self.channel.close()

    def score(self, sequences: Iterable[Sequence[int]]) -> list[list[float]]:
        """For each sequence the log-probabilities of all values but the first, in order."""
        return list(self.calls.map(self._score, sequences))

    def generate(self, prompts: Iterable[Sequence[int]], **fields: Any) -> list[list[list[int]]]:
        """For each prompt the values of its samples, prompts left out. `fields` are those of GenerateRequest."""
        return list(self.calls.map(lambda prompt: self._generate(prompt, **fields), prompts))

    def _score(self, sequence: Sequence[int]) -> list[float]:
        values = [int(value) for value in sequence]

        def requests() -> Iterator[Any]:
            for start in range(0, len(values), CHUNK):
                request = self.messages.ScoreRequest(model=self.model)
                request.values.values.extend(values[start : start + CHUNK])
                yield request

        call = self.channel.stream_stream(
            "/runnel.v1.Inference/Score",
            request_serializer=self.messages.ScoreRequest.SerializeToString,
            response_deserializer=self.messages.ScoreResponse.FromString,
        )
        found: list[float] = []
        with self._failures_told():
            for response in call(requests(), timeout=3600, metadata=self.metadata):
                found.extend(response.chunk.log_probs)
        return found

    def _generate(
        self, prompt: Sequence[int], sampling: dict[str, Any] | None = None, **fields: Any
    ) -> list[list[int]]:
        request = self.messages.GenerateRequest(model=self.model, **fields)
        request.values.values.extend(int(value) for value in prompt)
        for key, value in (sampling or {}).items():
            setattr(request.sampling, key, value)
        call = self.channel.unary_stream(
            "/runnel.v1.Inference/Generate",
            request_serializer=self.messages.GenerateRequest.SerializeToString,
            response_deserializer=self.messages.GenerateResponse.FromString,
        )
        samples: list[list[int]] = [[] for _ in range(fields.get("samples", 1))]
        with self._failures_told():
            for response in call(request, timeout=3600, metadata=self.metadata):
                for run in response.values.runs:
                    samples[run.sample].extend(run.values)
        return samples

    @contextlib.contextmanager
    def _failures_told(self) -> Iterator[None]:
        try:
            yield
        except self.error as error:
            raise BundleError(f"the server said {error.code().name}: {error.details()}") from None
