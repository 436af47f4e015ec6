# tests/python/ops/test_scales.py: the swizzled scale layout and back.
from __future__ import annotations

import numpy as np
import pytest

import mxkern
import reference
from support import array_of, assert_same, framework_params, raw

SHAPES = [(1, 1), (127, 3), (128, 4), (129, 5), (300, 9), (0, 4), (4, 0), (2, 3, 130, 6), (2, 0, 5)]


@pytest.mark.parametrize("shape", SHAPES)
def test_both_ways(shape: tuple[int, ...]) -> None:
    scales = np.random.default_rng(0).integers(1, 256, shape).astype(np.uint8)
    swizzled = mxkern.swizzle_scales(scales)
    assert_same(swizzled, reference.swizzle(scales), f"{shape}")
    back = mxkern.unswizzle_scales(swizzled, *shape[-2:])
    assert_same(back, scales, f"{shape}, back")


def test_one_row() -> None:
    scales = np.arange(1, 8, dtype=np.uint8)
    swizzled = mxkern.swizzle_scales(scales)
    assert_same(swizzled, mxkern.swizzle_scales(scales[None]), "one row")


@pytest.mark.parametrize("framework", framework_params())
def test_frameworks_and_dtypes(framework: str) -> None:
    import ml_dtypes

    scales = np.random.default_rng(0).integers(0, 255, (200, 6)).astype(np.uint8)
    for dtype in (np.uint8, ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fn):
        given = array_of(framework, scales.view(dtype))
        swizzled = mxkern.swizzle_scales(given)
        assert type(swizzled) is type(given) and swizzled.dtype == given.dtype
        assert_same(raw(swizzled), reference.swizzle(scales), f"{framework} {dtype}")
        back = mxkern.unswizzle_scales(swizzled, 200, 6)
        assert type(back) is type(given) and back.dtype == given.dtype
        assert_same(raw(back), scales, f"{framework} {dtype}, back")


def test_quantize_writes_what_swizzle_makes() -> None:
    x = np.random.default_rng(0).standard_normal((2, 200, 300)).astype(np.float32)
    for scheme in mxkern.schemes:
        rows = mxkern.quantize(x, scheme)
        swizzled = mxkern.quantize(x, scheme, scale_layout="swizzled")
        assert_same(raw(swizzled.scales), raw(mxkern.swizzle_scales(rows.scales)), scheme.name)


def test_out_and_strided_input() -> None:
    scales = np.arange(240, dtype=np.uint8).reshape(10, 24)
    out = np.full(128 * 12, 9, np.uint8)
    assert mxkern.swizzle_scales(scales[:, ::2], out=out) is out
    assert_same(out, reference.swizzle(scales[:, ::2]), "strided")
    back = np.empty((10, 12), np.uint8)
    assert mxkern.unswizzle_scales(out, 10, 12, out=back) is back
    assert_same(back, np.ascontiguousarray(scales[:, ::2]), "back")
