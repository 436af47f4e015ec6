# mxkern/ops/run_quantize.py: what all ways to quantize share: where results lie, and the call.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxkern import _core, errors
from mxkern.arrays import Adapter, Plain, View, adapter_of
from mxkern.arrays.adapter import CPU
from mxkern.block_scaled import BlockScaled
from mxkern.offset_array import placed, placed_both
from mxkern.operands import check_factor, float32_scalar
from mxkern.options import SCALE_LAYOUTS, check_hadamard_groups, position
from mxkern.outputs import checked_out_parts, extents_of, mark_parts_written, on_stream
from mxkern.scheme import Scheme, Shape

Parts = tuple[Any, Any, Any]


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
    columns = operation is _core.quantize_columns
    short_way = adapter.short_way
    has_array = isinstance(options, _core.OffsetOptions)
    if has_array and adapter.traced_calls is None and stream is None:
        options, has_array = placed(function, options, adapter, x), False
    if short_way is not None and stream is None:
        try:
            q: Any = short_way.quantize(
                x, scheme.id, layout, options, columns, amax, tensor_scale, out
            )
        except (TypeError, ValueError) as error:
            own = "quantize_columns" if columns else "quantize"
            raise errors.renamed(error, own, function) from None
        if q is not None:
            if out is not None:
                mark_parts_written(adapter, out)
            return q  # type: ignore[no-any-return]
    with on_stream(function, stream, adapter, x):
        if has_array:
            options = placed(function, options, adapter, x)
        entered = adapter.enter(function, "x", x)
        # A direction of x is the other one of its transpose, but for random words and for the order
        # in which 4over6 walks a square.
        turned = adapter.turned(entered) if options.is_symmetric else None
        if turned is not None:
            entered, columns = turned, not columns
            operation = _core.quantize_columns if columns else _core.quantize
        plain = adapter.plain(function, "x", entered)
        array, _, buffer, shape = plain
        extents = buffer[3:6]
        if columns:
            shape = transposed(function, shape)
            extents = (extents[0], extents[2], extents[1])
        check_groups(function, options, shape[-1])
        scalars = scalars_of(function, scheme, adapter, plain, amax, tensor_scale)
        if out is None:
            arrays = new_parts(function, adapter, scheme, shape, scale_layout, array)
        else:
            taken = extents_of(adapter, array, *scalars)
            arrays = checked_out_parts(
                function, "out", out, adapter, scheme, shape, scale_layout, array, taken
            )
        found_amax = amax_memory(function, adapter, scheme, buffer[2], scalars, array)
        operation(
            buffer,
            view_of(adapter, scheme, layout, buffer[2], extents, arrays),
            options,
            *addresses_of(adapter, scalars),
            None if found_amax is None else adapter.address(found_amax),
            adapter.stream(array),
        )
    return result(adapter, arrays, scheme, shape, scale_layout, x) if out is None else out


def quantized_both(
    function: str,
    scheme: Scheme,
    row_options: _core.QuantizeOptions,
    column_options: _core.QuantizeOptions,
    x: Any,
    scale_layout: str,
    amax: Any,
    tensor_scale: Any,
    out: tuple[BlockScaled, BlockScaled] | None,
    stream: int | None,
) -> tuple[BlockScaled, BlockScaled]:
    """The same in both directions; amax, tensor_scale and out may be pairs."""
    layout = position(function, "scale_layout", scale_layout, SCALE_LAYOUTS)
    adapter = adapter_of(function, "x", x)
    short_way = adapter.short_way
    both = (row_options, column_options)
    has_array = isinstance(row_options, _core.OffsetOptions)
    if has_array and adapter.traced_calls is None and stream is None:
        row_options, column_options = placed_both(function, *both, adapter, x)
        has_array = False
    if short_way is not None and out is None and stream is None:
        pair: Any = short_way.quantize_both(
            x, scheme.id, layout, row_options, column_options, amax, tensor_scale
        )
        if pair is not None:
            return pair  # type: ignore[no-any-return]
    with on_stream(function, stream, adapter, x):
        if has_array:
            row_options, column_options = placed_both(function, *both, adapter, x)
        plain = adapter.plain(function, "x", adapter.enter(function, "x", x))
        like, device = plain.array, plain.buffer[2]
        batch, rows, columns = plain.buffer[3:6]
        shapes = (plain.shape, transposed(function, plain.shape))
        extents = ((batch, rows, columns), (batch, columns, rows))
        check_groups(function, row_options, columns)
        check_groups(function, column_options, rows)
        outs = (None, None) if out is None else pair_of(function, "out", out)
        each_amax = each_way(function, "amax", amax)
        each_scale = each_way(function, "tensor_scale", tensor_scale)
        arrays: list[Parts] = []
        scalars = [
            scalars_of(function, scheme, adapter, plain, each_amax[i], each_scale[i])
            for i in (0, 1)
        ]
        for i in (0, 1):
            arrays.append(
                new_parts(function, adapter, scheme, shapes[i], scale_layout, like)
                if out is None
                else checked_out_parts(
                    function,
                    f"out[{i}]",
                    outs[i],
                    adapter,
                    scheme,
                    shapes[i],
                    scale_layout,
                    like,
                    extents_of(adapter, like, *scalars[0], *scalars[1], *sum(arrays, ())),
                )
            )
        addresses = [addresses_of(adapter, pair) for pair in scalars]
        found = [amax_memory(function, adapter, scheme, device, pair, like) for pair in scalars]
        _core.quantize_both(
            plain.buffer,
            view_of(adapter, scheme, layout, device, extents[0], arrays[0]),
            view_of(adapter, scheme, layout, device, extents[1], arrays[1]),
            row_options,
            column_options,
            addresses[0][0],
            addresses[1][0],
            addresses[0][1],
            addresses[1][1],
            None if found[0] is None else adapter.address(found[0]),
            None if found[1] is None else adapter.address(found[1]),
            adapter.stream(like),
        )
    if out is not None:
        return out
    return (
        result(adapter, arrays[0], scheme, shapes[0], scale_layout, x),
        result(adapter, arrays[1], scheme, shapes[1], scale_layout, x),
    )


def new_parts(
    function: str, adapter: Adapter, scheme: Scheme, shape: Shape, scale_layout: str, like: Any
) -> Parts:
    """Codes, scales and tensor scale to write to."""
    empty = adapter.empty
    return (
        empty(function, scheme.codes_shape(shape), scheme.codes_dtype, like),
        empty(function, scheme.scales_shape(shape, scale_layout), scheme.scales_dtype, like),
        empty(function, (), "float32", like) if scheme.has_tensor_scale else None,
    )


def view_of(
    adapter: Adapter,
    scheme: Scheme,
    layout: int,
    device: int,
    extents: tuple[int, int, int],
    arrays: Parts,
) -> View:
    """A BlockScaled as the library sees it."""
    codes, scales, tensor_scale = arrays
    address = adapter.address
    return (
        scheme.id,
        layout,
        device,
        *extents,
        address(codes),
        address(scales),
        None if tensor_scale is None else address(tensor_scale),
    )


def scalars_of(
    function: str, scheme: Scheme, adapter: Adapter, plain: Plain, amax: Any, tensor_scale: Any
) -> tuple[Any, Any]:
    """amax and tensor_scale as float32 arrays beside x; nvfp4 takes one of them."""
    if amax is None and tensor_scale is None:
        return (None, None)
    name, value = ("tensor_scale", tensor_scale) if amax is None else ("amax", amax)
    if not scheme.has_tensor_scale:
        raise ValueError(
            f"{function}: {name} is for nvfp4, but the scheme is {scheme.name}; leave it out"
        )
    if amax is not None and tensor_scale is not None:
        raise ValueError(
            f"{function}: amax and tensor_scale are both given, and each implies the other; "
            "pass one of them"
        )
    scalar = float32_scalar(function, name, value, adapter, plain.array)
    if plain.buffer[2] == CPU:
        check_factor(function, name, float(scalar.reshape(())))
    return (None, scalar) if amax is None else (scalar, None)


def amax_memory(
    function: str,
    adapter: Adapter,
    scheme: Scheme,
    device: int,
    scalars: tuple[Any, Any],
    like: Any,
) -> Any:
    """On a CUDA device an amax that is found needs a place to be, from one kernel to the next."""
    if device == CPU or not scheme.has_tensor_scale:
        return None
    given = scalars[0] is not None or scalars[1] is not None
    return None if given else adapter.empty(function, (), "float32", like)


def addresses_of(adapter: Adapter, scalars: tuple[Any, Any]) -> tuple[Any, Any]:
    amax, tensor_scale = scalars
    return (
        None if amax is None else adapter.address(amax),
        None if tensor_scale is None else adapter.address(tensor_scale),
    )


def result(
    adapter: Adapter, arrays: Parts, scheme: Scheme, shape: Shape, scale_layout: str, x: Any
) -> BlockScaled:
    """The BlockScaled of x's framework."""
    if adapter.converts:
        leave = adapter.leave
        arrays = tuple(None if array is None else leave(array, x) for array in arrays)  # type: ignore[assignment]
    return BlockScaled(*arrays, scheme.name, shape, scale_layout)


def check_groups(function: str, options: _core.QuantizeOptions, extent: int) -> None:
    """A transform works on whole groups along the block axis."""
    check_hadamard_groups(
        function, "blocks run along an axis of", extent, "x", "hadamard", options.hadamard_size
    )


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


def each_way(function: str, argument: str, value: Any) -> tuple[Any, Any]:
    """One value for both directions, or a pair of values."""
    return pair_of(function, argument, value) if isinstance(value, tuple) else (value, value)
