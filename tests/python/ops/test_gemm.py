# tests/python/ops/test_gemm.py: gemm against float64 products of the dequantized operands.
from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import mxkern
from support import DTYPES, NUMPY_DTYPES, SCHEMES, random_values

# The unit of the last place of each result dtype, at 1.
LAST_PLACE = {"float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}


def exact(operand: Any) -> np.ndarray:
    if isinstance(operand, mxkern.BlockScaled):
        operand = mxkern.dequantize(operand)
    return np.asarray(operand).astype(np.float64)


def check_product(got: np.ndarray, a: Any, b: Any, dtype: str, what: str, added: Any = 0.0) -> None:
    """Within the bound of a float32 sum of K products in any order, and one rounding to dtype."""
    a, b = exact(a), exact(b)
    want = a @ np.swapaxes(b, -1, -2) + added
    size = np.abs(a) @ np.swapaxes(np.abs(b), -1, -2) + np.abs(added)
    bound = (a.shape[-1] + 4) * 2**-24 * size + LAST_PLACE[dtype] / 2 * np.abs(want) + 2**-140
    if dtype == "float16":
        bound = bound + 2**-25
    assert got.dtype == NUMPY_DTYPES[dtype]
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    off = np.abs(got.astype(np.float64) - want)
    bad = np.argwhere(~(off <= bound))
    if len(bad):
        place = tuple(int(i) for i in bad[0])
        pytest.fail(
            f"{what}: {len(bad)} of {got.size} are off, the first at {place}: got {got[place]}, "
            f"expected {want[place]} within {bound[place]}"
        )


@pytest.mark.parametrize("b_scheme", SCHEMES)
@pytest.mark.parametrize("a_scheme", SCHEMES)
def test_every_pair_of_schemes(a_scheme: str, b_scheme: str) -> None:
    for (m, n, k), layouts in itertools.product(
        [(1, 1, 1), (5, 9, 33), (33, 17, 160), (64, 70, 96)],
        [("row_major", "swizzled"), ("swizzled", "row_major")],
    ):
        a = mxkern.quantize(random_values((m, k), "float32", 1), a_scheme, scale_layout=layouts[0])
        b = mxkern.quantize(random_values((n, k), "float32", 2), b_scheme, scale_layout=layouts[1])
        check_product(mxkern.gemm(a, b), a, b, "float32", f"{a_scheme} {b_scheme} {(m, n, k)}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_plain_left_operand(scheme: str, dtype: str) -> None:
    b = mxkern.quantize(random_values((21, 100), "float32"), scheme)
    for a_dtype in DTYPES:
        a = np.random.default_rng(0).standard_normal((13, 100)).astype(NUMPY_DTYPES[a_dtype])
        small = mxkern.gemm(a, b, dtype=dtype, alpha=2**-10)
        check_product(small, a, exact(b) * 2**-10, dtype, f"{a_dtype} {scheme} {dtype}")
        strided = np.repeat(a, 2, axis=1)[:, ::2]
        np.testing.assert_array_equal(mxkern.gemm(strided, b, dtype=dtype, alpha=2**-10), small)
        rows = np.repeat(a, 2, axis=0)[::2]
        np.testing.assert_array_equal(mxkern.gemm(rows, b, dtype=dtype, alpha=2**-10), small)


@pytest.mark.parametrize("dtype", DTYPES)
def test_alpha_beta_bias_out(dtype: str) -> None:
    generator = np.random.default_rng(0)
    a = mxkern.quantize(generator.standard_normal((7, 64), np.float32), "mxfp8")
    b = mxkern.quantize(generator.standard_normal((10, 64), np.float32), "nvfp4")
    start = generator.standard_normal((7, 10)).astype(NUMPY_DTYPES[dtype])
    for bias_dtype in DTYPES:
        bias = generator.standard_normal(10).astype(NUMPY_DTYPES[bias_dtype])
        out = start.copy()
        assert mxkern.gemm(a, b, out=out, alpha=0.5, beta=-2.0, bias=bias) is out
        added = -2.0 * start.astype(np.float64) + bias.astype(np.float64)
        check_product(out, exact(a) * 0.5, b, dtype, f"{dtype} {bias_dtype}", added)


@pytest.mark.parametrize("dtype", DTYPES)
def test_out_takes_the_bytes_of_a_new_product(dtype: str) -> None:
    generator = np.random.default_rng(1)
    a = mxkern.quantize(generator.standard_normal((7, 64), np.float32), "mxfp6")
    b = mxkern.quantize(generator.standard_normal((10, 64), np.float32), "nvfp4")
    start = generator.standard_normal((7, 10)).astype(NUMPY_DTYPES[dtype])
    new = mxkern.gemm(a, b, dtype=dtype, alpha=0.5)
    out = start.copy()
    # The dtype is that of out, whatever dtype says.
    assert mxkern.gemm(a, b, dtype="float32", out=out, alpha=0.5) is out
    assert out.tobytes() == new.tobytes()
    out = start.copy()
    assert mxkern.gemm(a, b, out=out, alpha=0.5, beta=-2.0) is out
    check_product(out, exact(a) * 0.5, b, dtype, dtype, -2.0 * start.astype(np.float64))
    # A bias of zeros takes another way through the package, to the same bytes.
    again = start.copy()
    mxkern.gemm(a, b, out=again, alpha=0.5, beta=-2.0, bias=np.zeros(10, np.float32))
    assert out.tobytes() == again.tobytes()
    square = np.ones((7, 7), NUMPY_DTYPES[dtype])
    assert (mxkern.gemm(a, a, out=square) == mxkern.gemm(a, a, dtype=dtype)).all()


def test_beta_zero_does_not_read_out() -> None:
    a = mxkern.quantize(np.ones((3, 32), np.float32), "mxfp4")
    out = np.full((3, 3), np.nan, np.float32)
    np.testing.assert_array_equal(mxkern.gemm(a, a, out=out), np.full((3, 3), 32, np.float32))


def test_batches() -> None:
    a = mxkern.quantize(random_values((2, 3, 5, 70), "float32", 1), "mxfp6")
    many = mxkern.quantize(random_values((2, 3, 4, 70), "float32", 2), "mxint8")
    one = mxkern.quantize(random_values((4, 70), "float32", 3), "nvfp4", scale_layout="swizzled")
    check_product(mxkern.gemm(a, many), a, many, "float32", "a matrix each")
    check_product(mxkern.gemm(a, one), a, one, "float32", "one matrix for all")
    vector = mxkern.quantize(random_values((70,), "float32", 4), "mxfp8")
    check_product(mxkern.gemm(vector, one), vector, one, "float32", "a vector")
    check_product(mxkern.gemm(exact(a).astype("f"), one), a, one, "float32", "plain")


def test_matrices_of_one_row_far_apart() -> None:
    b = mxkern.quantize(random_values((24, 96), "float32", 1), "mxfp4")
    x = random_values((7, 5, 96), "float32", 2)
    last = x[:, -1:]
    want = mxkern.gemm(last.copy(), b)
    np.testing.assert_array_equal(mxkern.gemm(last, b), want)
    for got, expected in zip(
        mxkern.quantize(last, "mxfp8").parts[:2],
        mxkern.quantize(last.copy(), "mxfp8").parts[:2],
        strict=True,
    ):
        np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_poisoned_block_reaches_its_row_and_nothing_else(scheme: str) -> None:
    x = random_values((6, 96), "float32")
    y = random_values((8, 96), "float32")
    clean = mxkern.gemm(mxkern.quantize(x, scheme, amax=8.0) if scheme == "nvfp4" else
                        mxkern.quantize(x, scheme), mxkern.quantize(y, scheme))  # fmt: skip
    x[2, 40], y[5, 3] = np.nan, np.inf
    options = {"amax": 8.0} if scheme == "nvfp4" else {}
    # y's largest magnitude is not in the poisoned row, so that the other rows stay as they were.
    y[0, 0] = np.abs(y[np.isfinite(y)]).max() * 2
    got = mxkern.gemm(mxkern.quantize(x, scheme, **options), mxkern.quantize(y, scheme))
    poisoned = np.zeros((6, 8), bool)
    poisoned[2], poisoned[:, 5] = True, True
    np.testing.assert_array_equal(np.isnan(got), poisoned)
    if scheme != "nvfp4":
        same = ~poisoned
        same[:, 0] = False
        np.testing.assert_array_equal(got[same], clean[same])


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinite_codes(dtype: str) -> None:
    """E5M2's, which come from elsewhere: Inf however many rows there are, and NaN beside a zero."""
    codes = np.full((20, 64), 0x3C, np.uint8)
    codes[3, 5], codes[4, 6] = 0x7C, 0xFC
    ones = np.full((20, 2), 127, np.uint8)
    b = mxkern.BlockScaled.from_parts(codes, ones, scheme="mxfp8_e5m2")
    for m in (1, 5, 9, 40):
        a = np.ones((m, 64), NUMPY_DTYPES[dtype])
        a[-1, 5] = 0
        want = np.full((m, 20), 64.0)
        want[-1] = 63
        want[:, 3], want[:, 4], want[-1, 3] = np.inf, -np.inf, np.nan
        np.testing.assert_array_equal(mxkern.gemm(a, b), want)


def test_an_infinite_alpha() -> None:
    """It is a float32 as any other, and makes Inf of what is not zero."""
    q = mxkern.quantize(np.ones((4, 64), np.float32), "mxfp8")
    for alpha in (np.inf, -np.inf):
        np.testing.assert_array_equal(mxkern.gemm(q, q, alpha=alpha), np.full((4, 4), alpha))


@pytest.mark.parametrize("shapes", [((3, 0), (4, 0)), ((0, 32), (4, 32)), ((3, 32), (0, 32))])
def test_zero_sizes(shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    a, b = (mxkern.quantize(np.ones(shape, np.float32), "mxfp8") for shape in shapes)
    bias = np.arange(shapes[1][0], dtype=np.float32)
    got = mxkern.gemm(a, b, bias=bias)
    assert got.shape == (shapes[0][0], shapes[1][0])
    if shapes[0][1] == 0:
        np.testing.assert_array_equal(got, np.tile(bias, (3, 1)))


def test_results_do_not_depend_on_the_call() -> None:
    a = mxkern.quantize(random_values((200, 300), "bfloat16", 1), "mxfp8")
    b = mxkern.quantize(random_values((150, 300), "bfloat16", 2), "nvfp4")
    first = mxkern.gemm(a, b)
    for _ in range(3):
        np.testing.assert_array_equal(mxkern.gemm(a, b), first)
    np.testing.assert_array_equal(mxkern.gemm(a, b, out=np.empty_like(first)), first)
