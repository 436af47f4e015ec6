# tests/python/arrays/test_torch_storage.py: tensors of PyTorch whose storage is smaller than their
# shape says are refused, as inputs and as outputs, and others are taken.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mxkern
from support import random_values, refused

torch = pytest.importorskip("torch", reason="torch is not installed")

X = torch.from_numpy(random_values((100, 64), "float32"))


def shrunk(tensor: Any, size: int) -> Any:
    """The tensor, with that many bytes of storage."""
    tensor.untyped_storage().resize_(size)
    return tensor


def ways_of_being_small() -> dict[str, Any]:
    return {
        "dense": shrunk(torch.ones(100, 64), 256),
        "one byte": shrunk(torch.ones(100, 64), 100 * 64 * 4 - 1),
        "offset": shrunk(torch.ones(200, 64)[100:], 199 * 64 * 4),
        "rows apart": shrunk(torch.ones(100, 128)[:, :64], 100 * 64 * 4),
        "transposed": shrunk(torch.ones(64, 100).T, 64 * 100 * 4 - 4),
        "negative": shrunk(torch._neg_view(torch.ones(100, 64)), 64),
    }


READERS: dict[str, Callable[[Any], Any]] = {
    "quantize": lambda x: mxkern.quantize(x, "mxfp8"),
    "quantize_both": lambda x: mxkern.quantize_both(x, "nvfp4"),
    "tensor_amax": mxkern.tensor_amax,
    "random_hadamard": mxkern.random_hadamard,
    "fake_quantize": lambda x: mxkern.fake_quantize(x, "mxfp4"),
}


@pytest.mark.parametrize("way", ways_of_being_small())
def test_inputs(way: str) -> None:
    for name, call in READERS.items():
        x = ways_of_being_small()[way]
        parts = (f"{name}: x has shape (100, 64)", "of its storage, which has", "resize_(")
        refused(ValueError, lambda call=call, x=x: call(x), *parts)


def test_the_way_out() -> None:
    x = shrunk(torch.ones(100, 64), 256)
    with pytest.raises(ValueError, match=r"call x.untyped_storage\(\).resize_\(25600\)"):
        mxkern.quantize(x, "mxfp8")
    shrunk(x, 25600)[:] = X
    assert (
        mxkern.quantize(x, "mxfp8")
        .codes.view(torch.uint8)
        .equal(mxkern.quantize(X, "mxfp8").codes.view(torch.uint8))
    )


def test_outputs_and_operands() -> None:
    q = mxkern.quantize(X, "nvfp4")
    out = shrunk(torch.empty(100, 64), 256)
    refused(ValueError, lambda: mxkern.dequantize(q, out=out), "dequantize: out has shape")
    square = shrunk(torch.empty(100, 100), 256)
    refused(ValueError, lambda: mxkern.gemm(q, q, out=square), "gemm: out has shape")
    for field in ("codes", "scales"):
        part = getattr(q, field)
        bad = q.replace(**{field: shrunk(part.clone(), part.nbytes - 1)})
        where = f"{field} has shape {tuple(part.shape)} and ends at byte {part.nbytes}"
        refused(ValueError, lambda bad=bad: mxkern.dequantize(bad), f"dequantize: q.{where}")
        refused(ValueError, lambda bad=bad: mxkern.gemm(q, bad), f"gemm: b.{where}")
        refused(ValueError, lambda bad=bad: mxkern.quantize(X, "nvfp4", out=bad), f"out.{where}")


def test_what_fits_is_taken() -> None:
    want = mxkern.dequantize(mxkern.quantize(X, "mxfp8"))
    larger = torch.zeros(300, 64)
    larger[200:] = X
    apart = torch.zeros(100, 128)
    apart[:, 64:] = X
    for x in (larger[200:], apart[:, 64:], X.T.contiguous().T):
        assert mxkern.dequantize(mxkern.quantize(x, "mxfp8")).equal(want)
    row = torch.from_numpy(np.float32([1, 2, 3, 4]).repeat(16)).expand(100, 64)
    assert mxkern.quantize(row, "mxfp8").shape == (100, 64)
    for empty in (torch.ones(0, 64), torch.ones(4, 64)[4:], torch.ones(64, 0).T):
        assert mxkern.quantize(empty, "mxfp8").shape == tuple(empty.shape)
    beyond = torch.ones(1).as_strided((0, 64), (64, 2), 1000)
    assert mxkern.quantize(beyond, "mxfp8").shape == (0, 64)


def test_operators_refuse_an_output_whose_storage_was_freed() -> None:
    ops = pytest.importorskip("mxkern.torch")
    w = mxkern.quantize(torch.ones(8, 64), "mxfp4")
    for size in (0, 64):
        out = shrunk(torch.empty(100, 8), size)
        refused(ValueError, lambda out=out: ops.gemm(X, w, out=out), "gemm: out", "storage")
    ends = torch.tensor([100], dtype=torch.int32)
    experts = mxkern.quantize(torch.ones(1, 8, 64), "mxfp4")
    out = shrunk(torch.empty(100, 8), 0)
    text = ("grouped_gemm: out has shape", "storage")
    refused(ValueError, lambda: ops.grouped_gemm(X, experts, ends, out=out), *text)


def test_a_freed_storage_is_not_to_be_cloned() -> None:
    x = shrunk(torch.ones(100, 64), 0)
    with pytest.raises(ValueError, match="x has no memory") as caught:
        mxkern.quantize(x, "mxfp8")
    assert "clone" not in str(caught.value)
    zero = torch._efficientzerotensor(4, 64)
    with pytest.raises(ValueError, match=r"x has no memory .*x\.clone\(\)"):
        mxkern.quantize(zero, "mxfp8")
    assert not mxkern.dequantize(mxkern.quantize(zero.clone(), "mxfp8")).any()
