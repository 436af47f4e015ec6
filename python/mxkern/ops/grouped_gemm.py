# mxkern/ops/grouped_gemm.py: the matrix products whose rows or columns belong to groups.
from __future__ import annotations

from typing import Any, Unpack, overload

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values.keywords import GroupedKeywords
from mxkern.values.names import Dtype, GroupedPrecision
from mxkern.values.prepared_operand import Operand
from mxkern.values.value import Array, NumPyArray


@overload
def grouped_gemm(
    a: Any, b: Operand[NumPyArray], ends: Any, **keywords: Unpack[GroupedKeywords]
) -> NumPyArray: ...
@overload
def grouped_gemm(
    a: Any, b: Operand[Array], ends: Any, **keywords: Unpack[GroupedKeywords]
) -> Array: ...
def grouped_gemm(
    a: Any,
    b: Operand[Any],
    ends: Any,
    *,
    dtype: Dtype = "float32",
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    factors: Any = None,
    bias: Any = None,
    rows: Any = None,
    precision: GroupedPrecision = "exact",
    stream: int | None = None,
) -> Any:
    """alpha * factors[g] * a[m] . b[g]^T + beta * out[m] + bias[g] for the rows m of each group g,
    as in the linear layers of a mixture of experts, whose tokens are sorted by expert; or, where b
    is one matrix, alpha * factors[g] * a[:, k] . b[:, k]^T + beta * out[g] + bias[g] over the
    columns k of each group g, as in the gradients of their weights.

    a        [M, K]: a BlockScaled, a PreparedOperand, or a plain float32, float16 or bfloat16 array
    b        a BlockScaled or PreparedOperand [G, N, K], or [N, K]; any scheme goes with any scheme
    ends     an int32 array [G]: group g has the rows from ends[g - 1], or 0, to ends[g], and may
             have none, as the offs of torch._grouped_mm; rows behind the last end become
             beta * out, which is zeros without a beta.
             With b [N, K] the same of columns: each end is a multiple of 32, so that blocks have
             elements of one group, or K; columns behind the last end belong to no product
    dtype    "float32", "float16" or "bfloat16", or a framework's object of that name; with out,
             that of out, which dtype may not contradict unless it is "float32"
    out      an array [M, N], or [G, M, N] with b [N, K], to write to; it is returned. There may be
             gaps between its rows
    alpha    a number
    beta     a number; other than 0 it adds beta * out, and out is needed: with 1 the gradients of
             a batch are added to those of the ones before
    factors  a float32 array [G], one for each group, such as the tensor scale of each matrix of
             nvfp4 weights
    bias     a plain array [G, N]: its row g is added to each row of group g, or of its output
    rows     an int32 array [M], for an a [T, K]: row m of the product copies row rows[m] of a, as
             each token goes to several experts. -1 stands for a row of zeros. a is quantized,
             prepared and stored once for all copies; combine adds up what they became
    precision  "exact", or on Hopper GPUs "folded": mxfp8, mxfp6 and mxfp4 on FP8 tensor cores
    stream   CUDA: a stream handle, instead of the framework's current stream

    On the CPU ends that decrease, lie outside of the rows or columns, or inside of a block, raise
    ValueError, and so does a number in rows, up to the last end, that is no row of a. On a CUDA
    device ends and rows stay there, and the call waits for nothing: all of the result is NaN then,
    or with such a number its row. Fastest on Hopper with 16-bit or quantized a and
    mxkern.prepare_operand(b, form="few_tokens"), elsewhere with form="expanded"; "folded" reads
    form="folded" of both operands, or mxfp4 weights of form="few_tokens" at 4 bits, and groups of
    columns are multiplied from form="expanded" or "folded" of both. They are made into these in
    the call otherwise. Relative L2 error before the last rounding, as that of gemm with the same
    precision: "exact" <= 2e-5 for K up to 8192, "folded" <= 5e-4 where the scales of each row of a
    and b lie close together. Nothing looks whether they do, so there is no "auto".
    Returns an array [M, N], or [G, M, N], of b's framework. Raises TypeError, ValueError,
    RuntimeError.

    >>> import mxkern, numpy as np
    >>> w = mxkern.quantize(np.ones((2, 3, 64), np.float32), "mxfp4")
    >>> x = np.arange(4, dtype=np.float32)[:, None].repeat(64, 1)
    >>> mxkern.grouped_gemm(x, w, np.array([1, 3], np.int32), factors=np.array([1, -1], np.float32))
    array([[   0.,    0.,    0.],
           [ -64.,  -64.,  -64.],
           [-128., -128., -128.],
           [   0.,    0.,    0.]], dtype=float32)
    >>> one = mxkern.quantize_columns(np.ones((96, 2), np.float32), "mxfp4")   # 96 tokens of two
    >>> mxkern.grouped_gemm(one, one, np.array([32, 96], np.int32))
    array([[[32., 32.],
            [32., 32.]],
    <BLANKLINE>
           [[64., 64.],
            [64., 64.]]], dtype=float32)
    """
    return _core.grouped_gemm(
        calls, a, b, ends, dtype, out, alpha, beta, factors, bias, rows, precision, stream
    )
