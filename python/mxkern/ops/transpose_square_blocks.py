# mxkern/ops/transpose_square_blocks.py: a quantized matrix with square blocks, transposed exactly.
from __future__ import annotations

from typing import Any, cast

from mxkern.arrays import Adapter, adapter_of
from mxkern.arrays.adapter import CPU
from mxkern.faults import operands as operand_faults
from mxkern.faults.shapes import transposed
from mxkern.ops.pack_codes import packed, unpacked
from mxkern.ops.scales import swizzle_scales, unswizzle_scales
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.options import SCALE_LAYOUTS, position
from mxkern.values.scheme import Scheme, scheme_of
from mxkern.values.value import Array


def transpose_square_blocks(q: BlockScaled[Array]) -> BlockScaled[Array]:
    """The transpose of what was quantized with block="32x32" ("16x16"), exactly: codes change
    places, scales too, and nothing is rounded again.

    q   [..., M, K], whose scales are one for each square of block x block elements

    Returns a BlockScaled [..., K, M] in q's layout: what quantize_columns gives of the same tensor
    with the same block. tensor_scale is q's own array. It is made of the framework's own
    operations, and so runs under jax.jit too.

    A square whose rows have different scales, as of a q that was quantized in rows, raises
    ValueError on the CPU. On a GPU and under jax.jit nobody waits for the values: such a square is
    NaN in the result. One whose rows happen to have equal scales is transposed as it is. Raises
    TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> w = np.random.default_rng(0).standard_normal((64, 96), np.float32)
    >>> turned = mxkern.transpose_square_blocks(mxkern.quantize(w, "mxfp4", block="32x32"))
    >>> columns = mxkern.quantize_columns(w, "mxfp4", block="32x32")
    >>> turned.shape, bool((turned.codes == columns.codes).all())
    ((96, 64), True)
    """
    function = "transpose_square_blocks"
    if not isinstance(q, BlockScaled):
        raise operand_faults.no_block_scaled(function, "q", q)
    record = scheme_of(function, q.scheme, "q.scheme")
    position(function, "q.scale_layout", q.scale_layout, SCALE_LAYOUTS)
    shape = transposed(function, operand_faults.shape(function, "q", q.shape))
    adapter = adapter_of(function, "q.codes", q.codes)
    codes = _bytes(function, "codes", q, record, adapter)
    scales = _bytes(function, "scales", q, record, adapter)
    blocks = -(-shape[-2] // record.block)
    with adapter.on_device(codes):
        if q.scale_layout == "swizzled":
            scales = unswizzle_scales(scales, shape[-1], blocks)
        same, squares = squares_of(adapter.namespace, scales, record)
        _check(function, adapter, scales, same, record)
        turned = spread(adapter.namespace, squares.swapaxes(-1, -2), record.block, shape[-2])
        if q.scale_layout == "swizzled":
            turned = swizzle_scales(turned)
        moved = _transposed_codes(adapter.namespace, codes, record, shape[-2])
        codes = _like(function, adapter, moved, q.codes)
        scales = _like(function, adapter, turned, q.scales)
    return BlockScaled(
        cast(Array, codes), cast(Array, scales), q.tensor_scale, record.name, shape, q.scale_layout
    )


def squares_of(namespace: Any, scales: Any, scheme: Scheme) -> tuple[Any, Any]:
    """Whether the rows of each square have one scale, and that scale, NaN where they have not."""
    rows, block = scales.shape[-2], scheme.block
    first = scales[..., ::block, :]
    whole = first.shape[-2] * block
    wanted = spread(namespace, first, block, whole)
    # Rows that a last square lacks agree.
    padded = namespace.concatenate([scales, wanted[..., rows:, :]], -2)
    extents = (*first.shape[:-1], block, first.shape[-1])
    same = (padded == wanted).reshape(extents).all(-2)
    nan = namespace.zeros_like(first) + scheme.nan_scale
    return same, namespace.where(same, first, nan)


def spread(namespace: Any, scales: Any, block: int, rows: int) -> Any:
    """Each row of scales for as many rows of the matrix as a block has, `rows` in all."""
    *batch, squares, blocks = scales.shape
    each = namespace.broadcast_to(scales[..., None, :], (*batch, squares, block, blocks))
    return each.reshape((*batch, squares * block, blocks))[..., :rows, :]


def _transposed_codes(namespace: Any, codes: Any, scheme: Scheme, columns: int) -> Any:
    if scheme.bits == 8:
        return codes.swapaxes(-1, -2)
    single = unpacked(namespace, codes, scheme.bits)[..., :columns]
    return packed(namespace, single.swapaxes(-1, -2), scheme.bits, scheme.block)


def _check(function: str, adapter: Adapter, scales: Any, same: Any, scheme: Scheme) -> None:
    if adapter.device(scales) != CPU:
        return
    try:
        if bool(same.all()):
            return
    except TypeError:  # a tracer of JAX, which has no values
        return
    square = f"{scheme.block}x{scheme.block}"
    raise ValueError(
        f"{function}: q.scales differ between rows of a square of {square} elements; expected what "
        f"quantize(x, {scheme.name!r}, block={square!r}) returned; quantize x again, with "
        "quantize_columns"
    )


def _bytes(function: str, part: str, q: BlockScaled[Any], record: Scheme, adapter: Adapter) -> Any:
    """Codes or scales as uint8, once they are what the scheme and the shape ask for."""
    argument, array = f"q.{part}", getattr(q, part)
    if adapter_of(function, argument, array) is not adapter:
        raise TypeError(
            f"{function}: {argument} is of another framework than q.codes, which is of "
            f"{adapter.name}; expected one framework"
        )
    if not adapter.converts:  # JAX's arrays stay what they are, tracers too
        array = adapter.enter(function, argument, array)
    if part == "codes" and record.format == "e2m1":
        array = adapter.packed_e2m1_bytes(array)
    dtype = record.codes_dtype if part == "codes" else record.scales_dtype
    if adapter.dtype_name(array) not in operand_faults.stored_dtypes(dtype):
        raise operand_faults.wrong_dtype(function, "q", part, array, adapter, record)
    shape = tuple(q.shape)
    wanted = record.codes_shape(shape)
    if part == "scales":
        wanted = record.scales_shape(shape, q.scale_layout)
    if tuple(array.shape) != wanted:
        got = tuple(array.shape)
        operand_faults.part_shape(function, argument, part, got, record.id, shape, q.scale_layout)
    return array.view(adapter.namespace.uint8)


def _like(function: str, adapter: Adapter, array: Any, like: Any) -> Any:
    """Bytes as an array of like's dtype, dense and with memory of its own."""
    if not adapter.converts:
        made = adapter.empty(function, tuple(array.shape), "uint8", array)
        made[...] = array
        array = made
    return array.view(like.dtype)
