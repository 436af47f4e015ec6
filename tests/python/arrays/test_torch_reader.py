# tests/python/arrays/test_torch_reader.py: PyTorch tensors are read through its table of C
# functions, or through attributes, as before PyTorch 2.10.
from __future__ import annotations

from typing import Any

import pytest

import mxkern
from mxkern import _core
from mxkern.arrays import adapter_of
from mxkern.ops import quantize as operations
from mxkern.ops.calls import new_calls
from support import array_of, assert_same, random_values, raw, refused

DEVICES = ["cpu", *(["cuda"] if mxkern.info().devices else [])]


@pytest.fixture
def attributes(torch: Any, monkeypatch: pytest.MonkeyPatch) -> _core.Calls:
    """Calls that find no table."""
    monkeypatch.setattr(torch.Tensor, "__dlpack_c_exchange_api__", None, raising=False)
    calls = new_calls()
    adapter_of("test", "x", torch.zeros(1)).read_by(calls)
    return calls


@pytest.mark.parametrize("device", DEVICES)
def test_without_the_table_of_dlpack(torch: Any, attributes: _core.Calls, device: str) -> None:
    x = array_of("torch", random_values((66, 96), "bfloat16")).reshape(2, 33, 96).to(device)
    core = operations._QUANTIZE.core
    for scheme in mxkern.schemes:
        want = mxkern.quantize(x, scheme)
        got = _core.quantize(attributes, core, False, x, scheme, {})
        for a, b in zip(got.parts, want.parts, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.dtype == b.dtype and a.stride() == b.stride() and a.device == b.device
                assert_same(raw(a.cpu()), raw(b.cpu()), scheme.name)
        assert _core.quantize(attributes, core, False, x, scheme, {"out": got}) is got
        values = _core.dequantize(attributes, got, "float32", None, None)
        assert torch.equal(values, mxkern.dequantize(want))
        turned = _core.quantize(attributes, core, True, x.transpose(1, 2), scheme, {})
        assert turned.codes.view(torch.uint8).equal(want.codes.view(torch.uint8))
    w = mxkern.quantize(x[0], "mxfp4")
    product = _core.gemm(attributes, x, w, "float32", None, 1.0, 0.0, None, "auto", None)
    assert torch.equal(product, mxkern.gemm(x, w))


@pytest.mark.parametrize("device", DEVICES)
def test_a_storage_that_was_made_smaller(torch: Any, device: str) -> None:
    """What is behind its end is nobody's to read."""
    x = torch.zeros(64, 96, device=device)
    for first, size in ((0, 0), (32, 0), *([(0, 96 * 4), (32, 40 * 96 * 4)] * (device == "cpu"))):
        view = torch.zeros(64, 96, device=device)[first:]
        view.untyped_storage().resize_(size)
        refused(ValueError, lambda v=view: mxkern.quantize(v, "mxfp8"), "quantize: x has")
        refused(ValueError, lambda v=view: mxkern.fake_quantize(v, "mxfp8"), "fake_quantize: x has")
        q = mxkern.quantize(x[first:], "mxfp8")
        call = lambda v=view, q=q: mxkern.dequantize(q, out=v)  # noqa: E731
        refused(ValueError, call, "dequantize: out has")
