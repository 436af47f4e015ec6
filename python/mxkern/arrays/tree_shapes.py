# mxkern/arrays/tree_shapes.py: what the codes of a BlockScaled say of its shape, where PyTorch or
# JAX put other arrays in their place: one matrix of a stack, a stack of many.
from __future__ import annotations

from typing import Any

from mxkern.values.scheme import Scheme, schemes


def is_array(codes: Any) -> bool:
    """Or a description of one."""
    shape = getattr(codes, "shape", None)
    return isinstance(shape, tuple) and len(shape) > 0 and hasattr(codes, "dtype")


def shape_of_codes(codes_shape: tuple[Any, ...], scheme: Any, shape: Any) -> Any:
    """The shape of the tensor that has such codes. The last extent stays where the codes hold it
    and no whole block more, as packed codes do not say how much of their last block is filled. None
    there stands for whole blocks."""
    record = _record_of(scheme, shape)
    if record is None:
        return shape
    *outer, size = codes_shape
    columns = shape[-1]
    if record.bits == 8:
        columns = size
    elif columns is None:
        columns = size * 8 // record.bits
    elif isinstance(size, int) and isinstance(columns, int):
        blocks = size // record.block_bytes  # torch.compile's sizes have no divmod
        if size % record.block_bytes == 0 and blocks != -(-columns // record.block):
            columns = blocks * record.block
    return (*outer, columns)


def within_a_block(scheme: Any, shape: Any) -> Any:
    """The last extent, where codes do not tell it."""
    record = _record_of(scheme, shape)
    if record is None:
        return shape
    whole = record.bits == 8 or (isinstance(shape[-1], int) and shape[-1] % record.block == 0)
    return None if whole else shape[-1]


def _record_of(scheme: Any, shape: Any) -> Scheme | None:
    """None of what is no scheme or no shape, which the operations refuse."""
    known = isinstance(scheme, str) and scheme in schemes
    return schemes[scheme] if known and isinstance(shape, tuple) and shape else None
