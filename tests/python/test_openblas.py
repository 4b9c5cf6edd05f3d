"""OpenBLAS is told to use the processor's vectors, unless the user names a processor."""

import os
import pathlib
import unittest
from unittest import mock

from runnel_client import openblas


def chosen(flags: str, **environment: str) -> str | None:
    with (
        mock.patch.object(pathlib.Path, "read_text", return_value=f"flags\t\t: fpu sse2 {flags}\n"),
        mock.patch.dict(os.environ, environment, clear=True),
    ):
        openblas.use_vectors()
        return os.environ.get("OPENBLAS_CORETYPE")


class UseVectors(unittest.TestCase):
    def test_the_widest_vectors_are_named(self) -> None:
        self.assertEqual(chosen("avx2 avx512bw"), "SKYLAKEX")
        self.assertEqual(chosen("avx2"), "HASWELL")
        self.assertIsNone(chosen("avx"))

    def test_the_user_decides(self) -> None:
        self.assertEqual(chosen("avx2 avx512bw", OPENBLAS_CORETYPE="ZEN"), "ZEN")

    def test_a_system_without_proc_is_left_alone(self) -> None:
        with mock.patch.object(pathlib.Path, "read_text", side_effect=FileNotFoundError):
            openblas.use_vectors()


if __name__ == "__main__":
    unittest.main()
