# mxkern/ops/dequantize.py: codes and scales back to a plain tensor.
from __future__ import annotations

from typing import Any

from mxkern import _core
from mxkern.arrays import adapter_of
from mxkern.arrays.adapter import PLAIN_DTYPES
from mxkern.block_scaled import BlockScaled, above
from mxkern.operands import operand_of
from mxkern.options import dtype_position
from mxkern.outputs import check_dtype_of_out, checked_out, extents_of, on_stream, out_buffer


def dequantize(
    q: BlockScaled,
    *,
    dtype: Any = "float32",
    out: Any = None,
    stream: int | None = None,
) -> Any:
    """code * scale (* tensor scale) for each element, in float32, rounded once to dtype.

    q       a BlockScaled; any bytes are valid codes and scales. A NaN scale makes its block NaN.
    dtype   "float32", "float16" or "bfloat16", or a framework's object of that name; with out,
            that of out, which dtype may not contradict unless it is "float32"
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
    function = "dequantize"
    result_dtype = dtype_position(function, dtype)
    if stream is None and isinstance(q, BlockScaled) and hasattr(q, "codes"):
        own = adapter_of(function, "q.codes", q.codes)
        if out is not None:
            check_dtype_of_out(function, result_dtype, own, out)
        y = None if own.short_way is None else own.short_way.dequantize(q, result_dtype, out)
        if y is not None:
            if out is not None:
                own.mark_written(out)
            return y
    if stream is not None:
        with on_stream(function, stream, operand_of(function, "q", q).adapter, q.codes):
            return dequantize(q, dtype=dtype, out=out)
    operand = operand_of(function, "q", q)
    adapter, shape = operand.adapter, operand.shape
    like = operand.parts[0]
    if out is None:
        array = adapter.empty(function, shape, PLAIN_DTYPES[result_dtype], like)
    else:
        taken = extents_of(adapter, *operand.parts)
        check_dtype_of_out(function, result_dtype, adapter, out)
        array = checked_out(
            function, "out", out, adapter, shape, PLAIN_DTYPES, like, taken, rows_apart=True
        )
        result_dtype = adapter.plain_dtypes[array.dtype]
    buffer = out_buffer(adapter, array, result_dtype, adapter.device(like))
    _core.dequantize(operand.view, buffer, adapter.stream(like))
    return adapter.leave(array, q.codes) if out is None else out


above.dequantize = dequantize
