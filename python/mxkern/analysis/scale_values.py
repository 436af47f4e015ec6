# mxkern/analysis/scale_values.py: what the bytes of block scales stand for.
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from mxkern.values.code_table import table
from mxkern.values.element_format import element_format

Floats = npt.NDArray[np.float32]


def scale_values(scale_format: str, scales: npt.NDArray[Any]) -> Floats:
    """The value of each scale, in float32; NaN for those of poisoned blocks."""
    if scales.dtype == np.float32:
        return scales.astype(np.float32)
    codes: npt.NDArray[Any] = scales.view(f"u{scales.dtype.itemsize}")
    values = _values(scale_format)
    found: Floats = values[codes & (values.size - 1)]  # UE4M3's eighth bit is not looked at
    return found


@functools.cache
def _values(scale_format: str) -> Floats:
    """The values of all codes of a format. Powers of two have no zero, others no sign, and all ones
    is NaN; with 8 exponent and some mantissa bits what is not finite is as in IEEE 754."""
    name = scale_format.lower()
    if name.startswith("u"):
        found = element_format("scale_values", "scale_format", name)
        special = "ieee" if found.exponent_bits == 8 else "nan"
        return np.array(table(f"{name}_{special}").values, np.float32)
    exponent_bits = int(name.removeprefix("e").removesuffix("m0"))
    bias = (1 << (exponent_bits - 1)) - 1
    powers = [math.ldexp(1.0, code - bias) for code in range((1 << exponent_bits) - 1)]
    return np.array([*powers, math.nan], np.float32)


def exponents_of(values: Floats) -> Floats:
    """The exponent of the largest power of two that is no larger than a value: -inf for 0, and NaN
    for what is not finite."""
    fraction, exponent = np.frexp(values)
    found = (exponent - 1).astype(np.float32)
    found[values == 0] = -np.inf
    found[~np.isfinite(fraction)] = np.nan
    return found
