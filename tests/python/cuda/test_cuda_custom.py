# tests/python/cuda/test_cuda_custom.py: schemes of the user's own on a GPU give what they give on
# the CPU.
from __future__ import annotations

from typing import Any

import pytest
from test_cuda import on_device, on_host

import mxkern
from support import DTYPES, assert_same, corner_values, random_values, raw

if not mxkern.info().devices:
    pytest.skip(f"no CUDA device can be used: {mxkern.info().cuda}", allow_module_level=True)

NAMES = (
    *("e3m4b64", "int4b16:ue4m3", "e2m1b16", "e4m3b128", "mxfp8_16", "mxint4", "int8b64"),
    *("nvfp4_ue5m3", "nvfp4_32", "fp8_block128", "fp8_block128_rows", "uint4b32:float32"),
    *("e3m2b16", "e2m1b16:ue4m3+row", "e4m3_row:float32", "e5m10b32", "e3m4b24"),
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", NAMES)
def test_it_is_the_cpus(scheme: str, dtype: str) -> None:
    pytest.importorskip("torch")
    for x in (corner_values(3, 56, dtype), random_values((2, 136, 288), dtype)):
        given = on_device("torch", x)
        calls: list[Any] = [mxkern.quantize]
        if len(x.shape) > 1:
            calls.append(mxkern.quantize_columns)
        for call in calls:
            got, want = call(given, scheme), call(x, scheme)
            for ours, theirs in zip(got.parts, want.parts, strict=True):
                if theirs is not None:
                    assert_same(on_host(ours), raw(theirs), f"{call.__name__} {scheme} {dtype}")
            y = mxkern.dequantize(got, dtype=dtype)
            assert_same(on_host(y), raw(mxkern.dequantize(want, dtype=dtype)), scheme)
        y = mxkern.fake_quantize(given, scheme)
        assert_same(on_host(y), raw(mxkern.fake_quantize(x, scheme)), f"fake {scheme} {dtype}")
