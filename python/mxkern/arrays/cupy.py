# mxkern/arrays/cupy.py: CuPy arrays on CUDA devices.
from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import cupy

from mxkern.arrays.adapter import (
    DTYPES,
    LEGACY_STREAM,
    PER_THREAD_STREAM,
    Adapter,
    Shape,
    check_device,
)
from mxkern.arrays.numpy import numpy_dtype


def _external(handle: int, device: int) -> AbstractContextManager[Any]:
    stream: AbstractContextManager[Any]
    if hasattr(cupy.cuda.Stream, "from_external"):  # CuPy 14 and newer
        stream = cupy.cuda.Stream.from_external(_Handle(handle))
    else:
        stream = cupy.cuda.ExternalStream(handle, device)
    return stream


class _Handle:
    """A stream as the CUDA stream protocol wants to see it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


def _held(name: str) -> Any:
    """The dtype of a name, or uint8 for its bytes where CuPy has no arithmetic for it."""
    return numpy_dtype("uint8" if name.startswith("float8") else name)


class CupyAdapter(Adapter):
    name = "CuPy"
    namespace = cupy
    taking_over = "cupy.asarray"

    def __init__(self) -> None:
        super().__init__({name: _held(name) for name in DTYPES})

    def enter(self, function: str, argument: str, array: Any) -> Any:
        kind = type(array)
        if kind is not cupy.ndarray:
            raise TypeError(
                f"{function}: {argument} is a {kind.__module__}.{kind.__qualname__}, a subclass of "
                f"cupy.ndarray; expected a plain array; convert with cupy.asarray({argument})"
            )
        check_device(function, argument, "cuda")
        return array

    def is_dense(self, array: Any) -> bool:
        return bool(array.flags.c_contiguous)

    def strides(self, array: Any) -> Shape | None:
        size = array.itemsize
        if array.data.ptr % size or any(stride % size for stride in array.strides):
            return None
        return tuple(stride // size for stride in array.strides)

    def dense(self, array: Any) -> Any:
        with array.device:
            return array.copy(order="C")

    def address(self, array: Any) -> Any:
        return array.data.ptr

    def device(self, array: Any) -> int:
        return int(array.data.device_id)

    def placed(self, array: Any, device: Any) -> Any:
        index = getattr(device, "id", device)
        if isinstance(device, str):
            kind, _, number = device.partition(":")
            if kind != "cuda" or not (number.isdigit() or device == "cuda"):
                raise ValueError(
                    f"BlockScaled.to: device is {device!r}; expected 'cuda', 'cuda:1' or an index, "
                    "as arrays of CuPy are nowhere else; q.map(cupy.asnumpy) is on the CPU"
                )
            index = int(number) if number else None
        with cupy.cuda.Device(index):
            return cupy.asarray(array)

    def empty(self, function: str, shape: Shape, dtype: str, like: Any) -> Any:
        with like.device:
            return cupy.empty(shape, self.dtypes[dtype])

    def scalar(self, bits: int, like: Any) -> Any:
        with like.device:
            return cupy.full((), bits, cupy.int32).view(cupy.float32)

    def raw_bytes(self, array: Any) -> Any:
        return cupy.asnumpy(array.view(cupy.uint8))

    def stream(self, array: Any) -> int | None:
        return int(cupy.cuda.get_current_stream(array.data.device_id).ptr)

    def on_device(self, array: Any) -> AbstractContextManager[Any]:
        return array.device  # type: ignore[no-any-return]

    def on_stream(self, handle: int, array: Any) -> AbstractContextManager[Any]:
        if not isinstance(array, cupy.ndarray):
            return nullcontext()
        if handle == LEGACY_STREAM:
            return cupy.cuda.Stream.null  # type: ignore[no-any-return]
        if handle == PER_THREAD_STREAM:
            return cupy.cuda.Stream.ptds  # type: ignore[no-any-return]
        return _external(handle, array.data.device_id)
