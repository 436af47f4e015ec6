# tests/python/ops/test_dequantize.py: dequantize against the reference, on all bytes.
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxkern
import reference
from support import DTYPES, NUMPY_DTYPES, SCHEMES, assert_same, corner_values, raw

SHAPES = [(1, 1), (3, 15), (5, 33), (33, 64), (130, 100)]


def expected(q: mxkern.BlockScaled, dtype: str) -> np.ndarray:
    scales = raw(q.scales)
    if q.scale_layout == "swizzled":
        blocks = -(-q.shape[-1] // mxkern.schemes[q.scheme].block)
        scales = mxkern.unswizzle_scales(scales, q.shape[-2], blocks)
    values = reference.dequantize(raw(q.codes), scales, q.scheme, q.shape[-1], q.tensor_scale)
    with np.errstate(over="ignore"):
        return values.astype(NUMPY_DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_was_quantized(scheme: str, dtype: str) -> None:
    for shape in SHAPES:
        x = corner_values(*shape, "float32")
        for layout in ("row_major", "swizzled"):
            q = mxkern.quantize(x, scheme, scale_layout=layout)
            what = f"{scheme} {dtype} {shape} {layout}"
            assert_same(mxkern.dequantize(q, dtype=dtype), expected(q, dtype), what)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_code_under_every_scale(scheme: str, dtype: str) -> None:
    record = mxkern.schemes[scheme]
    columns = 256 if record.bits == 8 else 2**record.bits
    columns = -(-columns // record.block) * record.block
    bytes_a_row = record.codes_shape((256, columns))[1]
    codes = np.tile(np.arange(bytes_a_row, dtype=np.uint8) * (256 // bytes_a_row or 1), (256, 1))
    if record.bits == 8:
        codes[:] = np.arange(256)
    else:
        codes[:] = np.random.default_rng(0).integers(0, 256, codes.shape)
    scales = np.repeat(np.arange(256, dtype=np.uint8)[:, None], columns // record.block, axis=1)
    for tensor_scale in (1.0, 3e-5, 1e30) if record.has_tensor_scale else (None,):
        q = mxkern.BlockScaled.from_parts(codes, scales, scheme=scheme, tensor_scale=tensor_scale)
        got = mxkern.dequantize(q, dtype=dtype)
        assert_same(got, expected(q, dtype), f"{scheme} {dtype} {tensor_scale}")


def test_values_of_one_block_by_hand() -> None:
    codes = np.zeros((1, 32), np.uint8)
    codes[0, :5] = [0x38, 0xB8, 0x7E, 0x01, 0x7F]
    q = mxkern.BlockScaled.from_parts(codes, np.uint8([[128]]), scheme="mxfp8_e4m3")
    got = mxkern.dequantize(q)[0, :5]
    np.testing.assert_array_equal(got, np.float32([2, -2, 896, 2 * 2**-9, np.nan]))


def test_dtypes_of_frameworks() -> None:
    q = mxkern.quantize(corner_values(3, 33, "float32"), "mxfp4")
    for dtype, named in ((np.float16, "float16"), (np.dtype("f"), "float32")):
        assert_same(mxkern.dequantize(q, dtype=dtype), expected(q, named), named)
    bfloat16 = mxkern.dequantize(q, dtype=ml_dtypes.bfloat16)
    assert_same(bfloat16, expected(q, "bfloat16"), "bfloat16")
    assert mxkern.gemm(q, q, dtype=ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16


def test_dtypes_of_torch() -> None:
    torch = pytest.importorskip("torch")
    q = mxkern.quantize(torch.ones(4, 64), "mxfp8")
    assert mxkern.dequantize(q, dtype=torch.bfloat16).dtype is torch.bfloat16
    assert mxkern.gemm(q, q, dtype=torch.float16).dtype is torch.float16


def test_out_decides_the_dtype() -> None:
    x = corner_values(5, 70, "float32")
    for scheme in SCHEMES:
        q = mxkern.quantize(x, scheme)
        for dtype in DTYPES:
            out = np.full(x.shape, 7, NUMPY_DTYPES[dtype])
            assert mxkern.dequantize(q, out=out) is out
            assert_same(out, expected(q, dtype), f"{scheme} {dtype}")


def test_uint8_stands_for_every_byte() -> None:
    x = corner_values(5, 70, "float32")
    for scheme in SCHEMES:
        q = mxkern.quantize(x, scheme)
        plain = q.replace(codes=raw(q.codes), scales=raw(q.scales))
        assert_same(mxkern.dequantize(plain), mxkern.dequantize(q), scheme)


def test_parts_that_are_not_contiguous() -> None:
    x = corner_values(6, 64, "float32")
    for scheme in SCHEMES:
        q = mxkern.quantize(x, scheme)
        wide = np.repeat(raw(q.codes), 2, axis=1)[:, ::2]
        tall = np.repeat(raw(q.scales), 2, axis=0)[::2]
        strided = q.replace(codes=wide, scales=tall)
        assert_same(mxkern.dequantize(strided), mxkern.dequantize(q), scheme)


@given(data=st.data(), scheme=st.sampled_from(SCHEMES), layout=st.booleans())
def test_any_bytes(data: st.DataObject, scheme: str, layout: bool) -> None:
    record = mxkern.schemes[scheme]
    shape = tuple(data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=3)))
    scale_layout = "swizzled" if layout else "row_major"

    def drawn(extents: tuple[int, ...]) -> np.ndarray:
        # A short run of arbitrary bytes, repeated: shrinks well and covers every byte value.
        pattern = data.draw(st.binary(min_size=1, max_size=64))
        return np.resize(np.frombuffer(pattern, np.uint8), extents)

    tensor_scale = None
    if record.has_tensor_scale:
        tensor_scale = np.frombuffer(data.draw(st.binary(min_size=4, max_size=4)), np.float32)
    q = mxkern.BlockScaled.from_parts(
        drawn(record.codes_shape(shape)),
        drawn(record.scales_shape(shape, scale_layout)),
        scheme=scheme,
        tensor_scale=tensor_scale,
        shape=shape,
        scale_layout=scale_layout,
    )
    dtype = data.draw(st.sampled_from(DTYPES))
    got = mxkern.dequantize(q, dtype=dtype)
    if len(shape) == 2 and 0 not in shape:
        assert_same(got, expected(q, dtype), f"{scheme} {shape} {dtype}")
    if len(shape) > 1:
        other = mxkern.quantize(np.ones((3, shape[-1]), ml_dtypes.bfloat16), "mxfp8")
        assert mxkern.gemm(q, other).shape == (*shape[:-1], 3)
