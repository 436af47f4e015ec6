# tests/python/ops/test_combine.py: sums of the rows of each token, in their order, against NumPy,
# and what is refused.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxkern
from support import (
    DTYPES,
    NUMPY_DTYPES,
    array_of,
    assert_same,
    framework_params,
    random_values,
    raw,
    refused,
)

M, N, T = 90, 70, 12
GENERATOR = np.random.default_rng(3)
ROWS = GENERATOR.integers(-1, T - 1, M).astype(np.int32)  # the last token has none
WEIGHTS = GENERATOR.standard_normal(M).astype(np.float32)


def summed(y: Any, weights: Any, dtype: Any) -> Any:
    """float32 sums in the order of the rows."""
    sums = np.zeros((T, N), np.float32)
    for i, token in enumerate(ROWS):
        if token >= 0:
            sums[token] += np.float32(1 if weights is None else weights[i]) * y[i].astype("f4")
    return sums.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out_dtype", [None, *DTYPES])
def test_is_the_sum_in_the_order_of_rows(dtype: str, out_dtype: Any) -> None:
    y = random_values((M, N), dtype, 1)
    for weights in (None, WEIGHTS):
        got = mxkern.combine(y, ROWS, weights, T, dtype=out_dtype)
        assert_same(got, summed(y, weights, NUMPY_DTYPES[out_dtype or dtype]), f"{weights is None}")


def test_out() -> None:
    y = random_values((M, N), "float32", 1)
    for dtype in DTYPES:
        out = np.empty((T, 2 * N), NUMPY_DTYPES[dtype])[:, :N]
        assert mxkern.combine(y, ROWS, WEIGHTS, T, out=out) is out
        assert_same(out, summed(y, WEIGHTS, out.dtype), dtype)


@pytest.mark.parametrize("framework", framework_params())
def test_frameworks(framework: str) -> None:
    y = random_values((M, N), "bfloat16", 1)
    arrays = [array_of(framework, each) for each in (y, ROWS, WEIGHTS)]
    got = mxkern.combine(*arrays, T)
    assert_same(raw(got), raw(mxkern.combine(y, ROWS, WEIGHTS, T)), framework)


def test_no_rows_and_no_tokens() -> None:
    y = np.ones((0, 5), np.float32)
    assert not mxkern.combine(y, ROWS[:0], None, 3).any()
    assert mxkern.combine(np.ones((2, 5), "f4"), np.int32([-1, -1]), None, 0).shape == (0, 5)


Y = random_values((M, N), "float32", 1)
BAD: list[tuple[dict[str, Any], type[Exception], list[str]]] = [
    ({"rows": np.full(M, T, np.int32)}, ValueError, ["rows[0] is 12; expected 0 to 11", "-1"]),
    ({"rows": np.full(M, -2, np.int32)}, ValueError, ["rows[0] is -2"]),
    ({"rows": ROWS[:-1]}, ValueError, ["rows has shape (89,)", "(90,)"]),
    ({"rows": ROWS[:, None]}, ValueError, ["rows has shape (90, 1)", "rows.reshape(-1)"]),
    ({"rows": ROWS.astype(np.int64)}, TypeError, ["rows has dtype int64", "int32"]),
    ({"rows": list(ROWS)}, TypeError, ["rows is a list"]),
    ({"rows": None}, TypeError, ["rows is None"]),
    ({"weights": WEIGHTS[:-1]}, ValueError, ["weights has shape (89,)"]),
    ({"weights": WEIGHTS.astype("f2")}, TypeError, ["weights has dtype float16", "float32"]),
    ({"y": Y[0]}, ValueError, ["y has shape (70,)", "[M, N]"]),
    ({"tokens": -1}, ValueError, ["tokens is -1"]),
    ({"tokens": 2.0}, TypeError, ["tokens is 2.0"]),
    ({"dtype": "float64"}, ValueError, ["dtype is 'float64'"]),
    ({"out": np.empty((T, N + 1), "f4")}, ValueError, ["out has shape (12, 71)", "(12, 70)"]),
    ({"out": Y[:T]}, ValueError, ["out overlaps"]),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[2][0])
def test_bad_arguments(case: tuple[dict[str, Any], type[Exception], list[str]]) -> None:
    changes, kind, parts = case
    given: dict[str, Any] = {"y": Y, "rows": ROWS, "weights": WEIGHTS, "tokens": T} | changes
    refused(kind, lambda: mxkern.combine(**given), "combine: ", *parts)
