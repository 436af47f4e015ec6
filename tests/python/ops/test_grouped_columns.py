# tests/python/ops/test_grouped_columns.py: products whose columns belong to groups against float64,
# and what is refused.
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

M, N, K = 21, 19, 333
ENDS = np.array([0, 32, 32, 160, 224, 333], np.int32)


def check_groups(
    got: Any, a: Any, b: Any, dtype: str, what: str, factors: Any = None, bias: Any = None
) -> None:
    a, b, got = exact(a), exact(b), np.asarray(got)
    assert got.shape == (len(ENDS), M, N)
    begin = 0
    for g, end in enumerate(ENDS):
        factor = 1.0 if factors is None else float(factors[g])
        added = 0.0 if bias is None else bias[g].astype(np.float64)
        columns = slice(begin, end)
        check_product(
            got[g], a[:, columns] * factor, b[:, columns], dtype, f"{what}, group {g}", added
        )
        begin = end


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_kind_of_columns(scheme: str) -> None:
    x, y = random_values((M, K), "float32", 1), random_values((N, K), "float32", 2)
    for dtype in DTYPES:
        for layout in ("row_major", "swizzled"):
            b = mxkern.quantize(y, scheme, scale_layout=layout)
            plain = x.astype(NUMPY_DTYPES[dtype])
            check_groups(mxkern.grouped_gemm(plain, b, ENDS), plain, b, "float32", dtype)
            a = mxkern.quantize(x, scheme, scale_layout=layout)
            small = mxkern.grouped_gemm(a, b, ENDS, dtype=dtype, alpha=2**-11)
            check_groups(small, exact(a) * 2**-11, b, dtype, f"{scheme} {layout}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_bias_out(dtype: str) -> None:
    generator = np.random.default_rng(0)
    a = generator.standard_normal((M, K), np.float32)
    b = mxkern.quantize(random_values((N, K), "float32", 2), "nvfp4")
    factors = generator.standard_normal(len(ENDS), np.float32)
    bias = generator.standard_normal((len(ENDS), 2 * N)).astype(NUMPY_DTYPES[dtype])[:, :N]
    out = np.full((len(ENDS), M, N), np.nan, NUMPY_DTYPES[dtype])
    got = mxkern.grouped_gemm(a, b, ENDS, out=out, factors=factors, bias=bias, alpha=2**-12)
    assert got is out
    check_groups(out, a * 2.0**-12, b, dtype, dtype, factors, bias)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("beta", [1.0, -0.5])
def test_beta(beta: float, dtype: str) -> None:
    """What out had is added, where a group has no columns too."""
    shape = len(ENDS), M, N
    before = (random_values(shape, "float32", 3) * 2**-9).astype(NUMPY_DTYPES[dtype])
    a = mxkern.quantize(random_values((M, K), "float32", 1), "mxfp8")
    b = mxkern.quantize(random_values((N, K), "float32", 2), "mxfp4", scale_layout="swizzled")
    out = before.copy()
    assert mxkern.grouped_gemm(a, b, ENDS, out=out, alpha=2**-11, beta=beta) is out
    left, right, begin = exact(a) * 2.0**-11, exact(b), 0
    for g, end in enumerate(ENDS):
        added = beta * before[g].astype(np.float64)
        columns = slice(begin, end)
        check_product(out[g], left[:, columns], right[:, columns], dtype, f"group {g}", added)
        begin = end


@pytest.mark.parametrize("framework", framework_params())
def test_frameworks(framework: str) -> None:
    x, y = random_values((M, K), "bfloat16", 1), random_values((N, K), "float32", 2)
    want = mxkern.grouped_gemm(x, mxkern.quantize(y, "mxfp4"), ENDS, dtype="bfloat16")
    b = mxkern.quantize(array_of(framework, y), "mxfp4")
    got = mxkern.grouped_gemm(
        array_of(framework, x),
        mxkern.prepare_operand(b),
        array_of(framework, ENDS),
        dtype="bfloat16",
    )
    assert type(got) is type(b.codes)
    assert_same(raw(got), raw(want), framework)


def test_gradients_of_experts() -> None:
    """Tokens sorted by expert, each expert's padded to blocks with rows of zeros."""
    generator = np.random.default_rng(1)
    ends = np.array([64, 64, 96], np.int32)
    x, gradient = np.zeros((96, 40), np.float32), np.zeros((96, 24), np.float32)
    for begin, rows in ((0, 50), (64, 30)):
        x[begin : begin + rows] = generator.standard_normal((rows, 40))
        gradient[begin : begin + rows] = generator.standard_normal((rows, 24))
    a, b = mxkern.quantize_columns(gradient, "mxfp8"), mxkern.quantize_columns(x, "mxfp8")
    got = mxkern.grouped_gemm(a, b, ends)
    assert got.shape == (3, 24, 40) and not got[1].any()
    for g, rows in ((0, slice(0, 64)), (2, slice(64, 96))):
        alone = mxkern.gemm(
            mxkern.quantize_columns(gradient[rows], "mxfp8"),
            mxkern.quantize_columns(x[rows], "mxfp8"),
        )
        assert_same(got[g], alone, f"expert {g}")
        want = gradient[rows].T @ x[rows]
        assert np.linalg.norm(got[g] - want) <= 0.05 * np.linalg.norm(want)


def test_one_group_is_gemm() -> None:
    a = mxkern.quantize(random_values((M, K), "float32", 1), "mxfp8")
    b = mxkern.quantize(random_values((N, K), "float32", 2), "mxfp6", scale_layout="swizzled")
    got = mxkern.grouped_gemm(a, b, np.array([K], np.int32))
    assert_same(got[0], mxkern.gemm(a, b), "one group")


def test_no_columns_and_no_groups() -> None:
    b = mxkern.quantize(random_values((N, K), "float32", 2), "mxfp8")
    a = np.ones((M, K), np.float32)
    none = mxkern.grouped_gemm(a, b, np.zeros(3, np.int32), bias=np.ones((3, N), np.float32))
    assert (none == 1).all() and none.shape == (3, M, N)
    assert mxkern.grouped_gemm(a, b, ENDS[:0]).shape == (0, M, N)
    assert mxkern.grouped_gemm(a[:0], b, ENDS).shape == (len(ENDS), 0, N)


A = random_values((M, K), "float32", 1)
B = mxkern.quantize(random_values((N, K), "float32", 2), "mxfp4")


BAD: list[tuple[dict[str, Any], type[Exception], list[str]]] = [
    ({"ends": ENDS[::-1].copy()}, ValueError, ["ends[1] is 224; expected 333 to 333"]),
    ({"ends": ENDS + 32}, ValueError, ["ends[5] is 365; expected 256 to 333"]),
    ({"ends": ENDS - 32}, ValueError, ["ends[0] is -32; expected 0 to 333"]),
    (
        {"ends": np.array([48, 333], np.int32)},
        ValueError,
        ["ends[0] is 48; expected a multiple of 32, or K = 333", "pad groups"],
    ),
    ({"ends": ENDS[:, None]}, ValueError, ["ends has shape (6, 1)", "(G,)"]),
    ({"ends": ENDS.astype(np.int64)}, TypeError, ["ends has dtype int64", "int32", "astype"]),
    ({"ends": [32, 333]}, TypeError, ["ends is a list", "numpy.array(ends"]),
    ({"a": A[None]}, ValueError, ["a has shape (1, 21, 333)", "[M, K], columns sorted"]),
    ({"a": A[:, :96]}, ValueError, ["the same last axis K", "96", "333"]),
    ({"factors": np.ones(4, "f4")}, ValueError, ["factors has shape (4,); expected (6,)"]),
    ({"bias": np.ones(N, "f4")}, ValueError, ["bias has shape (19,)", "(6, 19)"]),
    ({"out": np.empty((M, N), "f4")}, ValueError, ["out has shape (21, 19)", "(6, 21, 19)"]),
    ({"precision": "auto"}, ValueError, ["precision is 'auto'", "exact or folded"]),
    ({"precision": "folded"}, RuntimeError, ["precision is folded, and the CPU's"]),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[2][0])
def test_bad_arguments(case: tuple[dict[str, Any], type[Exception], list[str]]) -> None:
    changes, kind, parts = case
    given: dict[str, Any] = {"a": A, "b": B, "ends": ENDS} | changes
    refused(kind, lambda: mxkern.grouped_gemm(**given), "grouped_gemm: ", *parts)
