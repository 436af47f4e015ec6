# tests/python/faults/test_ways_out.py: the way out that an error names, and that it is one.
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mxkern
from mxkern.analysis import plot
from support import (
    array_of,
    assert_same,
    available,
    framework_params,
    random_values,
    raw,
    refused,
)

needs_torch = pytest.mark.skipif(not available("torch"), reason="torch is not installed")
needs_jax = pytest.mark.skipif(not available("jax"), reason="jax is not installed")

X = random_values((4, 64), "float32")
Q = mxkern.quantize(X, "mxfp8")


def test_dtypes() -> None:
    wanted = "expected float32, float16 or bfloat16"
    for dtype in ("float64", np.float64, "int8", "float8_e4m3fn", "bool"):
        name = dtype if isinstance(dtype, str) else "float64"
        message = f"gemm: dtype is {name!r}; {wanted}; take float32 and convert the result"
        refused(ValueError, lambda d=dtype: mxkern.gemm(Q, Q, dtype=d), message)
    near = f"dtype is 'bf16'; {wanted}; did you mean 'bfloat16'?"
    refused(ValueError, lambda: mxkern.dequantize(Q, dtype="bf16"), near)
    for dtype in ("f2", "f4", "e", "f", "half", "single", "<f2", "=f4"):
        near = f"dtype is {dtype!r}; {wanted}; did you mean {np.dtype(dtype).name!r}?"
        refused(ValueError, lambda d=dtype: mxkern.dequantize(Q, dtype=d), near)
    for dtype in ("f8", "d", "<f8"):
        other = f"dtype is {dtype!r}; {wanted}; take float32 and convert the result"
        refused(ValueError, lambda d=dtype: mxkern.dequantize(Q, dtype=d), other)


def test_all_names_that_are_as_near() -> None:
    for name, near in (
        ("fp4", "'mxfp4' or 'nvfp4'"),
        ("fp8", "'mxfp8'"),
        ("e2m1", "'mxfp4_e2m1' or 'nvfp4_e2m1'"),
    ):
        call = lambda n=name: mxkern.quantize(X, n)  # noqa: E731
        refused(ValueError, call, f"scheme is {name!r}", f"did you mean {near}?")
    assert [] not in mxkern.schemes and None not in mxkern.schemes


@pytest.mark.parametrize("framework", framework_params())
def test_alpha_in_an_array(framework: str) -> None:
    alpha = array_of(framework, np.array(2.0, np.float32))
    want = "alpha is a ", "expected a number; pass float(alpha)"
    refused(TypeError, lambda: mxkern.gemm(Q, Q, alpha=alpha), "gemm: ", *want)
    assert (mxkern.gemm(Q, Q, alpha=float(alpha)) == mxkern.gemm(Q, Q, alpha=2.0)).all()
    two = array_of(framework, np.ones(2, np.float32))
    with pytest.raises(TypeError, match=r"expected a number$"):
        mxkern.gemm(Q, Q, beta=two, out=np.zeros((4, 4), np.float32))


@needs_jax
def test_alpha_that_is_traced() -> None:
    import jax

    q = mxkern.quantize(jax.numpy.asarray(X), "mxfp8")
    call = jax.jit(lambda alpha: mxkern.gemm(q, q, alpha=alpha))
    refused(TypeError, lambda: call(2.0), "gemm: alpha is a ", "Tracer", "static_argnums")


def test_fields_of_structures() -> None:
    x = np.zeros(32, [("left", "f4"), ("right", "f4")])
    refused(TypeError, lambda: mxkern.quantize(x, "mxfp8"), 'take one of its fields, as x["left"]')
    assert mxkern.quantize(x["left"], "mxfp8").shape == (32,)


def test_plain_tuples() -> None:
    parts = "is a tuple; expected a BlockScaled; make one with mxkern.BlockScaled(*"
    fields = (*Q.parts, *Q.facts)
    refused(TypeError, lambda: mxkern.dequantize(fields), f"dequantize: q {parts}q)")
    refused(TypeError, lambda: mxkern.gemm(Q, fields), f"gemm: b {parts}b)")
    assert mxkern.dequantize(mxkern.BlockScaled(*fields)).shape == (4, 64)
    pair = (X, X)
    message = "block is (a numpy.ndarray, a numpy.ndarray)"
    refused(TypeError, lambda: mxkern.quantize(X, "mxfp8", block=pair), message)


def test_numbers_where_arrays_are_wanted() -> None:
    experts = mxkern.quantize(X[None], "mxfp8")
    call = lambda ends: mxkern.grouped_gemm(X, experts, ends)  # noqa: E731
    refused(TypeError, lambda: call(4), "convert with numpy.asarray(ends, numpy.int32).reshape(1)")
    assert call(np.asarray(4, np.int32).reshape(1)).shape == (4, 4)
    out = mxkern.quantize(X, "nvfp4")
    scaled = lambda scale: mxkern.quantize(X, "nvfp4", out=out.replace(tensor_scale=scale))  # noqa: E731
    way_out = "convert with numpy.asarray(out.tensor_scale, numpy.float32)"
    with pytest.raises(TypeError, match=re.escape(way_out) + "$"):
        scaled(1.0)
    assert scaled(np.asarray(1.0, np.float32)).scheme == "nvfp4"


def test_the_record_of_a_scheme_in_out() -> None:
    out = mxkern.quantize(X, "mxfp8").replace(scheme=mxkern.schemes["mxfp8"])  # type: ignore[arg-type]
    assert mxkern.quantize(X, "mxfp8", out=out) is out


@needs_jax
def test_codes_of_four_bits_of_jax() -> None:
    import jax.numpy as jnp

    codes = jnp.ones((4, 32), jnp.uint4)
    way_out = "convert codes, one a byte, with codes.astype(jax.numpy.uint8)"
    refused(TypeError, lambda: mxkern.pack_codes(codes, "mxfp4"), way_out)
    assert mxkern.pack_codes(codes.astype(jnp.uint8), "mxfp4").shape == (4, 16)


@needs_torch
def test_misaligned_tensors() -> None:
    import torch

    memory = bytearray(4 * 64 * 4 + 1)
    x = torch.frombuffer(memory, dtype=torch.float32, offset=1, count=256).reshape(4, 64)
    q = mxkern.quantize(torch.from_numpy(X), "mxfp8")
    message = "is misaligned; expected an address that is a multiple of 4 bytes"
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("quantize: x", lambda: mxkern.quantize(x, "mxfp8")),
        ("gemm: a", lambda: mxkern.gemm(x, q)),
        ("dequantize: out", lambda: mxkern.dequantize(q, out=x)),
    ]
    for name, call in calls:
        refused(ValueError, call, f"{name} {message}; {name.split()[-1]}.clone() has one")
    assert mxkern.gemm(x.clone(), q).shape == (4, 4)
    assert mxkern.dequantize(q, out=x.clone()).equal(mxkern.dequantize(q))


def test_read_only_parts_of_an_output() -> None:
    codes = Q.codes.copy()
    codes.flags.writeable = False
    out = Q.replace(codes=codes)
    way_out = "pass out.replace(codes=out.codes.copy())"
    refused(ValueError, lambda: mxkern.quantize(X, "mxfp8", out=out), "read-only", way_out)
    writable = out.replace(codes=out.codes.copy())
    assert mxkern.quantize(X, "mxfp8", out=writable) is writable


def test_aliases_of_an_output() -> None:
    out = mxkern.quantize(X, "mxfp8").replace(scheme="mxfp8")
    assert mxkern.quantize(2 * X, "mxfp8", out=out) is out
    assert (mxkern.dequantize(out) == mxkern.dequantize(mxkern.quantize(2 * X, "mxfp8"))).all()
    refused(ValueError, lambda: mxkern.quantize(X, "mxfp4", out=out), "out.scheme is 'mxfp8'")
    unhashable = out.replace(scheme=[])
    refused(ValueError, lambda: mxkern.quantize(X, "mxfp8", out=unhashable), "out.scheme is a list")


@pytest.mark.parametrize("framework", framework_params())
def test_numbers_of_groups_with_another_axis(framework: str) -> None:
    """As compressed-tensors has them: an array of the shape [1] for each matrix."""
    b = mxkern.quantize(array_of(framework, np.stack([X, 2 * X])), "mxfp8")
    x, ends = array_of(framework, X), array_of(framework, np.array([1, 4], np.int32))
    factors = array_of(framework, np.array([[2], [3]], np.float32))
    call = lambda ends, factors: mxkern.grouped_gemm(x, b, ends, factors=factors)  # noqa: E731
    start = "grouped_gemm: factors has shape "
    way_out = "; reshape it with factors.reshape(-1)"
    refused(ValueError, lambda: call(ends, factors), f"{start}(2, 1); expected (2,)", way_out)
    got = call(ends, factors.reshape(-1))
    assert_same(raw(got), raw(call(ends, factors[:, 0])), framework)
    way_out = "ends has shape (1, 2); expected (2,), one for each group; reshape it with ends.resh"
    refused(ValueError, lambda: call(ends[None], None), way_out)
    with pytest.raises(ValueError, match=r"factors has shape \(1, 1\).*one for each group$"):
        call(ends, factors[:1])
    columns = mxkern.quantize(array_of(framework, X), "mxfp8")
    pair = array_of(framework, np.array([[32], [64]], np.int32))
    call = lambda ends: mxkern.grouped_gemm(columns, columns, ends)  # noqa: E731
    way_out = "one for each group of columns, as b is one matrix; reshape it with ends.reshape(-1)"
    refused(ValueError, lambda: call(pair), "ends has shape (2, 1); expected (G,)", way_out)
    assert call(pair.reshape(-1)).shape == (2, 4, 4)
    with pytest.raises(ValueError, match=r"as b is one matrix$"):
        call(array_of(framework, np.zeros((2, 3), np.int32)))


@needs_torch
@needs_jax
def test_frameworks_mixed() -> None:
    import jax.numpy
    import torch

    arrays = {"NumPy": X, "PyTorch": torch.from_numpy(X), "JAX": jax.numpy.asarray(X)}
    calls: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "NumPy": ("numpy.asarray", np.asarray),
        "PyTorch": ("torch.from_dlpack", torch.from_dlpack),
        "JAX": ("jax.numpy.asarray", jax.numpy.asarray),
    }
    for own, a in arrays.items():
        for other, b in arrays.items():
            if own == other:
                continue
            q = mxkern.quantize(b, "mxfp8")
            text, convert = calls[other]
            parts = (f"gemm: a is a {own} array beside {other} arrays", f"with {text}(a)")
            refused(TypeError, lambda a=a, q=q: mxkern.gemm(a, q), *parts)
            assert mxkern.gemm(convert(a), q).shape == (4, 4)


def test_forms_without_data() -> None:
    ready = mxkern.prepare_operand(Q).replace(form="folded", data=None)
    way_out = "call mxkern.prepare_operand(b.source, form='folded')"
    refused(TypeError, lambda: mxkern.gemm(X, ready), "b.data is None", way_out)


@pytest.mark.parametrize("scheme", ["mxfp4", "nvfp4", "mxfp6_e2m3"])
def test_codes_one_a_byte(scheme: str) -> None:
    q = mxkern.quantize(X, scheme)
    codes = mxkern.unpack_codes(q.codes, scheme)
    options = {"scheme": scheme, "tensor_scale": q.tensor_scale}
    make = mxkern.BlockScaled.from_parts
    way_out = f"pack them with mxkern.pack_codes(codes, {scheme!r})"
    for shape in (None, (4, 64)):
        call = lambda s=shape: make(codes, q.scales, shape=s, **options)  # noqa: E731
        refused(ValueError, call, "BlockScaled.from_parts: ", way_out)
    assert make(mxkern.pack_codes(codes, scheme), q.scales, **options).shape == (4, 64)
    with pytest.raises(ValueError, match=r"row_major'$"):
        make(q.codes, q.scales[:2], **options)


@pytest.mark.parametrize("scheme", ["mxfp4", "mxfp8_e4m3", "nvfp4"])
def test_blocks_on_an_axis_of_their_own(scheme: str) -> None:
    """As files of gpt-oss have them."""
    q = mxkern.quantize(X[None], scheme)
    blocks = q.codes.reshape(*q.scales.shape, -1)
    options = {"scheme": scheme, "tensor_scale": q.tensor_scale}
    make = mxkern.BlockScaled.from_parts
    for shape in (None, q.shape):
        call = lambda s=shape: make(blocks, q.scales, shape=s, **options)  # noqa: E731
        refused(ValueError, call, "BlockScaled.from_parts: ", "pass codes.reshape(*codes.shape[:-2")
    joined = make(blocks.reshape(*blocks.shape[:-2], -1), q.scales, **options)
    assert joined.shape == q.shape


@pytest.mark.parametrize(("columns", "size", "smaller"), [(40, 16, 0), (48, 32, 16), (32, 128, 32)])
def test_groups_of_a_transform(columns: int, size: int, smaller: int) -> None:
    x = X[:, :columns]
    for call, argument in (
        (lambda n: mxkern.quantize(x, "mxfp4", hadamard=n), "hadamard"),
        (lambda n: mxkern.random_hadamard(x, n), "size"),
    ):
        with pytest.raises(ValueError, match=rf"multiple of {argument}={size}; pad .*zeros") as e:
            call(size)
        assert str(e.value).endswith(f", or pass {argument}={smaller}" if smaller else "zeros")
        if smaller:
            call(smaller)


def test_devices_of_dlpack() -> None:
    class Odd:
        def __init__(self, device: Any) -> None:
            self.device = device

        def __dlpack__(self, **options: Any) -> Any:
            return X.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.device

    for device in (1, None, "cpu", (1,)):
        parts = ("quantize: x.__dlpack_device__() gives", "expected a pair")
        refused(TypeError, lambda d=device: mxkern.quantize(Odd(d), "mxfp8"), *parts)
    assert mxkern.quantize(Odd((1, 0)), "mxfp8").shape == (4, 64)


def test_folders_of_pictures(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    path = str(tmp_path / "none" / "x.png")
    with pytest.raises(FileNotFoundError) as caught:
        plot.check_plot_path(path)
    assert caught.value.filename == f"--plot {path}: {tmp_path / 'none'}"
    locked = str(tmp_path / "x.png")
    plot.check_plot_path(locked)
    monkeypatch.setattr(plot.os, "access", lambda place, mode: False)
    with pytest.raises(PermissionError, match="--plot"):
        plot.check_plot_path(locked)


def test_values_that_are_long_to_print() -> None:
    x = np.ones((4, 64), np.float32)
    long, text = 10**5000, f"is an int of {(10**5000).bit_length()} bits"
    refused(TypeError, lambda: mxkern.quantize(x, "mxfp4", block=long), f"block {text}")
    refused(TypeError, lambda: mxkern.quantize(x, "mxfp4", scale_rule=long), f"scale_rule {text}")
    refused(TypeError, lambda: mxkern.quantize(x, long), f"scheme {text}")
    refused(ValueError, lambda: mxkern.quantize(x, "mxfp4", hadamard=2**300), "16, 32, 64 or 128")
    refused(ValueError, lambda: mxkern.random_hadamard(x, size=-(2**300)), "16, 32, 64 or 128")


def test_what_no_conversion_makes_an_array() -> None:
    prepared = mxkern.prepare_operand(np.ones((4, 64), np.float32), "mxfp8")
    for x in (np.ndarray, prepared):
        with pytest.raises(TypeError) as caught:
            mxkern.quantize(x, "mxfp8")
        assert "quantize: x is " in str(caught.value)
        assert "numpy.asarray" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.quantize_per_tensor(torch.ones(4, 64), 0.1, 0, torch.qint8)
    text = "x.dequantize()"
    refused(TypeError, lambda: mxkern.quantize(x, "mxfp8"), "quantize: x has dtype", text)
    assert mxkern.quantize(x.dequantize(), "mxfp8").shape == (4, 64)
    q = mxkern.quantize(torch.ones(4, 64), "mxfp8")
    refused(TypeError, lambda: mxkern.dequantize(q, dtype=torch.ones(2)), "dequantize: dtype is a")


@pytest.mark.parametrize("framework", [p for p in framework_params() if "jax" not in str(p)])
def test_outputs_that_are_left_out(framework: str) -> None:
    """What a caller may leave out is out, and no part of it."""
    x = array_of(framework, X)
    q = mxkern.quantize(x, "mxfp8")
    both = mxkern.quantize_both(x, "mxfp8")
    wide = array_of(framework, np.zeros((4, 128), np.uint8))
    gaps = q.replace(codes=wide[:, :64])
    end = "; leave out out and copy the result"
    wrong = "codes is not contiguous; expected a row-major array without gaps" + end
    refused(ValueError, lambda: mxkern.quantize(x, "mxfp8", out=gaps), f"out.{wrong}")
    pair = (both[0].replace(codes=wide[:, :64]), both[1])
    refused(ValueError, lambda: mxkern.quantize_both(x, "mxfp8", out=pair), f"out[0].{wrong}")
    other = "torch" if framework == "numpy" and available("torch") else "numpy"
    if other != framework:
        foreign = q.replace(codes=array_of(other, np.zeros((4, 64), np.uint8)))
        with pytest.raises(TypeError, match=r"out\.codes is a"):
            mxkern.quantize(x, "mxfp8", out=foreign)
    wide[:, :64] = array_of(framework, raw(mxkern.quantize(x, "mxfp8").codes))
    assert_same(raw(wide[:, :64]), raw(q.codes), framework)


@needs_torch
def test_outputs_that_read_as_their_negative() -> None:
    import torch

    q = mxkern.quantize(torch.from_numpy(X), "nvfp4")
    negative = torch.zeros((), dtype=torch.complex64).conj().imag
    out = q.replace(tensor_scale=negative)
    text = ("out.tensor_scale reads as the negative", "leave out out and copy the result")
    refused(ValueError, lambda: mxkern.quantize(torch.from_numpy(X), "nvfp4", out=out), *text)


@needs_jax
def test_outputs_of_jax() -> None:
    import jax.numpy as jnp

    x = jnp.asarray(X)
    q = mxkern.quantize(x, "mxfp8")
    for call in (
        lambda: mxkern.quantize(x, "mxfp8", out=q),
        lambda: mxkern.quantize_both(x, "mxfp8", out=(q, q)),
        lambda: mxkern.dequantize(q, out=x),
    ):
        with pytest.raises(TypeError, match=r"cannot be written to; leave out out$"):
            call()
