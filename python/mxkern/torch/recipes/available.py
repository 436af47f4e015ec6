# mxkern/torch/recipes/available.py: whether this machine runs a recipe, or why it does not.
from __future__ import annotations

from typing import Any

import torch

from mxkern.values.about import info
from mxkern.values.recipe import Recipe, mxfp4, mxfp8, nvfp4
from mxkern.values.scheme import schemes

_OLDEST = (8, 0)
_HOPPER = (9, 0)


def unavailable_reason(recipe: Recipe, device: Any = None) -> str:
    """Why a recipe does not run on a device, and what would; "" if it runs. Without a device: on
    the GPU if there is one, else on the CPU."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    capability = None
    if device.type == "cuda":
        if not info().built_with_cuda:
            return "mxkern was built without CUDA; on the CPU it runs, or install a build with CUDA"
        if not torch.cuda.is_available():
            return "PyTorch finds no CUDA device; on the CPU it runs"
        capability = torch.cuda.get_device_capability(device)
        if capability < _OLDEST:
            return (
                f"the GPU has compute capability {capability[0]}.{capability[1]}, and kernels need "
                "8.0 or newer; on the CPU it runs"
            )
    elif device.type not in ("cpu", "meta"):
        return f"{device.type!r} devices are not supported; on the CPU or on CUDA devices it runs"
    if recipe.precision != "folded":
        return ""
    if device.type != "meta" and capability != _HOPPER:
        return (
            "precision='folded' takes FP8 tensor cores of Hopper GPUs (compute capability 9.0); "
            "with precision='fast' it runs, exact"
        )
    for operand in (recipe.input, recipe.weight, recipe.gradient):
        if not folds(operand.scheme):
            return (
                f"precision='folded' takes float MX schemes, and not {operand.scheme}; with "
                "precision='fast' it runs, on exact bfloat16 tensor cores"
            )
    return ""


def folds(scheme: str) -> bool:
    """Whether products of a scheme run on FP8 tensor cores of Hopper: MX schemes of floats."""
    facts = schemes[scheme]
    return facts.core is None and facts.scale_format == "e8m0" and facts.format != "int8"


def is_available(recipe: Recipe, *, return_reason: bool = False, device: Any = None) -> Any:
    """Whether a recipe runs on a device, by default the GPU if there is one, else the CPU: a bool;
    with return_reason (bool, reason), whose reason says what is missing and what would run, and is
    "" for True."""
    reason = unavailable_reason(recipe, device)
    return (reason == "", reason) if return_reason else reason == ""


def is_mxfp8_available(*, return_reason: bool = False, device: Any = None) -> Any:
    """is_available(mxfp8())."""
    return is_available(mxfp8(), return_reason=return_reason, device=device)


def is_mxfp4_available(*, return_reason: bool = False, device: Any = None) -> Any:
    """is_available(mxfp4())."""
    return is_available(mxfp4(), return_reason=return_reason, device=device)


def is_nvfp4_available(*, return_reason: bool = False, device: Any = None) -> Any:
    """is_available(nvfp4())."""
    return is_available(nvfp4(), return_reason=return_reason, device=device)
