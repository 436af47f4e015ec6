"""tests/python/pytorch/layers/grouped_cases.py: recipes and data of experts' layers, and a loop of
linear,
which they are compared with."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from layer_cases import normal

import mxkern.torch as mxt
from mxkern.values.recipe import Recipe

TOKENS, N, K = 77, 24, 72
ENDS = (13, 13, 60, 70)  # an expert without tokens, and tokens without an expert


def rounded_to_nearest(recipe: Recipe) -> Recipe:
    """Random bits of groups are others than those of a loop."""
    return recipe.with_(gradient=recipe.gradient.with_(rounding="nearest"))


def with_one_amax(recipe: Recipe) -> Recipe:
    """Without the transform, after which each expert's tokens have an amax of their own."""
    plain = {"hadamard": None}
    return recipe.with_(input=recipe.input.with_(**plain), gradient=recipe.gradient.with_(**plain))


SWITCHES: dict[str, dict[str, Any]] = {
    "": {},
    "forward plain": {"forward": "plain"},
    "dgrad plain": {"dgrad": "plain"},
    "wgrad plain": {"wgrad": "plain"},
    "backward plain": {"backward": "plain"},
    "dequantized": {"backward": "dequantized"},
    "save plain": {"save": "plain"},
    "requantize": {"save_weight": "requantize"},
    "exact": {"precision": "exact"},
}
LOOPED: dict[str, Recipe] = {
    "mxfp8": mxt.mxfp8(),
    "mxfp8 32x32": mxt.mxfp8(weight_block="32x32"),
    "hybrid": mxt.mxfp8("hybrid"),
    "mxfp4": rounded_to_nearest(mxt.mxfp4()),
    "mxfp4 hadamard 128": rounded_to_nearest(mxt.mxfp4(hadamard=128)),
    "nvfp4": rounded_to_nearest(with_one_amax(mxt.nvfp4())),
    "nvfp4 1x16 4over6": rounded_to_nearest(
        with_one_amax(mxt.nvfp4(weight_block=None, four_over_six=True))
    ),
    "mxint8": mxt.mx("mxint8"),
}


def ends_of(*ends: int) -> Any:
    return torch.tensor(ends, dtype=torch.int32)


def grouped_data(
    ends: Any, tokens: int = TOKENS, dtype: Any = torch.bfloat16, weight_dtype: Any = None
) -> tuple[Any, Any, Any, Any]:
    """x, weight, bias and the gradient of y. The tokens of each expert have the same amax, which is
    that of all, so that nvfp4's tensor scale is the one of a loop."""
    kind = weight_dtype or dtype
    weight, bias = normal(len(ends), N, K, dtype=kind, seed=1), normal(len(ends), N, dtype=kind)
    x, g = normal(tokens, K, dtype=dtype, grad=False), normal(tokens, N, dtype=dtype, grad=False)
    for begin, end in pairwise((0, *ends)):
        if end > begin:
            x[begin, 3] = g[end - 1, 5] = 6.0
    return x.requires_grad_(), weight, bias, g


def looped(x: Any, weight: Any, ends: Any, recipe: Any, bias: Any, **random: Any) -> Any:
    """grouped_linear as a loop of linear."""
    parts = []
    for group, (begin, end) in enumerate(pairwise((0, *ends))):
        own = None if bias is None else bias[group]
        parts.append(mxt.linear(x[begin:end], weight[group], own, recipe, **random))
    behind = x.new_zeros(len(x) - ends[-1], weight.shape[1]).to(parts[0].dtype)
    return torch.cat([*parts, behind])
