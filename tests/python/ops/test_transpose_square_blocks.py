# tests/python/ops/test_transpose_square_blocks.py: square blocks, transposed without rounding
# again.
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mxkern
from support import (
    SCHEMES,
    array_of,
    available,
    framework_params,
    mostly_slow,
    random_values,
    raw,
    refused,
)

SHAPES = [(64, 96), (33, 50), (1, 7), (7, 1), (0, 5), (5, 0), (2, 3, 40, 33), (130, 65)]
LAYOUTS = ("row_major", "swizzled")
Part = np.ndarray[Any, Any]


def square(scheme: str) -> str:
    block = mxkern.schemes[scheme].block
    return f"{block}x{block}"


def assert_same_bytes(got: mxkern.BlockScaled, want: mxkern.BlockScaled, what: str) -> None:
    assert got.facts == want.facts, what
    for a, b in zip(got.parts, want.parts, strict=True):
        assert (a is None) == (b is None), what
        if a is not None:
            assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape, what
            assert raw(a).tobytes() == raw(b).tobytes(), what


@pytest.mark.parametrize("framework", mostly_slow(framework_params(), "numpy", "torch"))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_bytes_of_quantize_columns(scheme: str, framework: str) -> None:
    """NaN in a block too, whose codes and scale are NaN in both directions."""
    # JAX compiles each operation for each shape.
    for shape in SHAPES[1:4:2] if framework == "jax" else SHAPES:
        values = random_values(shape, "bfloat16")
        if values.size > 4:
            values.reshape(-1)[3] = np.nan
        x = array_of(framework, values)
        for layout in LAYOUTS:
            options: Any = {"block": square(scheme), "scale_layout": layout}
            got = mxkern.transpose_square_blocks(mxkern.quantize(x, scheme, **options))
            want = mxkern.quantize_columns(x, scheme, **options)
            assert_same_bytes(got, want, f"{scheme} {shape} {layout}")
            again = mxkern.transpose_square_blocks(got)
            assert_same_bytes(again, mxkern.quantize(x, scheme, **options), f"{scheme}, twice")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_are_refused(scheme: str) -> None:
    """On the CPU, one row that differs in the last, short square, too."""
    x = random_values((40, 70), "float32")
    what = f"q.scales differ between rows of a square of {square(scheme)} elements"
    rows = mxkern.quantize(x, scheme)
    refused(ValueError, lambda: mxkern.transpose_square_blocks(rows), what, "quantize_columns")
    q = mxkern.quantize(x, scheme, block=square(scheme))
    scales = q.scales.copy()
    scales.view(np.uint8)[39, -1] += 1
    swizzled = mxkern.swizzle_scales(scales)
    for wrong in (
        q.replace(scales=scales),
        q.replace(scales=swizzled, scale_layout="swizzled"),
    ):
        refused(ValueError, lambda w=wrong: mxkern.transpose_square_blocks(w), what)


@pytest.mark.skipif(not available("jax"), reason="jax is not installed")
@pytest.mark.parametrize("scheme", ["mxfp6_e2m3", "nvfp4"])
def test_a_square_of_other_scales_is_nan_under_jit(scheme: str) -> None:
    import jax

    x = random_values((70, 48), "float32")
    q = mxkern.quantize(array_of("jax", x), scheme, block=square(scheme))
    block = mxkern.schemes[scheme].block
    byte = jax.numpy.uint8
    scales = q.scales.view(byte).at[69, 1].add(1).view(q.scales.dtype)
    turned = jax.jit(mxkern.transpose_square_blocks)(q.replace(scales=scales))
    values = np.asarray(mxkern.dequantize(turned))
    wrong = np.zeros((48, 70), bool)
    wrong[block : 2 * block, 69 // block * block :] = True
    assert np.array_equal(np.isnan(values), wrong)
    want = np.asarray(mxkern.dequantize(q)).T
    assert np.array_equal(values[~wrong], want[~wrong])


@pytest.mark.skipif(not available("torch"), reason="torch is not installed")
def test_pytorch_s_memory() -> None:
    """Results have memory of their own, where the transpose of a row is that row, too."""
    import torch

    q = mxkern.quantize(torch.ones(1, 64), "mxfp8", block="32x32")
    turned = mxkern.transpose_square_blocks(q)
    assert turned.codes.data_ptr() != q.codes.data_ptr() and turned.codes.is_contiguous()
    if hasattr(torch, "float4_e2m1fn_x2"):
        q = mxkern.quantize(torch.ones(64, 64), "mxfp4", block="32x32")
        named = q.replace(codes=q.codes.view(torch.float4_e2m1fn_x2))
        turned = mxkern.transpose_square_blocks(named)
        assert turned.codes.dtype == torch.float4_e2m1fn_x2
        assert turned.codes.view(torch.uint8).equal(mxkern.transpose_square_blocks(q).codes)


def test_bad_operands() -> None:
    function = mxkern.transpose_square_blocks
    q = mxkern.quantize(np.ones((64, 64), np.float32), "mxfp8", block="32x32")
    refused(TypeError, lambda: function(np.ones((4, 4))), "q is a numpy.ndarray")  # type: ignore[arg-type]
    short = q.replace(codes=q.codes[:-1])
    refused(ValueError, lambda: function(short), "q.codes has shape (63, 64); expected (64, 64)")
    refused(ValueError, lambda: function(q.replace(scales=q.scales[:, 0])), "q.scales has shape")
    swizzled = q.replace(scale_layout="swizzled")
    refused(ValueError, lambda: function(swizzled), "q.scales has shape", "row_major")
    other = q.replace(codes=q.codes.astype(np.float32))
    refused(TypeError, lambda: function(other), "q.codes has dtype float32")
    vector = mxkern.quantize(np.ones(64, np.float32), "mxfp8")
    refused(ValueError, lambda: function(vector), "(64,)")
    layout = q.replace(scale_layout="diagonal")  # type: ignore[arg-type]
    refused(ValueError, lambda: function(layout), "q.scale_layout is 'diagonal'")
    assert ml_dtypes.float8_e4m3fn == function(q).codes.dtype
    if available("torch"):
        mixed = q.replace(scales=array_of("torch", q.scales.view(np.uint8)))
        refused(TypeError, lambda: function(mixed), "q.scales is of another framework")
