# mxkern/torch/layers/linear.py: linear layers of a recipe: the function and the module.
from __future__ import annotations

from typing import Any, Self

import torch

from mxkern.torch.layers.local_linear import check_arguments, local_linear
from mxkern.torch.quantized.linear import frozen_linear
from mxkern.torch.quantized.tensor import QuantizedTensor
from mxkern.torch.recipes.autocast import check_recipe, chosen
from mxkern.torch.recipes.checks import TENSORS
from mxkern.torch.recipes.random_bits import Step, rank_seed
from mxkern.values import errors
from mxkern.values.recipe import Recipe


def linear(
    x: Any,
    weight: Any,
    bias: Any = None,
    recipe: Recipe | None = None,
    *,
    seed: int = 0,
    step: Any = None,
    cached: Any = None,
) -> Any:
    """x . weight^T + bias with the products of a recipe, and its gradients.

    x       [..., K], float32, float16 or bfloat16
    weight  [N, K], of any of these dtypes, whatever that of x; it is quantized as it is. A frozen
            QuantizedTensor too: x is then quantized as a recipe's input, or not without a recipe
    bias    [N] or None
    recipe  mxfp8(), nvfp4(), ...; None: plain, as torch.nn.functional.linear. An autocast that is
            active comes first
    seed    of the layer's random bits, 0 to 2**64 - 1: that of quantize(gradient, seed=seed,
            offset=step)
    step    an int, or an int64 tensor of one element on x's device: other bits for each
            micro-batch
    cached  the quantized weight, from WeightCache

    Returns [..., N] in x's dtype, or in that of torch.autocast. Gradients have the dtypes of what
    they belong to. Raises TypeError and ValueError for other dtypes and shapes.
    """
    recipe, amax_group = chosen(recipe)
    check_recipe("linear", recipe)
    return _linear(x, weight, bias, recipe, amax_group, seed, step, cached)


def _linear(
    x: Any,
    weight: Any,
    bias: Any,
    recipe: Recipe | None,
    amax_group: Any,
    seed: int,
    step: Any,
    cached: Any,
) -> Any:
    """linear with the recipe that counts."""
    plain = type(x) is torch.Tensor and type(weight) in TENSORS
    if not plain and isinstance(weight, QuantizedTensor):
        return frozen_linear(x, weight, bias, input=None if recipe is None else recipe.input)
    # The compiler sees this of DTensors too, and not that they have to_local.
    if not plain and (hasattr(weight, "device_mesh") or hasattr(x, "device_mesh")):
        from mxkern.torch.layers.distributed_linear import distributed_linear

        return distributed_linear(x, weight, bias, recipe, seed=seed, step=step)
    check_arguments(x, weight, bias)
    return local_linear(
        x, weight, bias, recipe, seed=seed, step=step, amax_group=amax_group, cached=cached
    )


_OWN = ("recipe", "seed", "rank", "step", "cache")


def adopted(kind: Any, linear: torch.nn.Linear) -> Any:
    """A layer of another kind with the parameters, buffers and hooks of one, the same objects."""
    if not isinstance(linear, torch.nn.Linear):
        raise TypeError(
            f"from_linear: linear is {errors.described(linear)}; expected a torch.nn.Linear"
        )
    module = kind.__new__(kind)
    module.__dict__.update({k: v for k, v in linear.__dict__.items() if k not in _OWN})
    for name in ("_parameters", "_buffers", "_modules"):
        module.__dict__[name] = dict(getattr(linear, name))
    return module


class Linear(torch.nn.Linear):  # type: ignore[misc]  # no types there
    """torch.nn.Linear whose products are those of a recipe. Its weight stays the parameter it is:
    optimizers, state dicts and clipping see nothing new.

    recipe  None: plain, until an autocast is active
    seed    of its random bits; rank: None is the process's own, so that ranks with other data draw
            others. Give replicas that see the same data one rank.
    """

    recipe: Recipe | None
    seed: int
    rank: int | None
    step: Step

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        recipe: Recipe | None = None,
        seed: int = 0,
        rank: int | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self._trained_by(recipe, seed, rank, Step())

    def _trained_by(self, recipe: Recipe | None, seed: int, rank: int | None, step: Step) -> None:
        check_recipe("Linear", recipe)
        self.recipe, self.seed, self.rank, self.step = recipe, seed, rank, step
        self.cache: Any = None

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        recipe: Recipe | None,
        *,
        seed: int = 0,
        rank: int | None = None,
        step: Step | None = None,
    ) -> Self:
        """A Linear with the parameters of another layer, the same objects, and its hooks."""
        module: Self = adopted(cls, linear)
        module._trained_by(recipe, seed, rank, Step() if step is None else step)
        return module

    def to_linear(self) -> torch.nn.Linear:
        """A torch.nn.Linear with the same parameters and hooks."""
        return adopted(torch.nn.Linear, self)

    def _apply(self, *arguments: Any, **options: Any) -> Self:
        super()._apply(*arguments, **options)
        self.step.to(self.weight.device)
        return self

    def forward(self, x: Any) -> Any:
        weight = self.weight
        recipe, amax_group = chosen(self.recipe)
        seed, step, cached = 0, None, None
        if recipe is not None and recipe.is_stochastic:
            step = self.step.on(x.device)
            # With a mesh the place in it counts.
            of_mesh = self.rank is None and hasattr(weight, "device_mesh")
            seed = rank_seed(self.seed, 0 if of_mesh else self.rank)
        if self.cache is not None and type(weight) is torch.nn.Parameter:
            cached = self.cache.of(weight, recipe)
        return _linear(x, weight, self.bias, recipe, amax_group, seed, step, cached)

    def explained(self) -> str:
        """What multiplies, in a line."""
        return "plain until an autocast" if self.recipe is None else str(self.recipe)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, recipe={self.recipe}"
