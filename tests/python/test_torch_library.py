# tests/python/test_torch_library.py: torch.ops.mxkern.*, the operators themselves.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mxkern
from support import array_of, random_values, refused

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.utils._pytree as pytree  # noqa: E402

import mxkern.torch as ops  # noqa: E402

X = array_of("torch", random_values((4, 96), "float32"))
Q = mxkern.quantize(X, "mxfp6")
N = mxkern.quantize(X, "nvfp4")
KIND = "quantized mxfp6_e2m3 row_major"


def plain(x: Any) -> tuple[Any, ...]:
    """A plain operand as an operator takes it: no scales, no tensor scale, no codes beside it."""
    return x, None, None, None


def test_operators_themselves() -> None:
    gemm, right = torch.ops.mxkern.gemm, (*Q.parts, None, KIND, [4, 96])
    refused(
        ValueError, lambda: gemm(*plain(X), "plain", None, *right), "a_kind is 'plain'", "three"
    )
    wrong = (X, Q.scales, None, None, "plain - -", None)
    refused(ValueError, lambda: gemm(*wrong, *right), "a_scales is given; expected none", "a_kind")
    folded = (*plain(X), "folded mxfp6_e2m3 row_major", None)
    refused(ValueError, lambda: gemm(*folded, *right), "a_scales is None; expected a tensor")
    folded = (X, Q.scales, None, Q.codes, "folded mxfp6_e2m3 row_major", None)
    refused(ValueError, lambda: gemm(*folded, *right), "a_shape is None", "prepared operand")
    hadamard = torch.ops.mxkern.random_hadamard
    refused(ValueError, lambda: hadamard(X, 16, sign_mask="zz"), "sign_mask is 'zz'", "digits")


@pytest.mark.parametrize("function", ["quantize", "quantize_columns", "quantize_both"])
def test_operators_of_one_level_and_of_two(function: str) -> None:
    """Their results are tuples of a fixed length; the other one is named."""
    one, two = (getattr(torch.ops.mxkern, f"{function}{end}") for end in ("", "_two_level"))
    for call in (lambda o, s: o(X, s), lambda o, s: o(X.to("meta"), s)):
        sides = 2 if function == "quantize_both" else 1
        assert [len(call(one, "mxfp8_e4m3")), len(call(two, "nvfp4"))] == [2 * sides, 3 * sides]
        name = f"torch.ops.mxkern.{function}"
        parts = (f"{function}: scheme is 'nvfp4'", f"without a tensor scale; call {name}_two_level")
        refused(ValueError, lambda c=call: c(one, "nvfp4"), *parts)
        parts = (f"{function}: scheme is 'mxfp4'", f"with a tensor scale; call {name}")
        refused(ValueError, lambda c=call: c(two, "mxfp4"), *parts)


def test_operators_without_shapes() -> None:
    """What codes hold, padding included."""
    x = torch.cat([X, X], dim=1)
    for scheme in ("mxfp4", "mxfp6_e2m3", "mxfp8_e4m3", "nvfp4"):
        q = mxkern.quantize(x[:, :160].contiguous(), scheme)
        got = torch.ops.mxkern.dequantize(*q.parts, scheme)
        assert got.equal(mxkern.dequantize(q))
        assert torch.ops.mxkern.dequantize(*q.map(lambda p: p.to("meta")).parts, scheme).shape == (
            4,
            160,
        )
        b = (*q.parts, None, f"quantized {scheme} row_major", None)
        a = (*plain(x[:, :160]), "plain - -", None)
        assert torch.ops.mxkern.gemm(*a, *b).equal(mxkern.gemm(x[:, :160], q))
    ragged = mxkern.quantize(X[:, :70].contiguous(), "mxfp4")
    assert torch.ops.mxkern.dequantize(*ragged.parts, "mxfp4").shape == (4, 96)


def test_what_beta_adds_has_the_dtype_of_the_product() -> None:
    """The operator's name for it is no argument of gemm; another dtype has other extents."""
    half = torch.zeros(4, 4, dtype=torch.float16)
    for module in (mxkern, ops):
        refused(TypeError, lambda m=module: m.gemm(X, Q, addend=half, beta=1.0), "'addend'")

    def product(x: Any, addend: Any) -> Any:
        operands = (*plain(x), "plain - -", [4, 96], *Q.parts, None, KIND, [4, 96])
        return torch.ops.mxkern.gemm(*operands, None, addend, beta=1.0, dtype="float32")

    refused(TypeError, lambda: product(X, half), "addend has dtype torch.float16", "float32")
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"addend has dtype torch\.float16"):
        torch.compile(product, backend="aot_eager")(X, half)
    assert product(X, half.float()).equal(mxkern.gemm(X, Q))


MAPPED: dict[str, Callable[[Any], Any]] = {
    "both": lambda x: ops.quantize_both(x, "nvfp4", amax=3.0)[1].parts[:2],
    "dequantize": lambda x: ops.dequantize(ops.quantize(x, "mxfp6")),
    "gemm": lambda x: ops.gemm(ops.quantize(x, "mxfp8"), Q),
    "gemm of plain x": lambda x: ops.gemm(x, N),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", MAPPED)
def test_vmap(name: str) -> None:
    """One matrix at a time."""
    x, function = array_of("torch", random_values((3, 32, 96), "float32")), MAPPED[name]
    each = [pytree.tree_leaves(function(matrix)) for matrix in x]
    got = pytree.tree_leaves(torch.func.vmap(function)(x))
    for leaf, wanted in zip(got, zip(*each, strict=True), strict=True):
        stacked = torch.stack(wanted)
        assert leaf.dtype == stacked.dtype and leaf.shape == stacked.shape
        assert leaf.view(torch.uint8).equal(stacked.view(torch.uint8))


def test_codes_of_another_dtype() -> None:
    codes = torch.zeros(4, 32, dtype=torch.int16)
    for function in (ops.pack_codes, ops.unpack_codes):
        parts = (f"{function.__name__}: codes of mxfp4", "dtype torch.int16", "expected uint8")
        refused(TypeError, lambda f=function: f(codes, "mxfp4"), *parts)
