# tests/python/test_pack_codes.py: codes of 4 and 6 bits, one a byte and packed.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxkern
from support import array_of, assert_same, available, framework_params, random_values, raw, refused

PACKED = [scheme.name for scheme in mxkern.schemes if scheme.bits < 8]
SHAPES = [(1,), (0,), (3, 0), (0, 32), (33,), (5, 31), (2, 3, 96), (4, 64)]


def packed_by_bits(codes: np.ndarray, scheme: str) -> np.ndarray:
    """Bit by bit: the bits of a row are counted from the lowest of its first byte."""
    record = mxkern.schemes[scheme]
    padding = np.zeros((*codes.shape[:-1], -codes.shape[-1] % record.block), np.uint8)
    bits = np.concatenate([codes, padding], -1)[..., None] >> np.arange(record.bits) & 1
    whole = (*codes.shape[:-1], bits.shape[-2] * record.bits)
    return np.packbits(bits.reshape(whole).astype(np.uint8), axis=-1, bitorder="little")


@pytest.mark.parametrize("framework", framework_params())
@pytest.mark.parametrize("scheme", PACKED)
def test_every_shape(scheme: str, framework: str) -> None:
    generator = np.random.default_rng(0)
    for shape in SHAPES:
        # All bits of the bytes are set at random; those above a code do not matter.
        codes = generator.integers(0, 256, shape, np.uint8)
        low = codes & (2 ** mxkern.schemes[scheme].bits - 1)
        given = array_of(framework, codes)
        what = f"{framework} {scheme} {shape}"
        packed = mxkern.pack_codes(given, scheme)
        assert type(packed) is type(given)
        assert_same(raw(packed), packed_by_bits(low, scheme), f"{what} packed")
        unpacked = mxkern.unpack_codes(packed, scheme, shape[-1])
        assert type(unpacked) is type(given)
        assert_same(raw(unpacked), low, f"{what} unpacked")
        everything = raw(mxkern.unpack_codes(packed, scheme))
        assert not everything[..., shape[-1] :].any()
        assert_same(everything[..., : shape[-1]], low, f"{what} unpacked with padding")


@pytest.mark.parametrize("scheme", PACKED)
def test_codes_of_quantize(scheme: str) -> None:
    q = mxkern.quantize(random_values((7, 80), "float32"), scheme)
    codes = mxkern.unpack_codes(q.codes, q.scheme, q.shape[-1])
    assert codes.shape == q.shape and codes.flags.c_contiguous
    again = mxkern.pack_codes(codes, scheme)
    assert_same(again, q.codes, scheme)
    # Views with gaps are read as they are.
    wide = np.repeat(codes, 2, axis=-1)
    assert_same(mxkern.pack_codes(wide[:, ::2], scheme), q.codes, f"{scheme} with gaps")


@pytest.mark.skipif(not available("jax"), reason="jax is not installed")
def test_under_jit() -> None:
    import jax

    codes = np.random.default_rng(1).integers(0, 16, (3, 50), np.uint8)
    for scheme in PACKED:
        packed = jax.jit(lambda c, scheme=scheme: mxkern.pack_codes(c, scheme))(codes)
        assert_same(raw(packed), packed_by_bits(codes, scheme), scheme)


@pytest.mark.skipif(not available("torch"), reason="torch is not installed")
def test_pytorch_s_own_dtype() -> None:
    import torch

    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this PyTorch has no float4_e2m1fn_x2")
    q = mxkern.quantize(torch.from_numpy(random_values((4, 64), "float32")), "nvfp4")
    given = q.codes.view(torch.float4_e2m1fn_x2)
    assert mxkern.unpack_codes(given, "nvfp4").equal(mxkern.unpack_codes(q.codes, "nvfp4"))


@pytest.mark.parametrize("name", ["pack_codes", "unpack_codes"])
def test_errors(name: str) -> None:
    call: Any = getattr(mxkern, name)
    codes = np.zeros((2, 48), np.uint8)
    refused(ValueError, lambda: call(codes, "mxfp8"), f"{name}: scheme is 'mxfp8_e4m3'", "4 or 6")
    refused(TypeError, lambda: call(codes.astype(int), "mxfp4"), f"{name}: codes has dtype int64")
    refused(TypeError, lambda: call([1], "mxfp4"), f"{name}: codes is a list", "uint8")
    refused(ValueError, lambda: call(np.array(1, np.uint8), "mxfp4"), f"{name}: codes is 0-d")
    q = mxkern.quantize(np.ones((2, 32), np.float32), "mxfp4")
    refused(TypeError, lambda: call(q, "mxfp4"), f"{name}: codes is a BlockScaled", "q.codes")


@pytest.mark.parametrize("framework", framework_params())
def test_codes_of_other_dtypes_are_told_how_to_become_bytes(framework: str) -> None:
    codes = np.zeros((1, 32), np.int32)
    convert = r"convert codes, one a byte, with codes\.(astype|to)\(.*uint8"
    for function in (mxkern.pack_codes, mxkern.unpack_codes):
        with pytest.raises(TypeError, match=convert):
            function(array_of(framework, codes), "mxfp4")
        with pytest.raises(TypeError, match=r"reinterpret bytes with codes\.view\(.*uint8"):
            function(array_of(framework, codes.astype(np.int8)), "mxfp4")


def test_errors_of_unpacking() -> None:
    codes = np.zeros((2, 47), np.uint8)
    refused(ValueError, lambda: mxkern.unpack_codes(codes, "mxfp6"), "(2, 47)", "groups of 3 bytes")
    refused(ValueError, lambda: mxkern.unpack_codes(codes, "mxfp4", 95), "columns is 95", "<= 94")
