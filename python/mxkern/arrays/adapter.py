# mxkern/arrays/adapter.py: what the operations need to know of the arrays of a framework.
from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from mxkern import _core
from mxkern.values import errors
from mxkern.values.dtypes import BYTE_DTYPES, DTYPES, PLAIN_DTYPES

__all__ = ["BYTE_DTYPES", "DTYPES", "PLAIN_DTYPES"]  # of values.dtypes, for all adapters

Shape = tuple[int, ...]
TracedCalls = Any  # what makes parts of JAX programs of operations; None where there are none

CPU = -1
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2  # handles that CUDA and DLPack reserve

built_with_cuda = _core.built_with_cuda()


def collapsed(shape: Shape) -> tuple[int, int, int]:
    """Leading dimensions become a batch; a vector has one row."""
    if len(shape) == 2:
        return (1, *shape)
    if len(shape) == 1:
        return (1, 1, *shape)
    return (math.prod(shape[:-2]), shape[-2], shape[-1])


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


class Adapter(ABC):
    """Arrays of one framework: how to look into them, and how to make them."""

    name: str  # of the framework, for people
    takes_out = True  # whether its arrays can be written to
    takes_stream = True  # whether work on its arrays may go to any stream
    converts = False  # whether results are made elsewhere and come home through leave()
    marks_written = False  # whether the framework wants to hear of values that change
    traced_calls: TracedCalls = None  # where operations are parts of programs
    taking_over = "numpy.asarray"  # the function that takes arrays of other frameworks
    placed: Callable[[Any, Any], Any]  # what BlockScaled.to makes of an array and a device
    namespace: Any  # the module with stack, concatenate, zeros_like and broadcast_to
    dtypes: dict[str, Any]  # name -> dtype object
    plain_dtypes: dict[Any, int]  # dtype object -> position in the library's list

    def __init__(self, dtypes: dict[str, Any]) -> None:
        self.dtypes = dtypes
        self.plain_dtypes = {dtypes[name]: i for i, name in enumerate(PLAIN_DTYPES)}
        self.elements = {dtype: i for i, dtype in enumerate(dtypes.values())}

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

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype)

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

    def is_writable(self, array: Any) -> bool:
        return True

    def look(self, array: Any) -> tuple[Any, int, int, Shape, Shape | None, bool, bool]:
        """What the extension module sees of an array: address, position among DTYPES (-1: none),
        device, shape, strides in elements or None, whether it is dense, and writable."""
        return (
            self.address(array),
            self.elements.get(array.dtype, -1),
            self.device(array),
            tuple(array.shape),
            self.strides(array),
            self.is_dense(array),
            self.is_writable(array),
        )

    def read_by(self, calls: Any) -> None:  # noqa: B027
        """Gives the extension module what it reads and makes arrays of the framework with, where
        it has a reader of its own for them."""

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

    def conversion(self, argument: str, dtype: str) -> str:
        """The call that gives an array of the dtype, for messages."""
        return f'{argument}.astype("{dtype}")'

    def stream(self, array: Any) -> int | None:
        """The handle of the stream that work on the array goes to; None on the CPU."""
        return None

    def on_stream(self, handle: int, array: Any) -> AbstractContextManager[Any]:
        """A scope in which the stream of the handle is the current one of the array's device."""
        return nullcontext()

    def on_device(self, array: Any) -> AbstractContextManager[Any]:
        """A scope in which the framework's own operations on the array may be called."""
        return nullcontext()

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

    def native(self, array: Any) -> Any:
        """The array in the machine's byte order."""
        return array
