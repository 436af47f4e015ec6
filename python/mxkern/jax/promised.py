# mxkern/jax/promised.py: what a quantization in a program of JAX returns.
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from mxkern.arrays.numpy import numpy_dtype
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.names import ScaleLayout
from mxkern.values.scheme import Scheme


def promised_of(scheme: Scheme, shape: tuple[int, ...], scale_layout: ScaleLayout) -> BlockScaled:
    """The shapes and dtypes of what is quantized."""
    scales_shape = scheme.scales_shape(shape, scale_layout)
    return BlockScaled(
        jax.ShapeDtypeStruct(scheme.codes_shape(shape), numpy_dtype(scheme.codes_dtype)),
        jax.ShapeDtypeStruct(scales_shape, numpy_dtype(scheme.scales_dtype)),
        jax.ShapeDtypeStruct((), np.dtype(np.float32)) if scheme.has_tensor_scale else None,
        scheme.name,
        shape,
        scale_layout,
    )


def results_of(promised: BlockScaled, given: int) -> list[Any]:
    """What an operation returns: the parts, and an amax that it finds. given: 0 for no scalar."""
    parts = [part for part in promised.parts if part is not None]
    finds = promised.tensor_scale is not None and given == 0
    return [*parts, jax.ShapeDtypeStruct((), np.dtype(np.float32))] if finds else parts


def filled(promised: BlockScaled, made: Sequence[Any]) -> BlockScaled:
    codes, scales, *rest = made
    return promised.replace(codes=codes, scales=scales, tensor_scale=rest[0] if rest else None)
