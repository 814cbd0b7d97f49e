"""Timing of GPU work and output of results, for programs that measure PyTorch."""

import json
import statistics

import torch


def say(**fields):
    """Prints one JSON object as a line."""
    print(json.dumps(fields), flush=True)


def seconds(calls, repeats):
    """The median time of one call. The calls, on different data, repeat in one CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        # Compilation and tuning at the first call must not be captured.
        for _ in range(2):
            for call in calls:
                call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in calls:
                call()
        times = []
        for _ in range(repeats + 2):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record(stream)
            graph.replay()
            end.record(stream)
            stream.synchronize()
            times.append(start.elapsed_time(end) / 1e3 / len(calls))
    return statistics.median(times[2:])
