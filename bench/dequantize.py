# bench/dequantize.py: dequantize as a share of memcpy's speed.
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mxkern
from bench.decode import decoded
from bench.inputs import NUMPY_DTYPES, check_equal, random_matrix
from bench.shapes import DTYPES, MEGABYTES, SCHEMES, copy_goal
from mxkern.copy_speed import ParallelCopy, best_times

SECONDS = 5.0


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme, dtype, size and scale layout. The size is that of the output."""
    for dtype in DTYPES:
        for megabytes in MEGABYTES:
            yield from _group(dtype, megabytes, "row_major")
        yield from _group(dtype, MEGABYTES[0], "swizzled")


def _group(dtype: str, megabytes: int, layout: str) -> Iterator[dict[str, Any]]:
    x = random_matrix(dtype, megabytes)
    copies = [ParallelCopy(x.nbytes, threads) for threads in (1, mxkern.info().threads)]
    y = np.empty_like(x)
    cases = [_case(x, y, scheme, dtype, layout) for scheme in SCHEMES]
    times = best_times([*copies, *(call for call, _ in cases)], SECONDS)
    one, all_ = (copy.bytes_moved / time for copy, time in zip(copies, times, strict=False))
    for scheme, (_, moved), seconds in zip(SCHEMES, cases, times[len(copies) :], strict=True):
        yield {
            "scheme": scheme,
            "dtype": dtype,
            "megabytes": megabytes,
            "scale_layout": layout,
            "seconds": seconds,
            "bytes": moved,
            "memcpy_bytes_per_second": all_,
            "memcpy_one_thread_bytes_per_second": one,
            "share": moved / seconds / all_,
            "goal": copy_goal(scheme),
        }


def _case(
    x: np.ndarray, y: np.ndarray, scheme: str, dtype: str, layout: str
) -> tuple[Callable[[], object], int]:
    q = mxkern.quantize(x, scheme, scale_layout=layout)
    mxkern.dequantize(q, out=y)
    amax = {"amax": float(mxkern.tensor_amax(x))} if q.tensor_scale is not None else {}
    part = mxkern.quantize(x[:64], scheme, **amax)
    check_equal(f"dequantize {scheme}", y[:64], decoded(part).astype(NUMPY_DTYPES[dtype]))
    return lambda: mxkern.dequantize(q, out=y), q.nbytes + y.nbytes
