# bench/cuda/timing.py: the time of work on a GPU, without that of the host that launches it.
from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch

ROUNDS = 15
RESTED_ROUNDS = 9
REST_SECONDS = 0.1
SETTLE_SECONDS = 0.06  # until the clock is what the power of this work allows
MICROSECONDS = 4000.0  # of one round, so that the clock's steps do not show
MOST_CALLS = 1024  # of one round
L2_BYTES = 60 << 20
MOST_SETS = 2048  # enough for 96 KB each


def copies_needed(bytes_of_one: int) -> int:
    """How many sets of buffers it takes until a turn through all of them leaves the cache cold."""
    return max(1, min(MOST_SETS, -(-3 * L2_BYTES // max(bytes_of_one, 1))))


def median_seconds(calls: Sequence[Callable[[], object]], settle: float = 0.0) -> float:
    """Of one call: the calls take turns in a CUDA graph, which is replayed. The median counts, of
    what comes after so many seconds of the same."""
    graph, count = _graph_of(calls)
    replayed = 0.0
    while replayed < settle:
        replayed += sum(_replays(graph, 1))
    return statistics.median(_replays(graph, ROUNDS)) / count


def rested_seconds(calls: Sequence[Callable[[], object]]) -> float:
    """The same of a device that has rested before each round and is not yet at its limit of power,
    where it lowers its clock."""
    graph, count = _graph_of(calls)
    times = []
    for _ in range(RESTED_ROUNDS):
        time.sleep(REST_SECONDS)
        times.append(_replays(graph, 2)[-1])  # the first one raises the clock
    return statistics.median(times) / count


def _graph_of(calls: Sequence[Callable[[], object]]) -> tuple[torch.cuda.CUDAGraph, int]:
    """A round of calls that take turns, and how many they are."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    turns, wanted = 0, 1
    while turns < wanted:
        turns = wanted
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(turns):
                for call in calls:
                    call()
        seconds = _replays(graph, 2)[-1]
        wanted = turns_wanted(turns, len(calls), seconds)
    return graph, turns * len(calls)


def turns_wanted(turns: int, calls: int, seconds: float) -> int:
    """How many turns a round should have, where one of `turns` took so long; as many if they do."""
    most = max(1, MOST_CALLS // calls)
    if seconds * 1e6 > MICROSECONDS or turns >= most:
        return turns
    return min(max(turns * 2, int(turns * 1.3 * MICROSECONDS / (seconds * 1e6))), most)


def _replays(graph: torch.cuda.CUDAGraph, rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return times


def copy_bytes_per_second(shape: tuple[int, int] = (16384, 8192)) -> float:
    """Of a device-to-device copy of a bfloat16 tensor, bytes read and written."""
    bytes_of_one = shape[0] * shape[1] * 2
    pairs = []
    for _ in range(copies_needed(bytes_of_one)):
        source = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        pairs.append((source, torch.empty_like(source)))
    seconds = median_seconds([partial(target.copy_, source) for source, target in pairs])
    return 2 * bytes_of_one / seconds
