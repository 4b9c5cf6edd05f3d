"""Sends many sequences to a server at the same time, so that they share batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent import futures
from typing import TYPE_CHECKING

from runnel_client.client import Client
from runnel_client.options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Batch:
    """Calls to one model, at most `at_once` of them together."""

    def __init__(self, client: Client, model: str, at_once: int = 32):
        self._client, self._model = client, model
        self._calls = futures.ThreadPoolExecutor(at_once)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        # After an error, such as Ctrl-C, calls may still run: the client's close() ends them.
        self._calls.shutdown(wait=False, cancel_futures=True)

    def score(self, sequences: Iterable[Sequence[int]]) -> list[list[float]]:
        """For each sequence, in order, the log-probabilities of all values except the first."""

        def log_probs(sequence: Sequence[int]) -> list[float]:
            found: list[float] = self._client.score(sequence, model=self._model).log_probs.tolist()
            return found

        return list(self._calls.map(log_probs, sequences))

    def generate(self, prompts: Iterable[Sequence[int]], **options: Unpack[Options]) -> list[list[list[int]]]:
        """For each prompt, the values of its samples without the prompt."""
        all_options: Options = {**options, "model": self._model}

        def values(prompt: Sequence[int]) -> list[list[int]]:
            return [sample.values for sample in self._client.generate(prompt, **all_options).samples()]

        return list(self._calls.map(values, prompts))
