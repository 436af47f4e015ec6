# mxkern/ops/fake_quantize.py: quantize and dequantize in one call.
from __future__ import annotations

from typing import Unpack

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values.keywords import FakeKeywords, Takes
from mxkern.values.names import SchemeName
from mxkern.values.scheme import Scheme
from mxkern.values.value import Array

_FAKE_QUANTIZE = Takes("fake_quantize", FakeKeywords)


@_FAKE_QUANTIZE
def fake_quantize(x: Array, scheme: SchemeName | Scheme, **keywords: Unpack[FakeKeywords]) -> Array:
    """dequantize(quantize(x, scheme, ...), dtype=x.dtype): x as a scheme would give it back, in one
    pass, without codes and scales in memory.

    x    [..., K], float32, float16, bfloat16 or float64, which is rounded once
    axis the one that blocks run along; out is for the last one
    out  an array of x's shape and dtype to write to, or x itself; it is returned. There may be gaps
         between its rows
    The other arguments and errors as for mxkern.quantize.

    A value beyond the range of x's dtype becomes Inf: 65504 in float16 under the MX schemes, whose
    nearest value is 65536.
    Returns an array of x's shape, dtype and framework. In transformations of JAX its derivative is
    that of the identity ("straight through"). For PyTorch it has none here; the function of this
    name in mxkern.torch has that one.

    >>> import mxkern, numpy as np
    >>> mxkern.fake_quantize(np.float32([1, 2.1, 3, 4.4, 6]), "mxfp4")
    array([1., 2., 3., 4., 6.], dtype=float32)
    """
    result: Array = _core.fake_quantize(calls, _FAKE_QUANTIZE.core, x, scheme, keywords)
    return result
