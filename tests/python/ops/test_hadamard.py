# tests/python/ops/test_hadamard.py: random_hadamard against the reference and against the matrix.
from __future__ import annotations

import numpy as np
import pytest

import mxkern
import reference
from support import DTYPES, assert_same, random_values, refused

SIZES = (16, 32, 64, 128)


def matrix(size: int) -> np.ndarray:
    r, c = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    parity = np.array([int(n).bit_count() & 1 for n in (r & c).ravel()]).reshape(size, size)
    return (1.0 - 2.0 * parity) / np.sqrt(size)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_every_bit(size: int, dtype: str) -> None:
    for shape in [(size,), (5, 2 * size), (2, 3, 3 * size)]:
        x = random_values(shape, dtype)
        for mask in (None, 0, 1, (1 << size) - 1, 1 << (size - 1)):
            signs = reference.default_mask(size) if mask is None else mask
            want = reference.hadamard(x, size, signs)
            got = mxkern.random_hadamard(x, size, sign_mask=mask)
            assert_same(got, want, f"{dtype} {size} {shape} mask {mask}")


@pytest.mark.parametrize("size", SIZES)
def test_is_the_matrix(size: int) -> None:
    x = np.random.default_rng(0).standard_normal((7, size))
    mask = 0x5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A & ((1 << size) - 1)
    signs = np.array([-1.0 if mask >> i & 1 else 1.0 for i in range(size)])
    got = mxkern.random_hadamard(x.astype(np.float32), size, sign_mask=mask)
    np.testing.assert_allclose(got, (x * signs) @ matrix(size), atol=2e-6)


@pytest.mark.parametrize("size", SIZES)
def test_inverse(size: int) -> None:
    x = np.random.default_rng(0).integers(-8, 9, (4, 2 * size)).astype(np.float32)
    for mask in (None, 3):
        y = mxkern.random_hadamard(x, size, sign_mask=mask)
        back = mxkern.random_hadamard(y, size, sign_mask=mask, inverse=True)
        np.testing.assert_allclose(back, x, atol=1e-5)


def test_in_place_and_out() -> None:
    x = random_values((3, 64), "float32")
    want = mxkern.random_hadamard(x)
    out = np.empty_like(x)
    assert mxkern.random_hadamard(x, out=out) is out
    assert_same(out, want, "out")
    assert mxkern.random_hadamard(x, out=x) is x
    assert_same(x, want, "in place")


def test_values_of_the_other_byte_order() -> None:
    x = random_values((4, 64), "float32")
    got = mxkern.random_hadamard(x.astype(x.dtype.newbyteorder()))
    assert_same(got, mxkern.random_hadamard(x), "the other byte order")


def test_a_nan_stays_in_its_group() -> None:
    x = np.ones((2, 64), np.float32)
    x[1, 20] = np.nan
    got = np.isnan(mxkern.random_hadamard(x))
    assert got[1, 16:32].all() and got.sum() == 16


def test_wrong_arguments() -> None:
    call = mxkern.random_hadamard
    x = random_values((4, 64), "float32")
    refused(ValueError, lambda: call(x[:, :40]), "axis of 40", "multiple of size=16")
    refused(ValueError, lambda: call(x, 20), "random_hadamard: size is 20", "16, 32, 64 or 128")
    refused(ValueError, lambda: call(x, 2**100), "size is 126765", "16, 32, 64 or 128")
    refused(ValueError, lambda: mxkern.quantize(x, "mxfp4", hadamard=2**64), "16, 32, 64 or 128")
    refused(TypeError, lambda: call(x, 16.0), "random_hadamard: size is 16.0")
    refused(TypeError, lambda: call(x, None), "random_hadamard: size is None")
    refused(ValueError, lambda: call(x, sign_mask=1 << 16), "sign_mask is 65536")
    refused(TypeError, lambda: call(x, inverse=1), "inverse is 1")
