# tests/python/values/test_block_scaled.py: BlockScaled as a value: fields, sizes, print,
# from_parts.
from __future__ import annotations

import io
import json
import pickle
import time
from typing import Any

import numpy as np
import pytest

import mxkern
from support import (
    SCHEMES,
    Foreign,
    array_of,
    assert_same,
    assert_same_parts,
    available,
    framework_params,
    random_values,
    raw,
    refused,
)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_fields_and_sizes(scheme: str) -> None:
    record = mxkern.schemes[scheme]
    x = random_values((4, 128), "float32")
    q = mxkern.quantize(x, scheme)
    codes, scales = q.parts[:2]
    assert codes is q.codes and scales is q.scales
    assert (q.scheme, q.shape, q.scale_layout) == (scheme, (4, 128), "row_major")
    scalar = 4 if record.has_tensor_scale else 0
    assert q.nbytes == 4 * 128 * record.bits // 8 + 4 * 128 // record.block + scalar
    assert q.bits_per_element == record.bits_per_element
    with pytest.raises(AttributeError):
        q.codes = codes  # type: ignore[misc]


def test_padding_counts() -> None:
    q = mxkern.quantize(np.ones((1, 33), np.float32), "mxfp4")
    assert q.nbytes == 32 + 2
    assert q.bits_per_element == pytest.approx(8 * 34 / 33)


@pytest.mark.parametrize("framework", framework_params())
def test_prints(framework: str) -> None:
    x = np.float32([[1, -2, 3, 0.5] * 16] * 2)
    q = mxkern.quantize(array_of(framework, x), "nvfp4")
    text = repr(q)
    for part in ("nvfp4", "(2, 64)", "4.5 bits", "4-bit e2m1, packed", "row_major", "tensor_scale"):
        assert part in text, text
    assert "values  1, -2, 3, 0.5, 1, -2, ..." in text
    eight = repr(mxkern.quantize(array_of(framework, x), "mxfp8"))
    assert "2^-7 to 2^-7" in eight, eight
    assert "float8_e8m0fnu (2, 2)" in eight


def test_prints_what_is_special() -> None:
    x = np.ones((2, 64), np.float32)
    x[0, 40] = np.nan
    assert "1 poisoned" in repr(mxkern.quantize(x, "mxfp8"))
    assert "values" not in repr(mxkern.quantize(np.empty((0, 4), np.float32), "mxfp8"))
    assert "swizzled" in repr(mxkern.quantize(x, "mxint8", scale_layout="swizzled"))
    broken = mxkern.quantize(x, "mxfp8").replace(shape=(3, 64))
    assert "not valid" in repr(broken)


def test_prints_every_tensor_scale_that_operations_take() -> None:
    q = mxkern.quantize(random_values((4, 64), "float32"), "nvfp4")
    for scalar in (np.full((1,), 0.5, np.float32), np.full((1, 1), 0.5, np.float32), 0.5):
        other = q.replace(tensor_scale=scalar)
        assert mxkern.dequantize(other).shape == (4, 64)
        assert "tensor_scale  0.5" in repr(other)
        assert other.nbytes == q.nbytes


def test_shapes_of_other_integers() -> None:
    q = mxkern.quantize(random_values((4, 64), "float32"), "mxfp4")
    want = mxkern.dequantize(q)
    shapes: list[Any] = [tuple(np.array(q.shape)), np.zeros(q.shape).shape]
    if available("torch"):
        import torch

        shapes.append(torch.Size(q.shape))
    for shape in shapes:
        other = q.replace(shape=shape)
        np.testing.assert_array_equal(mxkern.dequantize(other), want)
        np.testing.assert_array_equal(mxkern.gemm(other, other), mxkern.gemm(q, q))
    for shape in ((4.0, 64), (True, 64), (-4, 64), (np.bool_(1), 64)):
        with pytest.raises(ValueError, match="expected ints from 0 to"):
            mxkern.dequantize(q.replace(shape=shape))


def json_list(shape: tuple[int, ...]) -> Any:
    return json.loads(json.dumps(shape))


@pytest.mark.parametrize("scheme", ["mxfp8_e4m3", "nvfp4"])
@pytest.mark.parametrize("framework", framework_params())
def test_shapes_that_are_lists(framework: str, scheme: str) -> None:
    """As JSON makes them of tuples."""
    x = array_of(framework, random_values((4, 64), "float32"))
    q = mxkern.quantize(x, scheme)
    other = q.replace(shape=json_list(q.shape))
    assert type(other.shape) is list
    assert_same(raw(mxkern.dequantize(other)), raw(mxkern.dequantize(q)), scheme)
    assert_same(raw(mxkern.gemm(other, other)), raw(mxkern.gemm(q, q)), scheme)
    ready = mxkern.prepare_operand(other, form="expanded")
    assert ready.shape == (4, 64) and type(ready.shape) is tuple
    assert_same(raw(mxkern.gemm(x, ready)), raw(mxkern.gemm(x, q)), scheme)
    assert "shape [4, 64]" in repr(other) and other.nbytes == q.nbytes
    parts = {"scheme": scheme, "tensor_scale": q.tensor_scale}
    made = mxkern.BlockScaled.from_parts(*q.parts[:2], shape=other.shape, **parts)
    assert made.shape == (4, 64) and type(made.shape) is tuple
    empty: Any = []
    with pytest.raises(TypeError, match=r"q\.shape is a list; expected a tuple of one int or more"):
        mxkern.dequantize(q.replace(shape=empty))
    wrong: Any = [-4, 64]
    with pytest.raises(ValueError, match="expected ints from 0 to"):
        mxkern.dequantize(q.replace(shape=wrong))


def test_what_a_loader_of_pytorch_gives() -> None:
    torch = pytest.importorskip("torch")
    import mxkern.torch

    x = torch.from_numpy(random_values((4, 64), "float32"))
    q = mxkern.quantize(x, "nvfp4")
    (given,) = torch.utils.data.DataLoader([q], batch_size=None)
    assert mxkern.dequantize(given).equal(mxkern.dequantize(q))
    assert mxkern.torch.dequantize(given).equal(mxkern.dequantize(q))
    assert mxkern.torch.gemm(x, given).equal(mxkern.gemm(x, q))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("framework", framework_params())
def test_from_parts_makes_a_tensor_scale_a_scalar(framework: str, shape: tuple[int, ...]) -> None:
    x = array_of(framework, random_values((4, 64), "float32"))
    q = mxkern.quantize(x, "nvfp4")
    scale = q.tensor_scale.reshape(shape)
    made = mxkern.BlockScaled.from_parts(*q.parts[:2], scheme="nvfp4", tensor_scale=scale)
    assert tuple(made.tensor_scale.shape) == ()
    assert made.tensor_scale is scale or shape
    assert_same_parts(made, q, framework)
    if framework != "jax":
        assert mxkern.quantize(2 * x, "nvfp4", out=made) is made
        assert float(scale.reshape(())) == float(made.tensor_scale)  # the same memory
    two = array_of(framework, np.ones(2, np.float32))
    with pytest.raises(ValueError, match=r"tensor_scale has shape \(2,\); expected one element"):
        mxkern.BlockScaled.from_parts(*q.parts[:2], scheme="nvfp4", tensor_scale=two)


def test_from_parts_makes_a_tuple_of_ints_of_a_shape() -> None:
    q = mxkern.quantize(random_values((4, 64), "float32"), "mxfp4")
    shapes: list[Any] = [(np.int64(4), np.int32(64)), [4, 64]]
    if available("torch"):
        import torch

        shapes.append(torch.Size((4, 64)))
    for shape in shapes:
        same = mxkern.BlockScaled.from_parts(q.codes, q.scales, scheme="mxfp4", shape=shape)
        assert type(same.shape) is tuple and same.shape == (4, 64)
        assert all(type(n) is int for n in same.shape)


def test_prints_a_large_tensor_at_once() -> None:
    codes = np.zeros((1 << 14, 1 << 14), np.uint8)
    scales = np.zeros((1 << 14, 1 << 9), np.uint8)
    q = mxkern.BlockScaled.from_parts(codes, scales, scheme="mxint8")
    start = time.perf_counter()
    assert "in the first" in repr(q)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("scheme", SCHEMES)
def test_from_parts(scheme: str) -> None:
    for shape in [(70,), (3, 70), (2, 3, 70)]:
        for layout in ("row_major", "swizzled"):
            q = mxkern.quantize(random_values(shape, "float32"), scheme, scale_layout=layout)
            options = {"scheme": scheme, "tensor_scale": q.tensor_scale, "scale_layout": layout}
            same = mxkern.BlockScaled.from_parts(q.codes, q.scales, shape=shape, **options)
            assert same.codes is q.codes and same.facts == q.facts
            plain = mxkern.BlockScaled.from_parts(
                raw(q.codes), raw(q.scales), shape=shape, **options
            )
            np.testing.assert_array_equal(mxkern.dequantize(plain), mxkern.dequantize(q))


def test_from_parts_takes_the_shape_from_the_codes() -> None:
    for scheme in mxkern.schemes:
        q = mxkern.quantize(np.ones((3, 64), np.float32), scheme)
        same = mxkern.BlockScaled.from_parts(
            q.codes, q.scales, scheme=scheme, tensor_scale=q.tensor_scale
        )
        assert same.shape == (3, 64)


def test_from_parts_asks_for_a_shape_that_codes_do_not_say() -> None:
    codes, scales = Foreign(np.zeros((4, 32), np.uint8)), Foreign(np.zeros((4, 2), np.uint8))
    with pytest.raises(ValueError, match=r"from_parts: shape is None.*pass shape="):
        mxkern.BlockScaled.from_parts(codes, scales, scheme="mxfp4")
    q = mxkern.BlockScaled.from_parts(codes, scales, scheme="mxfp4", shape=(4, 64))
    assert mxkern.dequantize(q).shape == (4, 64)


def test_pickles() -> None:
    q = mxkern.quantize(random_values((3, 64), "float32"), "nvfp4")
    same = pickle.loads(pickle.dumps(q))
    np.testing.assert_array_equal(mxkern.dequantize(same), mxkern.dequantize(q))
    scheme = mxkern.schemes["mxfp4"]
    assert pickle.loads(pickle.dumps(scheme)) is scheme


@pytest.mark.parametrize("scheme", SCHEMES)
def test_torch_saves_and_pickles_bytes(scheme: str) -> None:
    torch = pytest.importorskip("torch")
    q = mxkern.quantize(torch.from_numpy(random_values((3, 64), "float32")), scheme)
    file = io.BytesIO()
    torch.save(q, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    stored = q.replace(codes=q.codes.view(torch.uint8), scales=q.scales.view(torch.uint8))
    for same in (saved, pickle.loads(pickle.dumps(stored))):
        assert mxkern.dequantize(same).equal(mxkern.dequantize(q))
    assert saved.codes.dtype == q.codes.dtype and saved.facts == q.facts


def test_schemes_hold_their_records() -> None:
    assert all(scheme in mxkern.schemes for scheme in mxkern.schemes)
    assert "mxfp8" in mxkern.schemes
    assert "fp8" not in mxkern.schemes


def test_table_of_schemes() -> None:
    table = mxkern.schemes
    assert len(table) == 7 and table.names == tuple(scheme.name for scheme in table)
    assert table["mxfp8"] is table["mxfp8_e4m3"] and "nvfp4_e2m1" in table and "fp8" not in table
    bits = {scheme.name: scheme.bits_per_element for scheme in table}
    assert bits == {
        "mxfp8_e4m3": 8.25,
        "mxfp8_e5m2": 8.25,
        "mxfp6_e3m2": 6.25,
        "mxfp6_e2m3": 6.25,
        "mxfp4": 4.25,
        "mxint8": 8.25,
        "nvfp4": 4.5,
    }
    assert table["nvfp4"].compression_float32 == 32 / 4.5
    assert table["nvfp4"].compression_float16 == 16 / 4.5
    assert table["mxfp8_e5m2"].max_value == 57344
    text = repr(table)
    assert all(name in text for name in table.names)
    with pytest.raises(KeyError, match="did you mean 'mxfp4'"):
        table["mxpf4"]
    with pytest.raises(AttributeError, match="read-only"):
        table["mxfp4"].bits = 5
    with pytest.raises(AttributeError, match="read-only"):
        del table["mxfp4"].bits


@pytest.mark.parametrize("scheme", ["mxfp4", "nvfp4"])
def test_packed_e2m1_of_pytorch(scheme: str) -> None:
    """Two codes a byte under PyTorch's own name for it, transposed ones too."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this PyTorch has no float4_e2m1fn_x2")
    x = random_values((6, 64), "float32")
    q = mxkern.quantize(torch.from_numpy(x), scheme)
    named = q.codes.view(torch.float4_e2m1fn_x2)
    options = {"scheme": scheme, "tensor_scale": q.tensor_scale}
    same = mxkern.BlockScaled.from_parts(named, q.scales, **options)
    assert same.shape == (6, 64)
    assert torch.equal(mxkern.dequantize(same), mxkern.dequantize(q))
    assert torch.equal(mxkern.gemm(same, same), mxkern.gemm(q, q))
    apart = q.codes.t().contiguous().t().view(torch.float4_e2m1fn_x2)
    assert not apart.is_contiguous()
    assert torch.equal(mxkern.dequantize(q.replace(codes=apart)), mxkern.dequantize(q))
    assert "packed" in repr(same)
    codes = torch.zeros(6, 48, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises(TypeError, match="codes has dtype float4_e2m1fn_x2; expected uint8"):
        mxkern.BlockScaled.from_parts(codes, q.scales[:, :2], scheme="mxfp6_e2m3")


def test_from_parts_names_its_own_arguments() -> None:
    codes, scales = np.zeros((2, 32), np.uint8), np.full((2, 1), 127, np.uint8)
    make = mxkern.BlockScaled.from_parts
    function = "BlockScaled.from_parts: "
    wrong = codes.astype(np.float32)
    refused(TypeError, lambda: make(wrong, scales, scheme="mxfp8"), f"{function}codes has dtype")
    refused(
        ValueError, lambda: make(codes, scales[:1], scheme="mxfp8"), f"{function}scales has shape"
    )
    text = f"{function}tensor_scale is given, but mxfp8_e4m3 has none"
    refused(ValueError, lambda: make(codes, scales, scheme="mxfp8", tensor_scale=1.0), text)
    packed, bytes_of_scales = np.zeros((2, 8), np.uint8), np.full((2, 1), 0x38, np.uint8)
    for value in (-1.0, np.nan, np.inf):
        refused(
            ValueError,
            lambda s=value: make(packed, bytes_of_scales, scheme="nvfp4", tensor_scale=s),
            f"{function}tensor_scale is",
        )


def test_subclasses() -> None:
    class Named(mxkern.BlockScaled):
        pass

    q = mxkern.quantize(np.ones((4, 64), np.float32), "mxfp8")
    named = Named(*q.parts, *q.facts)
    assert (mxkern.dequantize(named) == 1).all() and (mxkern.gemm(named, named) == 64).all()


def test_parts_of_other_libraries_print() -> None:
    """What lies in memory is seen through DLPack, and an array of that need not say more."""
    q = mxkern.quantize(random_values((4, 64), "float32"), "mxfp4")
    parts = [Foreign(part.view(np.uint8)) for part in (q.codes, q.scales)]
    same = mxkern.BlockScaled.from_parts(*parts, scheme="mxfp4", shape=(4, 64))
    assert same.nbytes == q.nbytes == 4 * 32 + 4 * 2
    assert same.bits_per_element == q.bits_per_element == 4.25
    assert repr(same).split("values")[1] == repr(q).split("values")[1]


def test_sizes_of_shapes_of_little_integers() -> None:
    q = mxkern.quantize(np.ones((3, 96), np.float32), "mxfp4")
    other = q.replace(shape=(np.uint8(3), np.uint8(96)))
    assert other.nbytes == q.nbytes == 3 * 51
    assert other.bits_per_element == q.bits_per_element == 4.25
