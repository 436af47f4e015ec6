# mxkern/torch/recipes/checks.py: what layers find out of their arguments before they run.
from __future__ import annotations

from typing import Any

import torch

from mxkern.arrays.torch_functions import any_autocast
from mxkern.values import errors
from mxkern.values.options import DTYPES, name_of_dtype
from mxkern.values.recipe import Recipe

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Types of tensors that nothing else sees.
TENSORS = (torch.Tensor, torch.nn.Parameter)


def are_alike(x: Any, other: Any) -> bool:
    """Whether both are tensors of the dtypes of layers, on one device; of plain tensors alone."""
    if type(x) not in TENSORS or type(other) not in TENSORS:
        return False
    return x.dtype in _DTYPES and other.dtype in _DTYPES and x.device == other.device


def check_tensors(function: str, x: Any, **others: Any) -> None:
    """x, and what others there are, are tensors of float32, float16 or bfloat16 on one device."""
    for argument, value in {"x": x, **others}.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"{function}: {argument} is {errors.described(value)}; expected a tensor"
            )
        if value.dtype not in _DTYPES:
            raise TypeError(
                f"{function}: {argument} has dtype {name_of_dtype(value.dtype)}; expected "
                f"{errors.listed(DTYPES)}; convert with {argument}.to(torch.bfloat16)"
            )
        check_device(function, x, argument, value)


def check_device(function: str, x: Any, argument: str, value: Any) -> None:
    """value is on x's device."""
    if value.device != x.device:
        raise ValueError(
            f"{function}: {argument} is on {value.device} and x on {x.device}; expected one "
            f"device; move it with {argument}.to({str(x.device)!r})"
        )


def output_dtype(x: Any) -> Any:
    """The dtype of a layer's output: x's, or that of torch.autocast."""
    if not torch.compiler.is_compiling() and not any_autocast():
        return x.dtype
    if torch.is_autocast_enabled(x.device.type):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


def number_and_tensor(recipe: Recipe, step: Any) -> tuple[int, Any]:
    """The step as a number or as a tensor; nothing where no random bits are wanted."""
    if step is None or not recipe.is_stochastic:
        return 0, None
    return (0, step) if isinstance(step, torch.Tensor) else (step, None)
