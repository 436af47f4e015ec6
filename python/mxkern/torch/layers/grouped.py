# mxkern/torch/layers/grouped.py: the linear layers of a mixture of experts: the function and the
# module.
from __future__ import annotations

import math
from typing import Any, Self

import torch

from mxkern.torch.layers.grouped_function import GroupedFunction
from mxkern.torch.layers.linear_function import Facts
from mxkern.torch.recipes.autocast import check_recipe, chosen
from mxkern.torch.recipes.checks import check_device, check_tensors, number_and_tensor, output_dtype
from mxkern.torch.recipes.random_bits import Step, rank_seed
from mxkern.values import errors
from mxkern.values.options import name_of_dtype
from mxkern.values.recipe import Recipe, mxfp8

_PLAIN = mxfp8(forward="plain", backward="plain")


def grouped_linear(
    x: Any,
    weight: Any,
    ends: Any,
    recipe: Recipe | None = None,
    bias: Any = None,
    *,
    seed: int = 0,
    step: Any = None,
) -> Any:
    """x[t] . weight[g]^T + bias[g] for the tokens t of each group g, and its gradients, with the
    products of a recipe: the linear layers of a mixture of experts, whose tokens are sorted by
    expert.

    x       [T, K], float32, float16 or bfloat16
    weight  [G, N, K], of any of these dtypes; a view of [G, K, N] is read where it lies
    ends    an int32 tensor [G] on x's device: group g has the tokens from ends[g - 1], or 0, to
            ends[g], and may have none. Tokens behind the last end give zeros, and get zeros as
            gradients
    recipe  mxfp8(), nvfp4(), ...; None: plain. An autocast that is active comes first
    bias    [G, N] or None
    seed, step  of the random bits, as in linear

    Nothing waits for ends on a CUDA device; where they decrease or lie outside of x, y is NaN
    there, and ValueError is raised on the CPU. Results are those of linear for each expert, with
    these differences: NVFP4 has one tensor scale for all tokens of x, and of the gradient, beside
    one for each expert's weight; random bits are those of an element's place among all tokens, for
    wgrad among groups that are filled to whole blocks; and precision="auto" is exact. Square blocks
    of x or of the gradient are refused, as a square would hold tokens of two experts.

    Returns [T, N] in x's dtype, or in that of torch.autocast. Gradients have the dtypes of what
    they belong to. Raises TypeError and ValueError for other dtypes, shapes and recipes.
    """
    recipe, amax_group = chosen(recipe)
    check_recipe("grouped_linear", recipe)
    if recipe is None or recipe.is_plain:
        recipe = _PLAIN
    _check(x, weight, ends, bias, recipe)
    number, tensor = number_and_tensor(recipe, step)
    main_grad = None if torch.compiler.is_compiling() else getattr(weight, "main_grad", None)
    facts = Facts(
        recipe,
        seed,
        number,
        output_dtype(x),
        amax_group,
        main_grad=main_grad,
        differentiable=torch.is_grad_enabled(),
    )
    return GroupedFunction.apply(x, weight, ends, bias, tensor, facts)


def _check(x: Any, weight: Any, ends: Any, bias: Any, recipe: Recipe) -> None:
    function = "grouped_linear"
    for argument, value in (("x", x), ("weight", weight)):
        if hasattr(value, "to_local"):
            raise TypeError(
                f"{function}: {argument} is a DTensor; expected a tensor; pass "
                f"{argument}.to_local(), the experts of this rank"
            )
    check_tensors(function, x, weight=weight, **({} if bias is None else {"bias": bias}))
    if weight.dim() != 3 or weight.shape[0] == 0:
        raise ValueError(
            f"{function}: weight has shape {tuple(weight.shape)}; expected [G, N, K] of one group "
            "or more"
        )
    groups, outputs, features = weight.shape
    if x.dim() != 2 or x.shape[1] != features:
        raise ValueError(
            f"{function}: x has shape {tuple(x.shape)}; expected [T, {features}], as weight has "
            f"shape {tuple(weight.shape)}"
        )
    if bias is not None and tuple(bias.shape) != (groups, outputs):
        raise ValueError(
            f"{function}: bias has shape {tuple(bias.shape)}; expected ({groups}, {outputs})"
        )
    if not isinstance(ends, torch.Tensor):
        raise TypeError(
            f"{function}: ends is {errors.described(ends)}; expected an int32 tensor; pass "
            "torch.tensor(ends, dtype=torch.int32, device=x.device)"
        )
    if ends.dtype != torch.int32:
        raise TypeError(
            f"{function}: ends has dtype {name_of_dtype(ends.dtype)}; expected int32; convert with "
            "ends.to(torch.int32)"
        )
    if tuple(ends.shape) != (groups,):
        raise ValueError(f"{function}: ends has shape {tuple(ends.shape)}; expected ({groups},)")
    check_device(function, x, "ends", ends)
    for name in ("input", "gradient"):
        block = getattr(recipe, name).block
        if block is not None and not block.startswith("1x"):
            raise ValueError(
                f"{function}: recipe.{name}.block is {block!r}; expected None, as a square would "
                f"hold tokens of two experts; change it with recipe.{name}.with_(block=None)"
            )


class GroupedLinear(torch.nn.Module):  # type: ignore[misc]  # no types there
    """The linear layers of all experts of a mixture: y = module(x, ends), as grouped_linear.

    groups       how many experts; weight is [groups, out_features, in_features], bias
                 [groups, out_features]
    recipe, seed, rank  as in Linear
    """

    def __init__(
        self,
        groups: int,
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
        super().__init__()
        check_recipe("GroupedLinear", recipe)
        self.groups, self.in_features, self.out_features = groups, in_features, out_features
        self.recipe, self.seed, self.rank = recipe, seed, rank
        self.step = Step()
        made = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.empty(groups, out_features, in_features, **made))
        self.bias = torch.nn.Parameter(torch.empty(groups, out_features, **made)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Values as those of torch.nn.Linear, for each expert."""
        bound = 1 / math.sqrt(max(self.in_features, 1))
        for parameter in self.parameters(recurse=False):
            torch.nn.init.uniform_(parameter, -bound, bound)

    def _apply(self, *arguments: Any, **options: Any) -> Self:
        super()._apply(*arguments, **options)
        self.step.to(self.weight.device)
        return self

    def forward(self, x: Any, ends: Any) -> Any:
        return grouped_linear(
            x, self.weight, ends, self.recipe, self.bias, **random_of(self, x.device)
        )

    def explained(self) -> str:
        """What multiplies, in a line."""
        return "plain until an autocast" if self.recipe is None else str(self.recipe)

    def extra_repr(self) -> str:
        return (
            f"groups={self.groups}, in_features={self.in_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}, recipe={self.recipe}"
        )


def random_of(module: Any, device: Any) -> dict[str, Any]:
    """The seed and the step of a module that has recipe, seed, rank and step."""
    recipe, _ = chosen(module.recipe)
    step = None
    if recipe is not None and recipe.is_stochastic:
        step = module.step.on(device)
    return {"seed": rank_seed(module.seed, module.rank), "step": step}
