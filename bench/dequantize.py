# bench/dequantize.py: dequantize as a share of memcpy's speed.
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mxkern
from bench.copy_shares import shares
from bench.decode import decoded
from bench.inputs import NUMPY_DTYPES, check_equal, random_matrix
from bench.shapes import DTYPES, MEGABYTES, SCHEMES


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme, dtype, size and scale layout. The size is that of the output."""
    for dtype in DTYPES:
        for megabytes in MEGABYTES:
            yield from _group(dtype, megabytes, "row_major")
        yield from _group(dtype, MEGABYTES[0], "swizzled")


def _group(dtype: str, megabytes: int, layout: str) -> Iterator[dict[str, Any]]:
    x = random_matrix(dtype, megabytes)
    y = np.empty_like(x)
    cases = [_case(x, y, scheme, dtype, layout) for scheme in SCHEMES]
    yield from shares(
        x.nbytes,
        cases,
        dtype=dtype,
        megabytes=megabytes,
        scale_layout=layout,
    )


def _case(
    x: np.ndarray, y: np.ndarray, scheme: str, dtype: str, layout: str
) -> tuple[Callable[[], object], int]:
    q = mxkern.quantize(x, scheme, scale_layout=layout)
    mxkern.dequantize(q, out=y)
    amax = {"amax": float(mxkern.tensor_amax(x))} if q.tensor_scale is not None else {}
    part = mxkern.quantize(x[:64], scheme, **amax)
    check_equal(f"dequantize {scheme}", y[:64], decoded(part).astype(NUMPY_DTYPES[dtype]))
    return lambda: mxkern.dequantize(q, out=y), q.nbytes + y.nbytes
