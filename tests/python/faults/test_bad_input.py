# tests/python/faults/test_bad_input.py: wrong arguments give an error that names the function, the
# argument, what it got, what was wanted and the way out, and nothing is written.
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mxkern
from support import available, random_values, raw, refused

needs_torch = pytest.mark.skipif(not available("torch"), reason="torch is not installed")
needs_jax = pytest.mark.skipif(not available("jax"), reason="jax is not installed")

X = random_values((4, 64), "float32")
HALF = type("HalfOfDlpack", (), {"__dlpack__": lambda self, **options: None})()
FAMILIES = (
    mxkern.quantize_mxfp8,
    mxkern.quantize_mxfp6,
    mxkern.quantize_mxfp4,
    mxkern.quantize_mxint8,
    mxkern.quantize_nvfp4,
)
TAKING_X: dict[str, Callable[..., Any]] = {
    "quantize": lambda x: mxkern.quantize(x, "mxfp8"),
    "quantize_columns": lambda x: mxkern.quantize_columns(x, "mxfp8"),
    "quantize_both": lambda x: mxkern.quantize_both(x, "mxfp8"),
    "tensor_amax": mxkern.tensor_amax,
    "random_hadamard": mxkern.random_hadamard,
    **{family.__name__: family for family in FAMILIES},
}


@pytest.mark.parametrize("function", TAKING_X)
class TestX:
    @pytest.mark.parametrize(
        "dtype",
        ["int32", "uint8", "int64", "float64", "complex64", "bool", "object", "V2", "M8[s]"],
    )
    def test_dtype(self, function: str, dtype: str) -> None:
        x = np.zeros((4, 64), dtype)
        parts = (f"{function}: x has dtype", str(x.dtype), "expected float32, float16 or bfloat16")
        ways_out = {"complex64": "take x.real or x.imag", "V2": "bfloat16", "M8[s]": "bfloat16"}
        way_out = ways_out.get(dtype, 'bfloat16; convert with x.astype("float32")')
        with pytest.raises(TypeError, match=f"{re.escape(way_out)}$") as caught:
            TAKING_X[function](x)
        assert all(part in str(caught.value) for part in parts)

    def test_codes_are_no_values(self, function: str) -> None:
        x = np.zeros((4, 64), ml_dtypes.float8_e4m3fn)
        refused(TypeError, lambda: TAKING_X[function](x), f"{function}: x has dtype float8_e4m3fn")

    @pytest.mark.parametrize("x", [[1.0, 2.0], 1.5, (1.0,), np.float32(3), None, "text", HALF, 1j])
    def test_no_array(self, function: str, x: Any) -> None:
        call = lambda: TAKING_X[function](x)  # noqa: E731
        way_out = "or a JAX array"  # and no advice, where none would help
        if isinstance(x, (list, tuple, float, np.float32)):
            way_out = "convert with numpy.asarray(x, numpy.float32)"
        if isinstance(x, (float, np.float32)):
            way_out += ".reshape(1)"
        with pytest.raises(TypeError, match=f"{re.escape(way_out)}$"):
            call()
        refused(TypeError, call, f"{function}: x is", "expected a NumPy")

    def test_no_dimension(self, function: str) -> None:
        x = np.array(1.0, np.float32)
        refused(ValueError, lambda: TAKING_X[function](x), f"{function}: x is 0-d", "reshape(1)")

    def test_subclasses_of_ndarray(self, function: str) -> None:
        subclass = type("Labelled", (np.ndarray,), {})
        masked = np.ma.masked_array(X, X > 0)
        for x, way_out in ((masked, "x.filled(0)"), (X.view(subclass), "numpy.asarray(x)")):
            parts = (f"{function}: x is a ", "plain NumPy array", way_out)
            refused(TypeError, lambda x=x: TAKING_X[function](x), *parts)

    def test_quantized_already(self, function: str) -> None:
        q = mxkern.quantize(X, "mxfp8")
        parts = (f"{function}: x is BlockScaled mxfp8_e4m3", "mxkern.dequantize(x) has its values")
        refused(TypeError, lambda: TAKING_X[function](q), *parts)

    @needs_torch
    def test_torch(self, function: str) -> None:
        import torch
        from torch._subclasses import FakeTensorMode

        call = TAKING_X[function]
        x = torch.ones(4, 64)
        with FakeTensorMode():
            fake = torch.ones(4, 64)
        refused(TypeError, lambda: call(fake), f"{function}: x is a torch", "FakeTensor")
        meta = torch.ones(4, 64, device="meta")
        refused(ValueError, lambda: call(meta), f"{function}: x is on the meta device")
        tracked = torch.ones(4, 64, requires_grad=True)
        refused(ValueError, lambda: call(tracked), f"{function}: x requires grad", "x.detach()")
        refused(TypeError, lambda: call(x.to_sparse()), f"{function}: x has layout", "to_dense()")
        nested = torch.nested.nested_tensor([x[0], x[1, :32]])
        refused(TypeError, lambda: call(nested), f"{function}: x is a nested tensor", "padded")
        refused(TypeError, lambda: call(x.double()), f"{function}: x has dtype float64", "x.to(")
        refused(TypeError, lambda: call(x.int()), f"{function}: x has dtype int32", "torch.float32")
        for shape in ((4, 64), (1, 1)):
            gone = torch.ones(shape)
            gone.untyped_storage().resize_(0)
            with pytest.raises((ValueError, TypeError), match=f"{function}: x .*has no memory"):
                call(gone)
        with pytest.raises(TypeError, match=f"{function}: x stands for another tensor"):
            torch.func.vmap(lambda row: call(row[None].expand(2, 64)) and row)(x)

    @needs_jax
    def test_jax(self, function: str) -> None:
        import jax
        import jax.numpy as jnp

        call = TAKING_X[function]
        traced = jax.jit(lambda x: (call(x), x)[1])
        parts = (f"{function}: x has dtype int32", "x.astype(jax.numpy.float32)")
        refused(TypeError, lambda: traced(jnp.ones((4, 64), jnp.int32)), *parts)
        refused(TypeError, lambda: call(jnp.ones((4, 64), jnp.int32)), *parts)

    def test_on_a_device(self, function: str) -> None:
        class OnCuda:
            def __dlpack__(self, **options: Any) -> Any:
                raise AssertionError("is not reached")

            def __dlpack_device__(self) -> tuple[int, int]:
                return (2, 0)

        if mxkern.info().built_with_cuda:
            pytest.skip("this build has CUDA")
        parts = (f"{function}: x is on a CUDA device", "built without CUDA", "MXKERN_CUDA=ON")
        refused(RuntimeError, lambda: TAKING_X[function](OnCuda()), *parts)

    def test_dlpack_that_cannot_be_read(self, function: str) -> None:
        class Opaque:
            def __dlpack__(self, **options: Any) -> Any:
                raise BufferError("no")

            def __dlpack_device__(self) -> tuple[int, int]:
                return (1, 0)

        refused(TypeError, lambda: TAKING_X[function](Opaque()), f"{function}: x is", "DLPack")


@pytest.mark.parametrize(
    ("options", "kind", "parts"),
    [
        ({"scheme": "mxpf8"}, ValueError, ["scheme is 'mxpf8'", "did you mean 'mxfp8'"]),
        ({"scheme": "NVFP4"}, ValueError, ["scheme is 'NVFP4'", "did you mean 'nvfp4'"]),
        ({"scheme": 3}, TypeError, ["scheme is 3", "expected a name"]),
        ({"scheme": ["mxfp4"]}, TypeError, ["scheme is a list", "expected a name"]),
        ({"scale_rule": "flor"}, ValueError, ["scale_rule is 'flor'", "did you mean 'floor'"]),
        ({"scale_rule": "floor", "scheme": "nvfp4"}, ValueError, ["one rule of its own"]),
        ({"rounding": "stochastc", "seed": 1}, ValueError, ["did you mean 'stochastic'"]),
        ({"rounding": "stochastic"}, ValueError, ["seed is None", "pass seed="]),
        ({"rounding": "stochastic", "seed": -1}, ValueError, ["seed is -1", "0 <= seed"]),
        ({"rounding": "stochastic", "seed": 2**64}, ValueError, ["seed is 18446744073709551616"]),
        ({"rounding": "stochastic", "seed": 1.5}, TypeError, ["seed is 1.5", "expected an int"]),
        ({"rounding": "stochastic", "seed": True}, TypeError, ["seed is True", "expected an int"]),
        ({"rounding": "stochastic", "seed": [1]}, TypeError, ["seed is a list"]),
        ({"rounding": "stochastic", "seed": 1, "offset": -1}, ValueError, ["offset is -1"]),
        ({"rounding": "stochastic", "seed": np.array([1, 2])}, TypeError, ["seed is a numpy"]),
        ({"rounding": "stochastic", "seed": 1 << 300}, ValueError, ["seed is an int of 301 bits"]),
        ({"scale_rule": np.array(["floor"] * 2)}, TypeError, ["scale_rule is a numpy.ndarray"]),
        ({"rounding": np.array(["nearest"] * 2)}, TypeError, ["rounding is a numpy.ndarray"]),
        ({"offset": 0.0}, TypeError, ["offset is 0.0", "expected an int"]),
        ({"offset": False}, TypeError, ["offset is False", "expected an int"]),
        ({"offset": np.zeros(2)}, TypeError, ["offset is a numpy.ndarray"]),
        ({"seed": 1}, ValueError, ["rounding='stochastic'"]),
        ({"scale_layout": "swizled"}, ValueError, ["did you mean 'swizzled'"]),
        ({"scale_layout": None}, TypeError, ["scale_layout is None", "row_major or swizzled"]),
        ({"block": "16x16"}, ValueError, ["block is '16x16'", "'1x32' or '32x32'"]),
        ({"block": (32, 1)}, ValueError, ["block is (32, 1)", "'1x32' or '32x32'"]),
        ({"block": 32}, TypeError, ["block is 32"]),
        ({"block": ("32", "32")}, TypeError, ["block is ('32', '32')", "'1x32' or '32x32'"]),
        ({"block": "32x32", "scheme": "nvfp4"}, ValueError, ["'1x16' or '16x16' for nvfp4"]),
        ({"hadamard": 24}, ValueError, ["hadamard is 24", "16, 32, 64 or 128"]),
        ({"hadamard": -16}, ValueError, ["hadamard is -16", "16, 32, 64 or 128"]),
        ({"hadamard": "16"}, TypeError, ["hadamard is '16'", "expected an int"]),
        ({"hadamard": 128}, ValueError, ["axis of 64", "hadamard=128"]),
        ({"sign_mask": 3}, ValueError, ["sign_mask is given without hadamard"]),
        ({"hadamard": 16, "sign_mask": 1 << 16}, ValueError, ["sign_mask is 65536", "65535"]),
        ({"hadamard": 16, "sign_mask": -1}, ValueError, ["sign_mask is -1"]),
        ({"hadamard": 16, "block": "32x32"}, ValueError, ["block is '32x32'", "leave one out"]),
        ({"four_over_six": True}, ValueError, ["four_over_six is for nvfp4", "mxfp8_e4m3"]),
        ({"four_over_six": 1, "scheme": "nvfp4"}, TypeError, ["four_over_six is 1", "'mae'"]),
        ({"four_over_six": "max", "scheme": "nvfp4"}, ValueError, ["is 'max'", "mse", "mae"]),
        ({"amax": 1.0}, ValueError, ["amax is for nvfp4"]),
        ({"tensor_scale": 1.0}, ValueError, ["tensor_scale is for nvfp4"]),
        ({"amax": 1.0, "tensor_scale": 1.0, "scheme": "nvfp4"}, ValueError, ["are both given"]),
        ({"amax": float("nan"), "scheme": "nvfp4"}, ValueError, ["amax is nan", "finite"]),
        ({"amax": -1, "scheme": "nvfp4"}, ValueError, ["amax is -1.0", "0 or larger"]),
        ({"amax": 1e39, "scheme": "nvfp4"}, ValueError, ["amax is 1e+39", "float32"]),
        ({"amax": 10**400, "scheme": "nvfp4"}, ValueError, ["amax is an integer beyond"]),
        ({"amax": 2.0**-150, "scheme": "nvfp4"}, ValueError, ["amax is 7", "0 as a float32"]),
        ({"tensor_scale": 1e-60, "scheme": "nvfp4"}, ValueError, ["tensor_scale is 1e-60"]),
        ({"tensor_scale": np.inf, "scheme": "nvfp4"}, ValueError, ["tensor_scale is inf"]),
        ({"amax": np.float32([np.nan]), "scheme": "nvfp4"}, ValueError, ["amax is nan"]),
        ({"amax": np.float32([-2]), "scheme": "nvfp4"}, ValueError, ["amax is -2.0"]),
        ({"amax": np.ones(2, "f"), "scheme": "nvfp4"}, ValueError, ["amax has shape (2,)", "one"]),
        ({"amax": np.ones(1), "scheme": "nvfp4"}, TypeError, ["amax has dtype float64"]),
        ({"amax": "1", "scheme": "nvfp4"}, TypeError, ["amax is '1'"]),
        ({"amax": True, "scheme": "nvfp4"}, TypeError, ["amax is True", "a number"]),
        ({"stream": 0}, ValueError, ["stream is 0"]),
        ({"stream": "s"}, TypeError, ["stream is 's'"]),
    ],
    ids=str,
)
def test_options(options: dict[str, Any], kind: type[Exception], parts: list[str]) -> None:
    options = {"scheme": "mxfp8", **options}
    scheme = options.pop("scheme")
    refused(kind, lambda: mxkern.quantize(X, scheme, **options), "quantize: ", *parts)
    square = random_values((64, 64), "float32")
    for function in (mxkern.quantize_columns, mxkern.quantize_both):
        refused(kind, lambda f=function: f(square, scheme, **options), f"{function.__name__}: ")


def test_what_has_no_hash_and_no_truth() -> None:
    view = memoryview(bytearray(4))
    refused(TypeError, lambda: mxkern.quantize(X, view), "quantize: scheme is a memoryview")
    for argument in ("scale_layout", "scale_rule", "rounding"):
        call = lambda name=argument: mxkern.quantize(X, "mxfp8", **{name: view})  # noqa: E731
        refused(TypeError, call, f"quantize: {argument} is a memoryview")
    refused(TypeError, lambda: mxkern.quantize_mxfp8(X, format=view), "format is a memoryview")
    refused(TypeError, lambda: mxkern.quantize(X, "mxfp8", block=(X, X)), "quantize: block is (")


@needs_torch
def test_tensors_between_two_elements() -> None:
    """Two bytes off is no place for four, though it is one for elements of half the size."""
    import torch

    memory = bytearray(X.nbytes + 2)
    x = torch.frombuffer(memory, dtype=torch.float32, offset=2, count=X.size).view(4, 64)
    refused(ValueError, lambda: mxkern.quantize(x, "mxfp8"), "quantize: x is misaligned", "clone()")
    half = torch.frombuffer(memory, dtype=torch.float16, offset=2).view(4, 128)
    assert mxkern.quantize(half, "mxfp8").shape == (4, 128)


@needs_jax
def test_random_keys_are_no_numbers() -> None:
    import jax

    call = lambda: mxkern.quantize(jax.random.key(0), "mxfp8")  # noqa: E731
    refused(TypeError, call, "quantize: x holds random keys", "jax.random.key_data(x)")


def test_families_speak_of_themselves() -> None:
    for family in FAMILIES:
        parts = (f"{family.__name__}: scale_layout", "did you mean 'row_major'")
        refused(ValueError, lambda f=family: f(X, scale_layout="row-mayor"), *parts)
        refused(ValueError, lambda f=family: f(X, hadamard=128), f"{family.__name__}: ")
    call = lambda: mxkern.quantize_mxfp8(X, format="e4m3fn")  # noqa: E731
    refused(ValueError, call, "quantize_mxfp8: format is 'e4m3fn'", "did you mean 'e4m3'")
    refused(ValueError, lambda: mxkern.quantize_mxfp6(X, format="e4m3"), "e2m3 or e3m2")


def test_columns_need_two_dimensions() -> None:
    for function in (mxkern.quantize_columns, mxkern.quantize_both):
        parts = (f"{function.__name__}: x has shape (64,)", "two dimensions", "reshape")
        refused(ValueError, lambda f=function: f(X[0], "mxfp8"), *parts)


def test_quantize_both_pairs() -> None:
    call = mxkern.quantize_both
    refused(ValueError, lambda: call(X, "mxfp8", hadamard_rows=True), "hadamard_rows is True")
    refused(TypeError, lambda: call(X, "mxfp8", hadamard_rows=1), "hadamard_rows is 1")
    odd = np.ones((64, 33), np.float32)
    groups = lambda: call(odd, "mxfp8", hadamard=16, hadamard_rows=True)  # noqa: E731
    refused(ValueError, groups, "quantize_both: blocks run along an axis of 33", "hadamard=16")
    q = mxkern.quantize(X, "mxfp8")
    refused(TypeError, lambda: call(X, "mxfp8", out=q), "out is", "pair (rows, columns)")
    refused(TypeError, lambda: call(X, "nvfp4", amax=(1.0, 2.0, 3.0)), "amax is", "pair")
    rows, columns = call(X, "mxfp8")
    refused(ValueError, lambda: call(X, "mxfp8", out=(columns, rows)), "out[0].shape")
    square = random_values((64, 64), "float32")
    same = mxkern.quantize(square, "mxfp8")
    before = raw(same.codes).copy()
    refused(ValueError, lambda: call(square, "mxfp8", out=(same, same)), "out[1].codes overlaps")
    np.testing.assert_array_equal(raw(same.codes), before)


def test_scales() -> None:
    scales = np.zeros((4, 8), np.uint8)
    swizzle, unswizzle = mxkern.swizzle_scales, mxkern.unswizzle_scales
    refused(TypeError, lambda: swizzle(scales.astype("f")), "swizzle_scales: scales has dtype")
    refused(ValueError, lambda: swizzle(np.zeros((), "u1")), "scales is 0-d")
    refused(TypeError, lambda: swizzle(mxkern.quantize(X, "mxfp8")), "BlockScaled", "q.scales")
    refused(TypeError, lambda: swizzle([1, 2]), "scales is a list", "numpy.uint8")
    refused(ValueError, lambda: unswizzle(scales, 4, 8), "scales has shape (4, 8)", "1024", "flat")
    refused(ValueError, lambda: unswizzle(scales, -4, 8), "rows is -4")
    refused(TypeError, lambda: unswizzle(scales, 4, 8.0), "blocks is 8.0")


def test_messages_have_three_parts() -> None:
    """Got, wanted, way out: the shape of a message, on the example everybody meets first."""
    with pytest.raises(TypeError) as caught:
        mxkern.quantize_mxfp8(np.zeros((2, 32), np.int32))
    pattern = r"quantize_mxfp8: x has dtype int32; expected [\w, ]+; convert with x\.astype\(.*\)"
    assert re.fullmatch(pattern, str(caught.value)), caught.value
