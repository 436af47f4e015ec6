# mxkern/arrays/jax_cuda_arrays.py: JAX arrays on CUDA devices, as tensors of PyTorch. DLPack hands
# the memory over in both directions without a copy, and orders the streams of the two.
from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import torch

from mxkern.arrays.adapter import check_device
from mxkern.arrays.jax_traced_calls import JaxTracedCalls
from mxkern.arrays.torch_arrays import TorchAdapter

_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")


@functools.cache
def _known(name: str) -> bool:
    """Whether JAX and PyTorch exchange arrays of the dtype. An older one of the two does not."""
    if name not in _FLOAT8:
        return True
    try:
        one = torch.zeros(1, dtype=torch.uint8, device="cuda").view(getattr(torch, name))
        back = torch.from_dlpack(jax.dlpack.from_dlpack(one))
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return False
    return bool(back.dtype == one.dtype)


def as_known(array: Any) -> Any:
    """An array that DLPack knows: of uint8, if need be."""
    if _known(str(array.dtype)):
        return array
    return jax.lax.bitcast_convert_type(array, jnp.uint8)


def of_dtype(array: Any, like: Any) -> Any:
    """An array of as_known as what it was."""
    return array if array.dtype == like.dtype else jax.lax.bitcast_convert_type(array, like.dtype)


class JaxCudaAdapter(TorchAdapter):
    name = "JAX"
    namespace = jnp
    takes_out = False
    takes_stream = False
    converts = True

    def __init__(self) -> None:
        super().__init__()
        self.short_way = self.traced_calls = JaxTracedCalls()

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
        return torch.from_dlpack(as_known(array)).view(self.dtypes[name])

    def leave(self, array: Any, like: Any) -> Any:
        name = self.dtype_name(array)
        # PyTorch hands out memory of the current device only.
        with torch.cuda.device(array.device):
            given = jax.dlpack.from_dlpack(array if _known(name) else array.view(torch.uint8))
        return given if _known(name) else jax.lax.bitcast_convert_type(given, getattr(jnp, name))

    def conversion(self, argument: str, dtype: str) -> str:
        return f"{argument}.astype(jax.numpy.{dtype})"
