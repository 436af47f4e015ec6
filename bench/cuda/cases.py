# bench/cuda/cases.py: what is measured, and the share of a copy's speed that it should reach.
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

import mxkern
from mxkern.values.custom_scheme import any_scheme_of

SHAPES = ((16384, 8192), (4096, 4096))
SCHEMES = mxkern.schemes.names
# Schemes that are not compiled. The codes of all but the last one have at most 8 bits.
CUSTOM_SCHEMES = (
    "e3m4b64",
    "int4b16:ue4m3",
    "e2m1b16",
    "e4m3b128",
    "mxfp8_16",
    "nvfp4_ue5m3",
    "mxint4",
    "int8b64",
    "nvfp4_32",
    "fp8_block128",
    "fp8_block128_rows",
    "e5m10b32",
)


class Case(NamedTuple):
    """One operation. `make` gives a call for an input, and the bytes that the call moves."""

    scheme: str
    operation: str
    goal: float
    make: Callable[[torch.Tensor], tuple[Callable[[], object], int]]


def cases() -> Iterator[Case]:
    """Every line of the goals, for the schemes that it is about."""
    for scheme in SCHEMES:
        nvfp4 = scheme == "nvfp4"
        given = {"amax": True} if nvfp4 else {}
        side = mxkern.schemes[scheme].block
        square = {"block": f"{side}x{side}", **given}
        yield Case(scheme, "rows", 0.93 if nvfp4 else 0.95, _rows(scheme, **given))
        yield Case(scheme, "columns", 0.90, _columns(scheme, **given))
        yield Case(scheme, "both", 0.90, _both(scheme, **given))
        in_rows = {"scale_layout": "row_major", **given}
        yield Case(scheme, "columns, row-major scales", 0.90, _columns(scheme, **in_rows))
        yield Case(scheme, "both, row-major scales", 0.90, _both(scheme, **in_rows))
        yield Case(scheme, "dequantize", 0.95, _dequantize(scheme))
        yield Case(scheme, "both, square blocks", 0.85, _both(scheme, **square))
        stochastic = {"rounding": "stochastic", "seed": 1, **given}
        yield Case(scheme, "rows, stochastic", 0.85, _rows(scheme, **stochastic))
        yield Case(scheme, "columns, stochastic", 0.85, _columns(scheme, **stochastic))
        yield Case(scheme, "both, stochastic", 0.85, _both(scheme, **stochastic))
        yield Case(
            scheme, "both, Hadamard 16 on columns", 0.85, _both(scheme, hadamard=16, **given)
        )
        yield Case(scheme, "fake_quantize", 0.0, _fake(scheme, **given))
        yield Case(scheme, "fake_quantize, square blocks", 0.0, _fake(scheme, **square))
        yield Case(scheme, "fake_quantize, stochastic", 0.0, _fake(scheme, **stochastic))
        if nvfp4:
            yield Case(scheme, "rows, own amax", 0.90, _rows(scheme))
            yield from _both_with_own_amax(scheme)
            yield Case(scheme, "rows, 4over6", 0.0, _rows(scheme, four_over_six=True, **given))
    yield Case("", "tensor_amax", 0.95, _amax)


def _both_with_own_amax(scheme: str) -> Iterator[Case]:
    """What a training step asks for: both directions, with all that NVFP4's recipe has."""
    hadamard = {"hadamard": 16}
    stochastic = {**hadamard, "rounding": "stochastic", "seed": 1}
    for layout, suffix in (("swizzled", ""), ("row_major", ", row-major scales")):
        own = f"both, own amax{suffix}"
        in_layout = {"scale_layout": layout}
        yield Case(scheme, own, 0.80, _both(scheme, **in_layout))
        yield Case(scheme, f"{own}, Hadamard 16", 0.65, _both(scheme, **hadamard, **in_layout))
        yield Case(
            scheme,
            f"{own}, Hadamard 16, stochastic",
            0.50,
            _both(scheme, **stochastic, **in_layout),
        )


def cases_of_types() -> Iterator[Case]:
    """What is compared between types of elements: three schemes, with what costs most."""
    for scheme in ("mxfp8_e4m3", "mxfp4", "nvfp4"):
        nvfp4 = scheme == "nvfp4"
        given = {"amax": True} if nvfp4 else {}
        side = mxkern.schemes[scheme].block
        square = {"block": f"{side}x{side}", **given}
        stochastic = {"rounding": "stochastic", "seed": 1, **given}
        yield Case(scheme, "rows", 0.0, _rows(scheme, **given))
        yield Case(scheme, "columns", 0.0, _columns(scheme, **given))
        yield Case(scheme, "both", 0.0, _both(scheme, **given))
        yield Case(scheme, "both, square blocks", 0.0, _both(scheme, **square))
        yield Case(scheme, "dequantize", 0.0, _dequantize(scheme))
        yield Case(scheme, "rows, stochastic", 0.0, _rows(scheme, **stochastic))
        yield Case(scheme, "columns, stochastic", 0.0, _columns(scheme, **stochastic))
        yield Case(scheme, "both, stochastic", 0.0, _both(scheme, **stochastic))
        hadamard = {"hadamard": 16, **given}
        yield Case(scheme, "both, Hadamard 16 on columns", 0.0, _both(scheme, **hadamard))
        both = {**stochastic, "hadamard": 16}
        yield Case(scheme, "columns, Hadamard 16, stochastic", 0.0, _columns(scheme, **both))
        if nvfp4:
            chosen = {"four_over_six": True, **given}
            yield Case(scheme, "rows, 4over6", 0.0, _rows(scheme, **chosen))
            yield Case(scheme, "columns, 4over6", 0.0, _columns(scheme, **chosen))
            yield Case(scheme, "both, 4over6", 0.0, _both(scheme, **chosen))
            squares = {**square, **chosen}
            yield Case(scheme, "both, square blocks, 4over6", 0.0, _both(scheme, **squares))


def custom_cases() -> Iterator[Case]:
    """Schemes of the user's own, to nearest."""
    in_rows = {"scale_layout": "row_major"}
    for scheme in CUSTOM_SCHEMES:
        goal = 0.0 if scheme == "e5m10b32" else 0.5
        yield Case(scheme, "rows", goal, _rows(scheme, **in_rows))
        yield Case(scheme, "columns", 0.0, _columns(scheme, **in_rows))
        yield Case(scheme, "dequantize", goal, _dequantize(scheme, "row_major"))
        yield Case(scheme, "fake_quantize", goal, _fake(scheme))


def _options(x: torch.Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """amax=True stands for the tensor's own, found beforehand."""
    if options.get("amax") is True:
        options = {**options, "amax": mxkern.tensor_amax(x)}
    return {"scale_layout": "swizzled", **options}


def _read(x: torch.Tensor, scheme: str, options: dict[str, Any]) -> int:
    """Bytes read: twice those of x where an amax is found first."""
    record = any_scheme_of("bench", scheme, "scheme")
    finds = record.has_tensor_scale and options.get("amax") is None
    return x.nbytes * (2 if finds else 1)


def _rows(scheme: str, **options: Any) -> Any:
    def make(x: torch.Tensor) -> tuple[Callable[[], object], int]:
        given = _options(x, options)
        q = mxkern.quantize(x, scheme, **given)
        return lambda: mxkern.quantize(x, scheme, out=q, **given), _read(
            x, scheme, options
        ) + q.nbytes

    return make


def _columns(scheme: str, **options: Any) -> Any:
    def make(x: torch.Tensor) -> tuple[Callable[[], object], int]:
        given = _options(x, options)
        q = mxkern.quantize_columns(x, scheme, **given)
        return (
            lambda: mxkern.quantize_columns(x, scheme, out=q, **given),
            _read(x, scheme, options) + q.nbytes,
        )

    return make


def _both(scheme: str, **options: Any) -> Any:
    def make(x: torch.Tensor) -> tuple[Callable[[], object], int]:
        given = _options(x, options)
        pair = mxkern.quantize_both(x, scheme, **given)
        moved = _read(x, scheme, options) + pair[0].nbytes + pair[1].nbytes
        return lambda: mxkern.quantize_both(x, scheme, out=pair, **given), moved

    return make


def _dequantize(scheme: str, scale_layout: str = "swizzled") -> Any:
    def make(x: torch.Tensor) -> tuple[Callable[[], object], int]:
        q = mxkern.quantize(x, scheme, scale_layout=scale_layout)
        y = torch.empty_like(x)
        return lambda: mxkern.dequantize(q, out=y), q.nbytes + y.nbytes

    return make


def _fake(scheme: str, **options: Any) -> Any:
    def make(x: torch.Tensor) -> tuple[Callable[[], object], int]:
        given = _options(x, options)
        del given["scale_layout"]
        y = torch.empty_like(x)
        moved = _read(x, scheme, given) + y.nbytes
        return lambda: mxkern.fake_quantize(x, scheme, out=y, **given), moved

    return make


def _amax(x: torch.Tensor) -> tuple[Callable[[], object], int]:
    amax = mxkern.tensor_amax(x)
    return lambda: mxkern.tensor_amax(x, out=amax), x.nbytes
