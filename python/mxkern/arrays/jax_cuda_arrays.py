# mxkern/arrays/jax_cuda_arrays.py: JAX arrays on CUDA devices, as tensors of PyTorch. DLPack hands
# the memory over in both directions without a copy, and orders the streams of the two.
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch

from mxkern.arrays.adapter import check_device
from mxkern.arrays.torch_arrays import TorchAdapter

# What DLPack may not know travels as bytes.
_BYTES = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")


class JaxCudaAdapter(TorchAdapter):
    name = "JAX"
    namespace = jnp
    takes_out = False
    converts = True

    def __init__(self) -> None:
        super().__init__()
        self.short_way = None

    def enter(self, function: str, argument: str, array: Any) -> Any:
        if len(array.devices()) != 1:
            raise ValueError(
                f"{function}: {argument} is sharded over {len(array.devices())} devices; expected "
                f"one; call on each of {argument}.addressable_shards"
            )
        check_device(function, argument, "cuda")
        name = str(array.dtype)
        if name in _BYTES:
            as_bytes = jax.lax.bitcast_convert_type(array, jnp.uint8)
            return torch.from_dlpack(as_bytes).view(self.dtypes[name])
        if name not in self.dtypes:
            raise TypeError(
                f"{function}: {argument} has dtype {name}; expected float32, float16 or bfloat16; "
                f"convert with {self.conversion(argument, 'float32')}"
            )
        return torch.from_dlpack(array)

    def leave(self, array: Any, like: Any) -> Any:
        name = self.dtype_name(array)
        as_bytes = name in _BYTES
        # PyTorch hands out memory of the current device only.
        with torch.cuda.device(array.device):
            given = jax.dlpack.from_dlpack(array.view(torch.uint8) if as_bytes else array)
        return jax.lax.bitcast_convert_type(given, getattr(jnp, name)) if as_bytes else given

    def conversion(self, argument: str, dtype: str) -> str:
        return f"{argument}.astype(jax.numpy.{dtype})"
