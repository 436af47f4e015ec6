# mxkern/ops/combine.py: the rows that copies of a token became, added up to one for each token.
from __future__ import annotations

from typing import Any

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values import errors
from mxkern.values.names import Dtype
from mxkern.values.value import Array

_MOST_TOKENS = 2**31 - 2


def combine(
    y: Array,
    rows: Any,
    weights: Any,
    tokens: int,
    *,
    dtype: Dtype | None = None,
    out: Any = None,
    stream: int | None = None,
) -> Array:
    """For each token t the sum of weights[i] * y[i] over all i with rows[i] == t, in the order of
    i: products and sums are float32, and the sum is rounded once. A token without rows gets zeros.

    y        [M, N], float32, float16 or bfloat16
    rows     an int32 array [M]: the token that each row of y is of, as grouped_gemm takes it, or -1
             for a row of no token
    weights  a float32 array [M], or None, which is 1 for each
    tokens   how many there are
    dtype    "float32", "float16" or "bfloat16"; None: that of out, or of y
    out      an array [tokens, N] to write to; it is returned
    stream   CUDA: a stream handle, instead of the framework's current stream

    The same bytes at each call, and on every device. On the CPU other numbers in rows than -1 to
    tokens - 1 raise ValueError; a CUDA device reads them when its turn comes, and all of the result
    is NaN then. Returns an array [tokens, N] of y's framework. Raises TypeError, ValueError,
    RuntimeError.

    >>> import mxkern, numpy as np
    >>> y = np.float32([[1, 2], [10, 20], [100, 200]])
    >>> mxkern.combine(y, np.int32([1, 0, 1]), np.float32([1, 1, 0.5]), 3)
    array([[ 10.,  20.],
           [ 51., 102.],
           [  0.,   0.]], dtype=float32)
    """
    count = errors.integer("combine", "tokens", tokens, 0, _MOST_TOKENS)
    result: Array = _core.combine(calls, y, rows, weights, count, dtype, out, stream)
    return result
