# bench/fake_quantize.py: fake_quantize as a share of memcpy's speed.
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mxkern
from bench.copy_shares import shares
from bench.inputs import check_equal, random_matrix
from bench.shapes import DTYPES, MEGABYTES, SCHEMES


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme and dtype, for which there is no goal. NVFP4 with a given amax."""
    for dtype in DTYPES:
        x = random_matrix(dtype, MEGABYTES[0])
        y = np.empty_like(x)
        cases = [_case(x, y, scheme) for scheme in SCHEMES]
        yield from shares(x.nbytes, cases, dtype=dtype, megabytes=MEGABYTES[0], goal=None)


def _case(x: np.ndarray, y: np.ndarray, scheme: str) -> tuple[Callable[[], object], int]:
    given = {}
    if mxkern.schemes[scheme].has_tensor_scale:
        given["amax"] = float(mxkern.tensor_amax(x))
    mxkern.fake_quantize(x, scheme, out=y, **given)
    two_calls = mxkern.dequantize(mxkern.quantize(x[:64], scheme, **given), dtype=x.dtype)
    check_equal(f"fake_quantize {scheme}", y[:64], two_calls)
    return lambda: mxkern.fake_quantize(x, scheme, out=y, **given), x.nbytes + y.nbytes
