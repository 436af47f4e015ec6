# tests/python/ops/test_numerics.py: element codes and scales against ml_dtypes, which converts one
# number at a time. Blocks are made so that their scale is 1; codes are then plain conversions.
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mxkern

# ml_dtypes has no MXINT8. Its casts agree with saturation up to the largest value only.
DTYPES = {
    "mxfp8_e4m3": ml_dtypes.float8_e4m3fn,
    "mxfp8_e5m2": ml_dtypes.float8_e5m2,
    "mxfp6_e3m2": ml_dtypes.float6_e3m2fn,
    "mxfp6_e2m3": ml_dtypes.float6_e2m3fn,
    "mxfp4": ml_dtypes.float4_e2m1fn,
    "nvfp4": ml_dtypes.float4_e2m1fn,
}
SOURCES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}


def bits_of_element(scheme: str) -> int:
    return ml_dtypes.finfo(DTYPES[scheme]).bits


def block_of(scheme: str) -> int:
    return 16 if scheme == "nvfp4" else 32


def scale_of_one(scheme: str) -> int:
    return 0x38 if scheme == "nvfp4" else 127


def unpack(codes: np.ndarray, bits: int) -> np.ndarray:
    """One code an element; the bits of a row are counted from the lowest of its first byte."""
    stream = np.unpackbits(codes.view(np.uint8), axis=-1, bitorder="little")
    weights = 1 << np.arange(bits)
    return (stream.reshape(*codes.shape[:-1], -1, bits) * weights).sum(-1).astype(np.uint8)


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    stream = (codes[..., None] >> np.arange(bits)) & 1
    return np.packbits(stream.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


def in_range_values(dtype: str, largest: float) -> np.ndarray:
    """Every number of a 16-bit type that a format reaches; a million of float32's."""
    if dtype == "float32":
        random = np.random.default_rng(1)
        patterns = random.integers(0, 1 << 32, 1 << 19, dtype=np.uint64).astype(np.uint32)
        spread = random.uniform(-largest, largest, 1 << 19).astype(np.float32)
        values = np.concatenate([patterns.view(np.float32), spread])
    else:
        values = np.arange(1 << 16, dtype=np.uint16).view(SOURCES[dtype])
    with np.errstate(invalid="ignore"):  # casts of signalling NaNs
        return values[np.abs(values.astype(np.float64)) <= largest]


def blocks_of_scale_one(values: np.ndarray, largest: float, block: int) -> np.ndarray:
    """[blocks, block]: the largest value in front of each block makes its scale 1."""
    x = np.zeros((-(-values.size // (block - 1)), block), values.dtype)
    x[:, 0] = largest
    body = np.zeros(x.shape[0] * (block - 1), values.dtype)
    body[: values.size] = values
    x[:, 1:] = body.reshape(-1, block - 1)
    return x


@pytest.mark.parametrize("dtype", SOURCES)
@pytest.mark.parametrize("scheme", DTYPES)
def test_codes_are_conversions_to_the_nearest(scheme: str, dtype: str) -> None:
    target = DTYPES[scheme]
    largest = float(ml_dtypes.finfo(target).max)
    x = blocks_of_scale_one(in_range_values(dtype, largest), largest, block_of(scheme))
    amax = {"amax": 2688.0} if scheme == "nvfp4" else {}
    q = mxkern.quantize(x, scheme, **amax)
    assert (q.scales.view(np.uint8) == scale_of_one(scheme)).all()
    got = unpack(q.codes, bits_of_element(scheme))
    want = x.astype(np.float32).astype(target).view(np.uint8)
    differ = np.argwhere(got != want)
    if differ.size:
        at = tuple(differ[0])
        value = np.float32(x[at])
        raise AssertionError(
            f"{scheme} of {dtype} {x.shape} at {at}: {value!r} ({value.view(np.uint32):#010x}) "
            f"gives {got[at]:#04x}, ml_dtypes {want[at]:#04x}; {len(differ)} differ"
        )


@pytest.mark.parametrize("scheme", DTYPES)
def test_every_code_has_its_value(scheme: str) -> None:
    bits, block = bits_of_element(scheme), block_of(scheme)
    codes = np.resize(np.arange(1 << bits, dtype=np.uint8), (max(1, (1 << bits) // block), block))
    scales = np.full((codes.shape[0], 1), scale_of_one(scheme), np.uint8)
    tensor_scale = {"tensor_scale": 1.0} if scheme == "nvfp4" else {}
    q = mxkern.BlockScaled.from_parts(pack(codes, bits), scales, scheme=scheme, **tensor_scale)
    got = mxkern.dequantize(q, dtype="float32")
    want = codes.view(DTYPES[scheme]).astype(np.float32)
    np.testing.assert_array_equal(got, want, strict=True)
    numbers = ~np.isnan(want)
    assert (np.signbit(got) == np.signbit(want))[numbers].all()


def test_every_e8m0_byte_has_its_value() -> None:
    scales = np.arange(256, dtype=np.uint8)[:, None]
    ones = np.full((256, 32), 0x38, np.uint8)
    q = mxkern.BlockScaled.from_parts(ones, scales, scheme="mxfp8_e4m3")
    want = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    got = mxkern.dequantize(q, dtype="float32")
    np.testing.assert_array_equal(got, np.repeat(want, 32, axis=1), strict=True)


def test_every_ue4m3_byte_has_its_value() -> None:
    scales = np.arange(128, dtype=np.uint8)[:, None]
    ones = np.full((128, 8), 0x22, np.uint8)
    q = mxkern.BlockScaled.from_parts(ones, scales, scheme="nvfp4", tensor_scale=1.0)
    want = scales.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    got = mxkern.dequantize(q, dtype="float32")
    np.testing.assert_array_equal(got, np.repeat(want, 16, axis=1), strict=True)
