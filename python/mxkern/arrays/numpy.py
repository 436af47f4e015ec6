# mxkern/arrays/numpy.py: NumPy arrays, with the dtypes of ml_dtypes.
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from mxkern import _core
from mxkern.arrays.adapter import CPU, DTYPES, Adapter, Shape
from mxkern.values import errors


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


class NumpyAdapter(Adapter):
    name = "NumPy"
    namespace = np

    def __init__(self) -> None:
        super().__init__({name: numpy_dtype(name) for name in DTYPES})

    def read_by(self, calls: Any) -> None:
        if type(self) is NumpyAdapter:
            _core.read_numpy(calls, self, np.ndarray, np.empty, list(self.dtypes.values()))

    def enter(self, function: str, argument: str, array: Any) -> Any:
        return array

    def e2m1_codes(self, array: Any) -> Any:
        return array.view(np.uint8) if array.dtype == ml_dtypes.float4_e2m1fn else array

    def is_dense(self, array: Any) -> bool:
        flags = array.flags
        return bool(flags.c_contiguous and flags.aligned)

    def strides(self, array: Any) -> Shape | None:
        size = array.itemsize
        if not array.flags.aligned or any(stride % size for stride in array.strides):
            return None
        return tuple(stride // size for stride in array.strides)

    def dense(self, array: Any) -> Any:
        return array.copy(order="C")

    def native(self, array: Any) -> Any:
        dtype = array.dtype
        return array if dtype.isnative else array.astype(dtype.newbyteorder("="))

    def address(self, array: Any) -> Any:
        return array.__array_struct__

    def is_writable(self, array: Any) -> bool:
        return bool(array.flags.writeable)

    def device(self, array: Any) -> int:
        return CPU

    def placed(self, array: Any, device: Any) -> Any:
        if str(device) != "cpu":
            raise ValueError(
                f"BlockScaled.to: device is {errors.described(device)}; expected 'cpu', as arrays "
                f"of {self.name} are nowhere else; for a device quantize an array of PyTorch, JAX "
                "or CuPy there, or make their arrays of codes and scales with q.map"
            )
        return array

    def empty(self, function: str, shape: Shape, dtype: str, like: Any) -> Any:
        return np.empty(shape, self.dtypes[dtype])

    def scalar(self, bits: int, like: Any) -> Any:
        return np.array(bits, np.int32).view(np.float32)

    def raw_bytes(self, array: Any) -> Any:
        return array.view(np.uint8)
