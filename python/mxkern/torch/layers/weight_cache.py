# mxkern/torch/layers/weight_cache.py: a weight that is quantized once and used for many
# micro-batches.
from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from mxkern.torch.recipes.operand_calls import quantized
from mxkern.values.recipe import Operand, Recipe

_caches: weakref.WeakSet[WeightCache] = weakref.WeakSet()
_hooked = False


def _after_step(optimizer: Any, *arguments: Any) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    stepped = {id(p) for p in parameters}
    # FSDP gathers a shard into the same tensor again, at a version that stays.
    gathers = any(hasattr(p, "device_mesh") for p in parameters)
    for cache in list(_caches):
        weight = cache.weight()
        if weight is not None and id(weight) in stepped:
            cache.refresh()
        elif gathers:
            cache._seen = ()


class WeightCache:
    """The quantized form of one weight. It is made at the first forward, and made again in place,
    at the same addresses, after each step of an optimizer that has the weight, and at a forward
    that finds another version of it. A backward whose forward came before that raises.

    What bypasses optimizers and PyTorch's version counter, as `weight.data` does, is not noticed:
    call refresh.
    """

    def __init__(self) -> None:
        global _hooked
        self._made: dict[str, Any] = {}  # rows, columns
        self._operand: Operand | None = None
        self._seen: tuple[Any, ...] = ()
        self.weight: Any = lambda: None
        _caches.add(self)
        if not _hooked:
            register_optimizer_step_post_hook(_after_step)
            _hooked = True

    def __deepcopy__(self, memo: Any) -> WeightCache:
        return WeightCache()

    def __reduce__(self) -> Any:
        return WeightCache, ()

    def of(self, weight: Any, recipe: Recipe | None) -> WeightCache | None:
        """This cache with what a recipe needs of the weight; None where nothing is kept."""
        if recipe is None or recipe.weight.rounding == "stochastic":
            return None
        if torch.compiler.is_compiling():  # sees no versions
            return self if self._operand == recipe.weight else None
        seen = (weight.data_ptr(), weight._version, weight.dtype)
        wanted = _sides(recipe)
        if self._operand is not recipe.weight and self._operand != recipe.weight:
            self._made, self._operand = {}, recipe.weight
        if self._seen != seen or not wanted <= self._made.keys():
            self.weight = weakref.ref(weight)
            self._make(weight, recipe.weight, wanted | self._made.keys())
        return self

    def refresh(self) -> None:
        """Quantizes the weight again, in place."""
        weight = self.weight()
        if weight is not None and self._operand is not None:
            self._make(weight, self._operand, set(self._made))

    def _make(self, weight: Any, operand: Operand, sides: set[str]) -> None:
        with torch.no_grad():
            made = quantized(
                weight.detach(),
                operand,
                "weight",
                "rows" in sides,
                "columns" in sides,
            )
            for side, new in zip(("rows", "columns"), made, strict=True):
                if new is None:
                    continue
                old = self._made.get(side)
                if old is None or old.codes.device != new.codes.device or old.shape != new.shape:
                    self._made[side] = new
                    continue
                for into, part in zip(old.parts, new.parts, strict=True):
                    if part is not None:
                        into.copy_(part)
        self._seen = (weight.data_ptr(), weight._version, weight.dtype)

    def given(self, recipe: Recipe) -> tuple[tuple[bool, bool], tuple[Any, ...]]:
        """Which sides there are, and their tensors."""
        rows, columns = self.sides(recipe)
        parts = [p for q in (rows, columns) if q is not None for p in q.parts if p is not None]
        return (rows is not None, columns is not None), tuple(parts)

    def sides(self, recipe: Recipe) -> tuple[Any, Any]:
        """The weight's rows and columns, None where there are none or nobody wants them."""
        rows = self._made.get("rows")
        if recipe.forward != "quantized" and recipe.backward != "dequantized":
            rows = None
        return rows, self._made.get("columns")


def _sides(recipe: Recipe) -> set[str]:
    sides = set()
    if recipe.forward == "quantized" or recipe.backward == "dequantized":
        sides.add("rows")
    if recipe.quantizes_dgrad and recipe.save_weight == "columns" and torch.is_grad_enabled():
        sides.add("columns")
    return sides


def refresh_weights(model: Any) -> None:
    """Quantizes all cached weights of a model again, in place: after changes that go round
    optimizers and PyTorch's version counters."""
    for module in model.modules():
        cache = getattr(module, "cache", None)
        if isinstance(cache, WeightCache):
            cache.refresh()
