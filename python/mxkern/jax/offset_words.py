# mxkern/jax/offset_words.py: an offset of stochastic rounding as two words of 32 bits, which JAX
# has where it has no integers of 64.
from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mxkern.values import errors
from mxkern.values.options import OFFSET_DTYPES


def words_of(offset: Any) -> list[Any]:
    """An offset as the halves of 64 bits, the lower one first, which take no wider integers of
    JAX's; none if there is none."""
    if offset is None:
        return []
    if isinstance(offset, (np.ndarray, np.generic)):  # whose 64 bits JAX would cut
        number = int(offset.item()) % 2**64
        return [np.array([number % 2**32, number // 2**32], np.uint32)]
    scalar = jax.numpy.reshape(offset, ())
    if scalar.dtype.itemsize == 8:
        return [jax.lax.bitcast_convert_type(scalar, np.uint32)]
    high = jax.numpy.where(scalar < 0, np.uint32(2**32 - 1), np.uint32(0))
    return [jax.numpy.stack([jax.lax.bitcast_convert_type(scalar, np.uint32), high])]


def words_of_step(function: str, step: Any) -> Any:
    """The words of a layer's step: an int, an integer array of one element, or a key of JAX's, of
    which they are the first two. Raises TypeError and ValueError."""
    if step is None:
        step = 0
    if not isinstance(step, (jax.Array, np.ndarray)):
        return _words_of_number(function, step)
    if jax.dtypes.issubdtype(step.dtype, jax.dtypes.prng_key) and step.shape == ():
        return jax.random.key_data(step).reshape(-1)[:2]
    if step.dtype == np.uint32 and step.shape in ((2,), (4,)):  # a key of the older kind
        return step[:2]
    if step.size != 1 or str(step.dtype) not in OFFSET_DTYPES:
        raise TypeError(
            f"{function}: step is an array of {step.dtype} of shape {step.shape}; expected an int, "
            f"an array of one element of {errors.listed(OFFSET_DTYPES)}, or a key of jax.random"
        )
    return words_of(step)[0]


def _words_of_number(function: str, step: Any) -> Any:
    number = errors.integer(function, "step", step, 0, 2**64 - 1)
    return np.array([number % 2**32, number // 2**32], np.uint32)


def number_of(words: Any, like: Any) -> Any:
    """The words as an integer of 64 bits on the device of another array."""
    if not any(isinstance(each, jax.core.Tracer) for each in (words, like)):
        devices = like.devices()
        words = jax.device_put(words, *(devices if len(devices) == 1 else ()))
    with jax.enable_x64(True):
        low, high = words[0].astype(np.uint64), words[1].astype(np.uint64)
        return low | high << np.uint64(32)
