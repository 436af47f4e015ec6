# mxkern/values/names.py: the names that arguments take, as types.
from __future__ import annotations

from typing import Any, Literal, Protocol

SchemeName = Literal[
    "mxfp8_e4m3",
    "mxfp8_e5m2",
    "mxfp6_e3m2",
    "mxfp6_e2m3",
    "mxfp4",
    "mxint8",
    "nvfp4",
    "mxfp8",
    "mxfp6",
    "mxfp4_e2m1",
    "nvfp4_e2m1",
]
ScaleRule = Literal["rceil", "floor", "ceil", "even"]
Rounding = Literal["nearest", "stochastic"]
# Those that other schemes have besides, and these by code that knows a scheme at run time.
AnyScaleRule = Literal[ScaleRule, "mse"]
AnyRounding = Literal[Rounding, "nearest_away", "toward_zero", "up", "down"]
ScaleLayout = Literal["row_major", "swizzled"]
BlockError = Literal["mse", "mae"]
Block = str | tuple[int, int] | None
GemmPrecision = Literal["auto", "exact", "folded"]
GroupedPrecision = Literal["exact", "folded"]
AskedForm = Literal["folded", "expanded", "few_tokens", "panels"]
PreparedForm = Literal["source", AskedForm]
DtypeName = Literal["float32", "float16", "bfloat16"]


class DtypeObject(Protocol):
    """A framework's dtype, as numpy.dtype and torch.dtype are; a str is none."""

    @property
    def itemsize(self) -> int: ...


Dtype = DtypeName | type[Any] | DtypeObject
