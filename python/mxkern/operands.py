# mxkern/operands.py: checks of a BlockScaled that is given to an operation, or made of parts.
from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

from mxkern import _core, errors
from mxkern.arrays import Adapter, adapter_of, collapsed
from mxkern.block_scaled import BlockScaled
from mxkern.options import SCALE_LAYOUTS, position
from mxkern.scheme import Scheme, Shape, scheme_of

_FLOAT32_MAX = 3.4028234663852886e38


class Operand(NamedTuple):
    """A BlockScaled as the library sees it, and what keeps its memory alive."""

    adapter: Adapter
    view: _core.BlockScaled
    scheme: Scheme
    shape: Shape
    parts: tuple[Any, ...]


def operand_of(function: str, argument: str, q: Any) -> Operand:
    """Checks every part of a BlockScaled against its scheme, shape and layout."""
    if not isinstance(q, BlockScaled):
        raise TypeError(
            f"{function}: {argument} is {errors.described(q)}; expected a BlockScaled; make one "
            "with mxkern.quantize or mxkern.BlockScaled.from_parts"
        )
    scheme = scheme_of(function, q.scheme)
    layout = position(function, f"{argument}.scale_layout", q.scale_layout, SCALE_LAYOUTS)
    shape = _checked_shape(function, f"{argument}.shape", q.shape)
    adapter = adapter_of(function, f"{argument}.codes", q.codes)

    codes = enter_part(function, f"{argument}.codes", q.codes, adapter)
    check_dtype(function, f"{argument}.codes", codes, adapter, scheme.codes_dtype)
    wanted = scheme.codes_shape(shape)
    if tuple(codes.shape) != wanted:
        raise ValueError(
            f"{function}: {argument}.codes has shape {tuple(codes.shape)}; expected {wanted} for "
            f"{scheme.name} and the tensor shape {shape}"
        )
    scales = enter_part(function, f"{argument}.scales", q.scales, adapter)
    check_dtype(function, f"{argument}.scales", scales, adapter, scheme.scales_dtype)
    _check_scales_shape(function, argument, tuple(scales.shape), scheme, shape, q.scale_layout)
    tensor_scale = None
    if scheme.has_tensor_scale:
        tensor_scale = float32_scalar(
            function, f"{argument}.tensor_scale", q.tensor_scale, adapter, codes
        )
    elif q.tensor_scale is not None:
        raise ValueError(
            f"{function}: {argument}.tensor_scale is given, but {scheme.name} has none; "
            "expected None"
        )
    if adapter.device(codes) != adapter.device(scales):
        raise ValueError(f"{function}: {argument}.codes and {argument}.scales are on two devices")

    dense = tuple(
        part if part is None or adapter.is_dense(part) else adapter.dense(part)
        for part in (codes, scales, tensor_scale)
    )
    addresses = [None if part is None else adapter.address(part) for part in dense]
    view = (scheme.id, layout, adapter.device(codes), *collapsed(shape), *addresses)
    return Operand(adapter, view, scheme, shape, dense)


def enter_part(function: str, argument: str, array: Any, adapter: Adapter) -> Any:
    """An array that goes with others of the adapter's framework."""
    own = adapter_of(function, argument, array)
    if own is not adapter:
        raise TypeError(
            f"{function}: {argument} is a {own.name} array beside {adapter.name} arrays; expected "
            f"one framework; convert it to {adapter.name}"
        )
    return adapter.enter(function, argument, array)


def check_dtype(function: str, argument: str, array: Any, adapter: Adapter, dtype: str) -> None:
    """The dtype of codes and scales: what quantize gives, or uint8."""
    name = adapter.dtype_name(array)
    if name != dtype and name != "uint8":
        wanted = ("uint8",) if dtype == "uint8" else (dtype, "uint8")
        raise TypeError(
            f"{function}: {argument} has dtype {name}; expected {errors.listed(wanted)}; "
            f"reinterpret bytes with {argument}.view({wanted[0]})"
        )


def float32_scalar(function: str, argument: str, value: Any, adapter: Adapter, like: Any) -> Any:
    """A float32 array of one element for a number or such an array."""
    if isinstance(value, numbers.Real) and not hasattr(value, "dtype"):
        number = float(value)
        if not 0.0 <= number <= _FLOAT32_MAX:
            raise ValueError(
                f"{function}: {argument} is {number}; expected a finite float32, 0 or larger"
            )
        return adapter.scalar(number, like)
    if value is None:
        raise ValueError(
            f"{function}: {argument} is None; expected the float32 that nvfp4 values are "
            "multiplied with"
        )
    array = enter_part(function, argument, value, adapter)
    if adapter.dtype_name(array) != "float32":
        adapter.refuse_dtype(function, argument, array, ("float32",))
    if math.prod(array.shape) != 1:
        raise ValueError(
            f"{function}: {argument} has shape {tuple(array.shape)}; expected one element"
        )
    if adapter.device(array) != adapter.device(like):
        raise ValueError(f"{function}: {argument} is on another device than the codes")
    return array if adapter.is_dense(array) else adapter.dense(array)


def made_from_parts(
    codes: Any, scales: Any, scheme: Any, tensor_scale: Any, shape: Any, scale_layout: Any
) -> BlockScaled:
    """BlockScaled.from_parts."""
    function = "BlockScaled.from_parts"
    record = scheme_of(function, scheme)
    adapter = adapter_of(function, "codes", codes)
    if shape is None:
        if not codes.shape:
            raise ValueError(f"{function}: codes is 0-d; expected one dimension or more")
        *leading, last = codes.shape
        shape = (*leading, last * 8 // record.bits)
    if isinstance(tensor_scale, numbers.Real) and not hasattr(tensor_scale, "dtype"):
        entered = adapter.enter(function, "codes", codes)
        scalar = float32_scalar(function, "tensor_scale", tensor_scale, adapter, entered)
        tensor_scale = adapter.leave(scalar, codes)
    shape = _checked_shape(function, "shape", shape)
    q = BlockScaled(codes, scales, tensor_scale, record.name, shape, scale_layout)
    operand_of(function, "q", q)
    return q


def _checked_shape(function: str, argument: str, shape: Any) -> Shape:
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"{function}: {argument} is {errors.described(shape)}; expected a tuple")
    if not shape:
        raise ValueError(f"{function}: {argument} is (); expected one dimension or more")
    checked = tuple(errors.integer(function, argument, n, 0, 2**62) for n in shape)
    if math.prod(max(n, 1) for n in checked) > 2**62:
        raise ValueError(f"{function}: {argument} is {checked}; expected less than 2**62 elements")
    return checked


def _check_scales_shape(
    function: str, argument: str, got: Shape, scheme: Scheme, shape: Shape, layout: str
) -> None:
    wanted = scheme.scales_shape(shape, layout)
    if got == wanted:
        return
    for other in SCALE_LAYOUTS:
        if other != layout and got == scheme.scales_shape(shape, other):
            way_out = "unswizzle_scales" if other == "swizzled" else "swizzle_scales"
            raise ValueError(
                f"{function}: {argument}.scales has shape {got}, that of {other} scales, but "
                f"scale_layout is {layout!r} ({wanted}); pass scale_layout={other!r}, or convert "
                f"them with mxkern.{way_out}"
            )
    raise ValueError(
        f"{function}: {argument}.scales has shape {got}; expected {wanted} for {scheme.name}, the "
        f"tensor shape {shape} and scale_layout {layout!r}"
    )
