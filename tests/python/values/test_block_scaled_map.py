# tests/python/values/test_block_scaled_map.py: BlockScaled.map, which moves a tensor part by part.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxkern
from support import SCHEMES, array_of, available, framework_params, random_values

X = random_values((4, 64), "float32")


@pytest.mark.parametrize("layout", ["row_major", "swizzled"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_part_and_no_other_field(scheme: str, layout: str) -> None:
    q = mxkern.quantize(X, scheme, scale_layout=layout)
    seen: list[Any] = []

    def copied(part: Any) -> Any:
        seen.append(part)
        return part.copy()

    same = q.map(copied)
    held = [part for part in q.parts if part is not None]
    assert len(seen) == len(held) == (3 if mxkern.schemes[scheme].has_tensor_scale else 2)
    assert all(one is other for one, other in zip(seen, held, strict=True))
    assert type(same) is mxkern.BlockScaled and same.facts == q.facts
    assert not np.shares_memory(same.codes, q.codes)
    np.testing.assert_array_equal(mxkern.dequantize(same), mxkern.dequantize(q))


@pytest.mark.parametrize("framework", framework_params())
def test_what_the_function_returns_is_taken(framework: str) -> None:
    q = mxkern.quantize(array_of(framework, X), "nvfp4")
    parts = iter(("a", "b", "c"))
    assert q.map(lambda part: next(parts)).parts == ("a", "b", "c")


def test_subclasses_stay_what_they_are() -> None:
    class Named(mxkern.BlockScaled):
        pass

    q = mxkern.quantize(X, "mxfp8")
    assert type(Named(*q.parts, *q.facts).map(np.copy)) is Named


@pytest.mark.skipif(not available("torch"), reason="torch is not installed")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_devices_of_pytorch(scheme: str) -> None:
    import torch

    q = mxkern.quantize(torch.from_numpy(X), scheme)
    there = q.map(lambda part: part.to("meta"))
    assert {part.device.type for part in there.parts if part is not None} == {"meta"}
    assert [part.dtype for part in there.parts[:2]] == [part.dtype for part in q.parts[:2]]
    here = q.map(lambda part: part.to("cpu", copy=True))
    assert here.codes.data_ptr() != q.codes.data_ptr()
    assert mxkern.dequantize(here).equal(mxkern.dequantize(q))


@pytest.mark.skipif(not available("torch"), reason="torch is not installed")
def test_in_compiled_code() -> None:
    import torch

    import mxkern.torch

    q = mxkern.quantize(torch.from_numpy(X), "nvfp4")

    def decoded(q: mxkern.BlockScaled) -> Any:
        return mxkern.dequantize(q.map(lambda part: part.clone()))

    compiled = torch.compile(decoded, fullgraph=True, backend="eager")
    assert compiled(q).equal(mxkern.dequantize(q))


@pytest.mark.skipif(not available("jax"), reason="jax is not installed")
def test_devices_of_jax() -> None:
    import jax

    q = mxkern.quantize(jax.numpy.asarray(X), "nvfp4")
    device = jax.devices("cpu")[0]
    there = q.map(lambda part: jax.device_put(part, device))
    assert there.codes.devices() == {device}
    assert (mxkern.dequantize(there) == mxkern.dequantize(q)).all()
