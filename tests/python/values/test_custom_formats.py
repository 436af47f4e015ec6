# tests/python/values/test_custom_formats.py: element formats of the user's own against gfloat,
# ml_dtypes and pychop: every code, midpoints and their neighbours, all roundings.
from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mxkern
from mxkern import _core
from mxkern.values.element_format import SPECIALS, element_format

ROUNDINGS = ("nearest", "nearest_away", "toward_zero", "up", "down")


def every_name(widest: int = 8) -> list[str]:
    """All ExMy of up to so many bits, with and without a sign, with all specials that they take."""
    names = []
    for sign, e, m, specials in itertools.product(("", "u"), range(9), range(8), SPECIALS):
        if e + m + (sign == "") <= widest:
            try:
                names.append(element_format("test", "name", f"{sign}e{e}m{m}_{specials}").name)
            except ValueError:
                continue
    return sorted(set(names))


def values_of(name: str) -> np.ndarray:
    """The value of every code of a format."""
    format = element_format("test", "name", name)
    core = format.core
    return np.array([core.decode(code) for code in range(1 << format.width)], np.float64)


def probes(values: np.ndarray) -> np.ndarray:
    """Values, the middles between them, float64 numbers beside both, and what lies beyond."""
    finite = np.unique(values[np.isfinite(values)])
    middles = (finite[1:] + finite[:-1]) / 2
    largest = finite[-1]
    beyond = largest * np.array([1.0, 1.03, 1.06, 1.07, 1.25, 1.4999, 1.5, 2, 1e3])
    step = largest - finite[-2] if finite.size > 1 else largest
    around = np.concatenate([finite, middles, beyond, [largest + step / 2, 1e-30]])
    near = [np.nextafter(around, -np.inf), around, np.nextafter(around, np.inf)]
    return np.unique(np.concatenate([*near, *(-part for part in near), [np.inf, -np.inf]]))


def assert_same_signs(got: np.ndarray, want: np.ndarray) -> None:
    """Of zeros too; not of NaN, of which mxkern has one."""
    np.testing.assert_array_equal(
        np.signbit(got) & ~np.isnan(got), np.signbit(want) & ~np.isnan(want)
    )


def gfloat_format(gfloat: Any, name: str) -> Any:
    format = element_format("test", "name", name)
    e, m = format.exponent_bits, format.mantissa_bits
    ieee = format.specials == "ieee"
    return gfloat.FormatInfo(
        name=name,
        k=format.width,
        precision=m + 1,
        bias=2 ** (e - 1) - 1 if e else 0,
        is_signed=format.is_signed,
        domain=gfloat.Domain.Extended if ieee else gfloat.Domain.Finite,
        has_nz=format.is_signed,
        num_high_nans={"none": 0, "nan": 1, "ieee": 2**m - 1}[format.specials],
        has_subnormals=True,
        is_twos_complement=False,
    )


@pytest.mark.parametrize("name", every_name())
def test_gfloat(name: str) -> None:
    gfloat = pytest.importorskip("gfloat")
    info = gfloat_format(gfloat, name)
    format = element_format("test", "name", name)
    values = values_of(name)
    theirs = [gfloat.decode_float(info, code).fval for code in range(values.size)]
    np.testing.assert_array_equal(values, theirs)
    modes = gfloat.RoundMode
    mode_of = dict(
        zip(
            ROUNDINGS,
            (modes.TiesToEven, modes.TiesToAway, modes.TowardZero)
            + (modes.TowardPositive, modes.TowardNegative),
            strict=True,
        )
    )
    x = probes(values)
    x = x[(np.abs(x) > 1e-300) | (x == 0)]  # of which gfloat's powers of two leave 0
    if not format.is_signed:
        x = x[x >= 0]
    if format.exponent_bits == 1 and format.specials == "ieee":  # its largest value is not its code
        x = x[np.abs(x) <= np.nanmax(values[np.isfinite(values)])]
    for rounding, saturate in itertools.product(ROUNDINGS, (True, False)):
        if not saturate and format.specials == "none":
            continue
        asked, got = x, mxkern.round_to(x, name, rounding=rounding, saturate=saturate)
        if rounding == "nearest" and format.mantissa_bits == 0:
            # Without mantissa bits gfloat ties to the even code, IEEE 754 and mxkern to the power
            # of two above.
            exact = np.isin(np.abs(x), (values[1:] + values[:-1]) / 2)
            asked, got = x[~exact], got[~exact]
        want = gfloat.round_ndarray(info, asked, mode_of[rounding], saturate)
        np.testing.assert_array_equal(got, want, err_msg=f"{name}, {rounding}, {saturate}")
        assert_same_signs(got, want)


ML_DTYPES = {
    "e3m4_ieee": "float8_e3m4",
    "e4m3_ieee": "float8_e4m3",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e2m3": "float6_e2m3fn",
    "e3m2": "float6_e3m2fn",
    "e2m1": "float4_e2m1fn",
    "bfloat16": "bfloat16",
    "float16": "float16",
}


@pytest.mark.parametrize("name", ML_DTYPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ml_dtypes(name: str, dtype: str) -> None:
    theirs = np.dtype(getattr(ml_dtypes, ML_DTYPES[name], ML_DTYPES[name]))
    width = 8 * theirs.itemsize
    codes = np.arange(1 << min(width, 16)).astype(f"uint{width}")
    values = codes.view(theirs).astype(np.float64)
    x = probes(values).astype(np.float32).astype(dtype)  # they round float64 to float32 first
    if theirs in ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"):
        x = x[np.abs(x) <= np.nanmax(values)]
    with np.errstate(over="ignore"):
        want = x.astype(theirs).astype(dtype)
    got = mxkern.round_to(x, name)
    np.testing.assert_array_equal(got, want)
    assert_same_signs(got, want)


@pytest.mark.parametrize("name", ["e5m10", "e4m3_ieee", "e5m2", "e8m7", "e3m4_ieee", "e6m9"])
def test_pychop(name: str) -> None:
    pytest.importorskip("pychop")
    from pychop.np.lightchop import LightChop_

    format = element_format("test", "name", name)
    modes = {"nearest": 1, "up": 2, "down": 3, "toward_zero": 4, "nearest_away": 8}
    rng = np.random.default_rng(0)
    x = rng.standard_normal(4000) * 2.0 ** rng.integers(-6, 3, 4000)
    # It rounds logarithms to find exponents: next to powers of two they are off.
    x = x[np.abs(np.log2(np.abs(x)) - np.round(np.log2(np.abs(x)))) > 1e-3]
    x = x[np.abs(x) < 0.9 * format.core.max_value]
    for rounding, mode in modes.items():
        chop = LightChop_(format.exponent_bits, format.mantissa_bits, mode)
        got = mxkern.round_to(x, name, rounding=rounding)
        np.testing.assert_array_equal(got, chop.quantize(x), err_msg=rounding)


@pytest.mark.parametrize("bits", range(2, 17))
def test_integers(bits: int) -> None:
    step = 2.0 ** (2 - bits)
    most = 2 ** (bits - 1) - 1
    x = np.random.default_rng(bits).uniform(-2.5, 2.5, 5000)
    want = np.clip(np.rint(x / step), -most, most) * step
    np.testing.assert_array_equal(mxkern.round_to(x, f"int{bits}"), want)
    step, most = 2.0 ** (1 - bits), 2**bits - 1
    want = np.clip(np.rint(x / step), 0, most) * step
    np.testing.assert_array_equal(mxkern.round_to(x, f"uint{bits}"), want)


def test_float64_is_rounded_once() -> None:
    x = np.float64(1 + 2.0**-11 + 2.0**-40)  # float32 has the tie, and gives it to 1
    assert mxkern.round_to(np.array([x]), "e5m10")[0] == 1 + 2.0**-10
    assert mxkern.round_to(np.float32([x]), "e5m10")[0] == 1
    # The quantized float64: the same in blocks.
    row = np.concatenate([[1.0, 4.0 + 0.5 + 2.0**-40], np.zeros(30)])
    assert mxkern.fake_quantize(row[None], "e2m2b32")[0, 1] == 5.0
    assert mxkern.fake_quantize(row[None].astype(np.float32), "e2m2b32")[0, 1] == 4.0


@pytest.mark.parametrize("bits", [1, 4, 16])
def test_stochastic_mean(bits: int) -> None:
    x = np.full(1 << 16, 1.3, np.float32)
    rounded = mxkern.round_to(x, "e2m1", rounding="stochastic", seed=3, random_bits=bits)
    assert set(np.unique(rounded)) == {1.0, 1.5}
    if bits == 1:  # up from 3/4, or 1/4, of a step on: 0.6 is up half of the time
        assert abs(float(rounded.mean()) - 1.25) < 0.01
    else:
        assert abs(float(rounded.mean()) - 1.3) < 0.01 + 0.25 * 2.0**-bits


def test_without_subnormals() -> None:
    x = np.float32([0.9e-4, 6.0e-5, 6.2e-5, -1e-6, 6.1034e-05])
    got = mxkern.round_to(x, "float16", subnormals=False)
    smallest = 2.0**-14
    assert list(got[1:4]) == [0, np.float32(6.2e-5).astype(np.float16), 0]
    assert got[4] == smallest  # rounds up to it


def test_out_and_dtypes() -> None:
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64):
        x = np.linspace(-3, 3, 100).astype(dtype)
        want = mxkern.round_to(x, "e4m1")
        assert want.dtype == x.dtype
        assert mxkern.round_to(x, "e4m1", out=x) is x
        np.testing.assert_array_equal(x.astype(float), want.astype(float))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("e9m3", "0 to 8 exponent bits"),
        ("e4m0_ieee", "Inf would be NaN"),
        ("e0m3_ieee", "every code would be special"),
        ("e8m7_none", "beyond float32"),
        ("int17", "2 to 16 bits"),
        ("e0m0", "an exponent or mantissa bit"),
        ("f8", "expected an element format"),
    ],
)
def test_refused(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        mxkern.round_to(np.ones(4, np.float32), name)


def test_options_of_rounding() -> None:
    x = np.ones(4, np.float32)
    with pytest.raises(ValueError, match="seed is None"):
        mxkern.round_to(x, "e4m3", rounding="stochastic")
    with pytest.raises(ValueError, match="leave random_bits out"):
        mxkern.round_to(x, "e4m3", random_bits=3)
    with pytest.raises(ValueError, match="nearest_away"):
        mxkern.round_to(x, "e4m3", rounding="away")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="float64"):
        mxkern.round_to(np.ones(4, np.int32), "e4m3")
    assert _core.any_names()[0] == "nearest"
