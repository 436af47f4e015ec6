# mxkern/ops/scales.py: block scales from one layout to the other.
from __future__ import annotations

import math
from typing import Any

from mxkern import _core, errors
from mxkern.arrays import Adapter, adapter_of
from mxkern.arrays.adapter import TracedCalls
from mxkern.block_scaled import BlockScaled
from mxkern.outputs import checked_out, extents_of, on_stream
from mxkern.scheme import Shape, schemes, swizzled_size

_DTYPES = tuple(dict.fromkeys([*(scheme.scales_dtype for scheme in schemes), "uint8"]))


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
    function = "swizzle_scales"
    calls = _traced_calls(function, scales, stream)
    traced = None if calls is None else calls.swizzle_scales(scales, out)
    if traced is not None:
        return traced
    adapter, array = _scales(function, scales)
    shape = tuple(array.shape)
    rows, blocks = (shape[-2] if len(shape) > 1 else 1), shape[-1]
    target = (*shape[:-2], swizzled_size(rows, blocks))
    move = (math.prod(shape[:-2]), rows, blocks)
    return _moved(function, _core.swizzle_scales, adapter, scales, array, move, target, out, stream)


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
    calls = _traced_calls(function, scales, stream)
    traced = None if calls is None else calls.unswizzle_scales(scales, rows, blocks, out)
    if traced is not None:
        return traced
    adapter, array = _scales(function, scales)
    shape = tuple(array.shape)
    if shape[-1] != swizzled_size(rows, blocks):
        raise ValueError(
            f"{function}: scales has shape {shape}; expected a last axis of "
            f"{swizzled_size(rows, blocks)} for rows={rows} and blocks={blocks}, flat for each "
            "matrix; flatten the tiles with scales.reshape(*batch, -1)"
        )
    move = (math.prod(shape[:-1]), rows, blocks)
    target = (*shape[:-1], rows, blocks)
    return _moved(
        function, _core.unswizzle_scales, adapter, scales, array, move, target, out, stream
    )


def _traced_calls(function: str, scales: Any, stream: int | None) -> TracedCalls | None:
    """What makes a program of the operation, or a part of one, where scales ask for it."""
    if stream is not None or isinstance(scales, BlockScaled):
        return None
    return adapter_of(function, "scales", scales).traced_calls


def _scales(function: str, scales: Any) -> tuple[Adapter, Any]:
    if isinstance(scales, BlockScaled):
        raise TypeError(
            f"{function}: scales is a BlockScaled; expected its scales; pass q.scales, and put the "
            "result into q.replace(scales=..., scale_layout=...)"
        )
    adapter = adapter_of(function, "scales", scales)
    array = adapter.enter(function, "scales", scales)
    if adapter.dtype_name(array) not in _DTYPES:
        raise TypeError(
            f"{function}: scales has dtype {adapter.dtype_name(array)}; expected "
            f"{errors.listed(_DTYPES)}; reinterpret bytes with {adapter.as_bytes('scales')}"
        )
    if not array.shape:
        raise ValueError(f"{function}: scales is 0-d; expected one dimension or more")
    return adapter, array


def _moved(
    function: str,
    operation: Any,
    adapter: Adapter,
    scales: Any,
    array: Any,
    move: tuple[int, int, int],
    target: Shape,
    out: Any,
    stream: int | None,
) -> Any:
    with on_stream(function, stream, adapter, scales):
        dtype = adapter.dtype_name(array)
        if out is None:
            moved = adapter.empty(function, target, dtype, array)
        else:
            taken = extents_of(adapter, array)
            moved = checked_out(function, "out", out, adapter, target, (dtype,), array, taken)
        dense = array if adapter.is_dense(array) else adapter.dense(array)
        operation(
            adapter.address(dense),
            adapter.address(moved),
            *move,
            adapter.device(array),
            adapter.stream(array),
        )
        return adapter.leave(moved, scales) if out is None else out
