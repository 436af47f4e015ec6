# mxkern/arrays/jax_arrays.py: JAX arrays on the CPU: read in place, results made as NumPy arrays.
from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mxkern.arrays.adapter import JaxCalls, check_device
from mxkern.arrays.numpy_arrays import NumpyAdapter
from mxkern.block_scaled import BlockScaled
from mxkern.prepared_operand import PreparedOperand


class JaxAdapter(NumpyAdapter):
    name = "JAX"
    namespace = jax.numpy
    taking_over = "jax.numpy.asarray"
    takes_out = False
    converts = True

    def __init__(self, calls: JaxCalls) -> None:
        super().__init__()
        self.short_way = self.traced_calls = calls
        # Arrays are what a transformation sees of these; the rest is static.
        jax.tree_util.register_pytree_node(
            BlockScaled,
            lambda q: (tuple(q[:3]), tuple(q[3:])),
            lambda static, parts: BlockScaled(*parts, *static),
        )
        jax.tree_util.register_pytree_node(
            PreparedOperand,
            lambda w: ((w.data, w.source), (w.form, w.scheme, w.shape)),
            lambda static, parts: PreparedOperand(static[0], *parts, *static[1:]),
        )

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

    def as_bytes(self, argument: str) -> str:
        return f"{argument}.view(jax.numpy.uint8)"

    def conversion(self, argument: str, dtype: str) -> str:
        return f"{argument}.astype(jax.numpy.{dtype})"
