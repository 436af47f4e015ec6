# mxkern/ops/hadamard.py: the random Hadamard transform.
from __future__ import annotations

from typing import Any

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values import errors
from mxkern.values.options import ANY_SIZE, hadamard_of
from mxkern.values.value import Array


def random_hadamard(
    x: Array,
    size: int = 16,
    *,
    sign_mask: int | None = None,
    inverse: bool = False,
    out: Any = None,
    stream: int | None = None,
) -> Array:
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
    result: Array = _core.random_hadamard(calls, x, size, low, high, inverse, out, stream)
    return result
