# mxkern/ops/swiglu.py: the activation between the two products of a feed-forward layer.
from __future__ import annotations

import math
from typing import Any

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values import errors
from mxkern.values.value import Array


def swiglu(
    x: Array,
    *,
    alpha: float = 1.0,
    limit: float | None = None,
    offset: float = 0.0,
    interleaved: bool = False,
    out: Any = None,
    stream: int | None = None,
) -> Array:
    """g / (1 + exp(-alpha * g)) * (u + offset) of gates g and of what they let through, u: computed
    in float32 and rounded once to x's dtype. The same bytes on every device.

    x            [..., 2 F], float32, float16 or bfloat16: gates first, u in the second half
    alpha        a number; 1 is plain SwiGLU, as Llama has it
    limit        gates above it become limit, and u is kept within -limit and limit; None: neither
    offset       a number that is added to u
    interleaved  gates are the elements of even index, and u those of odd index
    out          an array [..., F] of x's dtype to write to; it is returned
    stream       CUDA: a stream handle, instead of the framework's current stream

    gpt-oss has alpha=1.702, limit=7, offset=1 and interleaved=True. Returns an array [..., F] of
    x's dtype and framework. Raises TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> mxkern.swiglu(np.float32([[0, 100, 5, 2]]))
    array([[  0., 200.]], dtype=float32)
    >>> mxkern.swiglu(np.float32([[0, 5, 100, 2]]), limit=7, offset=1, interleaved=True).round(1)
    array([[ 0., 21.]], dtype=float32)
    """
    errors.flag("swiglu", "interleaved", interleaved)
    bound = math.inf if limit is None else limit
    result: Array = _core.swiglu(calls, x, alpha, bound, offset, interleaved, out, stream)
    return result
