# tests/python/values/test_code_table.py: the codes of formats, against ml_dtypes and the reference.
from __future__ import annotations

import math
import pickle

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import mxkern
import reference

# What ml_dtypes calls formats, and what they are called here.
DTYPES = {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e3m2": "float6_e3m2fn",
    "e2m3": "float6_e2m3fn",
    "e2m1": "float4_e2m1fn",
    "e8m0": "float8_e8m0fnu",
    "e3m4_ieee": "float8_e3m4",
    "e4m3_ieee": "float8_e4m3",
    "bfloat16": "bfloat16",
}


def assert_same(found: tuple[float, ...], wanted: npt.NDArray[np.float64]) -> None:
    values = np.array(found)
    assert np.array_equal(values, wanted, equal_nan=True)
    numbers = ~np.isnan(values)
    assert np.array_equal(np.signbit(values[numbers]), np.signbit(wanted[numbers]))


@pytest.mark.parametrize("name", DTYPES)
def test_values_are_those_of_ml_dtypes(name: str) -> None:
    table = mxkern.table(name)
    dtype = np.dtype(getattr(ml_dtypes, DTYPES[name]))
    codes = np.arange(len(table)).astype(f"u{dtype.itemsize}").view(dtype)
    with np.errstate(invalid="ignore"):
        assert_same(table.values, codes.astype(np.float64))


def test_float16() -> None:
    wanted = np.arange(1 << 16).astype(np.uint16).view(np.float16).astype(np.float64)
    assert_same(mxkern.table("float16").values, wanted)


@pytest.mark.parametrize("name", [name for name in reference.FORMATS if name != "int8"])
def test_values_are_those_of_the_reference(name: str) -> None:
    assert_same(mxkern.table(name).values, reference.FORMATS[name].values().astype(np.float64))


@pytest.mark.parametrize("scheme", mxkern.schemes, ids=lambda scheme: scheme.name)
def test_a_scheme_stands_for_its_elements(scheme: mxkern.Scheme) -> None:
    table = mxkern.table(scheme)
    assert mxkern.table(scheme.name) == table == mxkern.table(scheme.format)
    assert table.format == scheme.format and len(table) == 2**scheme.bits
    finite = [value for value in table.values if math.isfinite(value)]
    assert max(finite) == scheme.max_value
    assert min(value for value in finite if value > 0) == scheme.min_subnormal


@pytest.mark.parametrize("scheme", mxkern.schemes, ids=lambda scheme: scheme.name)
def test_dequantize_gives_these_values(scheme: mxkern.Scheme) -> None:
    table = mxkern.table(scheme)
    codes = np.zeros((-(-len(table) // scheme.block), scheme.block), np.uint8)
    codes.reshape(-1)[: len(table)] = [code.code for code in table]
    one = np.full((len(codes), 1), 56 if scheme.scale_format == "ue4m3" else 127, np.uint8)
    packed = codes if scheme.bits == 8 else mxkern.pack_codes(codes, scheme)
    tensor_scale = 1.0 if scheme.has_tensor_scale else None
    q = mxkern.BlockScaled.from_parts(
        packed, one, scheme=scheme, shape=codes.shape, tensor_scale=tensor_scale
    )
    values = mxkern.dequantize(q).astype(np.float64).reshape(-1)[: len(table)]
    assert_same(table.values, values)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("e0m2", [0, 0.5, 1, 1.5, -0.0, -0.5, -1, -1.5]),
        ("e1m0", [0, 2, -0.0, -2]),
        ("e1m1", [0, 1, 2, 3, -0.0, -1, -2, -3]),
        ("ue2m1", [0, 0.5, 1, 1.5, 2, 3, 4, 6]),
        ("int2", [0, 1, -2, -1]),
        ("int3", [0, 0.5, 1, 1.5, -2, -1.5, -1, -0.5]),
        ("uint2", [0, 0.5, 1, 1.5]),
        ("ue1m2_nan", [0, 0.5, 1, 1.5, 2, 2.5, 3, math.nan]),
        ("ue2m1_ieee", [0, 0.5, 1, 1.5, 2, 3, math.inf, math.nan]),
    ],
)
def test_small_formats_worked_out_by_hand(name: str, values: list[float]) -> None:
    assert_same(mxkern.table(name).values, np.array(values, np.float64))


@pytest.mark.parametrize("exponent_bits", range(2, 6))
@pytest.mark.parametrize("mantissa_bits", range(5))
def test_any_format_follows_from_its_bits(exponent_bits: int, mantissa_bits: int) -> None:
    """By the formula of IEEE 754, in an order of its own."""
    table = mxkern.table(f"e{exponent_bits}m{mantissa_bits}_none")
    bias, steps = 2 ** (exponent_bits - 1) - 1, 2**mantissa_bits
    wanted = [m / steps * 2.0 ** (1 - bias) for m in range(steps)]
    for exponent in range(1, 2**exponent_bits):
        wanted += [(1 + m / steps) * 2.0 ** (exponent - bias) for m in range(steps)]
    assert_same(table.values, np.array([*wanted, *(-value for value in wanted)]))


def test_it_prints_and_makes_records() -> None:
    table = mxkern.table("e3m2")
    lines = str(table).splitlines()
    assert lines[0].split() == ["code", "bits", "value"] and len(lines) == 2 + 64
    assert lines[2 + 5].split() == ["5", "0", "001", "01", "0.3125"]
    assert lines[2 + 32].split()[-1] == "-0"
    assert table[5].value == 0.3125 and table[5].bits == "0 001 01"
    assert table.records[5] == {"code": 5, "bits": "0 001 01", "value": 0.3125}
    assert mxkern.table("int8")[255].bits == "11111111"
    assert mxkern.table("e8m0")[127] == (127, "01111111", 1.0)
    again = pickle.loads(pickle.dumps(table))
    assert again == table and again.format == "e3m2"


def test_names_mean_what_they_mean_elsewhere() -> None:
    assert mxkern.table("float8_e4m3fn") == mxkern.table("e4m3") == mxkern.table("E4M3")
    assert mxkern.table("bf16") == mxkern.table("e8m7")


@pytest.mark.parametrize(
    ("format", "error", "message"),
    [
        ("e9m2", ValueError, r"table: format is 'e9m2'; expected 0 to 8 exponent bits"),
        ("mxfp5", ValueError, r"table: format is 'mxfp5'; expected an element format"),
        ("e0m0", ValueError, r"expected an exponent or mantissa bit"),
        ("int1", ValueError, r"expected integers of 2 to 16 bits"),
        ("float32", ValueError, r"table: format is e8m23, which has 2\*\*32 codes; .*at most 16"),
        ("e5m11", ValueError, r"2\*\*17 codes"),
        (4, TypeError, r"table: format is 4; expected the name of an element format.*or a scheme"),
        (None, TypeError, r"table: format is None"),
        (["e4m3"], TypeError, r"table: format is a list"),
    ],
)
def test_what_names_no_format(format: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mxkern.table(format)  # type: ignore[arg-type]
