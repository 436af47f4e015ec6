# tests/python/ops/test_swiglu.py: SwiGLU, as Llama and as gpt-oss have it, against float64, and
# what is refused.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxkern
from support import DTYPES, NUMPY_DTYPES, array_of, assert_same, framework_params, raw, refused

GPT_OSS: dict[str, Any] = {"alpha": 1.702, "limit": 7.0, "offset": 1.0, "interleaved": True}
X = np.random.default_rng(0).standard_normal((5, 3, 2 * 130)).astype(np.float32) * 6


def wanted(x: Any, **options: Any) -> Any:
    x = np.asarray(x, np.float64)
    gate, up = np.split(x, 2, axis=-1)
    if options.get("interleaved"):
        gate, up = x[..., ::2], x[..., 1::2]
    limit = options.get("limit") or np.inf
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    with np.errstate(over="ignore"):
        glu = gate / (1 + np.exp(-options.get("alpha", 1.0) * gate))
    return (up + options.get("offset", 0.0)) * glu


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, GPT_OSS, {"limit": 3}, {"interleaved": True}])
def test_agrees_with_float64(options: dict[str, Any], dtype: str) -> None:
    x = X.astype(NUMPY_DTYPES[dtype])
    got = mxkern.swiglu(x, **options)
    assert got.shape == (5, 3, 130) and got.dtype == x.dtype
    relative = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    want = wanted(x, **options)
    assert (np.abs(got.astype(np.float64) - want) <= relative * np.abs(want) + 1e-7).all()


@pytest.mark.parametrize("framework", framework_params())
def test_frameworks(framework: str) -> None:
    got = mxkern.swiglu(array_of(framework, X), **GPT_OSS)
    assert_same(raw(got), raw(mxkern.swiglu(X, **GPT_OSS)), framework)


def test_out_and_rows_that_lie_apart() -> None:
    x = np.zeros((4, 80), np.float32)[:, :64]
    x[:] = X.reshape(-1)[:256].reshape(4, 64)
    out = np.full((4, 50), np.nan, np.float32)
    assert_same(mxkern.swiglu(x, out=out[:, :32]), mxkern.swiglu(x.copy()), "gaps")
    assert np.isnan(out[:, 32:]).all()


BAD: list[tuple[dict[str, Any], type[Exception], list[str]]] = [
    ({"x": X[..., :7]}, ValueError, ["x has shape (5, 3, 7)", "even last axis"]),
    ({"x": X.astype(np.int32)}, TypeError, ["x has dtype int32"]),
    ({"x": np.float32(3)}, TypeError, ["x is"]),
    ({"alpha": "2"}, TypeError, ["alpha is"]),
    ({"alpha": np.inf}, ValueError, ["alpha is inf"]),
    ({"limit": 0}, ValueError, ["limit is 0"]),
    ({"limit": np.nan}, ValueError, ["limit is nan"]),
    ({"offset": None}, TypeError, ["offset is None"]),
    ({"interleaved": 1}, TypeError, ["interleaved is 1"]),
    ({"out": np.empty((5, 3, 131), "f4")}, ValueError, ["out has shape (5, 3, 131)"]),
    ({"out": np.empty((5, 3, 130), "f2")}, TypeError, ["out has dtype float16", "float32"]),
    ({"stream": 0}, ValueError, ["stream is 0"]),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[2][0])
def test_bad_arguments(case: tuple[dict[str, Any], type[Exception], list[str]]) -> None:
    changes, kind, parts = case
    given: dict[str, Any] = {"x": X} | changes
    refused(kind, lambda: mxkern.swiglu(**given), "swiglu: ", *parts)
