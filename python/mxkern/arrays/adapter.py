# mxkern/arrays/adapter.py: what the operations need to know of the arrays of a framework.
from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, NoReturn, Protocol

from mxkern import _core, errors

Shape = tuple[int, ...]

# What the library sees of a tensor: address, dtype, device, batch, rows, columns, row stride, batch
# stride; and of a BlockScaled: scheme, layout, device, batch, rows, columns and three addresses.
Buffer = tuple[object, int, int, int, int, int, int, int]
View = tuple[int, int, int, int, int, int, object, object, object]

PLAIN_DTYPES = _core.dtype_names()
BYTE_DTYPES = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int8", "uint8")
DTYPES = (*PLAIN_DTYPES, *BYTE_DTYPES, "int32")
CPU = -1
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2  # handles that CUDA and DLPack reserve

_new = tuple.__new__  # half the time of a NamedTuple's own constructor
built_with_cuda = _core.built_with_cuda()


class Plain(NamedTuple):
    """A plain tensor as the library sees it."""

    array: Any  # as it came
    memory: Any  # what the buffer points into: the array, or a dense copy
    buffer: Buffer
    shape: Shape


def collapsed(shape: Shape) -> tuple[int, int, int]:
    """Leading dimensions become a batch; a vector has one row."""
    if len(shape) == 2:
        return (1, *shape)
    if len(shape) == 1:
        return (1, 1, *shape)
    return (math.prod(shape[:-2]), shape[-2], shape[-1])


def dense_buffer(address: object, dtype: int, device: int, extents: tuple[int, int, int]) -> Buffer:
    """Memory without gaps as the library sees it."""
    batch, rows, columns = extents
    return (address, dtype, device, batch, rows, columns, columns, rows * columns)


def row_strides(shape: Shape, strides: Shape) -> tuple[int, int] | None:
    """Row and batch stride, in elements, of a tensor whose rows are dense and do not overlap.
    None if it is anything else."""
    steps = [(n, step) for n, step in zip(shape, strides, strict=True) if n != 1]
    if shape[-1] != 1 and (not steps or steps.pop()[1] != 1):
        return None
    rows = shape[-2] if len(shape) > 1 else 1
    least = shape[-1]
    row_stride = least
    if rows != 1:
        row_stride = steps.pop()[1]
        if row_stride < least:
            return None
        least = row_stride * rows
    if not steps:
        return row_stride, least
    batch_stride = expected = steps[-1][1]
    if batch_stride < least:
        return None
    for n, step in reversed(steps):
        if step != expected:
            return None
        expected = step * n
    return row_stride, batch_stride


def check_device(function: str, argument: str, device: str) -> None:
    """RuntimeError for a kind of device that this build has no code for."""
    if device == "cpu" or (device in ("cuda", "gpu") and built_with_cuda):
        return
    if device in ("cuda", "gpu"):
        raise RuntimeError(
            f"{function}: {argument} is on a CUDA device, and this mxkern was built without CUDA; "
            "move the array to the CPU, or build with MXKERN_CUDA=ON"
        )
    raise RuntimeError(
        f"{function}: {argument} is on a {device} device; expected the CPU; move the array there"
    )


def check_same_device(
    function: str, argument: str, adapter: Adapter, array: Any, like: Any
) -> None:
    """ValueError unless an array is where another one of the call is."""
    got, wanted = adapter.device(array), adapter.device(like)
    if got != wanted:
        names = ["cpu" if index == CPU else f"cuda:{index}" for index in (got, wanted)]
        raise ValueError(
            f"{function}: {argument} is on {names[0]}; expected {names[1]}, where the other arrays "
            "are; move it there"
        )


class ShortWay(Protocol):
    """Whole operations for ordinary arguments; None for all others."""

    def quantize(
        self,
        x: Any,
        scheme: int,
        layout: int,
        options: _core.QuantizeOptions,
        columns: bool,
        amax: Any,
        tensor_scale: Any,
        out: Any,
    ) -> Any: ...

    def quantize_both(
        self,
        x: Any,
        scheme: int,
        layout: int,
        row_options: _core.QuantizeOptions,
        column_options: _core.QuantizeOptions,
        amax: Any,
        tensor_scale: Any,
    ) -> Any: ...

    def fake_quantize(
        self,
        x: Any,
        scheme: int,
        options: _core.QuantizeOptions,
        amax: Any,
        tensor_scale: Any,
        out: Any,
    ) -> Any: ...

    def dequantize(self, q: Any, dtype: int, out: Any) -> Any: ...

    def gemm(
        self,
        a: Any,
        b: Any,
        dtype: int,
        alpha: float,
        beta: float,
        bias: Any,
        precision: int,
        out: Any,
    ) -> Any: ...


class TracedCalls(Protocol):
    """The other operations, as parts of programs; None for arrays that are none of one."""

    def prepare_operand(
        self,
        x: Any,
        scheme: int | None,
        form: int,
        options: _core.QuantizeOptions,
        keep_source: bool,
    ) -> Any: ...

    def grouped_gemm(
        self,
        a: Any,
        b: Any,
        ends: Any,
        factors: Any,
        bias: Any,
        dtype: int,
        alpha: float,
        beta: float,
        precision: int,
        out: Any,
    ) -> Any: ...

    def straight_through(
        self, function: str, decoded: Any, x: Any, scalars: dict[str, Any]
    ) -> Any: ...

    def tensor_amax(self, x: Any, out: Any) -> Any: ...

    def random_hadamard(
        self, x: Any, size: int, low: int, high: int, inverse: bool, out: Any
    ) -> Any: ...

    def swizzle_scales(self, scales: Any, out: Any) -> Any: ...

    def unswizzle_scales(self, scales: Any, rows: Any, blocks: Any, out: Any) -> Any: ...


class JaxCalls(ShortWay, TracedCalls, Protocol):
    """All operations, on arrays of JAX's."""


class Adapter(ABC):
    """Arrays of one framework: how to look into them, and how to make them."""

    name: str  # of the framework, for people
    takes_out = True  # whether its arrays can be written to
    takes_stream = True  # whether work on its arrays may go to any stream
    converts = False  # whether results are made elsewhere and come home through leave()
    short_way: ShortWay | None = None  # for ordinary arguments
    traced_calls: TracedCalls | None = None  # where operations are parts of programs
    taking_over = "numpy.asarray"  # the function that takes arrays of other frameworks
    placed: Callable[[Any, Any], Any]  # what BlockScaled.to makes of an array and a device
    namespace: Any  # the module with stack, concatenate, zeros_like and broadcast_to
    dtypes: dict[str, Any]  # name -> dtype object
    plain_dtypes: dict[Any, int]  # dtype object -> position in the library's list
    byte_dtypes: dict[str, tuple[Any, Any]]  # name -> what holds such codes or scales

    def __init__(self, dtypes: dict[str, Any]) -> None:
        self.dtypes = dtypes
        self.plain_dtypes = {dtypes[name]: i for i, name in enumerate(PLAIN_DTYPES)}
        self.byte_dtypes = {name: (dtypes[name], dtypes["uint8"]) for name in BYTE_DTYPES}

    @abstractmethod
    def enter(self, function: str, argument: str, array: Any) -> Any:
        """The array that the other methods take; raises for one that cannot be read."""

    def leave(self, array: Any, like: Any) -> Any:
        """A result as an array of the framework, where `like` is."""
        return array

    def packed_e2m1_bytes(self, array: Any) -> Any:
        """E2M1 codes as uint8, where the framework has a dtype for two of them in a byte."""
        return array

    def e2m1_codes(self, array: Any) -> Any:
        """E2M1 codes as uint8, one a byte, where the framework has a dtype for one of them."""
        return array

    @abstractmethod
    def dtype_name(self, array: Any) -> str: ...

    @abstractmethod
    def is_dense(self, array: Any) -> bool:
        """Row-major without gaps, aligned, in the machine's byte order."""

    @abstractmethod
    def strides(self, array: Any) -> Shape | None:
        """In elements; None where they are no whole number of aligned elements."""

    @abstractmethod
    def dense(self, array: Any) -> Any:
        """A dense copy."""

    @abstractmethod
    def address(self, array: Any) -> Any:
        """Of the first element, as the bindings take it."""

    @abstractmethod
    def extent(self, array: Any) -> tuple[int, int]:
        """The addresses of the first byte and of the one after the last."""

    @abstractmethod
    def is_writable(self, array: Any) -> bool: ...

    def goes_with(self, other: Adapter) -> bool:
        """Whether its arrays, once entered, may stand beside those of the other."""
        return other is self

    def check_out(self, function: str, argument: str, out: Any) -> None:  # noqa: B027
        """Refuses an output that is no memory of its own to the framework."""

    def mark_written(self, array: Any) -> None:  # noqa: B027
        """Tells the framework that the values of an array change."""

    @abstractmethod
    def device(self, array: Any) -> int:
        """CPU, or the index of a CUDA device."""

    @abstractmethod
    def empty(self, function: str, shape: Shape, dtype: str, like: Any) -> Any:
        """A dense array on like's device, not initialized."""

    @abstractmethod
    def scalar(self, bits: int, like: Any) -> Any:
        """A 0-d float32 array on like's device. Of a number's bits: frameworks may be told to take
        subnormal numbers for zero. No sign."""

    def as_int64(self, array: Any) -> Any:
        """A copy of an array of integers."""
        return array.astype("int64")

    @abstractmethod
    def raw_bytes(self, array: Any) -> Any:
        """The elements of an array of one-byte elements as a NumPy uint8 view."""

    def as_bytes(self, argument: str) -> str:
        """The call that gives the bytes of an array as they are, for messages."""
        return f'{argument}.view("uint8")'

    def conversion_of_other(self, argument: str) -> str:
        """The call that makes an array of another framework one of this, for messages; none for
        bytes, which some of them refuse to convert."""
        if argument.endswith(("codes", "scales", "data")):
            return ""
        return f" with {self.taking_over}({argument})"

    @abstractmethod
    def conversion(self, argument: str, dtype: str) -> str:
        """The call that gives an array of the dtype, for messages."""

    def stream(self, array: Any) -> int | None:
        """The handle of the stream that work on the array goes to; None on the CPU."""
        return None

    def on_stream(self, handle: int, array: Any) -> AbstractContextManager[Any]:
        """A scope in which the stream of the handle is the current one of the array's device."""
        return nullcontext()

    def on_device(self, array: Any) -> AbstractContextManager[Any]:
        """A scope in which the framework's own operations on the array may be called."""
        return nullcontext()

    def grouped_gemm(self, *arguments: Any) -> Any:
        """The whole product for ordinary arguments, or a part of a program; None for all others.
        The arguments are those of TracedCalls."""
        calls = self.traced_calls
        return None if calls is None else calls.grouped_gemm(*arguments)

    def refuse_dtype(
        self, function: str, argument: str, array: Any, expected: tuple[str, ...]
    ) -> NoReturn:
        raise TypeError(
            f"{function}: {argument} has dtype {self.dtype_name(array)}; expected "
            f"{errors.listed(expected)}{self._way_out_of_dtype(argument, array, expected[0])}"
        )

    def _way_out_of_dtype(self, argument: str, array: Any, dtype: str) -> str:
        """What to do, as messages end; nothing for what holds no numbers."""
        kind, fields = getattr(array.dtype, "kind", ""), getattr(array.dtype, "names", None)
        if self.dtype_name(array).startswith("complex"):
            return f"; take {argument}.real or {argument}.imag"
        if fields:
            return f'; take one of its fields, as {argument}["{fields[0]}"]'
        if kind in ("S", "U", "M", "m") or str(array.dtype).startswith("|V"):
            return ""
        return f"; convert with {self.conversion(argument, dtype)}"

    def turned(self, array: Any) -> Any:
        """The transpose of a tensor, where it is the transpose that has its rows in memory; None
        elsewhere."""
        if array.ndim < 2 or self.is_dense(array):
            return None
        strides = self.strides(array)
        if strides is None or strides[-1] == 1:
            return None
        *outer, rows, columns = array.shape
        *outer_strides, row_stride, column_stride = strides
        shape, turned = (*outer, columns, rows), (*outer_strides, column_stride, row_stride)
        return None if row_strides(shape, turned) is None else array.swapaxes(-1, -2)

    def plain(self, function: str, argument: str, array: Any) -> Plain:
        """A float32, float16 or bfloat16 tensor of one dimension or more, for reading. Rows may lie
        apart; anything else is copied once."""
        memory = array
        dtype = self.plain_dtypes.get(array.dtype)
        if dtype is None:
            memory = self.native(array)
            dtype = self.plain_dtypes.get(memory.dtype)
            if dtype is None:
                self.refuse_dtype(function, argument, array, PLAIN_DTYPES)
        shape = tuple(array.shape)
        if not shape:
            raise ValueError(
                f"{function}: {argument} is 0-d; expected one dimension or more; reshape with "
                f"{argument}.reshape(1)"
            )
        batch, rows, columns = collapsed(shape)
        row_stride, batch_stride = columns, rows * columns
        if not self.is_dense(memory):
            strides = self.strides(memory)
            apart = None if strides is None else row_strides(shape, strides)
            if apart is None:
                memory = self.dense(memory)
            else:
                row_stride, batch_stride = apart
        buffer = (
            self.address(memory),
            dtype,
            self.device(array),
            batch,
            rows,
            columns,
            row_stride,
            batch_stride,
        )
        return _new(Plain, (array, memory, buffer, shape))

    def native(self, array: Any) -> Any:
        """The array in the machine's byte order."""
        return array
