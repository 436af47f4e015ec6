# mxkern/torch/models/experts.py: the experts of other libraries' models, multiplied by
# grouped_linear.
"""Modules that hold the weights of all experts as 3-D parameters: those of transformers 5, whatever
the model (Mixtral, Qwen MoE, DeepSeek, gpt-oss, ...), and torchtitan's GroupedExperts. They are
known by their layout, and neither library is imported.

A converted module is the same object, with the same parameters, hooks and name, of a subclass of
the class that it had.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any

import torch

from mxkern.torch.layers.grouped import grouped_linear, random_of
from mxkern.torch.recipes.autocast import check_recipe
from mxkern.torch.recipes.random_bits import Step
from mxkern.values.options import DTYPES, name_of_dtype
from mxkern.values.recipe import Recipe
from mxkern.values.seeds import mixed

# Attributes by which transformers' modules of experts describe their layout.
_LAYOUT = ("has_gate", "has_bias", "is_transposed", "num_experts")
_TITAN_NAMES = (("w1", "w2", "w3"), ("w1_EFD", "w2_EDF", "w3_EFD"))


def convert_experts(
    module: Any,
    recipe: Recipe | None,
    *,
    seed: int = 0,
    rank: int | None = None,
    step: Step | None = None,
) -> bool:
    """Gives a module of experts the products of a recipe, in place: whether it is one that is
    known; others are left as they are, and unconverted_experts says why.

    recipe, seed, rank, step  as in Linear and Linear.from_linear; a converted module takes new ones

    Tokens are sorted by expert, multiplied by grouped_linear and summed again; nothing waits for
    the host. Router, activation and biases are the module's own. Raises TypeError for other
    recipes.
    """
    check_recipe("convert_experts", recipe)
    if not isinstance(module, ConvertedExperts):
        if unconverted_experts(module):
            return False
        kind: Any = type(module)
        module.__class__ = _converted_class(kind)
    names = _names_of(module)
    assert names is not None
    module._mxkern = _Training(recipe, seed, rank, Step() if step is None else step, names)
    return True


def restore_experts(module: Any) -> Any:
    """A converted module as it was before, in place; it is returned."""
    if isinstance(module, ConvertedExperts):
        module.__class__ = module._original
        del module._mxkern
    return module


def unconverted_experts(module: Any) -> str:
    """Why convert_experts leaves a module as it is: "no experts" where it has no parameters of
    its own that could be matrices of experts; "" where it does not."""
    if isinstance(module, ConvertedExperts):
        return ""
    own = weights_of_experts(module)
    if not own or isinstance(module, torch.nn.modules.conv._ConvNd):
        return "no experts"
    if _method_of(type(module)) is None:
        return f"{type(module).__name__} with {', '.join(own)}: an unknown layout"
    if "forward" in module.__dict__:
        return "its forward was replaced"
    if _names_of(module) is None:
        return f"{type(module).__name__} with {', '.join(own)}: unknown parameters or options"
    for name, parameter in own.items():
        if name_of_dtype(parameter.dtype) not in DTYPES:
            return f"{name} has dtype {name_of_dtype(parameter.dtype)}"
    return ""


def weights_of_experts(module: Any) -> dict[str, Any]:
    """A module's own parameters [experts, N, K]."""
    own = module.named_parameters(recurse=False)
    return {name: p for name, p in own if p.dim() == 3 and min(p.shape[1:]) > 1}


@dataclass
class _Training:
    """How a converted module is trained."""

    recipe: Recipe | None
    seed: int
    rank: int | None
    step: Step
    names: tuple[str, ...]  # of the weights


class ConvertedExperts:
    """What converted modules have in common."""

    _original: type  # the class that they had
    _mxkern: _Training

    def explained(self) -> str:
        """What multiplies, in a line."""
        recipe = self._mxkern.recipe
        return "plain until an autocast" if recipe is None else str(recipe)

    def extra_repr(self) -> str:
        return f"recipe={self._mxkern.recipe}"

    def _apply(self, *arguments: Any, **options: Any) -> Any:
        super()._apply(*arguments, **options)  # type: ignore[misc]
        self._mxkern.step.to(next(self.parameters()).device)  # type: ignore[attr-defined]
        return self

    def _product(self, number: int, x: Any, weight: Any, ends: Any, bias: Any = None) -> Any:
        """The module's product of a number: that of random bits of its own."""
        weight, bias = _local(weight), _local(bias)
        random = random_of(self._mxkern, x.device)
        random["seed"] = mixed(random["seed"], number)
        return grouped_linear(x, weight, ends, self._mxkern.recipe, bias, **random)

    def __reduce__(self) -> Any:
        return _remade, (self._original,), self.__dict__


def _local(tensor: Any) -> Any:
    """The experts of this rank."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


@functools.cache
def _converted_class(original: Any) -> Any:
    method = str(_method_of(original))
    forward = _titan_forward if _is_titan(original) else _transformers_forward
    contents = {"_original": original, method: forward, "__module__": original.__module__}
    return type(original.__name__, (ConvertedExperts, original), contents)


def _remade(original: Any) -> Any:
    converted = _converted_class(original)
    return converted.__new__(converted)


def _is_titan(kind: type) -> bool:
    return any(base.__name__ == "GroupedExperts" for base in kind.__mro__)


def _method_of(kind: Any) -> str | None:
    """The method of a class that takes tokens to experts; None for classes that are not known."""
    if not _is_titan(kind):
        known = hasattr(kind, "_apply_gate") and len(_arguments(kind.forward)) == 3
        return "forward" if known else None
    for name in ("_experts_forward", "forward"):  # the first one where dispatch is the module's
        names = _arguments(getattr(kind, name, None))
        if len(names) == 2 and names[1].startswith("num_tokens_per_expert"):
            return name
    return None


def _arguments(method: Any) -> list[str]:
    return [] if method is None else list(inspect.signature(method).parameters)[1:]


def _names_of(module: Any) -> tuple[str, ...] | None:
    """The weights that a forward here multiplies; None where there are other parameters, or none
    of these."""
    own = {name for name, _ in module.named_parameters(recurse=False)}
    if _is_titan(type(module)):
        names = [three for three in _TITAN_NAMES if own == set(three)]
        plain = getattr(module, "swiglu_limit", None) is None
        return names[0] if names and plain else None
    if not all(hasattr(module, name) for name in _LAYOUT):
        return None
    weights = ("gate_up_proj" if module.has_gate else "up_proj", "down_proj")
    biases = [f"{name}_bias" for name in weights] if module.has_bias else []
    return weights if own == {*weights, *biases} else None


def _transformers_forward(
    self: Any,
    hidden_states: Any,
    top_k_index: Any = None,
    top_k_weights: Any = None,
    *,
    router_indices: Any = None,
    routing_weights: Any = None,
) -> Any:
    """As transformers' experts: hidden_states [T, H], the experts of each token [T, top_k], with
    numbers from num_experts on for those of other ranks, and their weights."""
    index = router_indices if top_k_index is None else top_k_index
    weights = routing_weights if top_k_weights is None else top_k_weights
    tokens, top_k = index.shape
    sorted_index, order = torch.sort(index.reshape(-1), stable=True)
    experts = torch.arange(self.num_experts, dtype=index.dtype, device=index.device)
    ends = torch.searchsorted(sorted_index, experts, right=True, out_int32=True)
    first, second = self._mxkern.names

    def product(number: int, x: Any, name: str) -> Any:
        weight = getattr(self, name)
        bias = getattr(self, f"{name}_bias") if self.has_bias else None
        return self._product(number, x, weight.mT if self.is_transposed else weight, ends, bias)

    hidden = product(0, hidden_states[order // top_k], first)
    hidden = self._apply_gate(hidden) if self.has_gate else self.act_fn(hidden)
    out = product(1, hidden, second)
    if getattr(self, "has_post_expert_norm", False):
        out = self.post_expert_norm(out)
    out = out * weights.reshape(-1)[order][:, None]
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    return out[back].view(tokens, top_k, -1).sum(1).to(hidden_states.dtype)


def _titan_forward(self: Any, x: Any, num_tokens_per_expert: Any) -> Any:
    """As torchtitan's experts: x [T, dim] sorted by expert, with rows of no expert behind."""
    ends = num_tokens_per_expert.cumsum(0, dtype=torch.int32)
    w1, w2, w3 = (getattr(self, name) for name in self._mxkern.names)
    gate, up = self._product(0, x, w1, ends), self._product(2, x, w3, ends)
    activation = getattr(self, "activation_fn", None)
    hidden = torch.nn.functional.silu(gate) * up if activation is None else activation(gate, up)
    return self._product(1, hidden, w2, ends).type_as(x)
