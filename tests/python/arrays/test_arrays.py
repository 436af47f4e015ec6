# tests/python/arrays/test_arrays.py: the same bytes from NumPy, PyTorch and JAX, and every kind of
# input.
from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mxkern
from support import (
    DTYPES,
    NUMPY_DTYPES,
    SCHEMES,
    Foreign,
    array_of,
    assert_same,
    assert_same_parts,
    available,
    corner_values,
    framework_params,
    mostly_slow,
    random_values,
    raw,
    refused,
)

needs_torch = pytest.mark.skipif(not available("torch"), reason="torch is not installed")
needs_jax = pytest.mark.skipif(not available("jax"), reason="jax is not installed")

CODES = {
    "mxfp8_e4m3": "float8_e4m3fn",
    "mxfp8_e5m2": "float8_e5m2",
    "mxfp6_e3m2": "uint8",
    "mxfp6_e2m3": "uint8",
    "mxfp4": "uint8",
    "mxint8": "int8",
    "nvfp4": "uint8",
}


def dtype_name(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


@pytest.mark.parametrize("framework", framework_params())
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", mostly_slow(SCHEMES, "mxfp6_e2m3", "nvfp4"))
def test_same_bytes(scheme: str, dtype: str, framework: str) -> None:
    for shape in [(3, 50), (70, 96)]:
        x = corner_values(*shape, dtype)
        given = array_of(framework, x)
        for layout in ("row_major", "swizzled"):
            options = {"scale_layout": layout}
            want = mxkern.quantize(x, scheme, **options)
            got = mxkern.quantize(given, scheme, **options)
            what = f"{framework} {dtype} {scheme} {shape} {layout}"
            assert_same_parts(got, want, what)
            assert type(got.codes) is type(given) and type(got.scales) is type(given)
            assert dtype_name(got.codes) == CODES[scheme]
            scales = "float8_e4m3fn" if scheme == "nvfp4" else "float8_e8m0fnu"
            assert dtype_name(got.scales) == scales
            rows, columns = mxkern.quantize_both(given, scheme, **options)
            assert_same_parts(rows, want, f"{what} both: rows")
            want_columns = mxkern.quantize_columns(x, scheme, **options)
            assert_same_parts(columns, want_columns, f"{what} both: columns")
            decoded = mxkern.dequantize(got, dtype=dtype)
            assert type(decoded) is type(given) and dtype_name(decoded) == dtype
            want_decoded = raw(mxkern.dequantize(want, dtype=dtype))
            assert_same(raw(decoded), want_decoded, f"{what} dequantize")


@pytest.mark.parametrize("framework", framework_params())
def test_the_other_operations(framework: str) -> None:
    x, y = random_values((6, 64), "float32", 1), random_values((5, 64), "float32", 2)
    given = array_of(framework, x)
    assert_same(raw(mxkern.random_hadamard(given)), raw(mxkern.random_hadamard(x)), framework)
    amax = mxkern.tensor_amax(given)
    assert type(amax) is type(given) and float(amax) == np.abs(x).max() and amax.shape == ()
    a, b = (
        mxkern.quantize(given, "nvfp4", amax=amax),
        mxkern.quantize(array_of(framework, y), "mxfp8"),
    )
    bias = array_of(framework, np.arange(5, dtype=np.float32))
    want = mxkern.gemm(
        mxkern.quantize(x, "nvfp4"), mxkern.quantize(y, "mxfp8"), bias=np.arange(5, dtype="f")
    )
    product = mxkern.gemm(a, b, bias=bias)
    assert type(product) is type(given)
    assert_same(raw(product), raw(want), framework)
    plain = mxkern.gemm(given, b, dtype="bfloat16")
    assert dtype_name(plain) == "bfloat16" and tuple(plain.shape) == (6, 5)
    rebuilt = mxkern.BlockScaled.from_parts(a.codes, a.scales, scheme="nvfp4", tensor_scale=0.5)
    assert type(rebuilt.tensor_scale) is type(given) and float(rebuilt.tensor_scale) == 0.5


@pytest.mark.parametrize("framework", framework_params("numpy", "torch"))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_out_is_filled_and_returned(scheme: str, framework: str) -> None:
    x, other = (array_of(framework, random_values((40, 64), "float32", i)) for i in (1, 2))
    for layout in ("row_major", "swizzled"):
        want = mxkern.quantize(x, scheme, scale_layout=layout)
        out = mxkern.quantize(other, scheme, scale_layout=layout)
        assert mxkern.quantize(x, scheme, scale_layout=layout, out=out) is out
        assert_same_parts(out, want, f"{framework} {scheme} {layout}")
    pair = mxkern.quantize_both(other, scheme)
    assert mxkern.quantize_both(x, scheme, out=pair) is pair
    assert_same_parts(pair[0], mxkern.quantize(x, scheme), "rows")
    assert_same_parts(pair[1], mxkern.quantize_columns(x, scheme), "columns")
    amax = mxkern.tensor_amax(other)
    assert mxkern.tensor_amax(x, out=amax) is amax
    assert float(amax) == float(abs(x).max())


def strided_views(x: np.ndarray) -> dict[str, np.ndarray]:
    """Views with the values of x, in as many memory layouts as there are."""
    rows, columns = x.shape
    wide = np.zeros((rows, 2 * columns), x.dtype)
    wide[:, ::2] = x
    padded = np.zeros((rows, columns + 7), x.dtype)
    padded[:, :columns] = x
    tall = np.zeros((3 * rows, columns), x.dtype)
    tall[::3] = x
    shifted = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    shifted[:] = x
    read_only = x.copy()
    read_only.flags.writeable = False
    return {
        "column-major": np.asfortranarray(x),
        "every other column": wide[:, ::2],
        "padded rows": padded[:, :columns],
        "every third row": tall[::3],
        "backwards": x[::-1, ::-1].copy()[::-1, ::-1],
        "unaligned": shifted,
        "read-only": read_only,
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_strides(dtype: str) -> None:
    x = corner_values(37, 80, dtype)
    for scheme in ("mxfp8_e4m3", "nvfp4"):
        want = mxkern.quantize_both(x, scheme)
        for name, view in strided_views(x).items():
            for got, side in zip(mxkern.quantize_both(view, scheme), want, strict=True):
                assert_same_parts(got, side, f"{dtype} {scheme} {name}")
            assert_same_parts(mxkern.quantize(view, scheme), want[0], f"{dtype} {scheme} {name}")


def test_strided_batches() -> None:
    x = random_values((4, 6, 10, 64), "float32")
    views = [x[::2], x[:, ::2], x[:, :, ::2], x.transpose(1, 0, 2, 3), x.transpose(3, 1, 2, 0)]
    views += [np.broadcast_to(x[0, 0, 0], (3, 4, 64)), np.broadcast_to(x[:1], (4, 6, 10, 64))]
    for view in views:
        want = mxkern.quantize(np.ascontiguousarray(view), "mxfp4")
        assert_same_parts(mxkern.quantize(view, "mxfp4"), want, f"strides {view.strides}")
        columns = mxkern.quantize_columns(view, "mxfp4")
        want = mxkern.quantize_columns(np.ascontiguousarray(view), "mxfp4")
        assert_same_parts(columns, want, f"strides {view.strides}, columns")


def test_byte_order_and_memory_maps(tmp_path: Path) -> None:
    x = random_values((5, 64), "float32")
    want = mxkern.quantize(x, "mxfp8")
    for swapped in (x.astype(">f4"), x.astype(">f4")[:, ::1]):
        assert_same_parts(mxkern.quantize(swapped, "mxfp8"), want, "big-endian")
    half = x.astype(np.float16)
    assert_same_parts(
        mxkern.quantize(half.astype(">f2"), "mxfp8"), mxkern.quantize(half, "mxfp8"), "big-endian"
    )
    x.tofile(tmp_path / "x.bin")
    mapped = np.memmap(tmp_path / "x.bin", np.float32, mode="r", shape=x.shape)
    q = mxkern.quantize(mapped, "mxfp8")
    assert type(q.codes) is np.ndarray
    assert_same_parts(q, want, "memory map")


def test_numbers_between_two_elements() -> None:
    """A tensor scale and an amax at an address that is no multiple of four."""
    odd = np.zeros(5, np.uint8)[1:].view(np.float32)
    odd[:] = 0.37
    even = odd.copy()
    assert even.flags.aligned and not odd.flags.aligned
    x = random_values((4, 64), "float32")
    q = mxkern.quantize(x, "nvfp4", amax=even)
    assert_same_parts(mxkern.quantize(x, "nvfp4", amax=odd), q, "amax")
    got, want = (mxkern.dequantize(q.replace(tensor_scale=each)) for each in (odd, even))
    assert_same(got, want, "tensor_scale")


def test_dlpack() -> None:
    x = random_values((5, 64), "float32")
    q = mxkern.quantize(Foreign(x), "mxfp8")
    assert type(q.codes) is np.ndarray
    assert_same_parts(q, mxkern.quantize(x, "mxfp8"), "DLPack")


def test_dlpack_goes_with_numpy() -> None:
    x, bias = random_values((5, 64), "float32"), random_values((7,), "float32")
    w = mxkern.quantize(random_values((7, 64), "float32"), "mxfp4")
    for a, b in ((Foreign(x), bias), (x, Foreign(bias)), (Foreign(x), Foreign(bias))):
        assert (mxkern.gemm(a, w, bias=b) == mxkern.gemm(x, w, bias=bias)).all()
    n = mxkern.quantize(x, "nvfp4")
    amax = mxkern.tensor_amax(Foreign(x))
    assert_same_parts(mxkern.quantize(Foreign(x), "nvfp4", amax=amax), n, "amax of NumPy")
    assert_same_parts(mxkern.quantize(x, "nvfp4", amax=Foreign(amax)), n, "amax through DLPack")
    codes, scales = Foreign(n.codes), Foreign(n.scales.view(np.uint8))
    for scalar in (float(n.tensor_scale), n.tensor_scale, Foreign(n.tensor_scale)):
        q = mxkern.BlockScaled.from_parts(
            codes, scales, scheme="nvfp4", tensor_scale=scalar, shape=(5, 64)
        )
        assert (mxkern.dequantize(q) == mxkern.dequantize(n)).all()
    with pytest.raises(TypeError, match=r"out is a support.Foreign; expected an array of NumPy"):
        mxkern.dequantize(n, out=Foreign(np.zeros((5, 64), np.float32)))


@needs_torch
def test_torch_views() -> None:
    import torch

    x = torch.from_numpy(random_values((37, 80), "float32"))
    want = mxkern.quantize_both(x, "mxfp8")
    wide, tall = x.repeat_interleave(2, 1)[:, ::2], x.repeat_interleave(3, 0)[::3]
    negated = torch.complex(x, -x).conj().imag
    assert negated.is_neg()
    for name, view in {
        "column-major": x.t().contiguous().t(),
        "every other column": wide,
        "every third row": tall,
        "expanded": x[None].expand(2, 37, 80)[1],
        "negative view": negated,
        "parameter": torch.nn.Parameter(x, requires_grad=False),
    }.items():
        for got, side in zip(mxkern.quantize_both(view, "mxfp8"), want, strict=True):
            assert_same_parts(got, side, name)
    weight = torch.nn.Parameter(x)
    with torch.no_grad():
        assert_same_parts(mxkern.quantize(weight, "mxfp8"), want[0], "no_grad")


@needs_torch
def test_flushing_subnormals_changes_nothing() -> None:
    import torch

    x = (np.random.default_rng(0).standard_normal((8, 256)) * 2.0**-130).astype(np.float32)
    want = {scheme: mxkern.quantize(x, scheme) for scheme in SCHEMES}
    decoded = {scheme: mxkern.dequantize(q) for scheme, q in want.items()}
    products = {scheme: mxkern.gemm(q, q) for scheme, q in want.items()}
    assert torch.set_flush_denormal(True)
    try:
        for scheme in SCHEMES:
            got = mxkern.quantize(torch.from_numpy(x), scheme)
            assert_same_parts(got, want[scheme], scheme)
            assert_same(raw(mxkern.dequantize(got)), raw(decoded[scheme]), f"{scheme} decoded")
            assert_same(raw(mxkern.gemm(got, got)), raw(products[scheme]), f"{scheme} product")
    finally:
        torch.set_flush_denormal(False)


NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "amax": lambda x, q: mxkern.quantize(x, "nvfp4", amax=2.0**-128),
    "tensor_scale": lambda x, q: mxkern.quantize(x, "nvfp4", tensor_scale=1.23e-40),
    "tensor_scale with more": lambda x, q: mxkern.quantize(
        x, "nvfp4", tensor_scale=1.23e-40, rounding="stochastic", seed=1
    ),
    "alpha": lambda x, q: mxkern.gemm(q, q, alpha=1.23e-40),
    "alpha of plain a": lambda x, q: mxkern.gemm(x, q, alpha=1.23e-40),
    "beta": lambda x, q: mxkern.gemm(q, q, beta=1.23e-40, out=x[:, :8] * 0 + 2.0**100),
    "parts": lambda x, q: mxkern.BlockScaled.from_parts(
        q.codes, q.scales, scheme="nvfp4", tensor_scale=1.23e-40
    ),
}


@needs_torch
@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("name", NUMBERS)
def test_flushing_subnormals_changes_no_number(name: str, framework: str) -> None:
    import torch

    values = (np.random.default_rng(0).standard_normal((8, 256)) * 2.0**20).astype(np.float32)
    x = array_of(framework, values)
    q = mxkern.quantize(x, "nvfp4")
    want = NUMBERS[name](x, q)
    assert torch.set_flush_denormal(True)
    try:
        got = NUMBERS[name](x, q)
    finally:
        torch.set_flush_denormal(False)
    if isinstance(want, mxkern.BlockScaled):
        assert_same_parts(got, want, name)
    else:
        assert raw(want).any()
        assert_same(raw(got), raw(want), name)


@pytest.mark.parametrize("argument", ["amax", "tensor_scale"])
def test_numbers_at_the_ends_of_float32(argument: str) -> None:
    """What rounds to a float32 is one; -0 is 0."""
    x = random_values((4, 64), "float32")
    q = mxkern.quantize(x, "nvfp4", **{argument: 0.0})
    assert_same_parts(mxkern.quantize(x, "nvfp4", **{argument: -0.0}), q, "-0")
    zero = np.float32(-0.0).reshape(())
    assert_same_parts(mxkern.quantize(x, "nvfp4", **{argument: zero}), q, "an array of -0")
    largest = float(np.finfo(np.float32).max)
    want = mxkern.quantize(x, "nvfp4", **{argument: largest})
    assert_same_parts(mxkern.quantize(x, "nvfp4", **{argument: 3.4028235e38}), want, "3.4028235e38")
    for number in (2.0**128 - 2.0**103, 1e39, math.inf):
        call = lambda n=number: mxkern.quantize(x, "nvfp4", **{argument: n})  # noqa: E731
        refused(ValueError, call, f"{argument} is {number}", "a finite float32")


def test_numbers_at_the_ends_of_float32_in_products() -> None:
    x = random_values((4, 64), "float32")
    q = mxkern.quantize(x, "mxfp8")
    want = mxkern.gemm(q, q, alpha=float(np.finfo(np.float32).max))
    assert_same(mxkern.gemm(q, q, alpha=3.4028235e38), want, "alpha")
    beyond = 2.0**128 - 2.0**103
    refused(ValueError, lambda: mxkern.gemm(q, q, alpha=-beyond), "alpha is -3.4", "float32 holds")


@needs_torch
def test_pytree_of_torch() -> None:
    import torch
    from torch.utils import _pytree

    q = mxkern.quantize(torch.ones(2, 32), "mxfp8")
    doubled = _pytree.tree_map(lambda leaf: leaf, q)
    assert type(doubled) is mxkern.BlockScaled and doubled.scheme == "mxfp8_e4m3"


@needs_jax
def test_pytree_of_jax() -> None:
    import jax

    q = mxkern.quantize(jax.numpy.ones((2, 32)), "mxfp8")
    leaves, _ = jax.tree_util.tree_flatten(q)
    assert len(leaves) == 2
    same = jax.jit(lambda tree: tree)(q)
    assert type(same) is mxkern.BlockScaled and same.facts == q.facts
    assert_same_parts(same, q, "through jit")


@needs_jax
def test_jax_devices_and_slices() -> None:
    import jax.numpy as jnp

    x = jnp.asarray(random_values((8, 64), "bfloat16"))
    want = mxkern.quantize(np.asarray(x)[::2, 3:], "nvfp4")
    got = mxkern.quantize(x[::2, 3:], "nvfp4")
    assert_same_parts(got, want, "slice")
    assert got.codes.devices() == x.devices()
    assert NUMPY_DTYPES["bfloat16"] == ml_dtypes.bfloat16
