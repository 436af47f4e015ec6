# tests/python/ops/test_custom.py: schemes of the user's own: against a reference in NumPy, through
# all functions that take a scheme, as records and as names.
from __future__ import annotations

import copy
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import custom_reference as reference
import mxkern
from mxkern.values.custom_scheme import parsed, scale_format
from mxkern.values.element_format import element_format
from support import random_values

ELEMENTS = [
    f"{s}e{e}m{m}{p}" for s in ("", "u") for e in range(6) for m in range(11) for p in ("", "_nan")
]
ELEMENTS += [f"{s}int{bits}" for s in ("", "u") for bits in range(2, 17)]
SCALES = ("e8m0", "e5m0", "e3m0", "ue4m3", "ue5m3", "ue3m5", "ue8m7", "float32")
X = random_values((12, 96), "float32")


def valid(element: str) -> bool:
    try:
        element_format("test", "element", element)
    except ValueError:
        return False
    return True


ELEMENTS = [element for element in ELEMENTS if valid(element)]


def same(got: Any, want: Any) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got, want)
    finite = ~np.isnan(got.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(got)[finite], np.signbit(want)[finite])


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_reference(data: st.DataObject) -> None:
    draw = data.draw
    element = draw(st.sampled_from(ELEMENTS))
    scale = draw(st.sampled_from(SCALES))
    block = draw(st.sampled_from([1, 3, 16, 20, 64, (2, 8), (5, 7), "row", "tensor"]))
    tensor_scale = None
    if scale in ("ue4m3", "ue5m3", "ue3m5"):
        tensor_scale = draw(st.sampled_from([None, "tensor", "row"]))
        if tensor_scale == "row" and (isinstance(block, tuple) or block == "tensor"):
            tensor_scale = "tensor"
    scheme = mxkern.Scheme(element, block=block, scale=scale, tensor_scale=tensor_scale)
    rounding = draw(st.sampled_from(["nearest", "nearest_away", "toward_zero", "up", "down"]))
    options: dict[str, Any] = {"rounding": rounding}
    if scale.endswith("m0"):
        options["scale_rule"] = draw(st.sampled_from(["rceil", "floor", "ceil", "even"]))
        if options["scale_rule"] == "rceil" and draw(st.booleans()):
            options["threshold"] = draw(st.sampled_from([1.0, 1.1, 4 / 3, 1.9]))
    shape = draw(st.sampled_from([(1, 1), (3, 70), (7, 33), (16, 128)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([0, 4, 30]))
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)
    x = x.astype(np.float32)
    if draw(st.booleans()):
        x.reshape(-1)[rng.integers(x.size)] = rng.choice([np.nan, np.inf, 0.0, -0.0])
    format = scale_format("test", scale)
    want = reference.fake_quantize(
        x,
        reference.Element.of(element_format("test", "element", element)),
        reference.Scales(format.kind, format.exponent_bits, format.mantissa_bits),
        (scheme.block_rows, scheme.block),
        tensor_scale,
        options.get("scale_rule", "rceil"),
        options.get("threshold", 0.0),
        rounding,
    )
    q = mxkern.quantize(x, scheme, **options)
    got = mxkern.dequantize(q)
    # Integers and formats without a sign have one zero.
    np.testing.assert_array_equal(got, want, err_msg=f"{scheme.name} {options}")
    same(mxkern.fake_quantize(x, scheme, **options), got)
    assert q.codes.shape == scheme.codes_shape(shape)
    assert q.scales.shape == scheme.scales_shape(shape, "row_major")
    assert q.nbytes == q.codes.nbytes + q.scales.nbytes + (
        0 if q.tensor_scale is None else np.asarray(q.tensor_scale).nbytes
    )


def test_names() -> None:
    for name in (
        "e3m4b64",
        "int4b16:ue4m3",
        "e4m3b64x64:float32",
        "e4m3_row:float32",
        "e5m2_tensor:float32",
        "e3m4_nan_b7:ue5m3+tensor",
        "e2m1b16:ue4m3+row",
        "uint8b32",
        "ue4m3_none_b32:e4m0",
    ):
        record = mxkern.Scheme(name)
        assert record.name == name
        assert mxkern.Scheme(name) is record
        assert mxkern.schemes[name] is record
        assert pickle.loads(pickle.dumps(record)) is record
        assert copy.deepcopy(record) is record
        assert name in repr(record)
        assert mxkern.quantize(X, name).scheme == name
    assert mxkern.Scheme("e3m4", block=64) is mxkern.Scheme("E3M4b64")
    assert mxkern.Scheme("e3m4", (1, 64)) is mxkern.Scheme("e3m4b64")
    assert mxkern.Scheme("int4", 16, "ue4m3") is parsed("int4b16:ue4m3")


@pytest.mark.parametrize("record", mxkern.schemes, ids=lambda record: record.name)
def test_a_compiled_scheme_is_itself(record: mxkern.Scheme) -> None:
    made = mxkern.Scheme(
        record.format,
        block=record.block,
        scale=record.scale_format,
        tensor_scale="tensor" if record.has_tensor_scale else None,
    )
    assert made is record
    assert mxkern.Scheme(record.name) is record


@pytest.mark.parametrize(
    "scheme", ["e3m4b64", "int3b10", "e2m1b3:ue4m3", "e1m0b16", "int2b8:float32"]
)
def test_columns_and_both(scheme: str) -> None:
    x = random_values((40, 70), "bfloat16")
    rows, columns = mxkern.quantize_both(x, scheme)
    for got, want in (
        (rows, mxkern.quantize(x, scheme)),
        (columns, mxkern.quantize(np.ascontiguousarray(x.T), scheme)),
        (mxkern.quantize_columns(x, scheme), columns),
    ):
        assert got.codes.tobytes() == want.codes.tobytes() and got.shape == want.shape
        assert got.scales.tobytes() == want.scales.tobytes()
    options = {"rounding": "stochastic", "seed": 7, "random_bits": 5}
    turned = mxkern.quantize_columns(x, scheme, **options)
    # The words are those of x's elements: of squares the codes of both directions are the same.
    if "b3" not in scheme and ":" not in scheme:
        block = mxkern.Scheme(scheme).block
        options["block"] = f"{block}x{block}"
        a, b = mxkern.quantize_both(x, scheme, **options)
        same(mxkern.dequantize(a).T.copy(), mxkern.dequantize(b))
    assert mxkern.quantize(x, "e2m1b16:ue4m3+tensor").scheme == "nvfp4"
    assert turned.shape == (70, 40)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_axis(axis: int) -> None:
    x = random_values((6, 20, 33), "float32")
    for scheme in ("mxfp4", "e3m4b5"):
        got = mxkern.fake_quantize(x, scheme, axis=axis)
        moved = np.ascontiguousarray(np.moveaxis(x, axis, -1))
        same(np.moveaxis(got, axis, -1).copy(), mxkern.fake_quantize(moved, scheme))
    # Words are those of x's elements, whatever the axis.
    options: dict[str, Any] = {"rounding": "stochastic", "seed": 5}
    ones = np.full((6, 20, 33), 1.3, np.float32)
    ones[..., 0] = ones[:, 0] = ones[0] = 1.5
    same(
        mxkern.fake_quantize(ones, "e2m0_row:float32", axis=axis, **options),
        mxkern.fake_quantize(ones, "e2m0_row:float32", **options),
    )
    assert mxkern.compare(x, "e3m4b5", "rceil", axis=axis)[0].elements == x.size


def test_hadamard_is_random_hadamard_first() -> None:
    x = random_values((8, 64), "bfloat16")
    got = mxkern.quantize(x, "e3m2b16", hadamard=32)
    want = mxkern.quantize(mxkern.random_hadamard(x, 32), "e3m2b16")
    assert got.codes.tobytes() == want.codes.tobytes()


@pytest.mark.parametrize(
    "scheme", ["mxfp4", "e3m4b16", "e2m1b16:ue5m3", "int8_row:float32", "nvfp4"]
)
def test_mse_is_better(scheme: str) -> None:
    x = np.random.default_rng(1).standard_normal((64, 256)).astype(np.float32)
    error = [
        float(((mxkern.fake_quantize(x, scheme, scale_rule=rule) - x) ** 2).sum())
        for rule in ("rceil", "mse")
    ]
    assert error[1] <= error[0] if "row" in scheme else error[1] < error[0]
    # Each block is the best of three: as its neighbours' scales, given, show.
    q = mxkern.quantize(x[:, :16], "e3m4b16", scale_rule="mse")
    base = mxkern.quantize(x[:, :16], "e3m4b16").scales.view(np.uint8).astype(int)
    errors = []
    for step in (0, -1, 1):
        y = mxkern.fake_quantize(x[:, :16], "e3m4b16", scales=(base + step).astype(np.uint8))
        errors.append(((y - x[:, :16]).astype(np.float64) ** 2).sum(axis=1))
    best = np.argmin(errors, axis=0)
    np.testing.assert_array_equal(
        q.scales.view(np.uint8)[:, 0], base[:, 0] + np.array([0, -1, 1])[best]
    )


def test_given_scales_and_amaxes() -> None:
    x = random_values((8, 64), "float32")
    for scheme in ("e3m4b16", "int4b16:ue4m3", "e4m3b32:float32", "mxfp8", "e4m3b4x16:float32"):
        q = mxkern.quantize(x, scheme)
        again = mxkern.quantize(x, scheme, scales=q.scales)
        assert again.codes.tobytes() == q.codes.tobytes()
        assert again.scales.tobytes() == q.scales.tobytes()
    amax = np.abs(np.nan_to_num(x, posinf=0, neginf=0)).reshape(8, 4, 16).max(axis=-1)
    got = mxkern.quantize(x, "e3m4b16", block_amax=np.float32(2) * amax)
    twice = mxkern.quantize(np.where(np.isfinite(x), 2 * x, x), "e3m4b16")
    assert got.scales.tobytes() == twice.scales.tobytes()
    with pytest.raises(ValueError, match="pass one of them"):
        mxkern.quantize(x, "e3m4b16", scales=q.scales, block_amax=amax)
    with pytest.raises(ValueError, match=r"scales has shape \(8, 3\); expected \(8, 4\)"):
        mxkern.quantize(x, "e3m4b16", scales=np.zeros((8, 3), np.uint8))


def test_tensor_scales_of_rows() -> None:
    x = np.random.default_rng(0).standard_normal((5, 48)).astype(np.float32)
    x *= 10.0 ** np.arange(-2, 3, dtype=np.float32)[:, None]
    q = mxkern.quantize(x, "e2m1b16:ue4m3+row")
    assert q.tensor_scale.shape == (5, 1)
    for i in range(5):
        own = mxkern.quantize(x[i : i + 1], "nvfp4")
        assert own.codes.tobytes() == q.codes[i].tobytes()
        assert own.tensor_scale == q.tensor_scale[i, 0]
    given = mxkern.quantize(x, "e2m1b16:ue4m3+row", tensor_scale=q.tensor_scale)
    assert given.codes.tobytes() == q.codes.tobytes()
    with pytest.raises(TypeError, match="float32 array"):
        mxkern.quantize(x, "e2m1b16:ue4m3+row", amax=3.0)


@pytest.mark.parametrize(
    "scheme", ["e3m4b64", "int12b32", "e4m3b128:float32", "e2m1b16:ue4m3+tensor"]
)
def test_gemm(scheme: str) -> None:
    a = np.random.default_rng(0).standard_normal((3, 20, 256)).astype(np.float32)
    b = np.random.default_rng(1).standard_normal((30, 256)).astype(np.float32)
    qa, qb = mxkern.quantize(a, scheme), mxkern.quantize(b, scheme)
    want = mxkern.dequantize(qa).astype(np.float64) @ mxkern.dequantize(qb).astype(np.float64).T
    size = np.sqrt((want**2).mean())
    assert np.abs(mxkern.gemm(qa, qb) - want).max() < 1e-5 * size
    plain = mxkern.gemm(a.astype(ml_dtypes.bfloat16), qb)
    assert plain.shape == (3, 20, 30)
    bias, out = np.ones(30, np.float32), np.ones((3, 20, 30), np.float32)
    mxkern.gemm(qa, qb, out=out, alpha=2.0, beta=3.0, bias=bias)
    np.testing.assert_allclose(out, 2 * want + 4, rtol=0, atol=1e-4 * size)
    mixed = mxkern.gemm(mxkern.quantize(a, "mxfp8"), qb, dtype="bfloat16")
    assert mixed.dtype == ml_dtypes.bfloat16
    if scheme != "e2m1b16:ue4m3+tensor":
        decoded = "decoded to bfloat16" if scheme == "e3m4b64" else "decoded to float32"
        assert decoded in str(mxkern.explain_gemm(qa, qb))
        with pytest.raises(RuntimeError, match="decoded to float32"):
            mxkern.gemm(qa, qb, precision="folded")


def test_float32_scales_multiply_sums() -> None:
    # Codes' products are exact in float32, and so are their sums over 128; their scales are not.
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((8, 256)).astype(np.float32) for _ in range(2))
    qa, qb = mxkern.quantize(a, "e4m3b128:float32"), mxkern.quantize(b, "e4m3b128x128:float32")
    codes = [q.codes.astype(np.float32) for q in (qa, qb)]
    want = np.zeros((8, 8), np.float32)
    for k in range(2):
        part = codes[0][:, 128 * k :][:, :128] @ codes[1][:, 128 * k :][:, :128].T
        want += part * (qa.scales[:, k, None] * qb.scales[0, k])
    np.testing.assert_allclose(mxkern.gemm(qa, qb), want, rtol=3e-6, atol=1e-5)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "e8m13", "e4m3"])
def test_accumulate(name: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, 100)).astype(np.float32) for n in (5, 7))
    qa, qb = mxkern.quantize(a, "mxfp8"), mxkern.quantize(b, "e2m3b20")
    got = mxkern.gemm(qa, qb, accumulate=name)
    da, db = (mxkern.dequantize(q).astype(np.float64) for q in (qa, qb))
    sums = np.zeros((5, 7))
    for k in range(100):
        sums = mxkern.round_to(sums + da[:, k, None] * db[:, k], name)
    same(got, sums.astype(np.float32))


def test_parts() -> None:
    x = random_values((4, 40), "float32")
    for scheme in ("e3m4b16", "int5b10:ue4m3", "e2m1b20", "e5m10b8:float32", "e4m3_tensor:float32"):
        q = mxkern.quantize(x, scheme)
        again = mxkern.BlockScaled.from_parts(q.codes, q.scales, scheme=scheme, shape=x.shape)
        same(mxkern.dequantize(again), mxkern.dequantize(q))
        assert scheme in repr(q)
        same(pickle.loads(pickle.dumps(q)).codes, q.codes)
        y = np.empty_like(x)
        assert mxkern.dequantize(q, out=y) is y
        assert mxkern.quantize(x, scheme, out=q) is q
    with pytest.raises(ValueError, match=r"codes has shape \(4, 3\)"):
        mxkern.BlockScaled.from_parts(
            np.zeros((4, 3), np.uint8), q.scales, scheme="e3m4b16", shape=(4, 40)
        )


def test_packing_is_a_stream_of_bits() -> None:
    x = np.float32([[0, 0.5, 1, 1.5, -0.5, -1, -1.5, 0, 1]])
    for scheme, bits in (("e2m1b9:float32", 4), ("e1m0b9:float32", 2), ("e3m2b9:float32", 6)):
        q = mxkern.quantize(x, scheme)
        one = mxkern.quantize(x, scheme.replace("b9", "b9"))
        stream = int.from_bytes(q.codes.tobytes(), "little")
        codes = [stream >> (bits * i) & (2**bits - 1) for i in range(9)]
        format = element_format("test", "element", mxkern.Scheme(scheme).format).core
        values = [format.decode(code) * float(q.scales[0, 0]) for code in codes]
        np.testing.assert_allclose(values, mxkern.dequantize(one)[0])
        assert q.codes.shape == (1, -(-9 * bits // 8))


@pytest.mark.parametrize("framework", ["torch", "jax.numpy"])
def test_frameworks(framework: str) -> None:
    namespace = pytest.importorskip(framework)
    x = random_values((6, 64), "float32")
    there = namespace.asarray(x)
    for scheme in ("e3m4b16", "int4b32:ue4m3", "e5m10b64"):
        q = mxkern.quantize(there, scheme)
        assert type(q.codes) is type(there)
        same(np.asarray(mxkern.dequantize(q)), mxkern.fake_quantize(x, scheme))
        same(np.asarray(mxkern.fake_quantize(there, scheme)), mxkern.fake_quantize(x, scheme))
        product = mxkern.gemm(q, q)
        assert type(product) is type(there)
    same(np.asarray(mxkern.round_to(there, "e3m4")), mxkern.round_to(x, "e3m4"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("e6m3b32", r"round_to\(x, \"e6m3\"\)"),
        ("e4m11b32", "at most 10 mantissa bits"),
        ("e4m3b0", "block"),
        ("e4m3b32:e9m0", "scale is 'e9m0'"),
        ("e4m3b32+tensor", "leave tensor_scale out"),
        ("e4m3b2x16:ue4m3+row", "blocks of one row"),
        ("mxfp5", "mxfp4"),
    ],
)
def test_refused(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        mxkern.quantize(X, name)


def test_refused_options() -> None:
    def refused(says: str, scheme: str = "e3m4b64", **options: Any) -> None:
        with pytest.raises((ValueError, TypeError), match=says):
            mxkern.quantize(X, scheme, **options)

    refused("rounded to nearest", "e3m4b64:ue4m3", scale_rule="floor")
    refused("1 <= threshold < 2", threshold=2.5)
    refused("under the rule rceil", threshold=1.5, scale_rule="floor")
    refused("schemes with a tensor scale", amax=1.0)
    refused("'1x64' or '64x64'", block="32x32")
    refused("'row_major' for", "e4m3b128:float32", scale_layout="swizzled")
    refused("four_over_six goes with nvfp4", "nvfp4", four_over_six=True, rounding="up")
    refused("seed is None", rounding="stochastic", random_bits=4)
    for function in (mxkern.prepare_operand,):
        with pytest.raises(ValueError, match="a scheme of your own"):
            function(mxkern.quantize(X, "e3m4b64"))


def test_jax_programs() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(random_values((4, 32), "float32"))

    def loss(x: Any) -> Any:
        return mxkern.fake_quantize(x, "e3m4b16").sum() + 2 * mxkern.round_to(x, "e4m3").sum()

    finite = jax.numpy.nan_to_num(x, posinf=1.0, neginf=1.0)
    same(np.asarray(jax.grad(loss)(finite)), np.full((4, 32), 3, np.float32))
    jitted = jax.jit(lambda x: mxkern.fake_quantize(x, "e3m4b16"))
    same(np.asarray(jitted(finite)), np.asarray(mxkern.fake_quantize(finite, "e3m4b16")))
