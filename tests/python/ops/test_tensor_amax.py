# tests/python/ops/test_tensor_amax.py: the largest magnitude, of a transform too.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxkern
from support import (
    DTYPES,
    array_of,
    available,
    framework_params,
    mostly_slow,
    random_values,
    raw,
    refused,
)

MASKS = (None, 0x5A3C)


def transformed_amax(x: np.ndarray, size: int, mask: int | None) -> np.float32:
    """Of what random_hadamard makes of the rows of x, over finite elements."""
    y = np.asarray(mxkern.random_hadamard(x, size, sign_mask=mask)).astype(np.float32)
    return np.max(np.abs(y[np.isfinite(y)]), initial=np.float32(0))


@pytest.mark.parametrize("framework", mostly_slow(framework_params(), "numpy", "torch"))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", MASKS)
def test_what_quantize_finds(mask: int | None, dtype: str, framework: str) -> None:
    """To the bit, along rows, along columns and in both directions; a group with Inf is left out
    whole, as its transform is not finite."""
    for shape in [(64, 32), (2, 16, 48), (128, 256)]:
        values = random_values(shape, dtype)
        values.reshape(-1)[5] = np.inf
        x = array_of(framework, values)
        options: Any = {"hadamard": 16, "sign_mask": mask}
        rows = mxkern.tensor_amax(x, **options)
        columns = mxkern.tensor_amax(x, columns=True, **options)
        assert type(rows) is type(mxkern.tensor_amax(x)) and rows.shape == ()
        turned = np.ascontiguousarray(values.swapaxes(-1, -2))
        assert np.asarray(rows) == transformed_amax(values, 16, mask)
        assert np.asarray(columns) == transformed_amax(turned, 16, mask)
        both = mxkern.quantize_both(x, "nvfp4", hadamard_rows=True, **options)
        given = mxkern.quantize_both(
            x, "nvfp4", hadamard_rows=True, amax=(rows, columns), **options
        )
        for found, wanted in zip(given, both, strict=True):
            for a, b in zip(found.parts, wanted.parts, strict=True):
                assert np.array_equal(raw(a), raw(b))


@pytest.mark.parametrize("size", [16, 32, 64, 128])
def test_sizes_and_shards(size: int) -> None:
    """The maximum over shards of whole groups is that of the tensor."""
    x = random_values((2 * size, 40), "bfloat16", seed=size)
    whole = mxkern.tensor_amax(x, hadamard=size, columns=True)
    shards = [mxkern.tensor_amax(s, hadamard=size, columns=True) for s in (x[:size], x[size:])]
    assert whole == max(shards)
    q = mxkern.quantize_columns(x, "nvfp4", hadamard=size)
    assert q.tensor_scale == mxkern.quantize(x, "nvfp4", amax=whole).tensor_scale
    plain = mxkern.tensor_amax(x)
    assert mxkern.tensor_amax(x, columns=True) == plain != whole
    assert mxkern.tensor_amax(x[:0], hadamard=size, columns=True) == 0
    out = np.zeros((), np.float32)
    assert mxkern.tensor_amax(x, hadamard=size, columns=True, out=out) is out and out == whole


@pytest.mark.skipif(not available("jax"), reason="jax is not installed")
def test_under_jit() -> None:
    import jax

    x = array_of("jax", random_values((64, 40), "float32"))
    find = lambda x: mxkern.tensor_amax(x, hadamard=32, columns=True, sign_mask=9)  # noqa: E731
    assert jax.jit(find)(x) == find(x)
    with pytest.raises(ValueError, match="an axis of 40; expected a multiple of hadamard=32"):
        jax.jit(lambda x: mxkern.tensor_amax(x, hadamard=32))(x)


def test_bad_arguments() -> None:
    x = random_values((40, 64), "float32")
    call = mxkern.tensor_amax
    columns = lambda: call(x, hadamard=16, columns=True)  # noqa: E731
    refused(ValueError, columns, "tensor_amax: ", "an axis of 40; expected a multiple")
    refused(ValueError, lambda: call(x[:, :40], hadamard=16), "an axis of 40")
    refused(ValueError, lambda: call(x, hadamard=8), "hadamard is 8; expected 16, 32, 64")
    refused(ValueError, lambda: call(x, sign_mask=1), "sign_mask is given without hadamard")
    refused(TypeError, lambda: call(x, hadamard=16, columns=1), "columns is 1; expected True")
    refused(ValueError, lambda: call(x[0], hadamard=16, columns=True), "(64,)")
