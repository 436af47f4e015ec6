# bench/copy_shares.py: times of calls as shares of memcpy's speed.
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mxkern
from bench.copy_speed import ParallelCopy, best_times
from bench.shapes import SCHEMES, copy_goal

SECONDS = 5.0  # of one group: memcpy with one and with all threads, and every scheme, in turn


def shares(
    size: int, cases: list[tuple[Callable[[], object], int]], **facts: Any
) -> Iterator[dict[str, Any]]:
    """One record a scheme of a call and the bytes it moves, beside copies of `size` bytes."""
    copies = [ParallelCopy(size, threads) for threads in (1, mxkern.info().threads)]
    times = best_times([*copies, *(call for call, _ in cases)], SECONDS)
    one, all_ = (copy.bytes_moved / time for copy, time in zip(copies, times, strict=False))
    for scheme, (_, moved), seconds in zip(SCHEMES, cases, times[len(copies) :], strict=True):
        yield {
            "scheme": scheme,
            "goal": copy_goal(scheme),
            **facts,
            "seconds": seconds,
            "bytes": moved,
            "memcpy_bytes_per_second": all_,
            "memcpy_one_thread_bytes_per_second": one,
            "share": moved / seconds / all_,
        }
