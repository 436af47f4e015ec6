# tests/python/faults/test_ways_to_parts.py: what errors say of memory that is no array, of dtypes
# as schemes, and of scales and codes that another library has in another shape or dtype.
from __future__ import annotations

from array import array
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mxkern
from support import Foreign, array_of, available, random_values, refused

needs_torch = pytest.mark.skipif(not available("torch"), reason="torch is not installed")

X = random_values((4, 64), "float32")
Q = mxkern.quantize(X, "mxfp8")
CODES = Q.codes.view(np.uint8)
make = mxkern.BlockScaled.from_parts


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: array("B", b)])
def test_memory(kind: Any) -> None:
    codes = kind(CODES.tobytes())
    way_out = "read it with numpy.frombuffer(codes, numpy.uint8), and reshape that"
    refused(TypeError, lambda: make(codes, Q.scales, scheme="mxfp8"), "codes is a ", way_out)
    read = np.frombuffer(codes, np.uint8).reshape(4, 64)
    assert (mxkern.dequantize(make(read, Q.scales, scheme="mxfp8")) == mxkern.dequantize(Q)).all()
    x = kind(X.tobytes())
    way_out = "read it with numpy.frombuffer(x, numpy.float32), and reshape that"
    refused(TypeError, lambda: mxkern.quantize(x, "mxfp8"), "quantize: x is a ", way_out)
    refused(TypeError, lambda: mxkern.compare(x), "compare: x is a ", way_out)
    assert mxkern.quantize(np.frombuffer(x, np.float32).reshape(4, 64), "mxfp8").shape == (4, 64)


@pytest.mark.parametrize("value", ["abc", None, object(), np.str_("a")])
def test_what_is_no_memory(value: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a NumPy or CuPy array.* or a JAX array$"):
        mxkern.quantize(value, "mxfp8")
    with pytest.raises(TypeError, match=r"expected a NumPy, torch or JAX array on the CPU$"):
        mxkern.compare(value)


def test_compare_and_other_libraries() -> None:
    x = Foreign(X)
    refused(TypeError, lambda: mxkern.compare(x), "convert with numpy.from_dlpack(x)")
    assert mxkern.compare(np.from_dlpack(x)).to_dicts() == mxkern.compare(X).to_dicts()


DTYPES = [
    ("float8_e4m3fn", "'mxfp8_e4m3'"),
    ("float8_e5m2", "'mxfp8_e5m2'"),
    ("float6_e2m3fn", "'mxfp6_e2m3'"),
    ("float4_e2m1fn", "'mxfp4' or 'nvfp4'"),
    ("int8", "'mxint8'"),
]


@pytest.mark.parametrize(("dtype", "near"), DTYPES)
def test_dtypes_as_schemes(dtype: str, near: str) -> None:
    kind = getattr(ml_dtypes, dtype, None) or getattr(np, dtype)
    for given in (kind, np.dtype(kind)):
        parts = "quantize: scheme is a ", "expected a name: mxfp8_e4m3", f"did you mean {near}?"
        refused(TypeError, lambda g=given: mxkern.quantize(X, g), *parts)
    with pytest.raises(TypeError, match=r"mxint8 or nvfp4$"):
        mxkern.quantize(X, ml_dtypes.float8_e4m3fnuz)


@needs_torch
def test_dtypes_of_pytorch_as_schemes() -> None:
    import torch

    import mxkern.torch as ops

    x = array_of("torch", X)
    for name, near in (*DTYPES, ("float4_e2m1fn_x2", "'mxfp4' or 'nvfp4'")):
        dtype = getattr(torch, name, None)
        if dtype is None:
            continue
        for function in (mxkern.quantize, ops.quantize):
            message = f"did you mean {near}?"
            refused(TypeError, lambda f=function, d=dtype: f(x, d), "scheme is a torch", message)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_swizzled_scales_that_are_not_flat(batch: tuple[int, ...]) -> None:
    x = random_values((*batch, 100, 200), "float32")
    q = mxkern.quantize(x, "mxfp8", scale_layout="swizzled")
    flat = "scales.reshape(-1)" if not batch else "scales.reshape((3, 1024))"
    scales = q.scales.reshape(*batch, 128, 8)
    call = lambda **options: make(q.codes, scales, scheme="mxfp8", **options)  # noqa: E731
    with pytest.raises(ValueError) as caught:
        call(scale_layout="swizzled")
    assert str(caught.value).endswith(f"; pass {flat}")
    swizzled = f"if they are swizzled, pass {flat} and scale_layout='swizzled'"
    rows = "if they are padded rows, pass scales[..., :100, :7]"
    refused(ValueError, call, swizzled, rows)
    again = make(q.codes, scales.reshape(q.scales.shape), scheme="mxfp8", scale_layout="swizzled")
    assert (mxkern.dequantize(again) == mxkern.dequantize(q)).all()
    padded = np.zeros((*batch, 128, 8), np.uint8)
    padded[..., :100, :7] = mxkern.quantize(x, "mxfp8").scales.view(np.uint8)
    again = make(q.codes, padded[..., :100, :7], scheme="mxfp8")
    assert (mxkern.dequantize(again) == mxkern.dequantize(q)).all()
    scales = scales[..., :4]
    with pytest.raises(ValueError, match=r"scale_layout 'row_major'$"):
        call()


@needs_torch
def test_packed_e2m1_of_pytorch_as_an_output() -> None:
    import torch

    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this PyTorch has no float4_e2m1fn_x2")
    x = array_of("torch", X)
    q = mxkern.quantize(x, "mxfp4")
    out = q.replace(codes=q.codes.view(torch.float4_e2m1fn_x2))
    way_out = "pass out.replace(codes=out.codes.view(torch.uint8))"
    refused(TypeError, lambda: mxkern.quantize(2 * x, "mxfp4", out=out), "float4_e2m1fn", way_out)
    mxkern.quantize(2 * x, "mxfp4", out=out.replace(codes=out.codes.view(torch.uint8)))
    assert mxkern.dequantize(out).equal(2 * mxkern.fake_quantize(x, "mxfp4"))
