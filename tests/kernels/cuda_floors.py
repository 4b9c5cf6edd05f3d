#!/usr/bin/env python3
"""Prints the shortest time of a step of the whole-model kernel, by the bytes that it moves, for docs/internals/cuda.md.

A step reads the weights of the layers from the cache, and reads and writes the states. The table assumes the bandwidths
below. Embedding, head and activations are left out.
"""

import cuda_code

# Of the paper's models: layers, and numbers of each of their weights.
WIDTH, HEADS, HEAD, FFN = 256, 8, 32, 1024
MODELS = {"MNIST": 8, "CIFAR-10": 16}
CLUSTERS = {1: 1, 64: 8, 1024: 32}  # that read all weights, by rows, as whole_launch.h chooses
REPLAY = 8  # positions from one write of a state to the next (replay.h)
# Taken, not measured: bytes a second of an H200's memory, and of its cache where 132 multiprocessors get 32 a cycle at
# 1.755 GHz; and how much the cache holds.
MEMORY, CACHE, CACHE_BYTES = 4.3e12, 7.4e12, 60 << 20


def floors_table():
    """In Markdown, a row to a model and a number of rows."""
    rows = []
    for model, layers in MODELS.items():
        weights = 2 * layers * WIDTH * (4 * HEADS * HEAD + 2 * FFN)
        state = 4 * layers * HEADS * (HEAD + 1) * HEAD
        entry = 4 * layers * HEADS * 2 * HEAD  # of a log, which is half full at a time
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
