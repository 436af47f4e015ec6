# tests/python/pytorch/operators/test_operands.py: operands that the operators of PyTorch do not
# take.
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxkern
from support import array_of, random_values, refused

torch = pytest.importorskip("torch", reason="torch is not installed")

import mxkern.torch as ops  # noqa: E402

X = array_of("torch", random_values((4, 96), "float32"))
Q = mxkern.quantize(X, "mxfp6")


def test_arrays_of_another_framework() -> None:
    numpy = mxkern.quantize(random_values((4, 96), "float32"), "mxfp6")
    refused(TypeError, lambda: ops.dequantize(numpy), "dequantize: q.codes is a numpy.ndarray")
    refused(TypeError, lambda: ops.gemm(X, numpy), "gemm: b.codes is a numpy.ndarray")
    out = np.zeros((4, 4), np.float32)
    refused(TypeError, lambda: ops.gemm(X, Q, out=out), "gemm: out is a numpy.ndarray")


def test_a_tensor_scale_that_is_a_number() -> None:
    q = mxkern.quantize(X, "nvfp4")
    way_out = "convert with torch.tensor(q.tensor_scale)"
    scaled = q.replace(tensor_scale=2.0)
    refused(TypeError, lambda: ops.dequantize(scaled), "q.tensor_scale is 2.0", way_out)
    got = ops.dequantize(q.replace(tensor_scale=torch.tensor(2.0)))
    assert got.equal(mxkern.dequantize(scaled))


def test_shapes_and_layouts() -> None:
    for shape in (None, (4.0, 96)):
        wrong = lambda s=shape: ops.dequantize(Q.replace(shape=s))  # noqa: E731
        refused(TypeError, wrong, "dequantize: q.shape is ", "expected a tuple of ints")
    layout = Q.replace(scale_layout=None)  # type: ignore[arg-type]
    refused(TypeError, lambda: ops.gemm(X, layout), "b.scale_layout is None", "swizzled")


def test_a_source_that_is_a_plain_tuple() -> None:
    ready = mxkern.PreparedOperand("source", None, Q.parts, "mxfp6_e2m3", Q.shape)  # type: ignore[arg-type]
    refused(TypeError, lambda: ops.gemm(X, ready), "gemm: b.source is a tuple")


@pytest.fixture
def distributed(tmp_path: Path) -> Iterator[Any]:
    tensors = pytest.importorskip("torch.distributed.tensor", reason="PyTorch has no DTensor")
    meeting = f"file://{tmp_path / 'meeting'}"
    torch.distributed.init_process_group("gloo", meeting, rank=0, world_size=1)
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    yield tensors.distribute_tensor(X, mesh, [tensors.Shard(0)])
    torch.distributed.destroy_process_group()


def test_distributed_tensors(distributed: Any) -> None:
    way_out = "pass x.to_local(), if shards have whole rows, or x.full_tensor()"
    for module in (mxkern, ops):
        for function in ("fake_quantize", "quantize", "quantize_both", "quantize_columns"):
            call = getattr(module, function)
            message = f"{function}: x is a DTensor"
            refused(TypeError, lambda call=call: call(distributed, "mxfp8"), message, way_out)
        refused(TypeError, lambda module=module: module.tensor_amax(distributed), way_out)
        refused(
            TypeError, lambda module=module: module.gemm(distributed, Q), "gemm: a is a DTensor"
        )
    y = ops.fake_quantize(distributed.to_local(), "mxfp8")
    assert torch.equal(y, mxkern.fake_quantize(X, "mxfp8"))
