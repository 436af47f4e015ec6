# tests/python/values/test_options.py: options of quantization that can be said in more than one
# way.
from __future__ import annotations

import numpy as np
import pytest

import mxkern
from support import array_of, assert_same_parts, framework_params, random_values

X = random_values((4, 64), "float32")


@pytest.mark.parametrize("framework", framework_params("numpy", "torch"))
def test_an_offset_that_is_a_number_of_numpy(framework: str) -> None:
    """It is a number, though it has a shape and a dtype as arrays have."""
    x, options = array_of(framework, X), {"rounding": "stochastic", "seed": 11}
    want = mxkern.quantize(x, "mxfp4", offset=3, **options)
    for kind in (np.int64, np.uint32):
        got = mxkern.quantize(x, "mxfp4", offset=kind(3), **options)
        assert_same_parts(got, want, kind.__name__)


@pytest.mark.parametrize(("scheme", "side"), [("mxfp8", 32), ("nvfp4", 16)])
def test_a_block_of_one_row_is_the_default(scheme: str, side: int) -> None:
    want = mxkern.quantize(X, scheme)
    for block in ((1, side), (np.int64(1), np.int64(side)), f"1x{side}"):
        assert_same_parts(mxkern.quantize(X, scheme, block=block), want, f"{scheme} {block}")
