# mxkern/ops/scales.py: block scales from one layout to the other.
from __future__ import annotations

from typing import Any, overload

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values import errors
from mxkern.values.value import Array, NumPyArray


@overload
def swizzle_scales(
    scales: NumPyArray, *, out: Any = ..., stream: int | None = ...
) -> NumPyArray: ...
@overload
def swizzle_scales(scales: Array, *, out: Any = ..., stream: int | None = ...) -> Array: ...
def swizzle_scales(scales: Any, *, out: Any = None, stream: int | None = None) -> Any:
    """Row-major block scales in the 128x4 tiles that cuBLAS, CUTLASS and torch's SWIZZLE_32_4_4
    read. Rows are padded to 128 and blocks to 4 with zero bytes, each matrix on its own.

    scales  [*batch, rows, blocks] or [blocks], one byte each
    out     [*batch, roundup(rows, 128) * roundup(blocks, 4)] to write to; it is returned
    stream  CUDA: a stream handle, instead of the framework's current stream

    Returns an array of scales' dtype and framework. Raises TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> mxkern.swizzle_scales(np.ones((2, 200, 5), np.uint8)).shape
    (2, 2048)
    """
    return _core.move_scales(calls, "swizzle_scales", scales, -1, -1, out, stream)


@overload
def unswizzle_scales(
    scales: NumPyArray, rows: int, blocks: int, *, out: Any = ..., stream: int | None = ...
) -> NumPyArray: ...
@overload
def unswizzle_scales(
    scales: Array, rows: int, blocks: int, *, out: Any = ..., stream: int | None = ...
) -> Array: ...
def unswizzle_scales(
    scales: Any, rows: int, blocks: int, *, out: Any = None, stream: int | None = None
) -> Any:
    """The inverse of swizzle_scales: [*batch, rows, blocks] without the padding.

    scales        [*batch, roundup(rows, 128) * roundup(blocks, 4)], one byte each
    rows, blocks  of one matrix
    out           [*batch, rows, blocks] to write to; it is returned
    stream        CUDA: a stream handle, instead of the framework's current stream

    Returns an array of scales' dtype and framework. Raises TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> scales = np.arange(12, dtype=np.uint8).reshape(3, 4)
    >>> bool((mxkern.unswizzle_scales(mxkern.swizzle_scales(scales), 3, 4) == scales).all())
    True
    """
    function = "unswizzle_scales"
    rows = errors.integer(function, "rows", rows, 0, 2**31 - 1)
    blocks = errors.integer(function, "blocks", blocks, 0, 2**31 - 1)
    return _core.move_scales(calls, function, scales, rows, blocks, out, stream)
