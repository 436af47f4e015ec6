# mxkern/ops/gemm.py: the block-scaled matrix product.
from __future__ import annotations

import math
import numbers
from typing import Any

from mxkern import _core, errors
from mxkern.arrays import Adapter, Plain, adapter_of
from mxkern.arrays.adapter import CPU, PLAIN_DTYPES
from mxkern.block_scaled import BlockScaled
from mxkern.gemm_operands import (
    PRECISIONS,
    left_operand,
    product_shape,
    right_operand,
)
from mxkern.operands import FLOAT32_END, enter_part
from mxkern.options import dtype_position, position
from mxkern.outputs import check_dtype_of_out, checked_out, extents_of, on_stream, out_buffer
from mxkern.prepared_operand import PreparedOperand
from mxkern.scheme import Shape


def gemm(
    a: Any,
    b: BlockScaled | PreparedOperand,
    *,
    dtype: Any = "float32",
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Any = None,
    precision: str = "auto",
    stream: int | None = None,
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

    Error before the last rounding, as relative L2 to the product of the decoded operands, elements
    of both signs: "exact" <= 2e-5, from the float32 sum alone; on GPUs with a 16-bit dtype or few
    tokens for K up to 8192, and K / 8192 times as much beyond. "folded" multiplies FP8 elements
    that hold their block scales, with <= 5e-4 where the scales of a row are not too far apart.
    "auto" is folded for a 16-bit dtype where they are not, which the device finds out, and else
    exact. docs/gemm.md has what sums of one sign lose.
    Returns an array [..., M, N] of b's framework. Raises TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> a = mxkern.quantize(np.ones((2, 64), np.float32), "mxfp8_e4m3")
    >>> b = mxkern.quantize(np.full((3, 64), 0.5, np.float32), "nvfp4")
    >>> mxkern.gemm(a, b)
    array([[32., 32., 32.],
           [32., 32., 32.]], dtype=float32)
    """
    function = "gemm"
    result_dtype = dtype_position(function, dtype)
    alpha = number_of(function, "alpha", alpha)
    beta = beta_of(function, beta, out)
    wanted = position(function, "precision", precision, PRECISIONS)
    if stream is None and isinstance(b, (BlockScaled, PreparedOperand)):
        codes = b.codes if isinstance(b, BlockScaled) else array_of(b)
        own = None if codes is None else adapter_of(function, "b.codes", codes)
        if own is not None and own.short_way is not None:
            if out is not None:
                check_dtype_of_out(function, result_dtype, own, out)
            product = own.short_way.gemm(a, b, result_dtype, alpha, beta, bias, wanted, out)
            if product is not None:
                if out is not None:
                    own.mark_written(out)
                return product
    right = right_operand(function, b)
    adapter, like = right.adapter, right.like
    with on_stream(function, stream, adapter, like):
        left = left_operand(function, a, adapter)
        shape = product_shape(function, left.shape, right.shape)
        offset = None if bias is None else bias_of(function, bias, adapter, shape)
        if out is None:
            array = adapter.empty(function, shape, PLAIN_DTYPES[result_dtype], like)
        else:
            taken = extents_of(adapter, *left.memory, *right.memory, offset and offset.array)
            check_dtype_of_out(function, result_dtype, adapter, out)
            array = checked_out(
                function, "out", out, adapter, shape, PLAIN_DTYPES, like, taken, rows_apart=True
            )
            result_dtype = adapter.plain_dtypes[array.dtype]
        device = adapter.device(like)
        buffer = out_buffer(adapter, array, result_dtype, device)
        workspace = plan = None
        if device != CPU:
            plan = _core.plan_gemm(left.view, right.view, buffer, beta, wanted, "")
            if plan.workspace_bytes:
                workspace = adapter.empty(function, (plan.workspace_bytes,), "uint8", like)
        _core.gemm(
            left.view,
            right.view,
            buffer,
            alpha,
            beta,
            offset and offset.buffer,
            wanted,
            plan,
            None if workspace is None else adapter.address(workspace),
            adapter.stream(like),
        )
    if out is not None:
        return out
    return adapter.leave(array, b.codes if isinstance(b, BlockScaled) else array_of(b))


def array_of(b: PreparedOperand) -> Any:
    """An array of a prepared operand, as it came."""
    return b.data if not isinstance(b.source, BlockScaled) else b.source.codes


def bias_of(function: str, bias: Any, adapter: Adapter, shape: Shape) -> Plain:
    """bias, which fits a product of the shape."""
    plain = adapter.plain(function, "bias", enter_part(function, "bias", "", bias, adapter))
    if plain.shape != shape[-1:]:
        raise ValueError(
            f"{function}: bias has shape {plain.shape}; expected {shape[-1:]}, one for each row of "
            "b"
        )
    return plain


def beta_of(function: str, beta: Any, out: Any) -> float:
    """What out is multiplied by before it is added."""
    factor = number_of(function, "beta", beta)
    if factor != 0.0 and out is None:
        raise beta_needs_out(function, factor)
    return factor


def beta_needs_out(function: str, beta: float) -> ValueError:
    return ValueError(
        f"{function}: beta is {beta}, but there is no out to add; pass out=, or leave beta out"
    )


def number_of(function: str, argument: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise errors.no_number(function, argument, value)
    number = errors.real(function, argument, value)
    if FLOAT32_END <= abs(number) < math.inf:
        raise ValueError(
            f"{function}: {argument} is {number}; expected a number that float32 holds"
        )
    return number
