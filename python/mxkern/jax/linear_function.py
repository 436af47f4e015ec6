# mxkern/jax/linear_function.py: a linear layer of a recipe, forward and backward.
from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax

from mxkern.jax.operand_calls import plain_product, product, quantized
from mxkern.ops.dequantize import dequantize
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.recipe import Operand, Recipe


class Facts(NamedTuple):
    """What a layer's call knows beside its arrays."""

    recipe: Recipe
    seed: int
    weight_dtype: Any
    bias_dtype: Any  # None without a bias


class _Ways(NamedTuple):
    """How dX and dW are made: "quantized", "dequantized", "plain", or None where nobody asks."""

    dgrad: str | None
    wgrad: str | None


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def linear(facts: Facts, x: Any, w: Any, bias: Any, words: Any) -> Any:
    """x [M, K] . w [N, K]^T + bias [N] in x's dtype. words: as quantized takes them, or None."""
    return _forward(facts, x, w, bias, words, _Ways(None, None))[0]


def _differentiated(facts: Facts, x: Any, w: Any, bias: Any, words: Any) -> tuple[Any, Any]:
    """The same, and what the derivatives need that somebody asks for."""
    recipe = facts.recipe
    ways = _Ways(
        _way(recipe, recipe.dgrad) if x.perturbed else None,
        _way(recipe, recipe.wgrad) if w.perturbed else None,
    )
    x, w, bias, words = (None if each is None else each.value for each in (x, w, bias, words))
    y, kept = _forward(facts, x, w, bias, words, ways)
    return y, (*kept, words)


def _forward(
    facts: Facts, x: Any, w: Any, bias: Any, words: Any, ways: _Ways
) -> tuple[Any, tuple[Any, Any]]:
    """y, and what dgrad and wgrad need."""
    recipe, seed = facts.recipe, facts.seed
    forward = recipe.forward == "quantized"
    x_rows, x_columns = quantized(
        x,
        recipe.input,
        "input",
        seed,
        words,
        rows=forward or ways.wgrad == "dequantized",
        columns=ways.wgrad == "quantized" and recipe.save == "quantized",
    )
    w_rows, w_columns = quantized(
        w,
        recipe.weight,
        "weight",
        seed,
        words,
        rows=forward or ways.dgrad == "dequantized",
        columns=ways.dgrad == "quantized" and recipe.save_weight == "columns",
    )
    if forward:
        y = product(x_rows, w_rows, x.dtype, recipe.precision, bias)
    else:
        y = plain_product(x, w, (1, 1), x.dtype, bias)
    of_dgrad = _kept(ways.dgrad, w_rows, w_columns, w)
    of_wgrad = _kept(ways.wgrad, x_rows, x_columns, x)
    return y, (of_dgrad, of_wgrad)


def _backward(facts: Facts, kept: tuple[Any, Any, Any], g: Any) -> tuple[Any, Any, Any, None]:
    """(dX, dW, dbias, None), None for what nobody asks for. g [M, N] in y's dtype."""
    recipe, seed = facts.recipe, facts.seed
    weight, x, words = kept
    dgrad = None if weight is None else _way(recipe, recipe.dgrad)
    wgrad = None if x is None else _way(recipe, recipe.wgrad)
    g_rows, g_columns = quantized(
        g,
        recipe.gradient,
        "gradient",
        seed,
        words,
        rows=dgrad == "quantized",
        columns=wgrad == "quantized",
    )
    dx = dw = db = None
    if dgrad == "quantized":
        weight = _columns(weight, recipe.weight, "weight", seed, words)
        dx = product(g_rows, weight, g.dtype, recipe.precision)
    elif dgrad is not None:
        dx = plain_product(g, _decoded(weight, g.dtype), (1, 0), g.dtype)
    if wgrad == "quantized":
        x = _columns(x, recipe.input, "input", seed, words)
        dw = product(g_columns, x, facts.weight_dtype, recipe.precision)
    elif wgrad is not None:
        dw = plain_product(g, _decoded(x, g.dtype), (0, 0), facts.weight_dtype)
    if facts.bias_dtype is not None:
        db = g.sum(0, dtype="float32").astype(facts.bias_dtype)
    return dx, dw, db, None


linear.defvjp(_differentiated, _backward, symbolic_zeros=True)


def _way(recipe: Recipe, product: str) -> str:
    return "plain" if product == "plain" else recipe.backward


def _kept(way: str | None, rows: Any, columns: Any, plain: Any) -> Any:
    """What a product of the backward pass needs of an operand."""
    if way is None:
        return None
    if way == "dequantized":
        return rows
    return plain if columns is None else columns


def _columns(kept: Any, operand: Operand, name: str, seed: int, words: Any) -> Any:
    """The columns that were kept, or those of the array that was."""
    if isinstance(kept, BlockScaled):
        return kept
    return quantized(kept, operand, name, seed, words, rows=False, columns=True)[1]


def _decoded(kept: Any, dtype: Any) -> Any:
    return dequantize(kept, dtype=dtype) if isinstance(kept, BlockScaled) else kept
