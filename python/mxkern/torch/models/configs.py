# mxkern/torch/models/configs.py: what quantize_ makes of a model's linear layers.
from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from mxkern.torch.recipes.autocast import no_recipe
from mxkern.values import errors
from mxkern.values.names import BlockError, SchemeName
from mxkern.values.recipe import Operand, Recipe, mxfp8
from mxkern.values.scheme import scheme_of


class Config:
    """What is done to a layer."""


@dataclass(frozen=True)
class Training(Config):
    """Linear layers that train with a recipe; the weights stay the parameters they are.

    seed           of the random bits: each layer has its own, made of this one and its name
    rank           None: the process's, so that ranks draw other bits; give ranks that see the same
                   data, as those of a tensor-parallel group, one number
    cache_weights  quantize a weight once for all micro-batches between two optimizer steps
    """

    recipe: Recipe = field(default_factory=mxfp8)
    seed: int = 0
    rank: int | None = None
    cache_weights: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.recipe, Recipe):
            raise no_recipe("Training", self.recipe)
        errors.integer("Training", "seed", self.seed, 0, 2**64 - 1)


@dataclass(frozen=True)
class QAT(Config):
    """Quantization-aware training: forward is that of the quantized model, gradients are those of
    its decoded operands. step="convert" stores the weights quantized afterwards: the outputs stay
    the same, to the bit."""

    recipe: Recipe = field(default_factory=mxfp8)
    step: Literal["prepare", "convert"] = "prepare"

    def __post_init__(self) -> None:
        if not isinstance(self.recipe, Recipe):
            raise no_recipe("QAT", self.recipe)
        _check_step("QAT", self.step)


@dataclass(frozen=True)
class Stored(Config):
    """Weights that are stored quantized, for inference and for fine-tuning of adapters.

    weight  how they are quantized
    input   how inputs are: None not at all
    """

    weight: Operand
    input: Operand | None = None


def _operand(function: str, value: Any, **options: Any) -> Operand:
    if isinstance(value, Operand):
        return value
    scheme_of(function, value)
    return Operand(value, **options)


def WeightOnly(  # noqa: N802  # a kind of config
    weight: SchemeName | Operand = "mxfp8", **options: Any
) -> Stored:
    """Weights stored in a scheme, inputs as they are: WeightOnly("mxfp4", scale_rule="even").

    options  fields of Operand
    """
    return Stored(_operand("WeightOnly", weight, **options))


def Dynamic(  # noqa: N802
    scheme: SchemeName | None = None,
    *,
    input: SchemeName | Operand | None = None,
    weight: SchemeName | Operand | None = None,
    **options: Any,
) -> Stored:
    """Weights stored in a scheme, inputs quantized in each call: Dynamic("mxfp8"), or of two
    schemes, Dynamic(input="mxfp8", weight="mxfp4").

    options  fields of Operand, for both
    """
    if scheme is None and (input is None or weight is None):
        raise TypeError(
            "Dynamic: a scheme is missing; expected one for both, Dynamic('mxfp8'), or "
            "Dynamic(input='mxfp8', weight='mxfp4'); weights alone are WeightOnly('mxfp4')"
        )
    left = _operand("Dynamic", scheme if input is None else input, **options)
    right = _operand("Dynamic", scheme if weight is None else weight, **options)
    return Stored(right, left)


@dataclass(frozen=True)
class Static(Config):
    """NVFP4 whose inputs have a calibrated amax. step="prepare": layers stay plain and watch their
    inputs; run batches of data; step="convert": weights are stored, amaxes kept as buffers."""

    scheme: SchemeName = "nvfp4"
    step: Literal["prepare", "convert"] = "prepare"
    four_over_six: bool | BlockError = False

    def __post_init__(self) -> None:
        if not scheme_of("Static", self.scheme).has_tensor_scale:
            raise ValueError(
                f"Static: scheme is {self.scheme!r}, whose scales are those of single blocks: "
                "there is nothing to calibrate; expected 'nvfp4'; call Dynamic"
            )
        _check_step("Static", self.step)


def _check_step(function: str, step: Any) -> None:
    if step not in ("prepare", "convert"):
        raise errors.unknown_name(function, "step", step, ("prepare", "convert"))


class ByName:
    """A config for each layer by its name; see by_name."""

    def __init__(self, choices: Mapping[str, Config | None]) -> None:
        for pattern, config in choices.items():
            if config is not None and not isinstance(config, Config):
                raise TypeError(
                    f"by_name: {pattern!r} is {errors.described(config)}; expected a config or None"
                )
        self._choices = [(p, _matcher(p), c) for p, c in choices.items()]
        self._unused = {p for p in choices if p != "*"}

    def of(self, name: str) -> Config | None:
        """The config of the first pattern that fits a layer's name."""
        for pattern, fits, config in self._choices:
            if fits(name):
                self._unused.discard(pattern)
                return config
        return None

    def check_used(self) -> None:
        """ValueError for patterns that fitted no layer."""
        if self._unused:
            names = errors.listed(map(repr, sorted(self._unused)))
            raise ValueError(
                f"quantize_: {names} fits no layer that an earlier pattern leaves; expected the "
                "name of a linear layer, the end of one, a pattern with * or a regular expression, "
                "'re:...'"
            )


def _matcher(pattern: Any) -> Callable[[str], bool]:
    if not isinstance(pattern, str):
        raise TypeError(f"by_name: a name is {errors.described(pattern)}; expected a string")
    if pattern.startswith("re:"):
        found = re.compile(pattern[3:]).search
        return lambda name: found(name) is not None
    return lambda name: (
        name == pattern or name.endswith(f".{pattern}") or fnmatch.fnmatchcase(name, pattern)
    )


def by_name(choices: Mapping[str, Config | None]) -> ByName:
    """Configs by the names of layers; the first that fits counts, and None leaves a layer alone.

    by_name({"re:layers\\\\.0\\\\.": None, "lm_head": None, "*": Training(nvfp4())})

    A name is whole, the end of one behind a dot, a pattern with * and ?, or "re:" and a regular
    expression that is searched for. quantize_ raises ValueError for names that fit no layer.
    """
    return ByName(choices)


def all_but_last(model: Any, fraction: float = 0.15) -> Callable[[Any, str], bool]:
    """A filter_fn that leaves out the last blocks of a model, and what comes after the blocks, as
    the LM head: what NVFP4 training keeps in 16 bits.

    fraction  of the blocks, rounded up. Blocks are the longest torch.nn.ModuleList; where there is
              none, ValueError
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"all_but_last: fraction is {fraction}; expected 0 to 1")
    lists = [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.ModuleList)]
    if not lists:
        raise ValueError(
            "all_but_last: the model has no torch.nn.ModuleList of blocks; expected one; name the "
            "layers with by_name"
        )
    name, blocks = max(lists, key=lambda pair: len(pair[1]))
    kept = len(blocks) - math.ceil(fraction * len(blocks))
    order = [n for n, _ in model.named_modules()]
    inside = [n for n in order if n.startswith(f"{name}.") or n == name]
    behind = set(order[order.index(inside[-1]) + 1 :])
    prefixes = tuple(f"{name}.{i}." for i in range(kept, len(blocks)))
    return lambda module, own: own not in behind and not f"{own}.".startswith(prefixes)
