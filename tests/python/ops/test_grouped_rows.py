# tests/python/ops/test_grouped_rows.py: grouped products whose rows copy rows of a, against
# products of rows that are copied ahead, and what is refused.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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

T, N, K = 11, 19, 100
ENDS = np.array([0, 3, 3, 21, 38], np.int32)
# Rows behind the last end do not count, whatever they are.
ROWS = np.r_[np.arange(38) * 5 % T, [99999, -7, 3]].astype(np.int32)
ROWS[[4, 20]] = -1
USED = np.where((ROWS >= 0) & (ROWS < T), ROWS, T)
B = mxkern.quantize(random_values((len(ENDS), N, K), "float32", 2), "mxfp4")


def copied(x: Any) -> Any:
    return np.concatenate([x, np.zeros((1, x.shape[1]), x.dtype)])[USED]


@pytest.mark.parametrize("dtype", DTYPES)
def test_plain_rows(dtype: str) -> None:
    x = random_values((T, 2 * K), "float32", 1).astype(NUMPY_DTYPES[dtype])[:, :K]
    got = mxkern.grouped_gemm(x, B, ENDS, rows=ROWS, dtype=dtype, alpha=2**-11)
    assert_same(
        got, mxkern.grouped_gemm(copied(x), B, ENDS, dtype=dtype, alpha=2**-11), "copied ahead"
    )


@pytest.mark.parametrize("layout", ["row_major", "swizzled"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_quantized_rows(scheme: str, layout: Any) -> None:
    x = random_values((T, K), "float32", 1)
    q = mxkern.quantize(x, scheme, scale_layout=layout)
    amax = None if q.tensor_scale is None else mxkern.tensor_amax(x)
    options = {} if amax is None else {"amax": amax}
    want = mxkern.grouped_gemm(mxkern.quantize(copied(x), scheme, **options), B, ENDS)
    for a in (q, mxkern.prepare_operand(q)):
        assert_same(mxkern.grouped_gemm(a, B, ENDS, rows=ROWS), want, f"{scheme} {layout}")


def test_bias_factors_beta() -> None:
    x, factors = random_values((T, K), "float32", 1), np.linspace(-1, 1, 5, dtype="f4")
    bias, before = random_values((5, N), "float32", 3), random_values((41, N), "float32", 4)
    options: dict[str, Any] = {"factors": factors, "bias": bias, "beta": 0.5}
    got, want = before.copy(), before.copy()
    mxkern.grouped_gemm(x, B, ENDS, rows=ROWS, out=got, **options)
    mxkern.grouped_gemm(copied(x), B, ENDS, out=want, **options)
    assert_same(got, want, "options")


@pytest.mark.parametrize("framework", framework_params())
def test_frameworks(framework: str) -> None:
    x = random_values((T, K), "bfloat16", 1)
    arrays = [array_of(framework, each) for each in (x, ENDS, ROWS)]
    b = mxkern.quantize(array_of(framework, random_values((5, N, K), "float32", 2)), "mxfp4")
    got = mxkern.grouped_gemm(arrays[0], b, arrays[1], rows=arrays[2])
    assert_same(raw(got), raw(mxkern.grouped_gemm(x, B, ENDS, rows=ROWS)), framework)


def test_no_rows() -> None:
    none = np.zeros(len(ENDS), np.int32)
    got = mxkern.grouped_gemm(random_values((T, K), "float32", 1), B, none, rows=ROWS[:0])
    assert got.shape == (0, N)
    assert not mxkern.grouped_gemm(np.ones((0, K), "f4"), B, ENDS, rows=np.full(38, -1, "i4")).any()


X = random_values((T, K), "float32", 1)
BAD: list[tuple[dict[str, Any], type[Exception], list[str]]] = [
    ({"rows": np.full(38, T, np.int32)}, ValueError, ["rows[0] is 11; expected 0 to 10", "-1"]),
    ({"rows": ROWS - 2}, ValueError, ["rows[", "is -2"]),
    ({"rows": ROWS[:20]}, ValueError, ["ends[3] is 21; expected 3 to 20"]),
    ({"rows": ROWS[None]}, ValueError, ["rows has shape (1, 41)", "(M,)"]),
    ({"rows": ROWS.astype(np.int64)}, TypeError, ["rows has dtype int64", "int32"]),
    ({"rows": ROWS.tolist()}, TypeError, ["rows is a list"]),
    ({"out": np.empty((T, N), "f4")}, ValueError, ["out has shape (11, 19)", "(41, 19)"]),
    (
        {"b": mxkern.quantize(X, "mxfp4"), "ends": np.int32([32, 96])},
        ValueError,
        ["rows is given, and b has shape (11, 100), whose columns belong to groups"],
    ),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[2][0])
def test_bad_arguments(case: tuple[dict[str, Any], type[Exception], list[str]]) -> None:
    changes, kind, parts = case
    given: dict[str, Any] = {"a": X, "b": B, "ends": ENDS, "rows": ROWS} | changes
    refused(kind, lambda: mxkern.grouped_gemm(**given), "grouped_gemm: ", *parts)
