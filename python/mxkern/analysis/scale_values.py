# mxkern/analysis/scale_values.py: what the bytes of block scales stand for.
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from mxkern.values.custom_scheme import core_of
from mxkern.values.scheme import Scheme

Floats = npt.NDArray[np.float32]


def scale_values(scheme: Scheme, scales: npt.NDArray[Any]) -> Floats:
    """The value of each block scale of a scheme, in float32; NaN for those of poisoned blocks."""
    if scheme.scale_bits == 32:
        return scales.astype(np.float32)
    codes: npt.NDArray[Any] = scales.view("uint8" if scheme.scale_bits == 8 else "uint16")
    found: Floats = _values(scheme)[codes]
    return found


@functools.lru_cache(maxsize=64)
def _values(scheme: Scheme) -> Floats:
    """Those of all codes."""
    core = core_of(scheme)
    codes = range(1 << scheme.scale_bits)
    return np.array([core.decode_scale(code) for code in codes], np.float32)


def exponents_of(values: Floats) -> Floats:
    """The exponent of the largest power of two that is no larger than a value: -inf for 0, and NaN
    for what is not finite."""
    fraction, exponent = np.frexp(values)
    found = (exponent - 1).astype(np.float32)
    found[values == 0] = -np.inf
    found[~np.isfinite(fraction)] = np.nan
    return found
