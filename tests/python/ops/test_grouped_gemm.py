# tests/python/ops/test_grouped_gemm.py: products whose rows belong to groups against float64, and
# what is refused.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_gemm import check_product, exact

import mxkern
from support import (
    DTYPES,
    NUMPY_DTYPES,
    SCHEMES,
    array_of,
    assert_same,
    framework_params,
    random_values,
    raw,
    refused,
)

M, N, K = 41, 19, 100
ENDS = np.array([0, 3, 3, 21, 38], np.int32)


def weights(scheme: str, layout: str = "row_major") -> mxkern.BlockScaled:
    values = random_values((len(ENDS), N, K), "float32", 2)
    return mxkern.quantize(values, scheme, scale_layout=layout)


def check_groups(
    got: Any, a: Any, b: Any, dtype: str, what: str, factors: Any = None, bias: Any = None
) -> None:
    a, b, got = exact(a), exact(b), np.asarray(got)
    assert got.shape == (M, N)
    begin = 0
    for g, end in enumerate(ENDS):
        rows, factor = a[begin:end], 1.0 if factors is None else float(factors[g])
        added = 0.0 if bias is None else bias[g].astype(np.float64)
        check_product(got[begin:end], rows * factor, b[g], dtype, f"{what}, group {g}", added)
        begin = end
    assert not got[begin:].any(), what


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_kind_of_rows(scheme: str) -> None:
    x = random_values((M, K), "float32", 1)
    for dtype in DTYPES:
        for layout in ("row_major", "swizzled"):
            b = weights(scheme, layout)
            plain = x.astype(NUMPY_DTYPES[dtype])
            check_groups(mxkern.grouped_gemm(plain, b, ENDS), plain, b, "float32", dtype)
            a = mxkern.quantize(x, scheme, scale_layout=layout)
            small = mxkern.grouped_gemm(a, b, ENDS, dtype=dtype, alpha=2**-11)
            check_groups(small, exact(a) * 2**-11, b, dtype, f"{scheme} {layout}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_bias_out(dtype: str) -> None:
    generator = np.random.default_rng(0)
    a = generator.standard_normal((M, K), np.float32)
    b = weights("nvfp4")
    factors = generator.standard_normal(len(ENDS), np.float32)
    bias = generator.standard_normal((len(ENDS), 2 * N)).astype(NUMPY_DTYPES[dtype])[:, :N]
    out = np.full((M, N), np.nan, NUMPY_DTYPES[dtype])
    got = mxkern.grouped_gemm(a, b, ENDS, out=out, factors=factors, bias=bias, alpha=2**-12)
    assert got is out
    check_groups(out, a * 2.0**-12, b, dtype, dtype, factors, bias)
    same = np.repeat(factors, 2)[::2]
    assert_same(
        mxkern.grouped_gemm(a, b, ENDS, dtype=dtype, factors=same, bias=bias, alpha=2**-12),
        out,
        "factors with a stride",
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("beta", [1.0, -0.5])
def test_beta(beta: float, dtype: str) -> None:
    """What out had is added, to rows without a group too."""
    before = (random_values((M, N), "float32", 3) * 2**-9).astype(NUMPY_DTYPES[dtype])
    a, b = random_values((M, K), "float32", 1), weights("mxfp6")
    bias = random_values((len(ENDS), N), "float32", 4) * np.float32(2**-9)
    out = before.copy()
    assert mxkern.grouped_gemm(a, b, ENDS, out=out, alpha=2**-11, beta=beta, bias=bias) is out
    begin = 0
    for g, end in enumerate(ENDS):
        added = beta * before[begin:end].astype(np.float64) + bias[g]
        rows = exact(a[begin:end]) * 2.0**-11
        check_product(out[begin:end], rows, exact(b)[g], dtype, f"group {g}", added)
        begin = end
    rest = (before[begin:].astype(np.float32) * np.float32(beta)).astype(before.dtype)
    assert_same(out[begin:], rest, "rows without a group")


@pytest.mark.parametrize("framework", framework_params())
def test_frameworks(framework: str) -> None:
    x = random_values((M, K), "bfloat16", 1)
    want = mxkern.grouped_gemm(x, weights("mxfp4"), ENDS, dtype="bfloat16")
    b = mxkern.quantize(
        array_of(framework, random_values((len(ENDS), N, K), "float32", 2)), "mxfp4"
    )
    got = mxkern.grouped_gemm(
        array_of(framework, x),
        mxkern.prepare_operand(b),
        array_of(framework, ENDS),
        dtype="bfloat16",
    )
    assert type(got) is type(b.codes)
    assert_same(raw(got), raw(want), framework)


def test_one_group_is_gemm() -> None:
    a, b = mxkern.quantize(random_values((M, K), "float32", 1), "mxfp8"), weights("mxfp6")
    one = b.replace(codes=b.codes[1:2], scales=b.scales[1:2], shape=(1, N, K))
    matrix = b.replace(codes=b.codes[1], scales=b.scales[1], shape=(N, K))
    got = mxkern.grouped_gemm(a, one, np.array([M], np.int32))
    assert_same(got, mxkern.gemm(a, matrix), "one group")


def test_no_rows_and_no_groups() -> None:
    b = weights("mxfp8")
    none = np.zeros(len(ENDS), np.int32)
    assert mxkern.grouped_gemm(np.ones((0, K), np.float32), b, none).shape == (0, N)
    assert not mxkern.grouped_gemm(np.ones((M, K), np.float32), b, none).any()
    empty = mxkern.quantize(np.ones((0, N, K), np.float32), "mxfp8")
    got = mxkern.grouped_gemm(np.ones((M, K), np.float32), empty, none[:0])
    assert got.shape == (M, N) and not got.any()


A = random_values((M, K), "float32", 1)
B = weights("mxfp4")


BAD: list[tuple[dict[str, Any], type[Exception], list[str]]] = [
    ({"ends": ENDS[::-1].copy()}, ValueError, ["ends[1] is 21; expected 38 to 41"]),
    ({"ends": ENDS + 4}, ValueError, ["ends[4] is 42; expected 25 to 41"]),
    ({"ends": ENDS - 1}, ValueError, ["ends[0] is -1; expected 0 to 41"]),
    ({"ends": ENDS[:4]}, ValueError, ["ends has shape (4,)", "(5,)"]),
    ({"ends": ENDS.astype(np.int64)}, TypeError, ["ends has dtype int64", "int32", "astype"]),
    ({"ends": [0, 3, 3, 21, 38]}, TypeError, ["ends is a list", "numpy.array(ends"]),
    ({"ends": None}, TypeError, ["ends is None"]),
    ({"a": A[0]}, ValueError, ["a has shape (100,)", "[M, K]"]),
    ({"a": A[None]}, ValueError, ["a has shape (1, 41, 100)", "[M, K]"]),
    ({"a": A[:, :96]}, ValueError, ["the same last axis K", "96", "100"]),
    ({"b": mxkern.quantize(A[0], "mxfp4")}, ValueError, ["b has shape (100,)", "[G, N, K]"]),
    ({"b": A}, TypeError, ["b is", "BlockScaled"]),
    ({"factors": 2.0}, TypeError, ["factors is"]),
    ({"factors": np.ones(5)}, TypeError, ["factors has dtype float64", "float32"]),
    ({"factors": np.ones(4, "f4")}, ValueError, ["factors has shape (4,)"]),
    ({"bias": np.ones(N, "f4")}, ValueError, ["bias has shape (19,)", "(5, 19)"]),
    ({"alpha": "2"}, TypeError, ["alpha is"]),
    ({"beta": "2"}, TypeError, ["beta is"]),
    ({"beta": 2}, ValueError, ["beta is 2.0, but there is no out to add", "pass out="]),
    ({"dtype": "float64"}, ValueError, ["dtype is 'float64'"]),
    ({"out": np.empty((M, N + 1), "f4")}, ValueError, ["out has shape (41, 20)", "(41, 19)"]),
    ({"out": np.empty((M, 2 * N), "f4")[:, ::2]}, ValueError, ["out is not contiguous"]),
    ({"stream": 0}, ValueError, ["stream is 0"]),
    ({"precision": "auto"}, ValueError, ["precision is 'auto'", "exact or folded"]),
    ({"precision": None}, TypeError, ["precision is None"]),
    ({"precision": "folded"}, RuntimeError, ["precision is folded, and the CPU's"]),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[2][0])
def test_bad_arguments(case: tuple[dict[str, Any], type[Exception], list[str]]) -> None:
    changes, kind, parts = case
    given: dict[str, Any] = {"a": A, "b": B, "ends": ENDS} | changes
    refused(kind, lambda: mxkern.grouped_gemm(**given), "grouped_gemm: ", *parts)


@pytest.mark.parametrize("precision", [np.zeros(2), np.array("exact"), None, 1, ["exact"], ()])
def test_a_precision_that_is_no_name(precision: Any) -> None:
    for name in ("grouped_gemm", "explain_grouped_gemm", "gemm", "explain_gemm", "plan_gemm"):
        ends = {"ends": ENDS} if "grouped" in name else {}
        b = B if ends else mxkern.quantize(np.ones((N, K), np.float32), "mxfp8")
        call = lambda n=name, b=b, e=ends: getattr(mxkern, n)(A, b, **e, precision=precision)  # noqa: E731
        refused(TypeError, call, f"{name}: precision is", "expected a name")


def test_out_apart_from_inputs() -> None:
    out = np.zeros((M, N), np.float32)
    factors = out.reshape(-1)[: len(ENDS)]
    refused(
        ValueError,
        lambda: mxkern.grouped_gemm(A, B, ENDS, factors=factors, out=out),
        "grouped_gemm: out overlaps",
    )
