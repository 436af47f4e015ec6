# mxkern/ops/linear_forward.py: the forward of a linear layer in one call, for layers of frameworks.
from __future__ import annotations

from typing import Any

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values.keywords import BothKeywords, Takes
from mxkern.values.recipe import Recipe

_LINEAR = Takes("linear", BothKeywords)
# What backward takes of an operand, as the extension module counts it.
_KEPT = {"rows": 1, "columns": 2}


def linear_forward(
    x: Any,
    weight: Any,
    bias: Any,
    recipe: Recipe,
    dtype: str,
    precision: str,
    x_kept: str | None,
    weight_kept: str | None,
    x_folds: bool = False,
    weight_folds: bool = False,
) -> tuple[Any, list[Any], list[Any]]:
    """y [M, N] = x [M, K] . weight [N, K]^T + bias, as quantize_both and gemm compute it, and the
    parts of the weight and of x in the direction that is kept: "rows", "columns" or none.

    recipe   one whose is_one_call is true; a transform is that of columns
    weight   plain, or the rows of a BlockScaled, of which nothing is kept
    x_folds, weight_folds  whether both directions of an operand whose columns are kept are folded,
             as prepare_both does, and its part is their data
    x, weight and bias may ask for gradients, and y has none.
    """
    left, right = recipe.input, recipe.weight
    y, of_weight, of_x = _core.linear_forward(
        calls,
        x,
        weight,
        bias,
        _LINEAR.core,
        left.scheme,
        left.both_options,
        _KEPT.get(x_kept, 0),  # type: ignore[arg-type]
        x_folds,
        right.scheme,
        right.both_options,
        _KEPT.get(weight_kept, 0),  # type: ignore[arg-type]
        weight_folds,
        dtype,
        precision,
    )
    return y, of_weight, of_x
