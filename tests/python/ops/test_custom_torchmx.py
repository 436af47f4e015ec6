# tests/python/ops/test_custom_torchmx.py: blocks of other lengths against TorchMX, where it is
# installed, and against microxcaling's way in plain PyTorch operations.
from __future__ import annotations

import sys

import numpy as np
import pytest

import mxkern
from support import ROOT

torch = pytest.importorskip("torch")
sys.path.insert(0, str(ROOT))
ELEMENTS = {
    "float8_e4m3": "e4m3",
    "float6_e3m2": "e3m2",
    "float6_e2m3": "e2m3",
    "float4_e2m1": "e2m1",
    "int8": "int8",
}


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("block", [8, 16, 64, 128])
def test_torchmx(name: str, block: int) -> None:
    dtypes = pytest.importorskip("torchmx.dtypes")
    from torchmx.mx_tensor import MXTensor

    x = torch.randn(64, 512) * 2.0 ** torch.randint(-6, 6, (64, 512))
    x = x.to(torch.bfloat16)
    theirs = MXTensor.to_mx(x, getattr(dtypes, name), block).to_dtype(torch.bfloat16)
    ours = mxkern.fake_quantize(x, f"{ELEMENTS[name]}b{block}", scale_rule="floor")
    assert torch.equal(theirs, ours)


@pytest.mark.parametrize("element", [(3, 4), (2, 3), (4, 2), (3, 2), (2, 1), (5, 3)])
@pytest.mark.parametrize("block", [8, 32, 64])
def test_microxcaling(element: tuple[int, int], block: int) -> None:
    from bench.compare.custom.torch import blocks

    x = torch.randn(64, 256) * 2.0 ** torch.randint(-6, 6, (64, 256))
    name = f"e{element[0]}m{element[1]}_none_b{block}"
    ours = mxkern.fake_quantize(x, name, scale_rule="floor", rounding="nearest_away")
    np.testing.assert_array_equal(ours.numpy(), blocks(x, element, block).numpy())
