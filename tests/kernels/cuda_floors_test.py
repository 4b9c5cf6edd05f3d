#!/usr/bin/env python3
"""Compares docs/internals/cuda.md with the table of cuda_floors.py."""

import pathlib
import unittest

import cuda_floors

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "internals" / "cuda.md"


class CudaFloors(unittest.TestCase):
    def test_the_documentation_has_the_table(self):
        self.assertIn(cuda_floors.floors_table(), PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
