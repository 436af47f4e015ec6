# mxkern/ops/quantize_schemes.py: quantize under the name of each family of schemes.
from __future__ import annotations

from typing import Any, Literal, Unpack

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.keywords import MxKeywords, NvfpKeywords, Takes
from mxkern.values.scheme import Scheme, schemes
from mxkern.values.value import Array

MXFP8 = {"e4m3": schemes["mxfp8_e4m3"], "e5m2": schemes["mxfp8_e5m2"]}
MXFP6 = {"e2m3": schemes["mxfp6_e2m3"], "e3m2": schemes["mxfp6_e3m2"]}
_MXFP4 = schemes["mxfp4"]
_MXINT8 = schemes["mxint8"]
_NVFP4 = schemes["nvfp4"]


_QUANTIZE_MXFP8 = Takes("quantize_mxfp8", MxKeywords)


@_QUANTIZE_MXFP8
def quantize_mxfp8(
    x: Array, *, format: Literal["e4m3", "e5m2"] = "e4m3", **keywords: Unpack[MxKeywords]
) -> BlockScaled[Array]:
    """8-bit floats, one power of two for 32 elements along the last axis: 8.25 bits an element.

    x       [..., K], float32, float16 or bfloat16
    format  "e4m3" (largest 448) or "e5m2" (largest 57344)
    The other arguments, dtypes and errors as for mxkern.quantize.

    >>> import mxkern, numpy as np
    >>> mxkern.quantize_mxfp8(np.float32([1, -2, 700])).codes.astype(np.float32)
    array([  0.5,  -1. , 352. ], dtype=float32)
    """
    return _core.quantize(
        calls, _QUANTIZE_MXFP8.core, False, x, record_of("quantize_mxfp8", format, MXFP8), keywords
    )


_QUANTIZE_MXFP6 = Takes("quantize_mxfp6", MxKeywords)


@_QUANTIZE_MXFP6
def quantize_mxfp6(
    x: Array, *, format: Literal["e2m3", "e3m2"] = "e2m3", **keywords: Unpack[MxKeywords]
) -> BlockScaled[Array]:
    """6-bit floats, one power of two for 32 elements along the last axis: 6.25 bits an element.
    Four codes are packed in three bytes, low bits first.

    x       [..., K], float32, float16 or bfloat16
    format  "e2m3" (largest 7.5) or "e3m2" (largest 28)
    The other arguments, dtypes and errors as for mxkern.quantize.

    >>> import mxkern, numpy as np
    >>> mxkern.quantize_mxfp6(np.ones(64, np.float32)).codes.shape
    (48,)
    """
    return _core.quantize(
        calls, _QUANTIZE_MXFP6.core, False, x, record_of("quantize_mxfp6", format, MXFP6), keywords
    )


_QUANTIZE_MXFP4 = Takes("quantize_mxfp4", MxKeywords)


@_QUANTIZE_MXFP4
def quantize_mxfp4(x: Array, **keywords: Unpack[MxKeywords]) -> BlockScaled[Array]:
    """4-bit floats (e2m1, largest 6), one power of two for 32 elements along the last axis:
    4.25 bits an element. Element 2i is in the low half of byte i.

    x  [..., K], float32, float16 or bfloat16
    The other arguments, dtypes and errors as for mxkern.quantize.

    >>> import mxkern, numpy as np
    >>> hex(mxkern.quantize_mxfp4(np.float32([1, 6])).codes[0])
    '0x72'
    """
    return _core.quantize(calls, _QUANTIZE_MXFP4.core, False, x, _MXFP4, keywords)


_QUANTIZE_MXINT8 = Takes("quantize_mxint8", MxKeywords)


@_QUANTIZE_MXINT8
def quantize_mxint8(x: Array, **keywords: Unpack[MxKeywords]) -> BlockScaled[Array]:
    """8-bit integers in 64ths (largest 127/64), one power of two for 32 elements along the last
    axis: 8.25 bits an element.

    x  [..., K], float32, float16 or bfloat16
    The other arguments, dtypes and errors as for mxkern.quantize.

    >>> import mxkern, numpy as np
    >>> mxkern.quantize_mxint8(np.float32([1, -0.5])).codes
    array([ 64, -32], dtype=int8)
    """
    return _core.quantize(calls, _QUANTIZE_MXINT8.core, False, x, _MXINT8, keywords)


_QUANTIZE_NVFP4 = Takes("quantize_nvfp4", NvfpKeywords)


@_QUANTIZE_NVFP4
def quantize_nvfp4(x: Array, **keywords: Unpack[NvfpKeywords]) -> BlockScaled[Array]:
    """4-bit floats (e2m1, largest 6), an e4m3 scale for 16 elements along the last axis and a
    float32 for the tensor: 4.5 bits an element.

    x              [..., K], float32, float16 or bfloat16
    block          "1x16", or "16x16" for one scale a square tile
    four_over_six  the better of two scales for each block: True, "mse" or "mae", as for quantize
    amax           the tensor's largest magnitude, if known: one pass over x less
    tensor_scale   the float32 that values are multiplied with, instead of amax
    The other arguments, dtypes and errors as for mxkern.quantize.

    >>> import mxkern, numpy as np
    >>> q = mxkern.quantize_nvfp4(np.float32([[1, 6], [0, 3]]))
    >>> round(float(q.tensor_scale) * 2688, 5)
    6.0
    """
    return _core.quantize(calls, _QUANTIZE_NVFP4.core, False, x, _NVFP4, keywords)


def record_of(function: str, format: Any, formats: dict[str, Scheme]) -> Scheme:
    """The scheme of a family for a format name."""
    try:
        return formats[format]
    except (KeyError, TypeError, ValueError):
        raise errors.unknown_name(function, "format", format, formats) from None
