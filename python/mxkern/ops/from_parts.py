# mxkern/ops/from_parts.py: a BlockScaled of codes and scales from elsewhere.
from __future__ import annotations

import math
import numbers
from typing import Any

from mxkern import _core, faults
from mxkern.arrays import adapter_of
from mxkern.faults.operands import LARGEST_EXTENT
from mxkern.ops.calls import calls
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled, above
from mxkern.values.custom_scheme import any_scheme_of
from mxkern.values.scheme import Scheme


def made_from_parts(
    codes: Any, scales: Any, scheme: Any, tensor_scale: Any, shape: Any, scale_layout: Any
) -> BlockScaled:
    """BlockScaled.from_parts."""
    function = "BlockScaled.from_parts"
    record = any_scheme_of(function, scheme)
    adapter = adapter_of(function, "codes", codes)
    if shape is None:
        if not hasattr(codes, "shape"):
            raise ValueError(
                f"{function}: shape is None, and a {adapter.name} array does not say its own; "
                "expected a tuple; pass shape="
            )
        if not codes.shape:
            raise ValueError(f"{function}: codes is 0-d; expected one dimension or more")
        *leading, last = codes.shape
        shape = (*leading, last if record.bits == 16 else last * 8 // record.bits)
    if isinstance(tensor_scale, numbers.Real) and record.tensor_scale_of != "row":
        entered = adapter.enter(function, "codes", codes)
        scalar = faults.float32_scalar(function, "tensor_scale", tensor_scale, adapter, entered)
        tensor_scale = adapter.leave(scalar, codes)
    elif record.tensor_scale_of != "row" and _is_one_element_with_axes(tensor_scale):
        tensor_scale = tensor_scale.reshape(())  # as quantize gives it, and takes it in out
    if isinstance(shape, (tuple, list)):
        shape = tuple(errors.integer(function, "shape", n, 0, LARGEST_EXTENT) for n in shape)
    q = BlockScaled(codes, scales, tensor_scale, record.name, shape, scale_layout)
    if record.core is not None:
        _core.custom_view(calls, function, "", q, record.core)
        return q
    try:
        _core.quantized_view(calls, function, "", q)
    except ValueError as error:
        if _have_an_axis_of_blocks(codes, scales, record):
            raise ValueError(
                f"{error}; where a row's blocks have an axis of their own, join them: pass "
                "codes.reshape(*codes.shape[:-2], -1)"
            ) from None
        if not _lie_one_a_byte(codes, scales, record, shape, scale_layout):
            raise
        raise ValueError(
            f"{error}; if codes lie one a byte, pack them with mxkern.pack_codes(codes, "
            f"{record.name!r})"
        ) from None
    return q


above.made_from_parts = made_from_parts


def _is_one_element_with_axes(array: Any) -> bool:
    """Whether it is an array such as [1] or [1, 1], as files have scalars."""
    shape = errors.shape_of(array)
    return len(shape) > 0 and math.prod(shape) == 1 and hasattr(array, "reshape")


def _have_an_axis_of_blocks(codes: Any, scales: Any, scheme: Scheme) -> bool:
    """Whether codes look like [..., K / block, bytes of a block], as in some files."""
    given = errors.shape_of(codes)
    if not given or len(given) < 3 or given[-1] * 8 != scheme.block * scheme.bits:
        return False
    return errors.shape_of(scales) == given[:-1]


def _lie_one_a_byte(codes: Any, scales: Any, scheme: Scheme, shape: Any, scale_layout: str) -> bool:
    """Whether codes that should be packed look as though they were not."""
    given = errors.shape_of(codes)
    if scheme.bits == 8 or not given or not isinstance(shape, tuple):
        return False
    expected = scheme.scales_shape(given, scale_layout)
    return given == shape or errors.shape_of(scales) == expected
