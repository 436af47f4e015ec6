# mxkern/ops/hadamard.py: the random Hadamard transform.
from __future__ import annotations

from typing import Any

from mxkern import _core, errors
from mxkern.arrays import adapter_of
from mxkern.options import ANY_SIZE, check_hadamard_groups, hadamard_of
from mxkern.outputs import checked_out, extents_of, on_stream, out_buffer


def random_hadamard(
    x: Any,
    size: int = 16,
    *,
    sign_mask: int | None = None,
    inverse: bool = False,
    out: Any = None,
    stream: int | None = None,
) -> Any:
    """(x * sign) H / sqrt(size) for each group of size elements along the last axis, in float32,
    rounded once to x's dtype. H[r][c] = (-1)^popcount(r & c).

    x          [..., K], float32, float16 or bfloat16; K a multiple of size
    size       16, 32, 64 or 128
    sign_mask  bit i set negates element i of a group; by default Transformer Engine's 0xD7E8,
               repeated for longer groups
    inverse    undo it: (x H / sqrt(size)) * sign
    out        an array of x's shape and dtype to write to, or x itself; it is returned. There may
               be gaps between its rows
    stream     CUDA: a stream handle, instead of the framework's current stream

    Returns an array of x's shape, dtype and framework. Raises TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> x = np.arange(16, dtype=np.float32)
    >>> y = mxkern.random_hadamard(x)
    >>> bool(np.allclose(mxkern.random_hadamard(y, inverse=True), x, atol=1e-5))
    True
    """
    function = "random_hadamard"
    errors.flag(function, "inverse", inverse)
    if type(size) is not int:
        size = errors.integer(function, "size", size, -ANY_SIZE, ANY_SIZE)
    size, low, high = hadamard_of(function, "size", size, sign_mask)
    adapter = adapter_of(function, "x", x)
    if adapter.traced_calls is not None and stream is None:
        y = adapter.traced_calls.random_hadamard(x, size, low, high, inverse, out)
        if y is not None:
            return y
    with on_stream(function, stream, adapter, x):
        plain = adapter.plain(function, "x", adapter.enter(function, "x", x))
        columns = plain.shape[-1]
        check_hadamard_groups(function, "x has a last axis of", columns, "it", "size", size)
        dtype = adapter.dtype_name(plain.memory)
        if out is None:
            array = adapter.empty(function, plain.shape, dtype, plain.array)
        else:
            # In place is fine; a shifted overlap is not.
            in_place = out is x and plain.memory is plain.array
            taken = [] if in_place else extents_of(adapter, plain.array)
            shape, like = plain.shape, plain.array
            array = checked_out(
                function, "out", out, adapter, shape, (dtype,), like, taken, rows_apart=True
            )
        number, device = plain.buffer[1:3]
        buffer = out_buffer(adapter, array, number, device)
        _core.random_hadamard(
            plain.buffer, buffer, size, low, high, inverse, adapter.stream(plain.array)
        )
        return adapter.leave(array, x) if out is None else out
