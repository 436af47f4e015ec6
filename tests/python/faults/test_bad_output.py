# tests/python/faults/test_bad_output.py: an out= that is wrong in any way gives an error that names
# what is wrong, and nothing is written.
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import mxkern
from support import array_of, available, framework_params, random_values, raw, refused

needs_torch = pytest.mark.skipif(not available("torch"), reason="torch is not installed")
needs_jax = pytest.mark.skipif(not available("jax"), reason="jax is not installed")

X = random_values((4, 64), "float32")


def writing_to(x: Any) -> list[tuple[Callable[[Any], Any], tuple[int, ...]]]:
    """Calls that write to an array, and its shape; x is 4 x 64."""
    q, w = mxkern.quantize(x, "mxfp8"), mxkern.quantize(x, "mxfp4")
    return [
        (lambda out: mxkern.dequantize(q, out=out), (4, 64)),
        (lambda out: mxkern.gemm(q, w, out=out), (4, 4)),
        (lambda out: mxkern.tensor_amax(x, out=out), ()),
        (lambda out: mxkern.random_hadamard(x, out=out), (4, 64)),
        (lambda out: mxkern.random_hadamard(out, out=out), (4, 64)),
    ]


class TestOut:
    """quantize(x, out=...): every way in which out can be wrong."""

    good = mxkern.quantize(X, "nvfp4")

    @pytest.mark.parametrize(
        ("changes", "kind", "parts"),
        [
            ({"scheme": "mxfp4"}, ValueError, ["out.scheme is 'mxfp4'", "expected 'nvfp4'"]),
            ({"shape": (64, 4)}, ValueError, ["out.shape is (64, 4)", "expected (4, 64)"]),
            ({"scale_layout": "swizzled"}, ValueError, ["out.scale_layout is 'swizzled'"]),
            ({"tensor_scale": None}, ValueError, ["out.tensor_scale is None", "float32"]),
            ({"tensor_scale": np.float32(1)}, TypeError, ["out.tensor_scale is"]),
            (
                {"tensor_scale": np.ones((), "f8")},
                TypeError,
                ["out.tensor_scale has dtype float64"],
            ),
            ({"codes": np.zeros((4, 64), "u1")}, ValueError, ["out.codes has shape (4, 64)"]),
            ({"codes": np.zeros((4, 32), "i1")}, TypeError, ["out.codes has dtype int8"]),
            ({"codes": np.zeros((4, 64), "u1")[:, ::2]}, ValueError, ["out.codes is not contig"]),
            ({"codes": [0]}, TypeError, ["out.codes is a list"]),
            ({"scales": np.zeros((4, 2), "u1")}, ValueError, ["out.scales has shape (4, 2)"]),
            ({"scales": np.zeros((4, 4), "f4")}, TypeError, ["out.scales has dtype float32"]),
        ],
        ids=str,
    )
    def test_parts(self, changes: dict[str, Any], kind: type[Exception], parts: list[str]) -> None:
        self.check(self.good.replace(**changes), kind, parts)

    def check(self, out: Any, kind: type[Exception], parts: list[str]) -> None:
        before = [raw(part).copy() for part in self.good.parts]
        refused(kind, lambda: mxkern.quantize(X, "nvfp4", out=out), "quantize: ", *parts)
        for part, old in zip(self.good.parts, before, strict=True):
            np.testing.assert_array_equal(raw(part), old)

    def test_kind(self) -> None:
        self.check(self.good.parts, TypeError, ["out is", "BlockScaled"])
        self.check(self.good.codes, TypeError, ["out is", "BlockScaled"])

    def test_read_only(self) -> None:
        codes = self.good.codes.copy()
        codes.flags.writeable = False
        self.check(self.good.replace(codes=codes), ValueError, ["out.codes is read-only"])

    def test_overlap(self) -> None:
        memory = np.zeros(4 * 64 * 4, np.uint8)
        x = memory.view(np.float32).reshape(4, 64)
        x[:] = X
        out = self.good.replace(codes=memory[128:256].reshape(4, 32))
        refused(ValueError, lambda: mxkern.quantize(x, "nvfp4", out=out), "out.codes overlaps")
        np.testing.assert_array_equal(x, X)
        parts = np.zeros(200, np.uint8)
        out = self.good.replace(
            codes=parts[:128].reshape(4, 32), scales=parts[120:136].reshape(4, 4)
        )
        self.check(out, ValueError, ["out.scales overlaps"])

    @needs_torch
    def test_framework(self) -> None:
        import torch

        out = mxkern.quantize(torch.from_numpy(X), "nvfp4")
        self.check(out, TypeError, ["out.codes is a PyTorch array beside NumPy arrays"])
        q = mxkern.quantize(torch.from_numpy(X), "mxfp8")
        y = torch.empty(4, 64, requires_grad=True)
        refused(ValueError, lambda: mxkern.dequantize(q, out=y), "dequantize: out requires grad")
        fp16 = np.empty((4, 64), np.float16)
        refused(TypeError, lambda: mxkern.dequantize(q, out=fp16), "out is a NumPy array")

    @needs_torch
    def test_tensors_that_read_as_the_negative_of_their_memory(self) -> None:
        import torch

        x = torch.from_numpy(X)
        for call, shape in writing_to(x):
            out = torch._neg_view(torch.full(shape, 2.0))
            refused(ValueError, partial(call, out), "out reads as the negative of its memory")
            assert bool((out == -2.0).all())

    @needs_torch
    def test_the_last_element_of_a_view_is_read(self) -> None:
        import torch

        base = torch.zeros(128)
        x = base[:64].view(2, 32)[:, ::2]  # up to element 62 of base
        out = base[62:94].view(2, 16)
        call = lambda out: mxkern.random_hadamard(x, 16, out=out)  # noqa: E731
        refused(ValueError, lambda: call(out), "random_hadamard: out overlaps")
        behind = base[64:96].view(2, 16)
        assert call(behind) is behind

    @needs_torch
    def test_memory_directly_beside_is_free(self) -> None:
        import torch

        memory = torch.ones(128)
        low, high = memory[:64].view(1, 64), memory[64:].view(1, 64)
        for x, out in ((low, high), (high, low)):
            want = mxkern.random_hadamard(x.clone())
            assert mxkern.random_hadamard(x, 16, out=out) is out and out.equal(want)

    @needs_torch
    def test_autograd_hears_of_what_is_written(self) -> None:
        import torch

        x = torch.from_numpy(X)
        n = mxkern.quantize(x, "nvfp4")
        for call, shape in writing_to(x):
            kept, weight = torch.ones(shape), torch.ones(shape, requires_grad=True)
            loss = (weight * kept).sum()
            call(kept)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        before = [part._version for part in n.parts]
        mxkern.quantize(x, "nvfp4", out=n)
        assert [part._version for part in n.parts] == [version + 1 for version in before]
        with torch.inference_mode():
            assert float(mxkern.tensor_amax(x, out=torch.zeros(()))) > 0

    def test_half_a_pair(self) -> None:
        rows, columns = mxkern.quantize_both(X, "mxfp8")
        for pair, name in (((rows, None), "out[1] is None"), ((None, columns), "out[0] is None")):
            refused(TypeError, partial(mxkern.quantize_both, X, "mxfp8", out=pair), name)

    @needs_jax
    def test_jax_cannot_be_written(self) -> None:
        import jax.numpy as jnp

        x = jnp.asarray(X)
        q = mxkern.quantize(x, "mxfp8")
        parts = ("JAX arrays cannot be written to", "leave out")
        refused(TypeError, lambda: mxkern.quantize(x, "mxfp8", out=q), *parts)
        refused(TypeError, lambda: mxkern.dequantize(q, out=x), "dequantize: out", *parts)


class TestPlainOut:
    """Functions whose out= is one array."""

    q = mxkern.quantize(X, "mxfp8")
    scales = np.zeros((4, 2), np.uint8)
    cases = (
        ("dequantize", lambda out: mxkern.dequantize(TestPlainOut.q, out=out), (4, 64), "f4"),
        ("gemm", lambda out: mxkern.gemm(TestPlainOut.q, TestPlainOut.q, out=out), (4, 4), "f4"),
        ("random_hadamard", lambda out: mxkern.random_hadamard(X, out=out), (4, 64), "f4"),
        ("tensor_amax", lambda out: mxkern.tensor_amax(X, out=out), (), "f4"),
        (
            "swizzle_scales",
            lambda out: mxkern.swizzle_scales(TestPlainOut.scales, out=out),
            (512,),
            "u1",
        ),
    )

    @pytest.mark.parametrize(("name", "call", "shape", "dtype"), cases, ids=[c[0] for c in cases])
    def test_wrong(
        self, name: str, call: Callable[[Any], Any], shape: tuple[int, ...], dtype: str
    ) -> None:
        refused(TypeError, lambda: call(np.zeros(shape, "i8")), f"{name}: out has dtype int64")
        wrong = np.zeros((*shape, 1), dtype)
        refused(ValueError, lambda: call(wrong), f"{name}: out has shape", str(shape))
        refused(TypeError, lambda: call([0]), f"{name}: out is a list")
        locked = np.zeros(shape, dtype)
        locked.flags.writeable = False
        refused(ValueError, lambda: call(locked), f"{name}: out is read-only")
        if shape:
            apart = np.zeros((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
            refused(ValueError, lambda: call(apart), f"{name}: out is not contiguous")
        if shape and np.dtype(dtype).itemsize > 1:
            odd = np.zeros(locked.nbytes + 1, np.uint8)[1:].view(dtype).reshape(shape)
            refused(ValueError, lambda: call(odd), f"{name}: out starts between two elements")

    @pytest.mark.parametrize("framework", framework_params("numpy", "torch"))
    def test_another_dtype(self, framework: str) -> None:
        q = mxkern.quantize(array_of(framework, X), "mxfp8")
        calls: list[tuple[str, Callable[..., Any], tuple[int, int]]] = [
            ("dequantize", lambda **o: mxkern.dequantize(q, **o), (4, 64)),
            ("gemm", lambda **o: mxkern.gemm(q, q, **o), (4, 4)),
            ("gemm", lambda **o: mxkern.gemm(q, q, stream=1, **o), (4, 4)),
            ("dequantize", lambda **o: mxkern.dequantize(q, stream=1, **o), (4, 64)),
        ]
        if framework == "torch":
            from mxkern.torch import operators

            calls.append(("gemm", lambda **o: operators.gemm(q, q, **o), (4, 4)))
        for name, call, shape in calls:
            out = array_of(framework, np.full(shape, 7, np.float32))
            for dtype in ("bfloat16", "float16", out.dtype, "float32"):
                if dtype in ("bfloat16", "float16"):
                    parts = (
                        f"{name}: dtype is {dtype!r}, and out has dtype float32",
                        "leave dtype",
                    )
                    refused(ValueError, partial(call, dtype=dtype, out=out), *parts)
                    assert (out == 7).all()
                else:
                    call(dtype=dtype, out=out)
                    out[:] = 7
            half = array_of(framework, np.zeros(shape, np.float16))
            call(dtype="float16", out=half)
            call(out=half)
            wrong = partial(call, dtype="float8", out=out)
            refused(ValueError, wrong, f"{name}: dtype is 'float8'; expected float32")

    def test_overlap(self) -> None:
        memory = np.zeros(4 * 64 * 4, np.uint8)
        codes, out = memory[:256].reshape(4, 64), memory.view(np.float32).reshape(4, 64)
        q = self.q.replace(codes=codes)
        refused(ValueError, lambda: mxkern.dequantize(q, out=out), "dequantize: out overlaps")
        long = np.zeros(80, np.float32)
        shifted = lambda: mxkern.random_hadamard(long[:64], out=long[16:])  # noqa: E731
        refused(ValueError, shifted, "random_hadamard: out overlaps")
        small = memory[:64].view(np.float32).reshape(4, 4)
        refused(ValueError, lambda: mxkern.gemm(q, q, out=small), "gemm: out overlaps")
