# mxkern/torch/layers/gathered_weight.py: a weight of square blocks that was gathered quantized.
from __future__ import annotations

from typing import Any

import torch

from mxkern.values.recipe import Operand, Recipe

_aten = torch.ops.aten
_ALIASES = (_aten.detach.default, _aten.alias.default, _aten.as_strided.default)
_PLAIN = {
    _aten.zeros_like.default: torch.zeros,
    _aten.new_zeros.default: torch.zeros,
    _aten.empty_like.default: torch.empty,
}


class GatheredWeight(torch.Tensor):  # type: ignore[misc]  # no types there
    """What FSDP puts in a layer's place of the weight: [N, K] in codes and scales of square blocks,
    and the dtype that its gradient has. Only linear() reads it; FSDP owns the storages, frees them
    after forward and fills them again before backward.
    """

    codes: Any
    scales: Any
    tensor_scale: Any
    operand: Operand

    @staticmethod
    def __new__(
        cls, codes: Any, scales: Any, tensor_scale: Any, operand: Operand, shape: Any, dtype: Any
    ) -> GatheredWeight:
        made: GatheredWeight = torch.Tensor._make_wrapper_subclass(
            cls, torch.Size(shape), dtype=dtype, device=codes.device
        )
        made.codes, made.scales, made.tensor_scale = codes, scales, tensor_scale
        made.operand = operand
        return made

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        names = ["codes", "scales"] + ([] if self.tensor_scale is None else ["tensor_scale"])
        return names, (self.operand, self.dtype)

    @staticmethod
    def __tensor_unflatten__(inner: Any, facts: Any, size: Any, stride: Any) -> GatheredWeight:
        operand, dtype = facts
        scale = inner.get("tensor_scale")
        return GatheredWeight(inner["codes"], inner["scales"], scale, operand, size, dtype)

    def __repr__(self) -> str:
        return f"GatheredWeight(shape={tuple(self.shape)}, {self.operand})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        own = args[0]
        is_same = function in _ALIASES and isinstance(own, cls)
        if function is _aten.as_strided.default:
            is_same = is_same and tuple(args[1]) == tuple(own.shape)
        if is_same:
            parts = own.codes, own.scales, own.tensor_scale
            return cls(*parts, own.operand, own.shape, own.dtype)
        if function in _PLAIN and isinstance(own, cls):
            shape = args[1] if function is _aten.new_zeros.default else own.shape
            wanted = (kwargs or {}).get("dtype") or own.dtype
            return _PLAIN[function](shape, dtype=wanted, device=own.device)
        raise TypeError(
            f"{function}: an argument is a weight that was gathered as {_operand_of(args)}; "
            "expected that only mxkern.torch.linear reads it, with the recipe of shard_quantized; "
            "leave that out to gather 16 bits"
        )


def rows_given(weight: GatheredWeight, recipe: Recipe) -> tuple[tuple[bool, bool], tuple[Any, ...]]:
    """As WeightCache.given: the rows, which columns are transposed from. ValueError for a recipe
    that wants other codes, or the weight in 16 bits. No method, which the compiler would record."""
    dgrad = recipe.quantizes_dgrad or recipe.backward == "dequantized"
    if recipe.weight != weight.operand or recipe.forward != "quantized" or not dgrad:
        raise ValueError(
            f"linear: weight was gathered as {weight.operand}, and the recipe wants "
            f"{recipe.weight}, forward={recipe.forward!r}, dgrad={recipe.dgrad!r} and "
            f"backward={recipe.backward!r}; expected the recipe of shard_quantized; leave that "
            "out to gather 16 bits, as switches between recipes need them"
        )
    parts = (weight.codes, weight.scales, weight.tensor_scale)
    return (True, False), tuple(part for part in parts if part is not None)


def _operand_of(args: Any) -> Any:
    """The operand of the first gathered weight among arguments."""
    return next((a.operand for a in args if isinstance(a, GatheredWeight)), "codes")
