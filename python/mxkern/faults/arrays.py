# mxkern/faults/arrays.py: arrays that are out of the ordinary: what they become, or their errors.
from __future__ import annotations

import math
import numbers
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from mxkern import _core
from mxkern.arrays import Adapter, adapter_of
from mxkern.arrays.adapter import PLAIN_DTYPES, check_same_device
from mxkern.values import errors
from mxkern.values.scheme import Shape

FLOAT32_END = 2.0**128 - 2.0**103  # what is below rounds to a finite float32
FLOAT32_NOTHING = 2.0**-150  # this and what is below rounds to 0
_NO_SCOPE: AbstractContextManager[None] = nullcontext()


def enter(function: str, argument: str, array: Any, adapter: Adapter) -> Any:
    """An array that goes with others of the adapter's framework."""
    own = adapter_of(function, argument, array)
    if not (own.goes_with(adapter) or adapter.goes_with(own)):
        way_out = f"convert it to {adapter.name}{adapter.conversion_of_other(argument)}"
        if errors.is_traced(array):
            way_out = f"convert the others to {own.name}, as a traced array has no values yet"
        raise TypeError(
            f"{function}: {argument} is a {own.name} array beside {adapter.name} arrays; expected "
            f"one framework; {way_out}"
        )
    return own.enter(function, argument, array)


def plain(function: str, argument: str, array: Any, adapter: Adapter) -> Any:
    """The array in the machine's byte order."""
    memory = adapter.native(array)
    if memory.dtype not in adapter.plain_dtypes:
        adapter.refuse_dtype(function, argument, array, PLAIN_DTYPES)
    return memory


def plain_or_float64(function: str, argument: str, array: Any, adapter: Adapter) -> Any:
    """As plain, for what takes float64 too."""
    memory = adapter.native(array)
    if memory.dtype not in adapter.plain_dtypes and memory.dtype != adapter.dtypes["float64"]:
        adapter.refuse_dtype(function, argument, array, (*PLAIN_DTYPES, "float64"))
    return memory


def no_dimensions(function: str, argument: str) -> NoReturn:
    raise ValueError(
        f"{function}: {argument} is 0-d; expected one dimension or more; reshape with "
        f"{argument}.reshape(1)"
    )


def no_numbers(function: str, argument: str, given: Any, dtype: str) -> NoReturn:
    """For a list, a tuple or None where an array of numbers is wanted."""
    if given is None:
        adapter_of(function, argument, given)
    raise TypeError(
        f"{function}: {argument} is {errors.described(given)}; expected an array; convert with "
        f'numpy.array({argument}, "{dtype}") or torch.tensor({argument}, dtype=torch.{dtype})'
    )


def float32_scalar(function: str, argument: str, value: Any, adapter: Adapter, like: Any) -> Any:
    """A float32 array of one element for a number or such an array."""
    if not isinstance(value, bool) and isinstance(value, numbers.Real):
        number = errors.real(function, argument, value)
        factor(function, argument, number)
        return adapter.scalar(_core.float32_bits(number + 0.0), like)  # -0 is 0
    if value is None:
        raise ValueError(
            f"{function}: {argument} is None; expected the float32 that nvfp4 values are "
            "multiplied with"
        )
    if isinstance(value, (bool, str, list, tuple)):
        raise TypeError(
            f"{function}: {argument} is {errors.described(value)}; expected a number, or a float32 "
            "array of one element"
        )
    array = enter(function, argument, value, adapter)
    if array.dtype != adapter.dtypes["float32"]:
        adapter.refuse_dtype(function, argument, array, ("float32",))
    if math.prod(array.shape) != 1:
        raise ValueError(
            f"{function}: {argument} has shape {tuple(array.shape)}; expected one element. "
            "Matrices with one each are the work of a loop, or of grouped_gemm with factors"
        )
    check_same_device(function, argument, adapter, array, like)
    return array if adapter.is_dense(array) else adapter.dense(array)


def factor(function: str, argument: str, number: float) -> None:
    """An amax or a tensor scale that something is to be quantized with."""
    if not 0.0 <= number < FLOAT32_END:
        raise ValueError(
            f"{function}: {argument} is {number}; expected a finite float32, 0 or larger"
        )
    if 0.0 < number <= FLOAT32_NOTHING:
        raise ValueError(
            f"{function}: {argument} is {number}, which is 0 as a float32; expected 0, or 2^-149 "
            "or larger"
        )


def out(
    function: str,
    argument: str,
    out: Any,
    adapter: Adapter,
    shape: Shape,
    dtypes: tuple[str, ...],
    like: Any,
) -> Any:
    """An array that results may be written to: of like's framework and device, of the shape, of one
    of the dtypes, and writable."""
    if not adapter.takes_out:
        raise errors.not_writable(function, argument, adapter.name)
    array = enter(function, argument, out, adapter)
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
    return array


def not_dense(function: str, argument: str, array: Any, rows_apart: bool) -> NoReturn:
    """rows_apart: there may be gaps between rows, as in columns of a larger array."""
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


def same_device(function: str, argument: str, adapter: Adapter, array: Any, like: Any) -> None:
    check_same_device(function, argument, adapter, array, like)


def overlap(function: str, argument: str) -> NoReturn:
    raise ValueError(
        f"{function}: {argument} overlaps the memory of an input or of another output, or "
        "lies between its rows; expected memory of its own"
    )


def stream(function: str, stream: Any, adapter: Adapter, array: Any) -> AbstractContextManager[Any]:
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


def operands_apart(function: str, codes: Any, adapter: Adapter) -> None:
    """For quantized operands, whose arrays are all of one framework."""
    own = adapter_of(function, "a.codes", codes)
    if own is not adapter:
        raise TypeError(
            f"{function}: a holds {own.name} arrays, and b {adapter.name} arrays; "
            "expected one framework; quantize both from arrays of one"
        )
