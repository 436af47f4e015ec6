# mxkern/torch/layers/local_linear.py: a linear layer's function of tensors on one device.
from __future__ import annotations

import math
from typing import Any

import torch

from mxkern.arrays.torch_functions import dispatch_modes
from mxkern.torch.layers.gathered_weight import GatheredWeight, rows_given
from mxkern.torch.layers.linear_function import Facts, apply_linear
from mxkern.torch.recipes.checks import (
    TENSORS,
    are_alike,
    check_tensors,
    number_and_tensor,
    output_dtype,
)
from mxkern.values.recipe import Recipe


def local_linear(
    x: Any,
    weight: Any,
    bias: Any,
    recipe: Recipe | None,
    *,
    seed: int,
    step: Any,
    amax_group: Any,
    cached: Any = None,
    shards: Any = None,
) -> Any:
    """linear of tensors that were checked, with the recipe that counts. shards: x [M, K] holds this
    rank's tokens, and y those of all."""
    dtype = output_dtype(x)
    if recipe is None or recipe.is_plain:
        plain = None if bias is None else bias.to(dtype)
        return torch.nn.functional.linear(x.to(dtype), weight.to(dtype), plain)
    number, tensor = number_and_tensor(recipe, step)
    is_compiling = torch.compiler.is_compiling()
    main_grad = None if is_compiling else getattr(weight, "main_grad", None)
    parts: tuple[Any, ...] = ()
    given, sides = (False, False), (None, None)
    turns = isinstance(weight, GatheredWeight)
    are_plain = type(x) in TENSORS and type(weight) in TENSORS
    is_eager = are_plain and shards is None and not is_compiling and not dispatch_modes()
    if turns:
        given, parts = rows_given(weight, recipe)
    elif cached is not None and is_eager:
        sides = cached.sides(recipe)
    elif cached is not None:
        given, parts = cached.given(recipe)
    facts = Facts(
        recipe,
        seed,
        number,
        dtype,
        amax_group,
        given,
        main_grad,
        torch.is_grad_enabled(),
        shards,
        turns,
        is_eager,
        is_eager and recipe.is_one_call and amax_group is None,
        sides,
    )
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]) if x.dim() != 2 else x
    y = apply_linear(rows, weight, bias, tensor, facts, *parts)
    return y if x.dim() == 2 else y.reshape(*x.shape[:-1], weight.shape[0])


def check_arguments(x: Any, weight: Any, bias: Any) -> None:
    """Dtypes, devices and shapes of linear's arguments."""
    if are_alike(x, weight) and (bias is None or are_alike(x, bias)):
        of_x, of_weight = x.shape, weight.shape
        fit = len(of_weight) == 2 and of_x[-1:] == of_weight[1:]
        if fit and (bias is None or bias.shape == of_weight[:1]):
            return
    check_tensors("linear", x, weight=weight, **({} if bias is None else {"bias": bias}))
    if weight.dim() != 2:
        raise ValueError(f"linear: weight has shape {tuple(weight.shape)}; expected [N, K]")
    outputs, features = weight.shape
    if x.dim() == 0 or x.shape[-1] != features:
        raise ValueError(
            f"linear: x has shape {tuple(x.shape)}; expected [..., {features}], as weight has "
            f"shape {tuple(weight.shape)}"
        )
    if bias is not None and tuple(bias.shape) != (outputs,):
        raise ValueError(f"linear: bias has shape {tuple(bias.shape)}; expected ({outputs},)")
