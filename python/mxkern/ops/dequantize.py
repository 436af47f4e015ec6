# mxkern/ops/dequantize.py: codes and scales back to a plain tensor.
from __future__ import annotations

from typing import Any, overload

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values.block_scaled import BlockScaled, above
from mxkern.values.names import Dtype
from mxkern.values.value import Array, NumPyArray


@overload
def dequantize(
    q: BlockScaled[NumPyArray], *, dtype: Dtype = ..., out: Any = ..., stream: int | None = ...
) -> NumPyArray: ...
@overload
def dequantize(
    q: BlockScaled[Array], *, dtype: Dtype = ..., out: Any = ..., stream: int | None = ...
) -> Array: ...
def dequantize(
    q: BlockScaled,
    *,
    dtype: Dtype = "float32",
    out: Any = None,
    stream: int | None = None,
) -> Any:
    """code * scale (* tensor scale) for each element, in float32, rounded once to dtype.

    q       a BlockScaled; any bytes are valid codes and scales. A NaN scale makes its block NaN.
    dtype   "float32", "float16" or "bfloat16", or a framework's object of that name; with out,
            that of out, which dtype may not contradict unless it is "float32". Of schemes of your
            own "float64" too
    out     an array of q's shape to write to; it is returned. There may be gaps between its rows
    stream  CUDA: a stream handle, instead of the framework's current stream

    A value beyond the range of dtype becomes Inf: in float16 what came from 65504 under an MX
    scheme, whose nearest value is 65536.
    What was quantized with hadamard= decodes to transformed values: random_hadamard(dequantize(q),
    16, inverse=True) undoes a transform of 16.
    Returns an array of q's shape and framework. Raises TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> q = mxkern.quantize(np.float32([1, 2, 3, 4.4]), "mxfp4")
    >>> mxkern.dequantize(q)
    array([1., 2., 3., 4.], dtype=float32)
    """
    return _core.dequantize(calls, q, dtype, out, stream)


above.dequantize = dequantize
