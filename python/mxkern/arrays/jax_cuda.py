# mxkern/arrays/jax_cuda.py: JAX arrays on CUDA devices. Only XLA allocates them and knows
# when they are ready, so operations on them are programs; what is here looks at them for checks.
from __future__ import annotations

from typing import Any, NoReturn

import jax
import numpy as np

from mxkern.arrays.adapter import CPU, DTYPES, Adapter, Shape, TracedCalls, check_device
from mxkern.arrays.jax import OfJax
from mxkern.arrays.numpy import numpy_dtype


def device_index(device: Any) -> int:
    """As an Adapter counts devices."""
    if device.platform == "cpu":
        return CPU
    index = device.local_hardware_id
    return int(device.id if index is None else index)


class JaxCudaAdapter(OfJax, Adapter):
    takes_stream = False

    def __init__(self, calls: TracedCalls) -> None:
        super().__init__({name: numpy_dtype(name) for name in DTYPES})
        self.traced_calls = calls

    def enter(self, function: str, argument: str, array: Any) -> Any:
        if len(array.devices()) != 1:
            raise ValueError(
                f"{function}: {argument} is sharded over {len(array.devices())} devices; expected "
                f"one; call on each of {argument}.addressable_shards"
            )
        check_device(function, argument, "cuda")
        name = str(array.dtype)
        if name not in self.dtypes:
            raise TypeError(
                f"{function}: {argument} has dtype {name}; expected float32, float16 or bfloat16; "
                f"convert with {self.conversion(argument, 'float32')}"
            )
        return array

    def is_dense(self, array: Any) -> bool:
        return True

    def strides(self, array: Any) -> Shape | None:
        return None

    def dense(self, array: Any) -> Any:
        return array

    def address(self, array: Any) -> Any:
        return array.unsafe_buffer_pointer()

    def is_writable(self, array: Any) -> bool:
        return False

    def device(self, array: Any) -> int:
        (device,) = array.devices()
        return device_index(device)

    def empty(self, function: str, shape: Shape, dtype: str, like: Any) -> NoReturn:
        raise RuntimeError(
            "mxkern: an operation on JAX arrays on a CUDA device did not become a program; that is "
            "a mistake of mxkern's"
        )

    def scalar(self, bits: int, like: Any) -> Any:
        (device,) = like.devices()
        return jax.device_put(np.array(bits, np.int32).view(np.float32), device)

    def raw_bytes(self, array: Any) -> Any:
        return np.asarray(array).view(np.uint8)
