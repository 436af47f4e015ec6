# tests/python/pytorch/operators/test_numpy_scalars.py: NumPy's scalars as numbers, in compiled code
# of PyTorch.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxkern
from support import array_of, mostly_slow, random_values

torch = pytest.importorskip("torch", reason="torch is not installed")

import mxkern.torch  # noqa: E402

X = array_of("torch", random_values((4, 64), "float32"))
Q = mxkern.quantize(X, "mxfp8")
SCALARS = [np.float32(3.1), np.float64(3.1), np.float16(3.1), np.int64(3)]
NAMED = [pytest.param(value, id=type(value).__name__) for value in SCALARS]
scalars = pytest.mark.parametrize("value", mostly_slow(NAMED, "float32"))


def compiled(function: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")


@scalars
@pytest.mark.parametrize("argument", mostly_slow(["amax", "tensor_scale"], "amax"))
def test_what_may_be_a_tensor(argument: str, value: Any) -> None:
    def parts(x: Any) -> Any:
        q = mxkern.quantize(x, "nvfp4", **{argument: value})
        rows, columns = mxkern.quantize_both(x, "nvfp4", **{argument: (value, 2.0)})
        fake = mxkern.fake_quantize(x, "nvfp4", **{argument: value})
        return [*q.parts, *rows.parts, *columns.parts, fake]

    for got, want in zip(compiled(parts)(X), parts(X), strict=True):
        assert got.dtype == want.dtype and got.float().equal(want.float())


@scalars
def test_alpha(value: Any) -> None:
    """A number to the operator: the message has the way out."""
    want = mxkern.gemm(X, Q, alpha=value)
    message = r"alpha is a scalar of NumPy.*outside of compiled code, with float\(alpha\)"
    with pytest.raises(Exception, match=message):
        compiled(lambda x: mxkern.gemm(x, Q, alpha=value))(X)
    number = float(value)
    assert compiled(lambda x: mxkern.gemm(x, Q, alpha=number))(X).equal(want)
