# mxkern/torch/models/quantize_model.py: quantize_: a model's linear layers, converted in place.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mxkern.torch.layers.grouped import GroupedLinear
from mxkern.torch.layers.linear import Linear
from mxkern.torch.layers.weight_cache import WeightCache
from mxkern.torch.models.configs import QAT, ByName, Config, Static, Stored, Training
from mxkern.torch.models.experts import (
    ConvertedExperts,
    convert_experts,
    unconverted_experts,
    weights_of_experts,
)
from mxkern.torch.models.observer import ObservedLinear
from mxkern.torch.models.stored_linear import QuantizedLinear
from mxkern.torch.recipes.random_bits import Step, advance_step
from mxkern.values import errors
from mxkern.values.options import DTYPES, name_of_dtype
from mxkern.values.recipe import Operand, Recipe
from mxkern.values.seeds import of_text
from mxkern.values.table import format_table

_OWN = (Linear, ObservedLinear, QuantizedLinear)


def quantize_(
    model: Any,
    config: Any,
    filter_fn: Callable[[Any, str], bool] | None = None,
) -> Any:
    """Converts the torch.nn.Linear layers of a model, in place, and returns it; a model that is a
    layer itself is not changed, but its conversion returned.

    config     Training, QAT, WeightOnly, Dynamic or Static, or by_name of some
    filter_fn  filter_fn(module, name) says which layers; by default all

    Training converts modules of experts as well, in place: those of transformers and torchtitan,
    which hold 3-D parameters (convert_experts); other configs leave them alone.
    Parameters of Training and QAT stay the same objects, so that an optimizer goes on. Subclasses
    of torch.nn.Linear, parametrized layers and layers whose forward is not called, as in
    torch.nn.MultiheadAttention, are left alone: explain(model) lists them.
    Raises TypeError for other configs, ValueError where no layer is converted, and for weights that
    are stored quantized and tied to others, whose tie would be lost.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"quantize_: model is {errors.described(model)}; expected a torch.nn.Module"
        )
    if not isinstance(config, (Config, ByName)):
        hint = "; pass Training(recipe)" if isinstance(config, Recipe) else ""
        raise TypeError(
            f"quantize_: config is {errors.described(config)}; expected Training, QAT, WeightOnly, "
            f"Dynamic, Static or by_name{hint}"
        )
    chosen = _chosen(model, config, filter_fn)
    _check_ties(model, chosen)
    made = {id(module): _converted(module, name, own, model) for module, name, own in chosen}
    if id(model) in made:
        return made[id(model)]
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and id(child) in made:
                parent._modules[name] = made[id(child)]
    return model


def _chosen(model: Any, config: Any, filter_fn: Any) -> list[tuple[Any, str, Config]]:
    """The layers to convert, each once, with its name and its config."""
    found: list[tuple[Any, str, Config]] = []
    seen = 0
    for name, module in model.named_modules():
        if unconverted_reason(module, name, model):
            continue
        seen += 1
        if filter_fn is not None and not filter_fn(module, name):
            continue
        own = config.of(name) if isinstance(config, ByName) else config
        if isinstance(own, Training) or (own is not None and isinstance(module, torch.nn.Linear)):
            found.append((module, name, own))
    if isinstance(config, ByName):
        config.check_used()
    if not found:
        raise ValueError(
            f"quantize_: no layer is converted, of {seen} linear layers; expected one or more; see "
            "mxkern.torch.explain(model), and what filter_fn or by_name leave out"
        )
    return found


def unconverted_reason(module: Any, name: str, model: Any) -> str:
    """Why a module that has a weight of a product is left alone; "" for all others that are."""
    if not isinstance(module, torch.nn.Linear):
        reason = "no experts" if isinstance(module, GroupedLinear) else unconverted_experts(module)
        return "no linear layer" if reason == "no experts" else reason
    if any(isinstance(parent, torch.nn.MultiheadAttention) for parent in _parents(model, name)):
        return "its forward is not called in torch.nn.MultiheadAttention"
    if type(module) not in (torch.nn.Linear, *_OWN):
        return f"a subclass: {type(module).__name__}"
    if name_of_dtype(module.weight.dtype) not in DTYPES:
        return f"its weight has dtype {name_of_dtype(module.weight.dtype)}"
    return ""


def _parents(model: Any, name: str) -> list[Any]:
    parents, module = [], model
    for part in name.split(".")[:-1]:
        module = getattr(module, part)
        parents.append(module)
    return [model, *parents] if name else []


def _check_ties(model: Any, chosen: list[tuple[Any, str, Config]]) -> None:
    """Weights that become others must be nobody else's."""
    users: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        users.setdefault(id(parameter), []).append(name)
    for module, name, config in chosen:
        names = users.get(id(module.weight), []) if _stores(config) else []
        if len(names) > 1:
            raise ValueError(
                f"quantize_: the weight of {name!r} is tied: {errors.listed(map(repr, names))} are "
                "one parameter, which would become two; expected one of its own; leave the layer "
                f"out, by_name({{{name!r}: None, '*': ...}}), or untie it first"
            )


def _stores(config: Config) -> bool:
    return isinstance(config, Stored) or getattr(config, "step", "") == "convert"


def _converted(module: Any, name: str, config: Config, model: Any) -> Any:
    if isinstance(config, Training):
        step = _step_of(model, module)
        own = of_text(config.seed, name)
        if convert_experts(module, config.recipe, seed=own, rank=config.rank, step=step):
            return module
        layer = Linear.from_linear(module, config.recipe, seed=own, rank=config.rank, step=step)
        layer.cache = WeightCache() if config.cache_weights else None
        return layer
    if isinstance(config, QAT):
        if config.step == "prepare":
            recipe = config.recipe.with_(backward="dequantized")
            return Linear.from_linear(module, recipe, step=_step_of(model, module))
        inputs = config.recipe.input.with_(hadamard=None, sign_mask=None)
        precision = config.recipe.precision
        return QuantizedLinear.from_linear(
            module, weight=config.recipe.weight, input=inputs, precision=precision
        )
    if isinstance(config, Stored):
        return QuantizedLinear.from_linear(module, weight=config.weight, input=config.input)
    assert isinstance(config, Static)
    if config.step == "prepare":
        return ObservedLinear.from_linear(module)
    if not isinstance(module, ObservedLinear) or not bool(module.input_amax > 0):
        raise ValueError(
            f"quantize_: {name!r} has seen no inputs; expected a layer of Static(step='prepare') "
            "that ran batches of data; prepare the model and run some"
        )
    operand = Operand(config.scheme, four_over_six=config.four_over_six)
    return QuantizedLinear.from_linear(
        module, weight=operand, input=operand, input_amax=module.input_amax
    )


def _step_of(model: Any, module: Any) -> Step:
    """The one step of a model, which its forward advances."""
    step: Step | None = model.__dict__.get("_mxkern_step")
    if step is None:
        step = Step()
        weight = module.weight if hasattr(module, "weight") else next(module.parameters())
        step.to(weight.device)
        if module is not model:
            model._mxkern_step = step
            model.register_forward_pre_hook(advance_step)
    return step


def explain(model: Any) -> str:
    """A table of the model's linear layers: what multiplies them, and why others are plain."""
    rows = []
    for name, module in model.named_modules():
        reason = unconverted_reason(module, name, model)
        if reason == "no linear layer" and not isinstance(module, GroupedLinear):
            continue
        linear = isinstance(module, (torch.nn.Linear, GroupedLinear))
        weights = [module.weight] if linear else weights_of_experts(module).values()
        shape = ", ".join("x".join(map(str, weight.shape)) for weight in weights)
        ours = isinstance(module, (*_OWN, GroupedLinear, ConvertedExperts))
        said = module.explained() if ours else reason or "plain"
        rows.append((name or "(model)", type(module).__name__, shape, said))
    headers = ["layer", "kind", "weight", "products"]
    return format_table(headers, rows, left=headers)
