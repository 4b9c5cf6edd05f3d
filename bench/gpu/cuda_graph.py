"""Captures a step in PyTorch as a CUDA graph, and measures how long a step takes."""

import time

import torch

STEPS_BETWEEN_WAITS = 10


def captured(step):
    """The step as one launch."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def timed(step, seconds):
    """The seconds that a step takes, measured for about `seconds`."""
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(STEPS_BETWEEN_WAITS):
            step()
        torch.cuda.synchronize()
        count += STEPS_BETWEEN_WAITS
    return (time.perf_counter() - begin) / count
