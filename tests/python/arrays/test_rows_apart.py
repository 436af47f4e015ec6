# tests/python/arrays/test_rows_apart.py: results that are written between what else an array holds.
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import mxkern
from support import array_of, assert_same, framework_params, random_values, raw, refused

M, N, K = 5, 32, 96
ENDS = np.array([2, 2, 4], np.int32)
COLUMN_ENDS = np.array([32, 96], np.int32)


def array(framework: str, *shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return array_of(framework, random_values(shape, dtype, seed))


def calls(framework: str) -> dict[str, tuple[Callable[..., Any], tuple[int, ...]]]:
    """By name: a function with out=, and the shape of what it writes."""
    x = array(framework, M, K, seed=1)
    w = mxkern.quantize(array(framework, N, K, seed=2), "mxfp4")
    experts = mxkern.quantize(array(framework, 3, N, K, seed=3), "mxfp8")
    batch = mxkern.quantize(array(framework, 2, M, K, seed=4), "nvfp4")
    ends, column_ends = array_of(framework, ENDS), array_of(framework, COLUMN_ENDS)
    rows, columns = (x, experts, ends), (x, w, column_ends)
    return {
        "dequantize": (lambda **o: mxkern.dequantize(batch, **o), (2, M, K)),
        "gemm": (lambda **o: mxkern.gemm(x, w, **o), (M, N)),
        "gemm of a vector": (lambda **o: mxkern.gemm(x[0], w, **o), (N,)),
        "gemm of matrices": (lambda **o: mxkern.gemm(batch, w, **o), (2, M, N)),
        "grouped_gemm": (lambda **o: mxkern.grouped_gemm(*rows, **o), (M, N)),
        "grouped_gemm of columns": (lambda **o: mxkern.grouped_gemm(*columns, **o), (2, M, N)),
        "random_hadamard": (lambda **o: mxkern.random_hadamard(x, **o), (M, K)),
    }


@pytest.mark.parametrize("framework", framework_params("numpy", "torch"))
@pytest.mark.parametrize("name", list(calls("numpy")))
def test_columns_of_a_larger_array(name: str, framework: str) -> None:
    """The bytes of a dense output, and nothing written beside it."""
    function, shape = calls(framework)[name]
    size, betas = shape[-1], (0.0, 0.5) if "gemm" in name else (None,)
    for dtype in ["float32"] if name == "random_hadamard" else ["float32", "bfloat16"]:
        for beta in betas:
            larger, want = (
                array(framework, *shape[:-1], size + 11, dtype=dtype, seed=7) for _ in range(2)
            )
            dense = array(framework, *shape, dtype=dtype, seed=8)
            out = larger[..., 3 : 3 + size]
            out[...] = dense
            options = {} if beta is None else {"beta": beta}
            want[..., 3 : 3 + size] = function(out=dense, **options)
            assert function(out=out, **options) is out
            assert_same(raw(larger), raw(want), f"{name}, {dtype}, beta {beta}")


def test_rows_of_a_larger_array() -> None:
    x, w = (
        random_values((2, 3, K), "float32", 1),
        mxkern.quantize(np.eye(N, K, dtype="f4"), "mxfp8"),
    )
    larger = np.zeros((2, 8, N), np.float32)
    out = larger[:, 2:5]
    assert mxkern.gemm(x, w, out=out) is out
    assert_same(out.copy(), mxkern.gemm(x, w), "rows")
    assert not larger[:, :2].any() and not larger[:, 5:].any()


def test_in_place() -> None:
    larger = random_values((M, K + 32), "float32", 1)
    view, rest = larger[:, 32:], larger[:, :32].copy()
    want = mxkern.random_hadamard(view)
    assert mxkern.random_hadamard(view, out=view) is view
    assert_same(larger, np.concatenate([rest, want], 1), "in place")


def test_what_overlaps_or_is_no_row_is_refused() -> None:
    w = mxkern.quantize(random_values((N, K), "float32", 2), "mxfp4")
    x = random_values((2, 3, M, K), "float32", 1)
    call = lambda out, x=x: lambda: mxkern.gemm(x, w, out=out)  # noqa: E731
    message = "gemm: out is not contiguous; expected a row-major array without gaps in rows"
    larger = np.zeros((2, 4, M, 2 * N), np.float32)
    for out in (
        larger[:, :3, :, ::2],  # gaps between elements
        larger[:, :3, :, N - 1 :: -1],  # backwards
        larger[:, :3, ::-1, :N],
        larger[:, :3, :, :N],  # matrices that are not at equal distances
        np.lib.stride_tricks.as_strided(larger, (2, 3, M, N), (3 * M * 80, M * 80, 80, 4)),
        np.zeros((2, 3, N, M), np.float32).swapaxes(2, 3),
    ):
        refused(ValueError, call(out), message)
    first = x[0, 0]
    refused(ValueError, call(first[:, :N], first), "gemm: out overlaps the memory of an input")


def test_empty_outputs_share_no_memory() -> None:
    memory = np.zeros(200, np.float32)
    q = mxkern.quantize(np.ones((40, 64), np.float32), "mxfp8")
    bias = memory[:40]
    for first in (0, 20, 50):
        out = memory[first : first + 80].reshape(2, 40)[:0]
        got = mxkern.gemm(np.empty((0, 64), np.float32), q, out=out, bias=bias)
        assert got is out and not memory.any()


def test_columns_of_one_array_are_no_memory_of_their_own() -> None:
    both = np.zeros((8, 256), np.float32)
    call = partial(mxkern.fake_quantize, both[:, :128], "mxfp4", out=both[:, 128:])
    refused(ValueError, call, "fake_quantize: out overlaps", "or lies between its rows")
