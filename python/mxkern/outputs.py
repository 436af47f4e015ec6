# mxkern/outputs.py: checks of out=, before anything is written, and of stream=.
from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from mxkern import errors
from mxkern.arrays import Adapter, adapter_of
from mxkern.arrays.adapter import (
    PLAIN_DTYPES,
    Buffer,
    check_same_device,
    collapsed,
    row_strides,
)
from mxkern.block_scaled import BlockScaled
from mxkern.operands import enter_part, fields_of, stored_dtypes
from mxkern.scheme import NAMES, Scheme, Shape

_DEFAULT_DTYPE = PLAIN_DTYPES.index("float32")
_NO_SCOPE: AbstractContextManager[None] = nullcontext()


def checked_out(
    function: str,
    argument: str,
    out: Any,
    adapter: Adapter,
    shape: Shape,
    dtypes: tuple[str, ...],
    like: Any,
    taken: Sequence[tuple[int, int]] = (),
    *,
    rows_apart: bool = False,
) -> Any:
    """An array that results may be written to: of like's framework and device, of the shape, of one
    of the dtypes, dense, writable, and not in memory that is taken. rows_apart: there may be gaps
    between its rows, as in columns of a larger one."""
    if not adapter.takes_out:
        raise errors.not_writable(function, argument, adapter.name)
    array = enter_part(function, argument, "", out, adapter)
    if adapter_of(function, argument, out) is not adapter:
        raise TypeError(
            f"{function}: {argument} is {errors.described(out)}; expected an array of "
            f"{adapter.name}; {errors.without(argument)} and copy the result"
        )
    adapter.check_out(function, argument, out)
    if array.dtype not in [adapter.dtypes[name] for name in dtypes]:
        whole, dot, field = argument.rpartition(".")
        way_out = ""
        if dot and "uint8" in dtypes and array.dtype.itemsize == 1:
            way_out = f"; pass {whole}.replace({field}={adapter.as_bytes(argument)})"
        raise TypeError(
            f"{function}: {argument} has dtype {adapter.dtype_name(array)}; expected "
            f"{errors.listed(dtypes)}{way_out}"
        )
    if array.shape != shape:
        raise ValueError(f"{function}: {argument} has shape {tuple(array.shape)}; expected {shape}")
    check_same_device(function, argument, adapter, array, like)
    if not adapter.is_writable(array):
        whole, dot, field = argument.rpartition(".")
        way_out = f"{whole}.replace({field}={argument}.copy())" if dot else f"{argument}.copy()"
        raise ValueError(
            f"{function}: {argument} is read-only; expected a writable array; pass {way_out}"
        )
    if not adapter.is_dense(array) and (not rows_apart or _row_strides(adapter, array) is None):
        unaligned = getattr(getattr(array, "flags", None), "c_contiguous", False)
        got, wanted = (
            ("starts between two elements", "an address that is a multiple of an element's size")
            if unaligned
            else ("is not contiguous", f"a row-major array without gaps{' in rows' * rows_apart}")
        )
        raise ValueError(
            f"{function}: {argument} {got}; expected {wanted}; {errors.without(argument)} and copy "
            "the result"
        )
    begin, end = adapter.extent(array)
    for first, last in taken:
        if max(begin, first) < min(end, last):
            raise ValueError(
                f"{function}: {argument} overlaps the memory of an input or of another output, or "
                "lies between its rows; expected memory of its own"
            )
    adapter.mark_written(array)
    return array


def _row_strides(adapter: Adapter, array: Any) -> tuple[int, int] | None:
    strides = adapter.strides(array)
    return None if strides is None else row_strides(tuple(array.shape), strides)


def out_buffer(adapter: Adapter, array: Any, dtype: int, device: int) -> Buffer:
    """A plain array that checked_out has let pass, as the library sees it."""
    batch, rows, columns = collapsed(tuple(array.shape))
    row_stride, batch_stride = columns, rows * columns
    if not adapter.is_dense(array):
        row_stride, batch_stride = _row_strides(adapter, array) or (row_stride, batch_stride)
    address = adapter.address(array)
    return (address, dtype, device, batch, rows, columns, row_stride, batch_stride)


def check_dtype_of_out(function: str, dtype: int, adapter: Adapter, out: Any) -> None:
    """ValueError for a dtype, by its position, that is neither the default nor that of out."""
    own = adapter.plain_dtypes.get(getattr(out, "dtype", None))
    if dtype not in (_DEFAULT_DTYPE, own) and own is not None:
        raise other_dtype(function, PLAIN_DTYPES[dtype], PLAIN_DTYPES[own])


def other_dtype(function: str, dtype: str, own: str) -> ValueError:
    """The error for a dtype that is not that of out."""
    return ValueError(
        f"{function}: dtype is {dtype!r}, and out has dtype {own}; expected one of both; leave "
        f"dtype out, or pass an out of {dtype}"
    )


def mark_parts_written(adapter: Adapter, out: BlockScaled) -> None:
    """Tells the framework that the values of a BlockScaled's arrays change."""
    for part in out.parts:
        if part is not None:
            adapter.mark_written(part)


def extents_of(adapter: Adapter, *arrays: Any) -> list[tuple[int, int]]:
    """Where arrays lie, as outputs must not; None among them lies nowhere."""
    return [adapter.extent(array) for array in arrays if array is not None]


def checked_out_parts(
    function: str,
    argument: str,
    out: Any,
    adapter: Adapter,
    scheme: Scheme,
    shape: Shape,
    scale_layout: str,
    like: Any,
    taken: Sequence[tuple[int, int]] = (),
) -> tuple[Any, Any, Any]:
    """The codes, scales and tensor scale of a BlockScaled that results may be written to."""
    if not isinstance(out, BlockScaled):
        raise TypeError(
            f"{function}: {argument} is {errors.described(out)}; expected a BlockScaled, as an "
            "earlier call returned it"
        )
    fields_of(function, argument, out)
    for field, wanted in (
        ("scheme", scheme.name),
        ("shape", shape),
        ("scale_layout", scale_layout),
    ):
        got = getattr(out, field)
        own = got.name if isinstance(got, Scheme) else got  # a record goes where its name does
        if own != wanted and not (field == "scheme" and NAMES.get(str(own)) == wanted):
            raise ValueError(
                f"{function}: {argument}.{field} is {errors.described(got)}; expected {wanted!r}"
            )
    if (out.tensor_scale is None) == scheme.has_tensor_scale:
        wanted = "a float32 array" if scheme.has_tensor_scale else "None"
        raise ValueError(
            f"{function}: {argument}.tensor_scale is {errors.described(out.tensor_scale)}; "
            f"expected {wanted} for {scheme.name}"
        )
    codes = checked_out(
        function,
        f"{argument}.codes",
        out.codes,
        adapter,
        scheme.codes_shape(shape),
        stored_dtypes(scheme.codes_dtype),
        like,
        taken,
    )
    scales = checked_out(
        function,
        f"{argument}.scales",
        out.scales,
        adapter,
        scheme.scales_shape(shape, scale_layout),
        stored_dtypes(scheme.scales_dtype),
        like,
        [*taken, *extents_of(adapter, codes)],
    )
    if not scheme.has_tensor_scale:
        return codes, scales, None
    tensor_scale = checked_out(
        function,
        f"{argument}.tensor_scale",
        out.tensor_scale,
        adapter,
        (),
        ("float32",),
        like,
        [*taken, *extents_of(adapter, codes, scales)],
    )
    return codes, scales, tensor_scale


def on_stream(
    function: str, stream: Any, adapter: Adapter, array: Any
) -> AbstractContextManager[Any]:
    """A scope in which the framework's current stream is the one given, if one is given. Outputs
    and copies are made on it too, so that the framework knows what stream their memory belongs
    to."""
    if stream is None:
        return _NO_SCOPE
    handle = errors.integer(function, "stream", stream, 1, 2**64 - 1)
    if not adapter.takes_stream:
        raise ValueError(
            f"{function}: stream is {handle}, but {adapter.name} has streams of its own for its "
            "arrays, and waits for no other; leave stream out"
        )
    return adapter.on_stream(handle, array)
