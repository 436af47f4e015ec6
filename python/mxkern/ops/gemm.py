# mxkern/ops/gemm.py: the block-scaled matrix product.
from __future__ import annotations

from typing import Any, Unpack, overload

from mxkern import _core
from mxkern.ops import custom_calls
from mxkern.ops.calls import calls
from mxkern.values.keywords import GemmKeywords
from mxkern.values.names import Dtype, GemmPrecision
from mxkern.values.prepared_operand import Operand
from mxkern.values.value import Array, NumPyArray


@overload
def gemm(a: Any, b: Operand[NumPyArray], **keywords: Unpack[GemmKeywords]) -> NumPyArray: ...
@overload
def gemm(a: Any, b: Operand[Array], **keywords: Unpack[GemmKeywords]) -> Array: ...
def gemm(
    a: Any,
    b: Operand[Any],
    *,
    dtype: Dtype = "float32",
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Any = None,
    precision: GemmPrecision = "auto",
    stream: int | None = None,
    accumulate: str | None = None,
) -> Any:
    """alpha * a . b^T + beta * out + bias, summed in float32, rounded once to dtype.

    a          [..., M, K] or [K]: a BlockScaled, a PreparedOperand, or a plain float32, float16 or
               bfloat16 array
    b          a BlockScaled or PreparedOperand [..., N, K]: of a's batch, or one matrix that
               serves all of a's. Any scheme goes with any scheme.
    dtype      "float32", "float16" or "bfloat16", or a framework's object of that name; with out,
               that of out, which dtype may not contradict unless it is "float32"
    out        an array [..., M, N] to write to; it is returned. There may be gaps between its rows,
               as in columns of a larger array
    alpha      a number
    beta       a number; other than 0 it adds beta * out, and out is needed
    bias       a plain array [N], added to each row
    precision  "auto", "exact" or "folded". On Hopper GPUs as below. Elsewhere "folded" raises
               RuntimeError, and "auto" is exact but on Blackwell: there, in a build with CUTLASS,
               it may take block-scaled tensor cores (compiled, never executed; how exact they are
               is not known)
    stream     CUDA: a stream handle, instead of the framework's current stream
    accumulate CPU: a format that every partial sum is rounded to, as mxkern.round_to names it:
               "float16", "bfloat16", "e8m13". An emulation, from k = 0 up: the exact product is
               added in float64 and the sum rounded to nearest, ties to even

    Operands by schemes of your own are decoded first. Where bfloat16 holds all values of b
    (elements of 8 significant bits at most, scales that are powers of two) the product is that of
    other schemes, else one of float32: explain_gemm says which.
    Error before the last rounding, as relative L2 to the product of the decoded operands, elements
    of both signs: "exact" <= 2e-5, from the float32 sum alone; on GPUs with a 16-bit dtype or few
    tokens for K up to 8192, and K / 8192 times as much beyond. "folded" multiplies FP8 elements
    that hold their block scales, with <= 5e-4 where the scales of a row are not too far apart.
    "auto" is folded for a 16-bit dtype where they are not, which the device finds out, and else
    exact. docs/guide/gemm.md has what sums of one sign lose.
    Returns an array [..., M, N] of b's framework. Raises TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> a = mxkern.quantize(np.ones((2, 64), np.float32), "mxfp8_e4m3")
    >>> b = mxkern.quantize(np.full((3, 64), 0.5, np.float32), "nvfp4")
    >>> mxkern.gemm(a, b)
    array([[32., 32., 32.],
           [32., 32., 32.]], dtype=float32)
    """
    if accumulate is not None:
        return custom_calls.gemm(a, b, dtype, out, alpha, beta, bias, precision, stream, accumulate)
    return _core.gemm(calls, a, b, dtype, out, alpha, beta, bias, precision, stream)
