# tests/python/pytorch/operators/test_meta.py: one tensor on the meta device, for which PyTorch
# computes nothing, is refused by operators, and in compiled code, as by the functions.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mxkern
from support import refused

torch = pytest.importorskip("torch", reason="torch is not installed")
ops = pytest.importorskip("mxkern.torch")

X = torch.ones(4, 64)
W = mxkern.quantize(torch.ones(8, 64), "mxfp4")
N = mxkern.quantize(X, "nvfp4")
EXPERTS = mxkern.quantize(torch.ones(2, 8, 64), "mxfp4")
ENDS = torch.tensor([2, 4], dtype=torch.int32)
COPIED = torch.tensor([0, 2, 1, 0], dtype=torch.int32)
DOWN = mxkern.quantize(torch.ones(2, 6, 4), "mxfp4")
META = "meta device"


def on_meta(tensor: Any) -> Any:
    return tensor.to("meta")


CALLS: dict[str, Callable[[], Any]] = {
    "gemm, bias": lambda: ops.gemm(X, W, bias=torch.zeros(8, device="meta")),
    "gemm, a": lambda: ops.gemm(on_meta(X), W),
    "gemm, b": lambda: ops.gemm(X, W.map(on_meta)),
    "gemm, scales": lambda: ops.gemm(X, W.replace(scales=on_meta(W.scales))),
    "dequantize, scales": lambda: ops.dequantize(N.replace(scales=on_meta(N.scales))),
    "dequantize, tensor_scale": lambda: ops.dequantize(
        N.replace(tensor_scale=on_meta(N.tensor_scale))
    ),
    "quantize, amax": lambda: ops.quantize(X, "nvfp4", amax=torch.ones((), device="meta")),
    "quantize, offset": lambda: ops.quantize(
        X, "mxfp4", rounding="stochastic", seed=1, offset=on_meta(torch.tensor(3))
    ),
    "fake_quantize, amax": lambda: ops.fake_quantize(
        X, "nvfp4", amax=torch.ones((), device="meta")
    ),
    "grouped_gemm, a": lambda: ops.grouped_gemm(on_meta(X), EXPERTS, ENDS),
    "grouped_gemm, ends": lambda: ops.grouped_gemm(X, EXPERTS, on_meta(ENDS)),
    "grouped_gemm, factors": lambda: ops.grouped_gemm(
        X, EXPERTS, ENDS, factors=torch.ones(2, device="meta")
    ),
    "grouped_gemm, rows": lambda: ops.grouped_gemm(X, EXPERTS, ENDS, rows=on_meta(ENDS)),
    "combine, weights": lambda: ops.combine(X, COPIED, on_meta(X[:, 0]), 3),
    "expert_layer, rows": lambda: ops.expert_layer(X, EXPERTS, DOWN, ENDS, on_meta(COPIED)),
}


@pytest.mark.parametrize("name", CALLS)
def test_some_on_meta(name: str) -> None:
    refused(ValueError, CALLS[name], f"{name.split(',')[0]}: ", META)


def test_all_on_meta() -> None:
    out = ops.gemm(on_meta(X), W.map(on_meta), bias=torch.zeros(8, device="meta"))
    assert out.is_meta and out.shape == (4, 8)
    assert ops.quantize(on_meta(X), "nvfp4").tensor_scale.is_meta


def test_outputs() -> None:
    out = torch.empty(4, 8, device="meta")
    refused(ValueError, lambda: ops.gemm(X, W, out=out), "gemm: out is on meta", "one device")


def test_compiled_code() -> None:
    compiled = torch.compile(
        lambda x, bias: mxkern.gemm(x, W, bias=bias), fullgraph=True, backend="aot_eager"
    )
    assert torch.equal(compiled(X, torch.zeros(8)), mxkern.gemm(X, W))
    with pytest.raises(Exception, match=META):
        compiled(X, torch.zeros(8, device="meta"))
