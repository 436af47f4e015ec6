# tests/python/ops/test_fake_quantize.py: fake_quantize is quantize and dequantize, with every
# option.
from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import mxkern
from fake_quantize_options import options_of
from support import (
    DTYPES,
    SCHEMES,
    array_of,
    assert_same,
    corner_values,
    framework_params,
    mostly_slow,
    random_values,
    raw,
    refused,
)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("framework", framework_params())
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", mostly_slow(SCHEMES, "mxfp6_e2m3", "nvfp4"))
def test_it_is_quantize_and_dequantize(scheme: str, dtype: str, framework: str) -> None:
    for x in (corner_values(3, 50, dtype), random_values((2, 40, 96), dtype)):
        given = array_of(framework, x)
        for options in options_of(scheme):
            got = mxkern.fake_quantize(given, scheme, **options)
            want = mxkern.dequantize(mxkern.quantize(x, scheme, **options), dtype=dtype)
            assert type(got) is type(given) and got.dtype == given.dtype
            assert_same(raw(got), raw(want), f"{framework} {dtype} {scheme} {options}")


@pytest.mark.parametrize("page", ["docs/guide/python.md", "docs/guide/migrating.md"])
@pytest.mark.parametrize("framework", framework_params())
def test_along_columns_as_documented(framework: str, page: str) -> None:
    (call,) = re.findall(r"`(fake_quantize\(x\.[^`]*)`", (ROOT / page).read_text())
    x = random_values((64, 96), "float32")
    names = {"fake_quantize": mxkern.fake_quantize, "x": array_of(framework, x), "scheme": "mxfp4"}
    want = mxkern.dequantize(mxkern.quantize_columns(x, "mxfp4")).T
    assert_same(raw(eval(call, names)), raw(want), call)


def test_it_changes_values_and_leaves_x_alone() -> None:
    x = random_values((8, 64), "float32")
    before = x.copy()
    assert (mxkern.fake_quantize(x, "mxfp4") != x).any()
    assert_same(x, before, "x")


@pytest.mark.parametrize("dtype", [">f4", ">f2"])
def test_the_other_byte_order(dtype: str) -> None:
    x = random_values((5, 64), "float16").astype(dtype)
    native = x.astype(x.dtype.newbyteorder("="))
    got = mxkern.fake_quantize(x, "mxfp8")
    assert_same(got, mxkern.fake_quantize(native, "mxfp8"), dtype)


def test_errors_name_it() -> None:
    x = np.ones((2, 64), np.float32)
    call = mxkern.fake_quantize
    refused(TypeError, lambda: call(x.astype(int), "mxfp8"), "fake_quantize: x has dtype int64")
    refused(TypeError, lambda: call([1.0], "mxfp8"), "fake_quantize: x is a list")
    refused(ValueError, lambda: call(x, "mxfp9"), "fake_quantize: scheme is 'mxfp9'")
    refused(ValueError, lambda: call(x, "mxfp8", amax=1.0), "fake_quantize: amax is for nvfp4")
    refused(ValueError, lambda: call(x, "mxfp8", rounding="stochastic"), "fake_quantize", "seed")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_beyond_the_dtype_is_inf(scheme: str) -> None:
    """The largest float16, which the MX schemes round to 65536."""
    x = np.zeros((1, 32), np.float16)
    x[0, 0] = 65504
    q = mxkern.quantize(x, scheme)
    is_mx = not mxkern.schemes[scheme].has_tensor_scale
    assert mxkern.dequantize(q)[0, 0] == (65536 if is_mx else 65504)
    for y in (mxkern.fake_quantize(x, scheme), mxkern.dequantize(q, dtype="float16")):
        assert y[0, 0] == (np.inf if is_mx else 65504) and (y[0, 1:] == 0).all()


@pytest.mark.parametrize("framework", framework_params("numpy", "torch"))
def test_out_may_be_x_or_rows_of_a_larger_array(framework: str) -> None:
    values = random_values((6, 96), "float32")
    for options in ({}, {"rounding": "stochastic", "seed": 3}, {"four_over_six": True}):
        x = array_of(framework, values)
        want = raw(mxkern.fake_quantize(x, "nvfp4", **options))
        wide = array_of(framework, np.zeros((6, 128), np.float32))
        for out in (array_of(framework, np.zeros_like(values)), wide[:, 16:112], x):
            assert mxkern.fake_quantize(x, "nvfp4", out=out, **options) is out
            assert_same(raw(out).copy(), want, f"{framework} {options}")
        assert (raw(wide)[:, :16] == 0).all() and (raw(wide)[:, 112:] == 0).all()


def test_out_is_checked() -> None:
    x = np.ones((4, 64), np.float32)
    call = mxkern.fake_quantize
    small, half = np.ones((4, 32), np.float32), np.ones((4, 64), np.float16)
    refused(ValueError, lambda: call(x, "mxfp4", out=small), "fake_quantize: out has shape")
    refused(TypeError, lambda: call(x, "mxfp4", out=half), "fake_quantize: out has dtype float16")
    refused(ValueError, lambda: call(x[:2], "mxfp4", out=x[1:3]), "fake_quantize: out overlaps")
    amax = np.ones((4, 64), np.float32)
    refused(
        ValueError,
        lambda: call(x, "nvfp4", amax=amax[0, 0:1].reshape(()), out=amax),
        "fake_quantize: out overlaps",
    )
    jax = pytest.importorskip("jax")
    ones = jax.numpy.ones((4, 64))
    refused(TypeError, lambda: call(ones, "mxfp4", out=ones), "fake_quantize: out", "JAX")


def test_short_way_leaves_the_rest_to_the_long_one() -> None:
    """Numbers that are none for a scale, and arrays that are out of the ordinary."""
    x = random_values((4, 64), "float32")
    want = mxkern.fake_quantize(x, "nvfp4", amax=3.0)
    for amax in (3, np.float64(3), np.float32(3)):
        assert_same(mxkern.fake_quantize(x, "nvfp4", amax=amax), want, repr(amax))
    refused(ValueError, lambda: mxkern.fake_quantize(x, "nvfp4", amax=-1.0), "fake_quantize: amax")
    both = {"amax": 1.0, "tensor_scale": 1.0}
    refused(ValueError, lambda: mxkern.fake_quantize(x, "nvfp4", **both), "both given")
    turned = np.asfortranarray(x)
    assert_same(mxkern.fake_quantize(turned, "nvfp4", amax=3.0), want, "columns first")
    read_only = np.empty_like(x)
    read_only.flags.writeable = False
    call = lambda: mxkern.fake_quantize(x, "nvfp4", out=read_only)  # noqa: E731
    refused(ValueError, call, "fake_quantize: out is read-only")


@pytest.mark.parametrize("framework", framework_params())
@pytest.mark.parametrize("scheme", SCHEMES)
def test_along_columns(scheme: str, framework: str) -> None:
    """The transpose of an array is the same as a copy of it."""
    x = random_values((40, 96), "float32")
    given = array_of(framework, x)
    for options in options_of(scheme):
        got = mxkern.fake_quantize(given.T, scheme, **options)
        want = mxkern.fake_quantize(np.ascontiguousarray(x.T), scheme, **options)
        assert type(got) is type(given) and got.shape == (96, 40)
        assert_same(raw(got), raw(want), f"{framework} {scheme} {options}")
    if framework != "jax":
        out = array_of(framework, np.zeros((96, 40), np.float32))
        assert mxkern.fake_quantize(given.T, scheme, out=out) is out
        assert_same(raw(out), raw(mxkern.fake_quantize(given.T, scheme)), "out")
