# mxkern/ops/round_to.py: elementwise rounding to a format, without blocks and scales.
from __future__ import annotations

from typing import Any

from mxkern.ops import custom_calls
from mxkern.ops.custom_request import rounding_options
from mxkern.values.names import AnyRounding
from mxkern.values.value import Array


def round_to(
    x: Array,
    format: str,
    *,
    rounding: AnyRounding = "nearest",
    random_bits: int = 16,
    subnormals: bool = True,
    saturate: bool = False,
    seed: int | None = None,
    offset: Any = 0,
    out: Any = None,
    stream: int | None = None,
) -> Array:
    """x with each element rounded to a value of a format, in x's dtype.

    x            float32, float16, bfloat16 or float64, which is rounded once and not through
                 float32
    format       "e5m10": 0 to 8 exponent and 0 to 23 mantissa bits; "ue4m3" without a sign; "int8"
                 (code / 64); "_none", "_nan" or "_ieee" behind it says which codes are not finite.
                 "float16", "bfloat16" and "tf32" are e5m10, e8m7 and e8m10
    rounding     "nearest" (ties to even), "nearest_away", "toward_zero", "up", "down", or
                 "stochastic", which needs a seed
    random_bits  of stochastic rounding: 1 to 16 bits an element
    subnormals   False: what rounds to a subnormal becomes 0
    saturate     False: what rounds beyond the largest value becomes Inf, where the format has one,
                 or NaN, where it has that; True, or where it has neither: the largest value
    seed, offset of stochastic rounding, as for mxkern.quantize
    out          an array of x's shape and dtype to write to, or x itself; it is returned
    stream       CUDA: a stream handle, instead of the framework's current stream

    NaN stays NaN, in formats without one too. A format without a sign takes negative values to 0.
    Returns an array of x's shape, dtype and framework.

    >>> import mxkern, numpy as np
    >>> mxkern.round_to(np.float32([1.1, 70000, 1e-8]), "e5m10")
    array([1.0996094,       inf, 0.       ], dtype=float32)
    """
    options = rounding_options(
        "round_to",
        rounding=rounding,
        random_bits=random_bits,
        subnormals=subnormals,
        saturate=saturate,
        seed=seed,
        offset=offset,
    )
    rounded: Array = custom_calls.round_to("round_to", x, format, options, out, stream)
    return rounded
