# mxkern/values/keywords.py: the keyword arguments of the functions that quantize, in one table.
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

from mxkern import _core
from mxkern.values.names import (
    AnyRounding,
    AnyScaleRule,
    Block,
    BlockError,
    Dtype,
    GemmPrecision,
    GroupedPrecision,
    ScaleLayout,
)

# Name, default, type. Their order is that of Keyword in bindings/signature.h.
_TABLE: tuple[tuple[str, Any, str], ...] = (
    ("scale_rule", "rceil", "AnyScaleRule"),
    ("rounding", "nearest", "AnyRounding"),
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
    ("random_bits", 16, "int"),
    ("subnormals", True, "bool"),
    ("saturate", True, "bool"),
    ("threshold", None, "float | None"),
    ("scales", None, "Any"),
    ("block_amax", None, "Any"),
    ("axis", -1, "int"),
)
NAMES = tuple(name for name, _, _ in _TABLE)
DEFAULTS = {name: default for name, default, _ in _TABLE}
_TYPES = {name: kind for name, _, kind in _TABLE}


class _CustomKeywords(TypedDict, total=False):
    """Of any scheme, by code that knows it at run time."""

    random_bits: int
    subnormals: bool
    saturate: bool
    threshold: float | None
    scales: Any
    block_amax: Any


class _Keywords(_CustomKeywords, total=False):
    rounding: AnyRounding
    seed: int | None
    offset: Any
    block: Block
    out: Any
    stream: int | None


class _ScaledKeywords(_Keywords, total=False):
    """Of what gives codes and scales."""

    hadamard: int | None
    sign_mask: int | None
    scale_layout: ScaleLayout


class _MxKeywords(TypedDict, total=False):
    scale_rule: AnyScaleRule


class _NvfpKeywords(TypedDict, total=False):
    four_over_six: bool | BlockError
    amax: Any
    tensor_scale: Any


class MxKeywords(_ScaledKeywords, _MxKeywords, total=False):
    """Of the MX schemes."""


class NvfpKeywords(_ScaledKeywords, _NvfpKeywords, total=False):
    """Of NVFP4, whose scales have a rule of their own."""


class QuantizeKeywords(MxKeywords, NvfpKeywords, total=False):
    """Of any scheme."""


class BothKeywords(QuantizeKeywords, total=False):
    """Of rows and columns at once."""

    hadamard_rows: bool


class FakeKeywords(_Keywords, _MxKeywords, _NvfpKeywords, total=False):
    """Of what gives no codes and scales."""

    axis: int


class _ProductKeywords(TypedDict, total=False):
    dtype: Dtype
    out: Any
    alpha: float
    beta: float
    bias: Any
    stream: int | None


class GemmKeywords(_ProductKeywords, total=False):
    """Of gemm."""

    precision: GemmPrecision
    accumulate: str | None


class GroupedKeywords(_ProductKeywords, total=False):
    """Of grouped_gemm."""

    factors: Any
    rows: Any
    precision: GroupedPrecision


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
