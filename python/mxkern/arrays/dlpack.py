# mxkern/arrays/dlpack.py: arrays of other libraries on the CPU, read through DLPack.
from __future__ import annotations

from typing import Any

import numpy as np

from mxkern.arrays.adapter import Adapter, check_device
from mxkern.arrays.numpy import NumpyAdapter
from mxkern.values import errors

_HOST = (1, 3)  # host memory, and host memory that CUDA has pinned
_CUDA = (2, 13)  # device memory, and memory that CUDA moves to where it is used


class DlpackAdapter(NumpyAdapter):
    """Results are NumPy arrays, and what is entered goes with such."""

    name = "DLPack"
    takes_out = False

    def goes_with(self, other: Adapter) -> bool:
        return other is self or type(other) is NumpyAdapter

    def enter(self, function: str, argument: str, array: Any) -> Any:
        found: Any = array.__dlpack_device__()
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise TypeError(
                f"{function}: {argument}.__dlpack_device__() gives {errors.described(found)}; "
                "expected a pair, the kind of device and its index"
            )
        device = found[0]
        if device not in _HOST:
            check_device(function, argument, "cuda" if device in _CUDA else "foreign")
            raise RuntimeError(
                f"{function}: {argument} is a CUDA array of a library that mxkern does not know; "
                f"expected one of PyTorch, CuPy or JAX; convert with torch.from_dlpack({argument})"
            )
        try:
            return np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, AttributeError, ValueError) as error:
            kind = type(array)
            raise TypeError(
                f"{function}: {argument} is a {kind.__module__}.{kind.__qualname__} that NumPy "
                f"cannot read through DLPack ({error}); expected a float32 or float16 array on the "
                f"CPU; convert it to a NumPy, PyTorch or JAX array"
            ) from error
