# bench/copy_speed.py: copying memory with all cores, the measure of what an operation could reach.
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt


class ParallelCopy:
    """Copies one array to another of its size, each thread its own slice; NumPy's copy of equal
    types is memcpy and runs without the interpreter lock. Both arrays are warm."""

    def __init__(self, nbytes: int, threads: int) -> None:
        source = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
        self._slices = list(
            zip(
                np.array_split(source, threads),
                np.array_split(np.empty_like(source), threads),
                strict=True,
            )
        )
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self.bytes_moved = 2 * nbytes  # read and written
        self()

    def __call__(self) -> None:
        own, *others = self._slices
        waiting = [self._pool.submit(_copy, pair) for pair in others] if self._pool else []
        _copy(own)
        for future in waiting:
            future.result()


def _copy(pair: tuple[npt.NDArray[Any], npt.NDArray[Any]]) -> None:
    source, destination = pair
    np.copyto(destination, source)


def wait_until_idle(longest: float = 0.5) -> None:
    """Returns once no thread of this process computes, or after `longest` seconds. Threads of BLAS
    libraries spin after their work, OpenBLAS's for 0.11 s, and slow whatever is timed next."""
    deadline = time.perf_counter() + longest
    while time.perf_counter() < deadline:
        computed = time.process_time()
        time.sleep(0.01)  # Linux counts the time of running threads at ticks, 4 to 10 ms apart
        if time.process_time() - computed < 0.001:
            return


def best_times(
    functions: Sequence[Callable[[], object]],
    seconds: float,
    least: int = 5,
    *,
    idle_before: bool = False,
) -> list[float]:
    """The shortest time of each function in seconds. They take turns, so that what else runs on
    the machine slows all of them or none; after `seconds` and `least` rounds it is enough.
    `idle_before` has each wait for the threads of the one before; it matters beside BLAS."""
    best = [float("inf")] * len(functions)
    started = time.perf_counter()
    rounds = 0
    while rounds < least or time.perf_counter() - started < seconds:
        for index, function in enumerate(functions):
            if idle_before:
                wait_until_idle()
            begin = time.perf_counter()
            function()
            best[index] = min(best[index], time.perf_counter() - begin)
        rounds += 1
    return best
