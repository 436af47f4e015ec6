# mxkern/jax/linear.py: x w^T of a recipe, as a function that JAX differentiates.
from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from mxkern.arrays.adapter import PLAIN_DTYPES
from mxkern.jax.linear_function import Facts, linear
from mxkern.jax.mesh_axes import over_their_axes
from mxkern.jax.offset_words import words_of_step
from mxkern.values import errors
from mxkern.values.recipe import Recipe

_FUNCTION = "dot"


def dot(
    x: Any, w: Any, recipe: Recipe, *, bias: Any = None, seed: int = 0, step: Any = None
) -> Any:
    """x w^T + bias with the products of a recipe, forward and backward, as mxkern.torch computes
    them.

    x       [..., K], float32, float16 or bfloat16. Leading dimensions are rows of one matrix; under
            jax.vmap each element is a matrix of its own, with an NVFP4 tensor scale of its own.
    w       [N, K], as gemm takes it: the transpose of the kernel of other layers of JAX's
    recipe  a Recipe: mxkern.jax.mxfp8(), nvfp4(), mxfp4() and mx(scheme) make them. It is a Python
            value: name it in static_argnums if it is an argument under jax.jit.
    bias    [N]
    seed    of stochastic rounding: an int from 0 to 2**64 - 1, another one for each layer and rank
    step    of stochastic rounding: an int, an integer array of one element, which may be traced, or
            a key of jax.random. None is 0. The same seed and step give the same bytes.

    Returns [..., N] in x's dtype. Derivatives for jax.grad and jax.vjp: that of x in x's dtype, of
    w in w's, of bias, a float32 sum over all rows, in bias's. What they need is kept quantized, as
    the recipe says, and only for derivatives that are asked for. Raises TypeError, ValueError and
    RuntimeError.

    >>> import jax, mxkern.jax
    >>> x, w = jax.numpy.ones((4, 64)), jax.numpy.ones((8, 64))
    >>> mxkern.jax.dot(x, w, mxkern.jax.mxfp8())[0, 0]
    Array(64., dtype=float32)
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(
            f"{_FUNCTION}: recipe is {errors.described(recipe)}; expected a Recipe, as "
            "mxkern.jax.mxfp8() makes one; under jax.jit name it in static_argnums"
        )
    x, w = (_plain(name, array) for name, array in (("x", x), ("w", w)))
    bias = None if bias is None else _plain("bias", bias)
    _check_shapes(x, w, bias)
    if not isinstance(seed, int):
        raise TypeError(
            f"{_FUNCTION}: seed is {errors.described(seed)}; expected an int; pass what changes "
            "from call to call, and what is an array or a key, as step"
        )
    seed = errors.integer(_FUNCTION, "seed", seed, 0, 2**64 - 1)
    words = words_of_step(_FUNCTION, step)
    if not recipe.is_stochastic:
        words = None
    given = [each for each in (x, w, bias, words) if each is not None]
    spread = iter(over_their_axes([], given)[1])  # so that derivatives differ as their arrays do
    x, w, bias, words = (None if each is None else next(spread) for each in (x, w, bias, words))
    facts = Facts(recipe, seed, w.dtype, None if bias is None else bias.dtype)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return linear(facts, rows, w, bias, words).reshape(*x.shape[:-1], w.shape[0])


def _plain(name: str, array: Any) -> Any:
    if not isinstance(array, (jax.Array, np.ndarray)):
        raise TypeError(
            f"{_FUNCTION}: {name} is {errors.described(array)}; expected a JAX or NumPy array"
        )
    if str(array.dtype) not in PLAIN_DTYPES:
        raise TypeError(
            f"{_FUNCTION}: {name} has dtype {array.dtype}; expected {errors.listed(PLAIN_DTYPES)}; "
            f"convert with {name}.astype(jax.numpy.float32)"
        )
    return jax.numpy.asarray(array)


def _check_shapes(x: Any, w: Any, bias: Any) -> None:
    if w.ndim != 2 or x.ndim == 0 or x.shape[-1] != w.shape[1]:
        transposed = w.ndim == 2 and x.ndim > 0 and x.shape[-1] == w.shape[0]
        raise ValueError(
            f"{_FUNCTION}: x has shape {x.shape} and w {w.shape}; expected [..., K] and [N, K]"
            + ("; pass w.T" if transposed else "")
        )
    if bias is not None and bias.shape != w.shape[:1]:
        raise ValueError(
            f"{_FUNCTION}: bias has shape {bias.shape}; expected {w.shape[:1]}, a number for each "
            "row of w"
        )
