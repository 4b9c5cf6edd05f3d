#!/usr/bin/env python3
"""Tests how cuda_profile.py reads samples, and that the parts that it names are in the source."""

import pathlib
import tempfile
import unittest

import cuda_code
import cuda_profile

WHOLE = ["x", "    products_.run(qkv(layer), out(layer), {", "    block_.meet(bytes, [&] {", "      embed(step);"]
CSV = """"Kernel Name","entry"
"Address","Source","Warp Stall Sampling (All Samples)","Instructions Executed"
"0x0","HMMA","7","20"
"0x10","BAR","2","10"
"""


def instruction(*lines):
    return cuda_code.Instruction(0, "NOP", "", None, lines)


class CudaProfile(unittest.TestCase):
    def test_every_part_has_a_line(self):
        lines = (cuda_code.KERNELS / "whole.h").read_text(encoding="utf-8").splitlines()
        found = {cuda_profile.part_of(line) for line in lines}
        self.assertEqual(found - {None}, {name for _, name in cuda_profile.PARTS})

    def test_the_innermost_line_decides_except_outside_of_the_layers(self):
        self.assertEqual(
            cuda_profile.part([("tile.h", 9), ("whole.h", 2), ("whole.h", 3)], WHOLE), "queries, keys, values"
        )
        self.assertEqual(cuda_profile.part([("whole.h", 3), ("whole.h", 4)], WHOLE), "outside of the layers")
        self.assertEqual(cuda_profile.part([("whole.h", 1)], WHOLE), "rest")

    def test_samples_are_summed_by_part_or_by_line(self):
        with tempfile.TemporaryDirectory() as place:
            path = pathlib.Path(place) / "samples.csv"
            path.write_text(CSV)
            samples = cuda_profile.read_samples(path)
        self.assertEqual(samples, [(7, 20), (2, 10)])
        code = [instruction(("tile_product.h", 5), ("whole.h", 2)), instruction(("whole.h", 3))]
        self.assertEqual(
            cuda_profile.shares(code, samples, WHOLE), {"queries, keys, values": [7, 20], "meetings": [2, 10]}
        )
        self.assertEqual(
            cuda_profile.shares(code, samples, WHOLE, "queries, keys, values"), {("tile_product.h", 5): [7, 20]}
        )


if __name__ == "__main__":
    unittest.main(verbosity=1)
