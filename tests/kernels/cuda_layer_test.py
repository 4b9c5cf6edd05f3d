#!/usr/bin/env python3
"""What cuda_layer.py reads from the kernels' sources: the functions and the parts that it names are there."""

import unittest

import cuda_code
import cuda_layer


class CudaLayer(unittest.TestCase):
    def test_the_functions_that_it_counts_are_in_the_sources(self):
        named = {"await", "load_inputs", "multiply", "make_room", "read_biases", "finish", "give"}
        named |= {"take", "take_shared", "await_shared", "multiply_shared"}
        self.assertLessEqual(named, {name for _, _, name in cuda_layer.functions("tile_product.h")})
        named = {"load", "catch_up", "features", "advance", "store"}
        self.assertLessEqual(named, {name for _, _, name in cuda_layer.functions("tile_recur.h")})

    def test_each_line_of_a_function_is_of_one_function(self):
        for first, last, name in cuda_layer.functions("tile_product.h"):
            inside = [other for begin, _, other in cuda_layer.functions("tile_product.h") if first < begin <= last]
            self.assertEqual(inside, [], name)

    def test_every_part_of_a_layer_has_a_line(self):
        lines = (cuda_code.KERNELS / "whole.h").read_text(encoding="utf-8").splitlines()
        found = {cuda_layer.Walk.part(line) for line in lines}
        self.assertLessEqual({"qkv", "out", "linear1", "linear2", "recurrence", "norm", "meet"}, found)


if __name__ == "__main__":
    unittest.main(verbosity=1)
