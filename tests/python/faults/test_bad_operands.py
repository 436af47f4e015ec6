# tests/python/faults/test_bad_operands.py: a wrong BlockScaled, or a wrong argument of a product,
# gives an error that says what is wrong with which part, and nothing is written.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxkern
from support import available, random_values, refused

needs_torch = pytest.mark.skipif(not available("torch"), reason="torch is not installed")

X = random_values((4, 64), "float32")


class TestOperand:
    """Functions that take a BlockScaled."""

    good = mxkern.quantize(X, "nvfp4")
    swizzled = mxkern.quantize(X, "nvfp4", scale_layout="swizzled")

    @pytest.mark.parametrize(
        ("changes", "kind", "parts"),
        [
            ({"scheme": "nvfp5"}, ValueError, ["scheme is 'nvfp5'", "did you mean 'nvfp4'"]),
            ({"scheme": "mxfp8_e4m3"}, ValueError, ["codes has shape (4, 32)", "(4, 64)"]),
            ({"shape": (4, 65)}, ValueError, ["codes has shape (4, 32)", "(4, 40)"]),
            ({"shape": (5, 64)}, ValueError, ["codes has shape (4, 32)", "(5, 32)"]),
            ({"shape": (4, -1)}, ValueError, ["shape is (4, -1)", "ints from 0"]),
            ({"shape": (4.0, 64)}, ValueError, ["shape is (4.0, 64)", "ints from 0"]),
            ({"shape": (2**62, 2**62)}, ValueError, ["shape is (46116", "ints from 0"]),
            ({"shape": ()}, TypeError, ["shape is ()"]),
            ({"shape": []}, TypeError, ["shape is a list"]),
            ({"scale_layout": "swizzled"}, ValueError, ["that of row_major", "swizzle_scales"]),
            ({"scale_layout": "tiles"}, ValueError, ["scale_layout is 'tiles'"]),
            (
                {"scale_layout": "tiles", "shape": np.ones(2)},
                ValueError,
                ["scale_layout is 'tiles'"],
            ),
            ({"scales": np.zeros((4, 3), "u1")}, ValueError, ["scales has shape (4, 3)", "(4, 4)"]),
            ({"scales": np.zeros((4, 4), "f4")}, TypeError, ["scales has dtype float32"]),
            ({"codes": np.zeros((4, 32), "i4")}, TypeError, ["codes has dtype int32"]),
            ({"codes": None}, TypeError, ["codes is None"]),
            ({"tensor_scale": None}, ValueError, ["tensor_scale is None"]),
            (
                {"tensor_scale": np.ones(3, "f4")},
                ValueError,
                ["tensor_scale has shape (3,)", "factors"],
            ),
            ({"tensor_scale": 1e-60}, ValueError, ["tensor_scale is 1e-60", "0 as a float32"]),
        ],
        ids=str,
    )
    def test_parts(self, changes: dict[str, Any], kind: type[Exception], parts: list[str]) -> None:
        bad = self.good.replace(**changes)
        refused(kind, lambda: mxkern.dequantize(bad), "dequantize: ", *parts)
        refused(kind, lambda: mxkern.gemm(bad, self.good), "gemm: ", *parts)
        refused(kind, lambda: mxkern.gemm(self.good, bad), "gemm: ", *parts)
        fields = {name: getattr(bad, name) for name in bad.__slots__}
        if not isinstance(fields["shape"], list):
            make = lambda: mxkern.BlockScaled.from_parts(  # noqa: E731
                fields.pop("codes"), fields.pop("scales"), **fields
            )
            with pytest.raises((TypeError, ValueError), match=r"BlockScaled.from_parts: "):
                make()

    @pytest.mark.parametrize(
        ("scheme", "part", "dtype", "way_out"),
        [
            ("mxfp8", "codes", "float8_e5m2", "they are codes of mxfp8_e5m2: name that scheme"),
            ("mxfp4", "codes", "float8_e4m3fn", "they are codes of mxfp8_e4m3"),
            ("mxfp8", "codes", "float8_e4m3fnuz", "other values as float8_e4m3fnuz: convert q.co"),
            ("mxfp4", "scales", "float8_e4m3fn", "they are scales of nvfp4: name that scheme"),
            ("nvfp4", "scales", "float8_e8m0fnu", "scales of mxfp8_e4m3, mxfp8_e5m2, mxfp6_e3m2"),
            ("mxfp8", "scales", "float8_e5m2", "other values as float8_e5m2: convert q.scales by"),
            ("mxfp8", "codes", "int8", "reinterpret them with q.codes.view"),
            ("mxfp8", "scales", "int16", "pass stored bytes"),
        ],
    )
    def test_bits_that_mean_other_values(
        self, scheme: str, part: str, dtype: str, way_out: str
    ) -> None:
        """No way out leads to numbers that nobody meant."""
        q = mxkern.quantize(X, scheme)
        other = np.zeros(getattr(q, part).shape, dtype)
        bad = q.replace(**{part: other})
        parts = (f"dequantize: q.{part} has dtype {dtype}", f"for {q.scheme}; ", way_out)
        refused(TypeError, lambda: mxkern.dequantize(bad), *parts)

    def test_swizzled_passed_as_row_major(self) -> None:
        for scheme in mxkern.schemes:
            for shape in [(64,), (4, 64), (2, 4, 64), (128, 16), (512, 1)]:
                q = mxkern.quantize(np.ones(shape, "f"), scheme, scale_layout="swizzled")
                bad = q.replace(scale_layout="row_major")
                parts = ("that of swizzled scales", "unswizzle_scales")
                refused(ValueError, lambda bad=bad: mxkern.dequantize(bad), *parts)

    def test_kind(self) -> None:
        for value in (X, self.good.parts, None, 3):
            refused(TypeError, lambda v=value: mxkern.dequantize(v), "dequantize: q is", "quantize")
            refused(TypeError, lambda v=value: mxkern.gemm(self.good, v), "gemm: b is")
        refused(TypeError, lambda: mxkern.gemm(None, self.good), "gemm: a is None")

    def test_tensor_scale_where_there_is_none(self) -> None:
        q = mxkern.quantize(X, "mxfp4").replace(tensor_scale=np.ones((), "f"))
        refused(ValueError, lambda: mxkern.dequantize(q), "tensor_scale is given", "mxfp4 has none")

    @needs_torch
    def test_frameworks_mixed(self) -> None:
        import torch

        other = mxkern.quantize(torch.from_numpy(X), "nvfp4")
        mixed = self.good.replace(scales=other.scales)
        refused(TypeError, lambda: mxkern.dequantize(mixed), "q.scales is a PyTorch array")
        refused(TypeError, lambda: mxkern.gemm(self.good, other), "gemm: a holds NumPy arrays")
        refused(TypeError, lambda: mxkern.gemm(X, other), "gemm: a is a NumPy array")
        bias = np.zeros(4, "f")
        refused(TypeError, lambda: mxkern.gemm(other, other, bias=bias), "gemm: bias is a NumPy")


class TestGemm:
    a = mxkern.quantize(X, "mxfp8")

    def b(self, *shape: int) -> mxkern.BlockScaled:
        return mxkern.quantize(np.ones(shape, "f"), "mxfp8")

    def test_shapes(self) -> None:
        call = mxkern.gemm
        refused(ValueError, lambda: call(self.a, self.b(4, 96)), "same last axis", "64 and 96")
        refused(ValueError, lambda: call(X, self.b(4, 96)), "same last axis")
        refused(ValueError, lambda: call(self.a, self.b(64)), "b has shape (64,)", "[..., N, K]")
        refused(ValueError, lambda: call(self.a, self.b(2, 4, 64)), "leading dimensions")
        batches = (self.b(3, 4, 64), self.b(2, 4, 64))
        refused(ValueError, lambda: call(*batches), "leading dimensions", "(3,) and (2,)")
        a = self.b(2, 3, 4, 64)
        for b in (self.b(3, 2, 4, 64), self.b(6, 4, 64)):  # as many matrices, in another order
            refused(ValueError, lambda b=b: call(a, b), "leading dimensions", "got (2, 3) and")

    def test_options(self) -> None:
        def call(**options: Any) -> Any:
            return mxkern.gemm(self.a, self.a, **options)

        refused(ValueError, lambda: call(dtype="float8"), "gemm: dtype is 'float8'", "float16")
        refused(ValueError, lambda: call(dtype=np.float64), "dtype is 'float64'", "float16")
        refused(TypeError, lambda: call(dtype=None), "gemm: dtype is None", "expected a name")
        refused(TypeError, lambda: call(precision=X), "gemm: precision is a numpy.ndarray")
        refused(ValueError, lambda: call(beta=1.0), "gemm: beta is 1.0", "out")
        refused(TypeError, lambda: call(alpha="2"), "gemm: alpha is '2'", "a number")
        refused(TypeError, lambda: call(alpha=True), "gemm: alpha is True")
        refused(TypeError, lambda: call(alpha=np.ones(1, "i4")), "pass float(alpha)")
        for of_no_shape in (np.float32, np.ma.MaskedArray, type("Odd", (), {"shape": None})()):
            refused(TypeError, lambda x=of_no_shape: call(alpha=x), "gemm: alpha is", "a number")
        refused(ValueError, lambda: call(alpha=-1e39), "gemm: alpha is -1e+39", "float32")
        refused(ValueError, lambda: call(alpha=10**400), "gemm: alpha is an integer", "float32")
        refused(ValueError, lambda: call(bias=np.zeros(5, "f")), "bias has shape (5,)", "(4,)")
        refused(TypeError, lambda: call(bias=np.zeros(4, "i4")), "gemm: bias has dtype int32")

    def test_nothing_is_written(self) -> None:
        out = np.full((4, 4), 7, np.float32)
        for options in ({"bias": np.zeros(5, "f")}, {"alpha": None}):
            with pytest.raises((TypeError, ValueError)):
                mxkern.gemm(self.a, self.a, out=out, **options)
        assert (out == 7).all()


def test_grouped_gemm_takes_no_batch_of_groups() -> None:
    b = mxkern.quantize(np.ones((1, 1, 8, 64), np.float32), "mxfp4")
    call = lambda: mxkern.grouped_gemm(X, b, np.array([4], np.int32))  # noqa: E731
    refused(ValueError, call, "grouped_gemm: b has shape (1, 1, 8, 64)", "expected [G, N, K]")


@pytest.mark.parametrize("count", range(6))
def test_missing_fields(count: int) -> None:
    """As in a subclass whose constructor sets some, or in what __new__ alone has made."""
    q = mxkern.quantize(np.ones((4, 64), np.float32), "nvfp4")
    other = mxkern.BlockScaled.__new__(mxkern.BlockScaled)
    for name in mxkern.BlockScaled.__slots__[:count]:
        object.__setattr__(other, name, getattr(q, name))
    missing = mxkern.BlockScaled.__slots__[count]
    x = np.ones((2, 64), np.float32)
    calls = {
        "dequantize: q": lambda: mxkern.dequantize(other),
        "gemm: b": lambda: mxkern.gemm(x, other),
        "gemm: a": lambda: mxkern.gemm(other, q),
        "quantize: out": lambda: mxkern.quantize(np.ones((4, 64), np.float32), "nvfp4", out=other),
    }
    for start, call in calls.items():
        message = f"{start} has no {missing}; expected the 6 fields of a BlockScaled"
        refused(TypeError, call, message)
    assert "not valid" in repr(other)
