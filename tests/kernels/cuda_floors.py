#!/usr/bin/env python3
"""Prints a lower bound on the time of a step of the whole-model kernel, from the bytes that it moves.

A step reads the weights of the layers from the cache, and reads and writes the states. The table for
docs/internals/cuda.md assumes the bandwidths below and leaves out the embedding, the head and the activations.
"""

import cuda_code

# The models of the paper: their sizes and numbers of layers.
WIDTH, HEADS, HEAD, FFN = 256, 8, 32, 1024
MODELS = {"MNIST": 8, "CIFAR-10": 16}
CLUSTERS = {1: 1, 64: 8, 1024: 32}  # clusters that each read all weights, by rows, as whole_launch.h chooses
REPLAY = 8  # positions from one write of a state to the next (replay.h)
# Assumed, not measured, for an H200: bytes per second of its memory, bytes per second of its cache (132 multiprocessors
# that get 32 bytes a cycle at 1.755 GHz), and the size of the cache.
MEMORY, CACHE, CACHE_BYTES = 4.3e12, 7.4e12, 60 << 20


def floors_table():
    """A Markdown table with a row for each model and number of rows."""
    rows = []
    for model, layers in MODELS.items():
        weights = 2 * layers * WIDTH * (4 * HEADS * HEAD + 2 * FFN)
        state = 4 * layers * HEADS * (HEAD + 1) * HEAD
        entry = 4 * layers * HEADS * 2 * HEAD  # of a log, which is half full on average
        replayed = state + entry * (REPLAY - 1) / 2 + (state + entry * (REPLAY - 1)) / REPLAY
        for batch, clusters, replay in [*((*one, False) for one in CLUSTERS.items()), (*max(CLUSTERS.items()), True)]:
            states = batch * (replayed if replay else 2 * state)  # read and written
            stays = weights + batch * state <= CACHE_BYTES
            memory = 0 if stays else states
            cache = clusters * weights + states
            times = memory / MEMORY * 1e6, cache / CACHE * 1e6
            rows.append(
                [
                    f"{model}, replay" if replay else model,
                    f"{batch:,}",
                    f"{clusters}",
                    f"{memory / 1e6:,.0f}",
                    f"{cache / 1e6:,.0f}",
                ]
                + [f"{time:,.1f}" for time in times]
                + [f"{batch / max(times) * 1e6 / (783 if model == 'MNIST' else 3071):,.0f}"]
            )
    return cuda_code.markdown(
        ["paper's size", "rows", "clusters", "MB, memory", "MB, cache", "us, memory", "us, cache", "images/s, at most"],
        rows,
    )


if __name__ == "__main__":
    print(floors_table(), end="")
