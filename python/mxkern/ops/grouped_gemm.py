# mxkern/ops/grouped_gemm.py: the matrix products whose rows or columns belong to groups.
from __future__ import annotations

import math
from typing import Any, NamedTuple

from mxkern import _core, errors
from mxkern.arrays import Adapter, adapter_of
from mxkern.arrays.adapter import CPU, PLAIN_DTYPES, Plain, check_same_device
from mxkern.block_scaled import BlockScaled
from mxkern.gemm_operands import PRECISIONS, left_operand, right_operand
from mxkern.operands import enter_part
from mxkern.ops.gemm import array_of, beta_of, number_of
from mxkern.options import dtype_position, position
from mxkern.outputs import check_dtype_of_out, checked_out, extents_of, on_stream, out_buffer
from mxkern.prepared_operand import PreparedOperand
from mxkern.scheme import Shape

# Nobody looks at what rows allow, as gemm does for "auto".
GROUPED_PRECISIONS = {name: PRECISIONS[name] for name in ("exact", "folded")}


def grouped_gemm(
    a: Any,
    b: BlockScaled | PreparedOperand,
    ends: Any,
    *,
    dtype: Any = "float32",
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    factors: Any = None,
    bias: Any = None,
    precision: str = "exact",
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
    precision  "exact", or on Hopper GPUs "folded": mxfp8, mxfp6 and mxfp4 on FP8 tensor cores
    stream   CUDA: a stream handle, instead of the framework's current stream

    On the CPU ends that decrease, lie outside of the rows or columns, or inside of a block, raise
    ValueError. On a CUDA device ends stay there, and the call waits for nothing: all of the result
    is NaN then. Fastest on Hopper with 16-bit or quantized a and
    mxkern.prepare_operand(b, form="few_tokens"), elsewhere with form="expanded"; "folded" reads
    form="folded" of both operands, and groups of columns are multiplied from form="expanded" or
    "folded" of both. They are made into these in the call otherwise. Relative L2 error before the
    last rounding, as that of gemm with the same precision: "exact" <= 2e-5 for K up to 8192,
    "folded" <= 5e-4 where the scales of each row of a and b lie close together. Nothing looks
    whether they do, so there is no "auto".
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
    function = "grouped_gemm"
    result_dtype = dtype_position(function, dtype)
    wanted = position(function, "precision", precision, GROUPED_PRECISIONS)
    alpha = number_of(function, "alpha", alpha)
    beta = beta_of(function, beta, out)
    if stream is None and isinstance(b, (BlockScaled, PreparedOperand)):
        codes = getattr(b, "codes", None) if isinstance(b, BlockScaled) else array_of(b)
        own = None if codes is None else adapter_of(function, "b.codes", codes)
        if own is not None:
            if out is not None:
                check_dtype_of_out(function, result_dtype, own, out)
            product = own.grouped_gemm(
                a, b, ends, factors, bias, result_dtype, alpha, beta, wanted, out
            )
            if product is not None:
                if out is not None:
                    own.mark_written(out)
                return product
    right = right_operand(function, b)
    adapter, like = right.adapter, right.like
    device = adapter.device(like)
    with on_stream(function, stream, adapter, like):
        left = left_operand(function, a, adapter)
        check_shapes(function, left.shape, right.shape)
        end = of_groups(function, "ends", ends, adapter, "int32", matrices_of(right.shape), like)
        groups = end.memory.shape[0]
        shape = grouped_shape(left.shape, right.shape, groups)
        factor = of_groups(function, "factors", factors, adapter, "float32", (groups,), like)
        biases = groups, right.shape[-2]
        offset = None if bias is None else biases_of(function, bias, adapter, biases)
        if out is None:
            array = adapter.empty(function, shape, PLAIN_DTYPES[result_dtype], like)
        else:
            taken = extents_of(
                adapter,
                *left.memory,
                *right.memory,
                end.memory,
                factor and factor.memory,
                offset and offset.memory,
            )
            check_dtype_of_out(function, result_dtype, adapter, out)
            array = checked_out(
                function, "out", out, adapter, shape, PLAIN_DTYPES, like, taken, rows_apart=True
            )
            result_dtype = adapter.plain_dtypes[array.dtype]
        buffer = out_buffer(adapter, array, result_dtype, device)
        where = end.address, groups, len(right.shape) == 2
        workspace, size = None, 0
        if device != CPU:
            size = _core.grouped_gemm_workspace_bytes(left.view, right.view, *where, buffer, wanted)
            if size:
                workspace = adapter.empty(function, (size,), "uint8", like)
        _core.grouped_gemm(
            left.view,
            right.view,
            *where,
            buffer,
            alpha,
            beta,
            factor and factor.address,
            None if offset is None else _by_group(offset.buffer),
            wanted,
            None if workspace is None else adapter.address(workspace),
            size,
            adapter.stream(like),
        )
    if out is not None:
        return out
    return adapter.leave(array, b.codes if isinstance(b, BlockScaled) else array_of(b))


class _OfGroups(NamedTuple):
    """A number for each group."""

    memory: Any  # what the address points into
    address: Any


def check_shapes(function: str, a: Shape, b: Shape) -> None:
    """[M, K] goes with [G, N, K] and with [N, K]."""
    if len(b) not in (2, 3):
        raise ValueError(
            f"{function}: b has shape {b}; expected [G, N, K], a matrix for each group of rows, or "
            "[N, K], whose columns belong to groups; quantize torch.stack or numpy.stack of the "
            "matrices"
        )
    if len(a) != 2:
        sorted_by_group = "rows" if len(b) == 3 else "columns"
        raise ValueError(
            f"{function}: a has shape {a}; expected [M, K], {sorted_by_group} sorted by group; "
            "reshape it"
        )
    if a[-1] != b[-1]:
        raise ValueError(
            f"{function}: a has shape {a} and b {b}; expected the same last axis K, which is "
            f"{a[-1]} and {b[-1]}"
        )


def matrices_of(b: Shape) -> Shape | None:
    """As many groups as b has matrices; None: as many as there are ends."""
    return b[:1] if len(b) == 3 else None


def grouped_shape(a: Shape, b: Shape, groups: int) -> Shape:
    """[M, N] of [M, K] and [G, N, K], [G, M, N] of [M, K] and [N, K]."""
    return (a[0], b[1]) if len(b) == 3 else (groups, a[0], b[0])


def batch_of(shape: Shape) -> tuple[int, int, int]:
    """An output's shape as one of matrices."""
    return (1, shape[0], shape[1]) if len(shape) == 2 else (shape[0], shape[1], shape[2])


def of_groups(
    function: str,
    argument: str,
    given: Any,
    adapter: Adapter,
    dtype: str,
    shape: Shape | None,
    like: Any,
) -> Any:
    """An array of a number for each group, dense; None for none. Without a shape, of any length."""
    if given is None and argument == "factors":
        return None
    if isinstance(given, (list, tuple)):
        raise TypeError(
            f"{function}: {argument} is {errors.described(given)}; expected an array; convert with "
            f'numpy.array({argument}, "{dtype}") or torch.tensor({argument}, dtype=torch.{dtype})'
        )
    array = enter_part(function, argument, "", given, adapter)
    if array.dtype != adapter.dtypes[dtype]:
        adapter.refuse_dtype(function, argument, array, (dtype,))
    got = tuple(array.shape)
    if shape is None and len(got) != 1:
        way_out = _way_to_one_axis(argument, math.prod(got) == max(got, default=1))
        raise ValueError(
            f"{function}: {argument} has shape {got}; expected (G,), one for each group of "
            f"columns, as b is one matrix{way_out}"
        )
    if shape is not None and got != shape:
        way_out = _way_to_one_axis(argument, math.prod(got) == shape[0])
        raise ValueError(
            f"{function}: {argument} has shape {got}; expected {shape}, one for each group{way_out}"
        )
    check_same_device(function, argument, adapter, array, like)
    memory = array if adapter.is_dense(array) else adapter.dense(array)
    return _OfGroups(memory, adapter.address(memory))


def _way_to_one_axis(argument: str, has_as_many: bool) -> str:
    """As messages end: what to do with [G, 1], as files have numbers of matrices."""
    return f"; reshape it with {argument}.reshape(-1)" if has_as_many else ""


def biases_of(function: str, bias: Any, adapter: Adapter, shape: Shape) -> Plain:
    """bias, of the shape [G, N]."""
    plain = adapter.plain(function, "bias", enter_part(function, "bias", "", bias, adapter))
    if plain.shape != shape:
        raise ValueError(
            f"{function}: bias has shape {plain.shape}; expected {shape}, a row for each group"
        )
    return plain


def _by_group(buffer: Any) -> Any:
    """A buffer [1, G, N] as [G, 1, N]."""
    address, dtype, device, _, groups, columns, row_stride, _ = buffer
    return (address, dtype, device, groups, 1, columns, columns, row_stride)
