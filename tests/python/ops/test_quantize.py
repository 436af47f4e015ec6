# tests/python/ops/test_quantize.py: every byte of quantize against the reference.
from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mxkern
import reference
from support import (
    DTYPES,
    NUMPY_DTYPES,
    SCHEMES,
    array_of,
    assert_same_parts,
    check_quantized,
    corner_values,
    framework_params,
    mostly_slow,
    random_values,
    raw,
)

LAYOUTS = ("row_major", "swizzled")
SHAPES = [(1, 1), (3, 15), (2, 16), (5, 33), (33, 64), (130, 100), (7, 257)]


def rules_of(scheme: str) -> tuple[str, ...]:
    return ("rceil",) if scheme == "nvfp4" else reference.RULES


def square_of(scheme: str) -> str:
    return "16x16" if scheme == "nvfp4" else "32x32"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_and_columns(scheme: str, dtype: str) -> None:
    for shape, rule in itertools.product(SHAPES, rules_of(scheme)):
        x = corner_values(*shape, dtype)
        for columns, square in itertools.product((False, True), (False, True)):
            want = reference.quantize(x, scheme, scale_rule=rule, square=square, columns=columns)
            operation = mxkern.quantize_columns if columns else mxkern.quantize
            for layout in LAYOUTS:
                q = operation(
                    x,
                    scheme,
                    scale_rule=rule,
                    block=square_of(scheme) if square else None,
                    scale_layout=layout,
                )
                what = f"{scheme} {dtype} {shape} {rule} columns={columns} square={square} {layout}"
                check_quantized(q, want, shape[::-1] if columns else shape, what)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_both_is_rows_and_columns(scheme: str) -> None:
    for shape in [(33, 64), (130, 100), (2, 40, 48)]:
        x = random_values(shape, "bfloat16")
        rows, columns = mxkern.quantize_both(x, scheme, scale_layout="swizzled")
        transposed = (*shape[:-2], shape[-1], shape[-2])
        check_quantized(rows, reference.quantize(x, scheme), shape, f"{scheme} rows")
        want = reference.quantize(x, scheme, columns=True)
        check_quantized(columns, want, transposed, f"{scheme} columns")


@pytest.mark.parametrize("shape", [(0,), (1,), (31,), (32,), (97,), (2, 3, 50), (2, 1, 3, 17)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_vectors_and_batches(scheme: str, shape: tuple[int, ...]) -> None:
    x = random_values(shape, "float32")
    for layout in LAYOUTS:
        q = mxkern.quantize(x, scheme, scale_layout=layout)
        check_quantized(q, reference.quantize(x, scheme), shape, f"{scheme} {shape} {layout}")


@pytest.mark.parametrize("shape", [(0, 64), (64, 0), (0, 0), (2, 0, 32), (0, 5, 32), (2**40, 0)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_elements(scheme: str, shape: tuple[int, ...]) -> None:
    x = np.empty(shape, np.float32)
    q = mxkern.quantize(x, scheme)
    assert q.shape == shape
    assert raw(q.codes).size == 0
    assert mxkern.dequantize(q).shape == shape
    if scheme == "nvfp4":
        assert q.tensor_scale == 1
    columns = mxkern.quantize_columns(x, scheme)
    assert columns.shape == (*shape[:-2], shape[-1], shape[-2])


@pytest.mark.parametrize("scheme", SCHEMES[:-1])
def test_scales_around_every_power_of_two(scheme: str) -> None:
    """Blocks whose largest magnitude, in units of the format's largest or of a power of two, is a
    power of two, its neighbours, or halfway to the next: from the subnormals to the end."""
    exponents = np.arange(-149, 128)
    units = [1.0, 1.25, 1.5, 1.75, mxkern.schemes[scheme].max_value]
    amax = (2.0**exponents * np.array(units)[:, None]).ravel()
    amax = amax[amax < np.finfo(np.float32).max].astype(np.float32)
    around = amax.view(np.uint32)[:, None] + np.array([-2, -1, 0, 1, 2])
    around = around.clip(0, 0x7F7FFFFF).astype(np.uint32).view(np.float32).ravel()
    x = np.zeros((around.size, 32), np.float32)
    x[:, 7] = around
    for rule in reference.RULES:
        want = reference.quantize(x, scheme, scale_rule=rule)
        check_quantized(mxkern.quantize(x, scheme, scale_rule=rule), want, x.shape, rule)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_even_carries_beyond_float32(dtype: str) -> None:
    """The exponent of the rounded amax counts as 255 then."""
    x = np.full((1, 32), 1e34).astype(NUMPY_DTYPES[dtype])
    x[0, 0] = 3.39e38
    rules = ("floor", "rceil", "ceil", "even")
    for scheme, emax in zip(SCHEMES[:-1], (8, 15, 4, 2, 2, 0), strict=True):
        scales = [int(raw(mxkern.quantize(x, scheme, scale_rule=r).scales)[0, 0]) for r in rules]
        even = min(255 - emax, 254)
        assert scales == [254 - emax, even, even, even], (
            f"{scheme}: {dict(zip(rules, scales, strict=True))}"
        )


@pytest.mark.parametrize("scheme", SCHEMES[:-1])
def test_every_bfloat16_beside_every_exponent(scheme: str) -> None:
    """Blocks of eight neighbours among the values of an exponent, under a largest element up to 24
    octaves above, in the middle of the exponents and at both ends: what kernels for bfloat16 may
    take apart."""
    mantissas = np.tile(np.arange(128, dtype=np.uint16).reshape(16, 8), 4)
    blocks = []
    for top in (1, 2, 20, 62, 64, 66, 127, 190, 192, 254):
        for below in range(25):
            bits = mantissas | np.uint16(max(top - below, 0) << 7)
            bits[::2] |= 0x8000
            bits[:, 5] = top << 7 | 0x55
            bits[:, 9] = 0x8000  # -0
            blocks.append(bits)
    x = np.concatenate(blocks).view(ml_dtypes.bfloat16)
    for rule in reference.RULES:
        want = reference.quantize(x, scheme, scale_rule=rule)
        q = mxkern.quantize(x, scheme, scale_rule=rule)
        check_quantized(q, want, x.shape, f"{scheme} {rule}")


@pytest.mark.parametrize("size", mostly_slow([16, 32, 64, 128], "32"))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_hadamard(scheme: str, size: int) -> None:
    for dtype, mask in itertools.product(DTYPES, (None, (1 << size) - 3)):
        x = random_values((128, 256), dtype)
        x[5, 17] = np.inf
        options = {"hadamard": size, "sign_mask": mask}
        oracle = {"hadamard_size": size, "sign_mask": mask}
        what = f"{scheme} {dtype} {size} {mask}"
        q = mxkern.quantize(x, scheme, **options)
        check_quantized(q, reference.quantize(x, scheme, **oracle), (128, 256), what)
        rows, columns = mxkern.quantize_both(x, scheme, **options)
        check_quantized(rows, reference.quantize(x, scheme), (128, 256), f"{what} both: rows")
        want = reference.quantize(x, scheme, columns=True, **oracle)
        check_quantized(columns, want, (256, 128), f"{what} both: columns")
        rows, _ = mxkern.quantize_both(x, scheme, hadamard_rows=True, **options)
        want = reference.quantize(x, scheme, **oracle)
        check_quantized(rows, want, (128, 256), f"{what} both: transformed rows")


@pytest.mark.parametrize("amax", [0.0, 1e-40, 0.37, 6.0, 1e5, 3.4e38])
def test_given_amax(amax: float) -> None:
    x = random_values((20, 50), "float32")
    want = reference.quantize(x, "nvfp4", amax=amax)
    for given in (amax, np.float32(amax), np.full((1,), amax, np.float32)):
        check_quantized(mxkern.quantize(x, "nvfp4", amax=given), want, x.shape, f"amax {amax}")
    rows, columns = mxkern.quantize_both(x, "nvfp4", amax=(amax, 2.0))
    check_quantized(rows, want, x.shape, f"amax {amax}, rows")
    want = reference.quantize(x, "nvfp4", amax=2.0, columns=True)
    check_quantized(columns, want, (50, 20), f"amax {amax}, columns")
    columns = mxkern.quantize_columns(x, "nvfp4", amax=2.0)
    check_quantized(columns, want, (50, 20), f"amax {amax}, columns alone")


@pytest.mark.parametrize("tensor_scale", [1e-38, 0.01, 1.0, 300.0])
def test_given_tensor_scale(tensor_scale: float) -> None:
    x = random_values((20, 50), "float32")
    q = mxkern.quantize_nvfp4(x, tensor_scale=tensor_scale)
    want = reference.quantize(x, "nvfp4", tensor_scale=tensor_scale)
    check_quantized(q, want, x.shape, f"tensor_scale {tensor_scale}")


@pytest.mark.parametrize("magnitude", [1e-6, 1e-2, 1.0, 1e5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nvfp4_magnitudes(dtype: str, magnitude: float) -> None:
    x = np.random.default_rng(3).standard_normal((64, 256)) * magnitude
    x = np.clip(x, -6e4, 6e4).astype(NUMPY_DTYPES[dtype])
    x[::7] *= NUMPY_DTYPES[dtype].type(2**-10)
    check_quantized(mxkern.quantize(x, "nvfp4"), reference.quantize(x, "nvfp4"), x.shape, dtype)


@pytest.mark.parametrize("by", [True, "mae"])
@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_four_over_six(dtype: str, square: bool, by: bool | str) -> None:
    for shape in [(3, 16), (40, 100), (64, 256)]:
        x = random_values(shape, dtype)
        x[0, 0] = np.nan
        block = "16x16" if square else None
        q = mxkern.quantize(x, "nvfp4", four_over_six=by, block=block)
        want = reference.quantize(x, "nvfp4", four_over_six=by, square=square)
        check_quantized(q, want, shape, f"4over6 {by} {dtype} {shape} square={square}")


def test_four_over_six_keeps_six_where_both_are_exact() -> None:
    x = np.tile(np.float32([12, -6, 3, 0]), (2, 8))
    q = mxkern.quantize_nvfp4(x, four_over_six=True, amax=2688.0)
    np.testing.assert_array_equal(q.scales.astype(np.float32), np.full((2, 2), 2, np.float32))
    np.testing.assert_array_equal(mxkern.dequantize(q), x)


def test_a_square_has_one_scale_for_both_directions() -> None:
    """Also where the order in which errors are added up decides, and in memory that goes down
    columns."""
    random = np.random.default_rng(7)
    x = np.zeros((320, 512), np.float32)
    for row in range(0, x.shape[0], 16):
        for column in range(0, x.shape[1], 16):
            places = random.choice(256, 5, replace=False)
            square = x[row : row + 16, column : column + 16]
            square[places // 16, places % 16] = [6, 2.25, 3.0000545, 3.0000545, 2]
    options = {"block": "16x16", "four_over_six": True, "amax": 2688.0}
    rows = mxkern.quantize(x, "nvfp4", **options)
    chosen = np.unique(rows.scales.view(np.uint8))
    assert len(chosen) == 2  # the first candidate of some squares, the second of others
    columns = mxkern.quantize_columns(x, "nvfp4", **options)
    both = mxkern.quantize_both(x, "nvfp4", **options)
    turned = mxkern.quantize(np.asfortranarray(x), "nvfp4", **options)
    want = rows.scales.view(np.uint8)[::16].T.repeat(16, axis=0)
    for q in (columns, both[1]):
        np.testing.assert_array_equal(q.scales.view(np.uint8)[:, : want.shape[1]], want)
    for q in (both[0], turned):
        np.testing.assert_array_equal(q.scales.view(np.uint8), rows.scales.view(np.uint8))


def test_four_over_six_is_the_better_one_by_its_error() -> None:
    x = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    error = {"mse": np.square, "mae": np.abs}
    qs = {by: mxkern.quantize_nvfp4(x, four_over_six=by) for by in (False, True, "mse", "mae")}
    off, _, mse, mae = (mxkern.dequantize(q) - x for q in qs.values())
    assert qs[True].codes.tobytes() == qs["mse"].codes.tobytes()
    assert error["mse"](mse).mean() < 0.95 * error["mse"](off).mean()
    assert error["mse"](mse).mean() < error["mse"](mae).mean()
    assert error["mae"](mae).mean() < error["mae"](mse).mean() < error["mae"](off).mean()


@pytest.mark.parametrize("framework", framework_params())
@pytest.mark.parametrize("options", [{}, {"hadamard": 32}, {"block": "square"}, {"random": 1}])
def test_transposed_views(options: dict[str, Any], framework: str) -> None:
    """They are quantized where they lie, to the bytes of a copy."""
    x = random_values((2, 64, 96), "float32")
    dense = np.ascontiguousarray(x.swapaxes(1, 2))
    for scheme in SCHEMES:
        given = dict(options)
        if given.pop("block", None):
            given["block"] = "16x16" if scheme == "nvfp4" else "32x32"
        if given.pop("random", None):
            given |= {"rounding": "stochastic", "seed": 3}
        view = array_of(framework, x).swapaxes(1, 2)
        for function in (mxkern.quantize, mxkern.quantize_columns):
            want = function(dense, scheme, **given)
            assert_same_parts(function(view, scheme, **given), want, f"{function} {scheme}")
            assert_same_parts(function(view[0], scheme), function(dense[0], scheme), scheme)


def test_square_codes_of_the_transpose_are_the_transpose_of_the_codes() -> None:
    x = random_values((96, 64), "float32")
    for scheme in ("mxfp8_e4m3", "mxint8"):
        rows, columns = mxkern.quantize_both(x, scheme, block="32x32")
        np.testing.assert_array_equal(raw(columns.codes), raw(rows.codes).T)


def test_names_of_the_families() -> None:
    x = random_values((3, 64), "float32")
    named = {
        "mxfp8_e4m3": mxkern.quantize_mxfp8(x),
        "mxfp8_e5m2": mxkern.quantize_mxfp8(x, format="e5m2"),
        "mxfp6_e2m3": mxkern.quantize_mxfp6(x),
        "mxfp6_e3m2": mxkern.quantize_mxfp6(x, format="e3m2"),
        "mxfp4": mxkern.quantize_mxfp4(x),
        "mxint8": mxkern.quantize_mxint8(x),
        "nvfp4": mxkern.quantize_nvfp4(x),
    }
    aliases = {"mxfp8_e4m3": "mxfp8", "mxfp6_e2m3": "mxfp6", "mxfp4": "mxfp4_e2m1"}
    for scheme, q in named.items():
        assert q.scheme == scheme
        for name in (scheme, aliases.get(scheme, scheme), mxkern.schemes[scheme]):
            same = mxkern.quantize(x, name)
            assert same.scheme == scheme
            np.testing.assert_array_equal(raw(same.codes), raw(q.codes))


FAMILIES = {
    "mxfp8_e4m3": mxkern.quantize_mxfp8,
    "mxfp6_e2m3": mxkern.quantize_mxfp6,
    "mxfp4": mxkern.quantize_mxfp4,
    "mxint8": mxkern.quantize_mxint8,
    "nvfp4": mxkern.quantize_nvfp4,
}


@pytest.mark.parametrize("scheme", FAMILIES)
def test_families_hand_on_every_option(scheme: str) -> None:
    x = random_values((64, 128), "float32")
    default = mxkern.quantize(x, scheme)
    options: list[dict[str, object]] = [
        {"rounding": "stochastic", "seed": 2**40 + 1, "offset": 3},
        {"scale_layout": "swizzled", "stream": 1},
        {"block": square_of(scheme)},
        {"hadamard": 32, "sign_mask": 0x1234},
    ]
    if scheme == "nvfp4":
        options += [{"four_over_six": "mae"}, {"amax": 9.0}, {"tensor_scale": 0.25}]
    else:
        options += [{"scale_rule": "floor"}, {"scale_rule": "even"}]
    for chosen in options:
        want = mxkern.quantize(x, scheme, **chosen)
        got = FAMILIES[scheme](x, **chosen)
        assert got.facts == want.facts, chosen
        for a, b in zip(got.parts, want.parts, strict=True):
            assert (a is None and b is None) or raw(a).tobytes() == raw(b).tobytes(), chosen
        same = all(
            raw(a).tobytes() == raw(b).tobytes()
            for a, b in zip(want.parts[:2], default.parts[:2], strict=True)
        )
        assert not same, f"{chosen} changes nothing"
    given = mxkern.quantize(x * 3, scheme)
    assert FAMILIES[scheme](x, out=given) is given
    assert raw(given.codes).tobytes() == raw(default.codes).tobytes()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_columns_to_given_memory(scheme: str) -> None:
    x = random_values((40, 96), "bfloat16")
    want = mxkern.quantize_columns(x, scheme, scale_layout="swizzled")
    out = mxkern.quantize_columns(x * 2 + 1, scheme, scale_layout="swizzled")
    assert mxkern.quantize_columns(x, scheme, scale_layout="swizzled", out=out) is out
    for a, b in zip(out.parts, want.parts, strict=True):
        assert (a is None and b is None) or raw(a).tobytes() == raw(b).tobytes()


def test_a_tensor_scale_for_each_direction() -> None:
    x = random_values((48, 80), "float32")
    rows, columns = mxkern.quantize_both(x, "nvfp4", tensor_scale=(0.5, np.float32(2.0)))
    for got, want in (
        (rows, mxkern.quantize(x, "nvfp4", tensor_scale=0.5)),
        (columns, mxkern.quantize_columns(x, "nvfp4", tensor_scale=2.0)),
    ):
        for a, b in zip(got.parts, want.parts, strict=True):
            assert raw(a).tobytes() == raw(b).tobytes()


def test_streams_are_left_aside_on_the_host() -> None:
    x = random_values((64, 128), "float32")
    q = mxkern.quantize(x, "mxfp8")
    scales = mxkern.swizzle_scales(q.scales)
    calls = {
        "quantize": lambda s: mxkern.quantize(x, "mxfp8", stream=s).codes,
        "quantize_columns": lambda s: mxkern.quantize_columns(x, "mxfp8", stream=s).codes,
        "quantize_both": lambda s: mxkern.quantize_both(x, "mxfp8", stream=s)[1].codes,
        "dequantize": lambda s: mxkern.dequantize(q, stream=s),
        "fake_quantize": lambda s: mxkern.fake_quantize(x, "mxfp8", stream=s),
        "gemm": lambda s: mxkern.gemm(x, q, stream=s),
        "random_hadamard": lambda s: mxkern.random_hadamard(x, stream=s),
        "swizzle_scales": lambda s: mxkern.swizzle_scales(q.scales, stream=s),
        "tensor_amax": lambda s: mxkern.tensor_amax(x, stream=s),
        "unswizzle_scales": lambda s: mxkern.unswizzle_scales(scales, 64, 4, stream=s),
    }
    for name, call in calls.items():
        assert raw(call(1)).tobytes() == raw(call(None)).tobytes(), name
        for wrong in (0, -1, 2**64):
            with pytest.raises(ValueError, match="stream is"):
                call(wrong)
        with pytest.raises(TypeError, match=r"stream is '1'; expected an int"):
            call("1")


def test_amax_of_what_is_finite() -> None:
    for dtype in DTYPES:
        x = corner_values(9, 300, dtype)
        finite = np.nan_to_num(x.astype(np.float32), nan=0, posinf=0, neginf=0)
        got = mxkern.tensor_amax(x)
        assert got.dtype == np.float32 and got.shape == () and got == abs(finite).max()
    assert mxkern.tensor_amax(np.full(5, np.nan, np.float32)) == 0
    assert mxkern.tensor_amax(np.empty((0, 4), np.float32)) == 0
