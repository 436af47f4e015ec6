# mxkern/ops/run_quantize.py: what all ways to quantize share: where results lie, and the call.
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mxkern import _core, errors
from mxkern.arrays import Adapter, Plain, adapter_of, collapsed
from mxkern.block_scaled import BlockScaled
from mxkern.operands import float32_scalar
from mxkern.options import SCALE_LAYOUTS, position
from mxkern.outputs import checked_out_parts, stream_handle
from mxkern.scheme import Scheme, Shape

Parts = tuple[Any, Any, Any]

_new = tuple.__new__


class Side(NamedTuple):
    """One result of a quantization, as the library sees it."""

    arrays: Parts
    view: _core.BlockScaled
    amax: Any
    tensor_scale: Any


def quantized(
    function: str,
    operation: Callable[..., None],
    scheme: Scheme,
    options: _core.QuantizeOptions,
    x: Any,
    scale_layout: str,
    amax: Any,
    tensor_scale: Any,
    out: BlockScaled | None,
    stream: int | None,
) -> BlockScaled:
    """Runs operation, _core.quantize or _core.quantize_columns, under the name of function."""
    layout = position(function, "scale_layout", scale_layout, SCALE_LAYOUTS)
    adapter = adapter_of(function, "x", x)
    plain = adapter.plain(function, "x", adapter.enter(function, "x", x))
    shape = plain.shape
    if operation is _core.quantize_columns:
        shape = transposed(function, shape)
    side = side_of(
        function,
        "out",
        adapter,
        plain,
        scheme,
        layout,
        shape,
        scale_layout,
        amax,
        tensor_scale,
        out,
    )
    operation(
        plain.buffer,
        side.view,
        options,
        side.amax,
        side.tensor_scale,
        stream_handle(function, stream, adapter, plain.array),
    )
    if out is not None:
        return out
    return result(adapter, side.arrays, scheme, shape, scale_layout, x)


def side_of(
    function: str,
    argument: str,
    adapter: Adapter,
    plain: Plain,
    scheme: Scheme,
    layout: int,
    shape: Shape,
    scale_layout: str,
    amax: Any,
    tensor_scale: Any,
    out: BlockScaled | None,
    other: Parts = (None, None, None),
) -> Side:
    """Where one result goes: into new arrays, or into out, which shares no memory with x, with the
    scalars, or with the `other` result."""
    like = plain.array
    scalars = []
    for name, value in (("amax", amax), ("tensor_scale", tensor_scale)):
        if value is not None:
            _check_scalar(function, name, scheme, amax, tensor_scale)
            value = float32_scalar(function, name, value, adapter, like)
        scalars.append(value)
    arrays: Parts
    if out is None:
        arrays = (
            adapter.empty(scheme.codes_shape(shape), scheme.codes_dtype, like),
            adapter.empty(scheme.scales_shape(shape, scale_layout), scheme.scales_dtype, like),
            adapter.empty((), "float32", like) if scheme.has_tensor_scale else None,
        )
    else:
        arrays = checked_out_parts(
            function,
            argument,
            out,
            adapter,
            scheme,
            shape,
            scale_layout,
            like,
            (like, *scalars, *other),
        )
    codes, scales, own_scale = arrays
    address = adapter.address
    view = (
        scheme.id,
        layout,
        adapter.device(like),
        *collapsed(shape),
        address(codes),
        address(scales),
        None if own_scale is None else address(own_scale),
    )
    amax, tensor_scale = scalars
    return Side(
        arrays,
        view,
        None if amax is None else address(amax),
        None if tensor_scale is None else address(tensor_scale),
    )


def result(
    adapter: Adapter, arrays: Parts, scheme: Scheme, shape: Shape, scale_layout: str, x: Any
) -> BlockScaled:
    """The BlockScaled of x's framework."""
    codes, scales, tensor_scale = arrays
    if adapter.converts:
        codes = adapter.leave(codes, x)
        scales = adapter.leave(scales, x)
        if tensor_scale is not None:
            tensor_scale = adapter.leave(tensor_scale, x)
    return _new(BlockScaled, (codes, scales, tensor_scale, scheme.name, shape, scale_layout))


def transposed(function: str, shape: Shape) -> Shape:
    """[..., K, M] for [..., M, K]."""
    if len(shape) < 2:
        raise ValueError(
            f"{function}: x has shape {shape}; expected two dimensions or more, [..., M, K]; "
            "reshape with x.reshape(1, -1), or call mxkern.quantize"
        )
    return (*shape[:-2], shape[-1], shape[-2])


def pair_of(function: str, argument: str, value: Any) -> tuple[Any, Any]:
    """(rows, columns), as quantize_both takes and returns them."""
    if type(value) not in (tuple, list) or len(value) != 2:
        raise TypeError(
            f"{function}: {argument} is {errors.described(value)}; expected a pair (rows, columns)"
        )
    return value[0], value[1]


def _check_scalar(function: str, name: str, scheme: Scheme, amax: Any, tensor_scale: Any) -> None:
    if not scheme.has_tensor_scale:
        raise ValueError(
            f"{function}: {name} is for nvfp4, but the scheme is {scheme.name}; leave it away"
        )
    if amax is not None and tensor_scale is not None:
        raise ValueError(
            f"{function}: amax and tensor_scale are both given, and each implies the other; "
            "pass one of them"
        )
