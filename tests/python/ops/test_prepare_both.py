# tests/python/ops/test_prepare_both.py: both directions of a tensor on the CPU, their spreads, and
# what is refused.
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

FOLDABLE = ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4"]


def wild(*shape: int) -> Any:
    """Blocks at distances of up to 20 octaves, some of them zeros."""
    rows, columns = np.indices(shape[-2:])
    kind = (rows // 32 * 5 + columns // 32 * 3) % 11
    values = np.random.default_rng(0).standard_normal(shape) * np.exp2(kind * 2.0 - 11)
    return np.where(kind == 4, 0.0, values).astype(np.float32)


def spreads(q: Any) -> Any:
    scales = q.scales.view(np.uint8).astype(int)
    values = np.abs(mxkern.dequantize(q))
    padded = np.zeros((*values.shape[:-1], scales.shape[-1] * 32), np.float32)
    padded[..., : values.shape[-1]] = values
    some = padded.reshape(*scales.shape, 32).max(-1) > 0
    largest = scales.max(-1, keepdims=True)
    return np.where(some, largest - scales, 0).max(-1).astype(np.uint8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", FOLDABLE)
def test_is_quantize_both(scheme: str, dtype: str) -> None:
    for shape in ((130, 200), (2, 3, 64, 33), (1, 1)):
        x = wild(*shape).astype(NUMPY_DTYPES[dtype])
        both = mxkern.prepare_both(x, scheme, scale_rule="floor")
        want = mxkern.quantize_both(x, scheme, scale_rule="floor")
        for got, q in zip((both.rows, both.columns), want, strict=True):
            prepared = mxkern.prepare_operand(q, form="folded", keep_source=False)
            assert (got.form, got.data) == (prepared.form, prepared.data) == ("source", None)
            assert got.scheme == q.scheme and got.shape == q.shape
            assert_same(got.source.codes, q.codes, scheme)
            assert_same(got.source.scales, q.scales, scheme)
        assert_same(both.row_spreads, spreads(want[0]), "spreads of rows")
        assert_same(both.column_spreads, spreads(want[1]), "spreads of columns")


def test_products_of_a_training_step() -> None:
    x, w, g = (
        wild(96, 64),
        random_values((32, 64), "float32", 1),
        random_values((96, 32), "float32", 2),
    )
    x, w, g = (mxkern.prepare_both(each, "mxfp8") for each in (x, w, g))
    for a, b in ((x.rows, w.rows), (g.rows, w.columns), (g.columns, x.columns)):
        assert_same(mxkern.gemm(a, b), mxkern.gemm(a.source, b.source), "product")
    call = lambda: mxkern.gemm(x.rows, w.rows, precision="folded")  # noqa: E731
    refused(RuntimeError, call, "gemm: precision is folded, and the CPU's products are exact")


@pytest.mark.parametrize("framework", framework_params())
def test_frameworks(framework: str) -> None:
    x = wild(64, 96)
    got, want = (
        mxkern.prepare_both(array_of(framework, x), "mxfp4"),
        mxkern.prepare_both(x, "mxfp4"),
    )
    assert_same(raw(got.rows.source.codes), raw(want.rows.source.codes), framework)
    assert_same(raw(got.columns.source.scales), raw(want.columns.source.scales), framework)
    assert_same(raw(got.row_spreads), raw(want.row_spreads), framework)


BAD: list[tuple[dict[str, Any], type[Exception], list[str]]] = [
    ({"scheme": "nvfp4"}, ValueError, ["the scheme is nvfp4"]),
    ({"scheme": "mxint8"}, ValueError, ["the scheme is mxint8"]),
    ({"scheme": "fp8"}, ValueError, ["scheme is 'fp8'"]),
    ({"scale_rule": "up"}, ValueError, ["scale_rule is 'up'"]),
    ({"x": np.ones(64, "f4")}, ValueError, ["x has shape (64,)", "two dimensions"]),
    ({"x": np.ones((4, 4), "i4")}, TypeError, ["x has dtype int32"]),
    ({"stream": 0}, ValueError, ["stream is 0"]),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[2][0])
def test_bad_arguments(case: tuple[dict[str, Any], type[Exception], list[str]]) -> None:
    changes, kind, parts = case
    given: dict[str, Any] = {"x": wild(64, 96), "scheme": "mxfp8"} | changes
    refused(kind, lambda: mxkern.prepare_both(**given), "prepare_both: ", *parts)
