# mxkern/ops/gemm.py: the block-scaled matrix product.
from __future__ import annotations

import numbers
from typing import Any

from mxkern import _core, errors
from mxkern.arrays import Adapter, View, adapter_of, collapsed
from mxkern.arrays.adapter import PLAIN_DTYPES, Buffer
from mxkern.block_scaled import BlockScaled
from mxkern.operands import enter_part, operand_of
from mxkern.ops.dequantize import DTYPES
from mxkern.options import position
from mxkern.outputs import checked_out, extents_of, on_stream
from mxkern.scheme import Shape


def gemm(
    a: Any,
    b: BlockScaled,
    *,
    dtype: str = "float32",
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Any = None,
    stream: int | None = None,
) -> Any:
    """alpha * a . b^T + beta * out + bias, summed in float32, rounded once to dtype.

    a       [..., M, K] or [K]: a BlockScaled, or a plain float32, float16 or bfloat16 array
    b       a BlockScaled [..., N, K]: of a's batch, or one matrix that serves all of a's. Any
            scheme goes with any scheme.
    dtype   "float32", "float16" or "bfloat16"; with out, that of out
    out     an array [..., M, N] to write to; it is returned
    alpha   a number
    beta    a number; other than 0 it adds beta * out, and out is needed
    bias    a plain array [N], added to each row
    stream  CUDA: a stream handle, instead of the framework's current stream

    Products are exact; their float32 sum is the only error before the last rounding. Returns an
    array [..., M, N] of b's framework. Raises TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> a = mxkern.quantize(np.ones((2, 64), np.float32), "mxfp8_e4m3")
    >>> b = mxkern.quantize(np.full((3, 64), 0.5, np.float32), "nvfp4")
    >>> mxkern.gemm(a, b)
    array([[32., 32., 32.],
           [32., 32., 32.]], dtype=float32)
    """
    function = "gemm"
    result_dtype = position(function, "dtype", dtype, DTYPES)
    alpha = _number(function, "alpha", alpha)
    beta = _number(function, "beta", beta)
    if (
        out is None
        and beta == 0.0
        and bias is None
        and stream is None
        and isinstance(b, BlockScaled)
    ):
        short_way = adapter_of(function, "b.codes", b.codes).short_way
        product = None if short_way is None else short_way.gemm(a, b, result_dtype, alpha)
        if product is not None:
            return product
    right = operand_of(function, "b", b)
    adapter = right.adapter
    like = right.parts[0]
    left_view: View | Buffer
    read: tuple[Any, ...]
    if isinstance(a, BlockScaled):
        left = operand_of(function, "a", a)
        if left.adapter is not adapter:
            raise _mixed(function, "a", left.adapter, adapter)
        left_view, a_shape, read = left.view, left.shape, left.parts
    else:
        plain = adapter.plain(function, "a", enter_part(function, "a", "", a, adapter))
        left_view, a_shape, read = plain.buffer, plain.shape, (plain.array, plain.memory)
    shape = product_shape(function, a_shape, right.shape)
    bias_view = None
    bias_array = None
    if bias is not None:
        bias_plain = adapter.plain(
            function, "bias", enter_part(function, "bias", "", bias, adapter)
        )
        bias_view, bias_array = bias_plain.buffer, bias_plain.array
        if bias_plain.shape != shape[-1:]:
            raise ValueError(
                f"{function}: bias has shape {bias_plain.shape}; expected {shape[-1:]}, one for "
                "each row of b"
            )
    if out is None:
        if beta != 0.0:
            raise ValueError(
                f"{function}: beta is {beta}, but there is no out to add; pass out=, or leave "
                "beta away"
            )
        array = adapter.empty(shape, dtype, like)
    else:
        taken = extents_of(adapter, *read, *right.parts, bias_array)
        array = checked_out(function, "out", out, adapter, shape, PLAIN_DTYPES, like, taken)
        result_dtype = adapter.plain_dtypes[array.dtype]
    batch, rows, columns = _product_extents(a_shape, shape)
    buffer = (
        adapter.address(array),
        result_dtype,
        adapter.device(like),
        batch,
        rows,
        columns,
        columns,
        rows * columns,
    )
    with on_stream(function, stream, adapter, like):
        stream = adapter.stream(like)
        _core.gemm(left_view, right.view, buffer, alpha, beta, bias_view, stream)
    return adapter.leave(array, b.codes) if out is None else out


def product_shape(function: str, a: Shape, b: Shape) -> Shape:
    """[..., M, N] of [..., M, K] and [..., N, K]."""
    if len(b) < 2:
        raise ValueError(
            f"{function}: b has shape {b}; expected [..., N, K]; quantize a matrix, "
            "x.reshape(1, -1) for one row"
        )
    if a[-1] != b[-1]:
        raise ValueError(
            f"{function}: a has shape {a} and b {b}; expected the same last axis K, which is "
            f"{a[-1]} and {b[-1]}; a . b^T contracts the last axes of both"
        )
    if len(b) > 2 and a[:-2] != b[:-2]:
        raise ValueError(
            f"{function}: a has shape {a} and b {b}; expected equal leading dimensions, or a b of "
            f"two dimensions; got {a[:-2]} and {b[:-2]}"
        )
    return (*a[:-1], b[-2])


def _product_extents(a: Shape, product: Shape) -> tuple[int, int, int]:
    if len(a) == 1:
        return (1, 1, product[-1])
    return collapsed(product)


def _number(function: str, argument: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{function}: {argument} is {errors.described(value)}; expected a number")
    return float(value)


def _mixed(function: str, argument: str, got: Adapter, wanted: Adapter) -> TypeError:
    return TypeError(
        f"{function}: {argument} holds {got.name} arrays, and b {wanted.name} arrays; expected one "
        f"framework; convert one of them"
    )
