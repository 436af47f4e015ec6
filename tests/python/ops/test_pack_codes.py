# tests/python/ops/test_pack_codes.py: codes of 4 and 6 bits, one a byte and packed.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mxkern
from support import (
    array_of,
    assert_same,
    available,
    framework_params,
    mostly_slow,
    random_values,
    raw,
    refused,
)

PACKED = [scheme.name for scheme in mxkern.schemes if scheme.bits < 8]
SHAPES = [(1,), (0,), (3, 0), (0, 32), (33,), (5, 31), (2, 3, 96), (4, 64)]


def packed_by_bits(codes: np.ndarray, scheme: str) -> np.ndarray:
    """Bit by bit: the bits of a row are counted from the lowest of its first byte."""
    record = mxkern.schemes[scheme]
    padding = np.zeros((*codes.shape[:-1], -codes.shape[-1] % record.block), np.uint8)
    bits = np.concatenate([codes, padding], -1)[..., None] >> np.arange(record.bits) & 1
    whole = (*codes.shape[:-1], bits.shape[-2] * record.bits)
    return np.packbits(bits.reshape(whole).astype(np.uint8), axis=-1, bitorder="little")


@pytest.mark.parametrize("framework", mostly_slow(framework_params(), "numpy", "torch"))
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


FLOAT4: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": lambda values: values.astype(ml_dtypes.float4_e2m1fn)
}
if available("jax"):
    import jax

    FLOAT4["jax"] = lambda values: jax.numpy.asarray(values.astype(ml_dtypes.float4_e2m1fn))


@pytest.mark.skipif(not available("jax"), reason="jax is not installed")
def test_under_jit() -> None:
    codes = np.random.default_rng(1).integers(0, 16, (3, 50), np.uint8)
    for scheme in PACKED:
        packed = jax.jit(lambda c, scheme=scheme: mxkern.pack_codes(c, scheme))(codes)
        assert_same(raw(packed), packed_by_bits(codes, scheme), scheme)
    given = FLOAT4["jax"](np.float32([[1, -2, 6]]))
    packed = jax.jit(lambda c: mxkern.pack_codes(c, "mxfp4"))(given)
    assert raw(packed)[0, :2].tolist() == [0xC2, 0x07]


@pytest.mark.skipif(not available("torch"), reason="torch is not installed")
def test_pytorch_s_own_dtype() -> None:
    import torch

    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this PyTorch has no float4_e2m1fn_x2")
    q = mxkern.quantize(torch.from_numpy(random_values((4, 64), "float32")), "nvfp4")
    given = q.codes.view(torch.float4_e2m1fn_x2)
    assert mxkern.unpack_codes(given, "nvfp4").equal(mxkern.unpack_codes(q.codes, "nvfp4"))


@pytest.mark.parametrize("framework", FLOAT4)
@pytest.mark.parametrize("scheme", ["mxfp4", "nvfp4"])
def test_elements_of_4_bits(scheme: str, framework: str) -> None:
    """Of all values, which say what the codes have to mean; an odd number of them, too."""
    values = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = np.stack([np.concatenate([values, -values]), np.concatenate([-values, values])])
    for columns in (16, 15, 1, 0):
        given = FLOAT4[framework](values[:, :columns])
        assert str(given.dtype) == "float4_e2m1fn"
        packed = mxkern.pack_codes(given, scheme)
        codes = raw(mxkern.unpack_codes(packed, scheme, columns))
        sign = np.signbit(values[:, :columns])
        assert_same(codes, (8 * sign + np.arange(16)[:columns] % 8).astype(np.uint8), framework)
        assert_same(raw(packed), packed_by_bits(codes, scheme), f"{framework} {columns}")
    given = FLOAT4[framework](values)
    packed = mxkern.pack_codes(given, scheme)
    blocks = packed.shape[-1] * 2 // mxkern.schemes[scheme].block
    ones = np.full((2, blocks), 127 if scheme == "mxfp4" else 0x38, np.uint8)
    options: Any = {"tensor_scale": 1.0} if scheme == "nvfp4" else {}
    scales = array_of(framework, ones)
    make = mxkern.BlockScaled.from_parts
    q = make(packed, scales, scheme=scheme, shape=(2, 16), **options)
    assert_same(np.asarray(mxkern.dequantize(q)), values, "decoded")
    # Where codes have to be packed already, the way out is this one.
    way_out = "elements lie apart: pack them with mxkern.pack_codes(codes, 'mxfp4')"
    parts = "codes has dtype float4_e2m1fn; expected uint8", way_out
    refused(TypeError, lambda: make(given, scales, scheme=scheme, **options), *parts)
    refused(
        TypeError,
        lambda: mxkern.dequantize(q.replace(codes=given)),
        way_out.replace("(codes", "(q.codes"),
    )
    way_out = "its elements lie apart, and mxkern.pack_codes(codes, 'mxfp4') packs them"
    refused(TypeError, lambda: mxkern.unpack_codes(given, scheme), way_out)
    way_out = "these are codes of mxfp4 and nvfp4"
    refused(TypeError, lambda: mxkern.pack_codes(given, "mxfp6"), way_out)


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
