# tests/python/pytorch/operators/test_layouts.py: scales and codes that mxkern.torch moves, as
# tensors.
from __future__ import annotations

from typing import Any

import pytest

import mxkern
from support import array_of, random_values

torch = pytest.importorskip("torch", reason="torch is not installed")

import mxkern.torch as ops  # noqa: E402


def test_scales_of_one_row_under_a_compiler() -> None:
    """Without an axis of rows the operator promises what the call returns."""
    scales = torch.arange(1, 6, dtype=torch.uint8)

    def layer(scales: Any) -> tuple[Any, Any]:
        swizzled = mxkern.swizzle_scales(scales)
        return swizzled + 0, swizzled.shape

    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    got, shape = compiled(scales)
    assert got.equal(mxkern.swizzle_scales(scales)) and shape == got.shape


def test_codes_without_padding_are_dense() -> None:
    """What is cut off leaves no gaps between rows."""
    q = mxkern.quantize(array_of("torch", random_values((4, 96), "float32")), "mxfp6")
    codes = ops.unpack_codes(q.codes, "mxfp6", 90)
    assert codes.is_contiguous()
    assert codes.equal(mxkern.unpack_codes(q.codes, "mxfp6")[:, :90])
