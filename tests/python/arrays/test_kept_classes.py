# tests/python/arrays/test_kept_classes.py: classes of arrays that others make are not kept alive.
from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mxkern
from support import assert_same, available, random_values, raw, refused

needs_torch = pytest.mark.skipif(not available("torch"), reason="torch is not installed")
needs_jax = pytest.mark.skipif(not available("jax"), reason="jax is not installed")


def _has_ended(make: Callable[[], Any]) -> bool:
    """Whether the class of an array, that was made just for it, ends with it."""
    alive = weakref.ref(type(make()))
    gc.collect()
    return alive() is None


def _speaking_dlpack(x: Any) -> Any:
    class Other:
        def __dlpack__(self, **options: Any) -> Any:
            return x.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return x.__dlpack_device__()

    return Other()


def test_classes_that_speak_dlpack_are_not_kept() -> None:
    x = random_values((4, 64), "float32")
    want = mxkern.quantize(x, "mxfp8")

    def make() -> Any:
        other = _speaking_dlpack(x)
        for _ in range(2):
            assert_same(raw(mxkern.quantize(other, "mxfp8").codes), raw(want.codes), "DLPack")
        mxkern.gemm(other, want)
        return other

    assert _has_ended(make)


@needs_torch
def test_subclasses_of_tensors_are_not_kept() -> None:
    import torch

    def make() -> Any:
        x = torch.ones(4, 64).as_subclass(type("Other", (torch.Tensor,), {}))
        for _ in range(2):
            refused(TypeError, lambda: mxkern.quantize(x, "mxfp8"), "a subclass of torch.Tensor")
        refused(TypeError, lambda: mxkern.gemm(x, mxkern.quantize(torch.ones(4, 64), "mxfp8")))
        return x

    assert _has_ended(make)


@needs_jax
def test_classes_of_codes_in_trees_are_not_kept() -> None:
    import jax

    mxkern.quantize(jax.numpy.ones((4, 64)), "mxfp8")  # JAX is told of BlockScaled

    def make() -> Any:
        codes = type("Other", (), {"shape": (4, 64), "dtype": np.dtype("uint8")})()
        q = mxkern.BlockScaled(codes, codes, None, "mxfp8_e4m3", (4, 64), "row_major")
        assert len(jax.tree_util.tree_leaves(q)) == 2
        return codes

    assert _has_ended(make)
