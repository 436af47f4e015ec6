# mxkern/arrays/jax.py: JAX arrays on the CPU: read in place, results made as NumPy arrays.
from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mxkern.arrays import jax_trees
from mxkern.arrays.adapter import TracedCalls, check_device
from mxkern.arrays.numpy import NumpyAdapter


class OfJax:
    """What adapters of JAX arrays have in common wherever those are."""

    name = "JAX"
    namespace = jax.numpy
    taking_over = "jax.numpy.asarray"
    takes_out = False
    converts = True

    def e2m1_codes(self, array: Any) -> Any:
        """JAX counts a byte for an element of 4 bits, and views two as one."""
        if str(array.dtype) != "float4_e2m1fn":
            return array
        return jax.lax.bitcast_convert_type(array, jax.numpy.uint4).astype(jax.numpy.uint8)

    def placed(self, array: Any, device: Any) -> Any:
        """The array on a device, or sharded; a name is that of a platform and an index."""
        if isinstance(device, str):
            platform, _, index = device.partition(":")
            try:
                device = jax.devices(platform)[int(index or 0)]
            except (RuntimeError, ValueError, IndexError) as error:
                raise ValueError(
                    f"BlockScaled.to: device is {device!r}, and JAX has none of that name "
                    f"({error}); expected one of jax.devices(), as 'cpu' or 'cuda:0'"
                ) from None
        return jax.device_put(array, device)

    def as_bytes(self, argument: str) -> str:
        return f"{argument}.view(jax.numpy.uint8)"

    def conversion(self, argument: str, dtype: str) -> str:
        return f"{argument}.astype(jax.numpy.{dtype})"


class JaxAdapter(OfJax, NumpyAdapter):
    def __init__(self, calls: TracedCalls) -> None:
        super().__init__()
        self.traced_calls = calls
        jax_trees.register()

    def enter(self, function: str, argument: str, array: Any) -> Any:
        if isinstance(array, jax.core.Tracer):
            raise TypeError(
                f"{function}: {argument} is a JAX tracer, which has no values; expected an array; "
                f"leave stream out if it is given, or call outside of jax.jit, jax.grad and "
                f"jax.vmap, or through jax.pure_callback"
            )
        for device in array.devices():
            check_device(function, argument, device.platform)
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            raise TypeError(
                f"{function}: {argument} holds random keys; expected an array of numbers; "
                f"jax.random.key_data({argument}) has theirs"
            )
        return np.asarray(array)

    def leave(self, array: Any, like: Any) -> Any:
        devices = like.devices()
        return jax.device_put(array, next(iter(devices)) if len(devices) == 1 else None)
