# mxkern/keywords.py: the keyword arguments of the functions that quantize, in one table.
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, TypedDict, TypeVar

from mxkern import _core

ScaleRule = Literal["rceil", "floor", "ceil", "even"]
Rounding = Literal["nearest", "stochastic"]
ScaleLayout = Literal["row_major", "swizzled"]
BlockError = Literal["mse", "mae"]
Block = str | tuple[int, int] | None

# Name, default, type. Their order is that of Keyword in bindings/signature.h.
_TABLE: tuple[tuple[str, Any, str], ...] = (
    ("scale_rule", "rceil", "ScaleRule"),
    ("rounding", "nearest", "Rounding"),
    ("seed", None, "int | None"),
    ("offset", 0, "Any"),
    ("block", None, "Block"),
    ("hadamard", None, "int | None"),
    ("sign_mask", None, "int | None"),
    ("four_over_six", False, "bool | BlockError"),
    ("hadamard_rows", False, "bool"),
    ("scale_layout", "row_major", "ScaleLayout"),
    ("amax", None, "Any"),
    ("tensor_scale", None, "Any"),
    ("out", None, "Any"),
    ("stream", None, "int | None"),
)
NAMES = tuple(name for name, _, _ in _TABLE)
DEFAULTS = {name: default for name, default, _ in _TABLE}
_TYPES = {name: kind for name, _, kind in _TABLE}


class MxKeywords(TypedDict, total=False):
    """Of the MX schemes."""

    scale_rule: ScaleRule
    rounding: Rounding
    seed: int | None
    offset: Any
    scale_layout: ScaleLayout
    block: Block
    hadamard: int | None
    sign_mask: int | None
    out: Any
    stream: int | None


class NvfpKeywords(TypedDict, total=False):
    """Of NVFP4, whose scales have a rule of their own."""

    rounding: Rounding
    seed: int | None
    offset: Any
    scale_layout: ScaleLayout
    block: Block
    hadamard: int | None
    sign_mask: int | None
    four_over_six: bool | BlockError
    amax: Any
    tensor_scale: Any
    out: Any
    stream: int | None


class QuantizeKeywords(MxKeywords, NvfpKeywords, total=False):
    """Of any scheme."""


class BothKeywords(QuantizeKeywords, total=False):
    """Of rows and columns at once."""

    hadamard_rows: bool


class FakeKeywords(TypedDict, total=False):
    """Of what gives no codes and scales."""

    scale_rule: ScaleRule
    rounding: Rounding
    seed: int | None
    offset: Any
    block: Block
    four_over_six: bool | BlockError
    amax: Any
    tensor_scale: Any
    out: Any
    stream: int | None


_Function = TypeVar("_Function", bound=Callable[..., Any])


class Takes:
    """A function's keywords. As its decorator it gives the function a signature that names them, in
    place of **keywords; `core` is what the extension module reads them with."""

    def __init__(self, function: str, keywords: Any) -> None:
        self._names = [name for name in NAMES if name in keywords.__optional_keys__]
        defaults = [DEFAULTS[name] for name in NAMES]
        self.core = _core.Signature(function, list(NAMES), defaults, self._names)

    def __call__(self, function: _Function) -> _Function:
        plain = inspect.signature(function)
        own = [p for p in plain.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=DEFAULTS[name],
                annotation=_TYPES[name],
            )
            for name in self._names
        ]
        whole = plain.replace(parameters=[*own, *named])
        function.__signature__ = whole  # type: ignore[attr-defined]
        return function
