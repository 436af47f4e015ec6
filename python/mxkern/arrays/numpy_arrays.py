# mxkern/arrays/numpy_arrays.py: NumPy arrays, with the dtypes of ml_dtypes.
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from mxkern import _core, errors
from mxkern.arrays.adapter import CPU, DTYPES, PLAIN_DTYPES, Adapter, Shape
from mxkern.block_scaled import BlockScaled
from mxkern.options import SCALE_LAYOUTS
from mxkern.scheme import schemes


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


class NumpyAdapter(Adapter):
    name = "NumPy"
    namespace = np

    def __init__(self) -> None:
        dtypes = {name: numpy_dtype(name) for name in DTYPES}
        super().__init__(dtypes)
        self.short_way = _core.NumpyCalls(
            np.ndarray,
            np.empty,
            BlockScaled,
            [dtypes[name] for name in PLAIN_DTYPES],
            [dtypes[scheme.codes_dtype] for scheme in schemes],
            [dtypes[scheme.scales_dtype] for scheme in schemes],
            [scheme.name for scheme in schemes],
            list(SCALE_LAYOUTS),
        )

    def enter(self, function: str, argument: str, array: Any) -> Any:
        return array

    def e2m1_codes(self, array: Any) -> Any:
        return array.view(np.uint8) if array.dtype == ml_dtypes.float4_e2m1fn else array

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype)

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

    def extent(self, array: Any) -> tuple[int, int]:
        return _core.extent(array.__array_struct__)

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

    def conversion(self, argument: str, dtype: str) -> str:
        return f'{argument}.astype("{dtype}")'
