# mxkern/torch/layers/local_linear.py: a linear layer's function of tensors on one device.
from __future__ import annotations

from typing import Any

import torch

from mxkern.torch.layers.gathered_weight import GatheredWeight, rows_given
from mxkern.torch.layers.linear_function import Facts, LinearFunction
from mxkern.torch.recipes.checks import check_tensors, number_and_tensor, output_dtype
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
    main_grad = None if torch.compiler.is_compiling() else getattr(weight, "main_grad", None)
    parts: tuple[Any, ...] = ()
    given = (False, False)
    turns = isinstance(weight, GatheredWeight)
    if turns:
        given, parts = rows_given(weight, recipe)
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
    )
    rows = x.reshape(-1, x.shape[-1]) if x.dim() != 2 else x
    y = LinearFunction.apply(rows, weight, bias, tensor, facts, *parts)
    return y if x.dim() == 2 else y.reshape(*x.shape[:-1], weight.shape[0])


def check_arguments(x: Any, weight: Any, bias: Any) -> None:
    """Dtypes, devices and shapes of linear's arguments."""
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
