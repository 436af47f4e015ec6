# tests/python/pytorch/operators/test_library.py: torch.ops.mxkern.*, the operators themselves.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mxkern
from support import SCHEMES, array_of, mostly_slow, random_values, refused

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.utils._pytree as pytree  # noqa: E402

import mxkern.torch as ops  # noqa: E402
from mxkern.torch.operators.operands import kind_of  # noqa: E402

OPS = torch.ops.mxkern


def tensor(*shape: int, seed: int = 0) -> Any:
    return array_of("torch", random_values(shape, "float32", seed))


X = tensor(4, 96)
Q = mxkern.quantize(X, "mxfp6")
N = mxkern.quantize(X, "nvfp4")
KIND = "quantized mxfp6_e2m3 row_major"


def plain(x: Any) -> tuple[Any, ...]:
    """A plain operand as an operator takes it: no scales, no tensor scale, no codes beside it."""
    return x, None, None, None


def test_operators_themselves() -> None:
    gemm, right = OPS.gemm, (*Q.parts, None, KIND, [4, 96])
    refused(
        ValueError, lambda: gemm(*plain(X), "plain", None, *right), "a_kind is 'plain'", "three"
    )
    wrong = (X, Q.scales, None, None, "plain - -", None)
    refused(ValueError, lambda: gemm(*wrong, *right), "a_scales is given; expected none", "a_kind")
    folded = (*plain(X), "folded mxfp6_e2m3 row_major", None)
    refused(ValueError, lambda: gemm(*folded, *right), "a_scales is None; expected a tensor")
    folded = (X, Q.scales, None, Q.codes, "folded mxfp6_e2m3 row_major", None)
    refused(ValueError, lambda: gemm(*folded, *right), "a_shape is None", "prepared operand")
    hadamard = OPS.random_hadamard
    refused(ValueError, lambda: hadamard(X, 16, sign_mask="zz"), "sign_mask is 'zz'", "digits")


@pytest.mark.parametrize("function", ["quantize", "quantize_columns", "quantize_both"])
def test_operators_of_one_level_and_of_two(function: str) -> None:
    """Their results are tuples of a fixed length; the other one is named."""
    one, two = (getattr(OPS, f"{function}{end}") for end in ("", "_two_level"))
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
        got = OPS.dequantize(*q.parts, scheme)
        assert got.equal(mxkern.dequantize(q))
        assert OPS.dequantize(*q.map(lambda p: p.to("meta")).parts, scheme).shape == (
            4,
            160,
        )
        b = (*q.parts, None, f"quantized {scheme} row_major", None)
        a = (*plain(x[:, :160]), "plain - -", None)
        assert OPS.gemm(*a, *b).equal(mxkern.gemm(x[:, :160], q))
    ragged = mxkern.quantize(X[:, :70].contiguous(), "mxfp4")
    assert OPS.dequantize(*ragged.parts, "mxfp4").shape == (4, 96)


def test_what_beta_adds_has_the_dtype_of_the_product() -> None:
    """The operator's name for it is no argument of gemm; another dtype has other extents."""
    half = torch.zeros(4, 4, dtype=torch.float16)
    for module in (mxkern, ops):
        refused(TypeError, lambda m=module: m.gemm(X, Q, addend=half, beta=1.0), "'addend'")

    def product(x: Any, addend: Any) -> Any:
        operands = (*plain(x), "plain - -", [4, 96], *Q.parts, None, KIND, [4, 96])
        return OPS.gemm(*operands, None, addend, beta=1.0, dtype="float32")

    refused(TypeError, lambda: product(X, half), "addend has dtype torch.float16", "float32")
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"addend has dtype torch\.float16"):
        torch.compile(product, backend="aot_eager")(X, half)
    assert product(X, half.float()).equal(mxkern.gemm(X, Q))


def examples() -> dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    x = tensor(64, 96)
    # opcheck does arithmetic with its arguments, which 8-bit floats do not have.
    a, b, experts, down = (
        q.replace(codes=q.codes.view(torch.uint8), scales=q.scales.view(torch.uint8))
        for q in (
            mxkern.quantize(x, "mxfp8"),
            mxkern.quantize(tensor(32, 96, seed=2), "nvfp4"),
            mxkern.quantize(tensor(3, 8, 96, seed=5), "mxfp4"),
            mxkern.quantize(tensor(3, 16, 4, seed=6), "mxfp4"),
        )
    )
    copied = (torch.arange(60) * 7 % 9).to(torch.int32)
    ends = torch.tensor([7, 7, 60], dtype=torch.int32)
    column_ends = torch.tensor([0, 32, 96, 96], dtype=torch.int32)
    amax = torch.tensor(9.0)
    stochastic = {"rounding": "stochastic", "seed": -5, "offset": 7}
    square = mxkern.quantize(x, "mxfp4", block="32x32")
    scales = torch.ones(2, 512, dtype=torch.uint8)
    cases: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
        f"quantize {scheme}": (
            OPS.quantize_two_level if scheme == "nvfp4" else OPS.quantize,
            (x, scheme),
            {"scale_layout": "swizzled"},
        )
        for scheme in SCHEMES
    }
    return cases | {
        "quantize amax": (OPS.quantize_two_level, (x, "nvfp4", amax), stochastic),
        "quantize_columns": (OPS.quantize_columns, (x, "mxfp8_e5m2"), {"block": "32x32"}),
        "quantize_both": (OPS.quantize_both_two_level, (x, "nvfp4", amax), {"hadamard": 16}),
        "fake_quantize": (OPS.fake_quantize, (x.clone().requires_grad_(), "nvfp4", amax), {}),
        "dequantize": (OPS.dequantize, (*b.parts, "nvfp4", (32, 96)), {"dtype": "float16"}),
        "gemm": (
            OPS.gemm,
            (*kind_of("gemm", a), *kind_of("gemm", b), x[0, :32].clone()),
            {"alpha": 2.0},
        ),
        "gemm beta": (
            OPS.gemm,
            (*kind_of("gemm", x), *kind_of("gemm", b), None, x[:, :32]),
            {"beta": 2.0},
        ),
        "grouped_gemm": (
            OPS.grouped_gemm,
            (*kind_of("grouped_gemm", x), *kind_of("grouped_gemm", experts), ends, None, x[:3, :8]),
            {"dtype": "float16", "precision": "exact"},
        ),
        "grouped_gemm of columns": (
            OPS.grouped_gemm,
            (*kind_of("grouped_gemm", a), *kind_of("grouped_gemm", a), column_ends, None, None),
            {"dtype": "float32", "precision": "exact"},
        ),
        "grouped_gemm of copies": (
            OPS.grouped_gemm,
            (
                *kind_of("grouped_gemm", x),
                *kind_of("grouped_gemm", experts),
                ends,
                None,
                None,
                None,
                copied,
            ),
            {},
        ),
        "expert_layer": (
            OPS.expert_layer,
            (
                *(field for each in (x, experts, down) for field in kind_of("expert_layer", each)),
                ends,
                copied,
                x[:60, 0].clone(),
                x[:3, :8].clone(),
            ),
            {"scheme": "mxfp8", "limit": 7.0, "dtype": "float32"},
        ),
        "swiglu": (OPS.swiglu, (x,), {"limit": 2.0, "interleaved": True}),
        "combine": (OPS.combine, (x[:60], copied, None, 9), {"dtype": "bfloat16"}),
        "prepare_both": (OPS.prepare_both, (x, "mxfp4", "source"), {"scale_rule": "floor"}),
        "transpose_square_blocks": (
            OPS.transpose_square_blocks,
            (square.codes, square.scales.view(torch.uint8), "mxfp4", [64, 96]),
            {},
        ),
        "tensor_amax": (OPS.tensor_amax, (x,), {}),
        "tensor_amax of columns": (OPS.tensor_amax, (x,), {"hadamard": 16, "columns": True}),
        "random_hadamard": (OPS.random_hadamard, (x, 32), {"sign_mask": "5"}),
        "swizzle_scales": (OPS.swizzle_scales, (scales,), {}),
        "unswizzle_scales": (OPS.unswizzle_scales, (scales, 100, 3), {}),
    }


@pytest.mark.parametrize("name", mostly_slow(examples(), "quantize amax", "gemm", "grouped_gemm"))
def test_opcheck(name: str) -> None:
    op, arguments, options = examples()[name]
    torch.library.opcheck(op, arguments, options)


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
    x, function = tensor(3, 32, 96), MAPPED[name]
    each = [pytree.tree_leaves(function(matrix)) for matrix in x]
    got = pytree.tree_leaves(torch.func.vmap(function)(x))
    for leaf, wanted in zip(got, zip(*each, strict=True), strict=True):
        stacked = torch.stack(wanted)
        assert leaf.dtype == stacked.dtype and leaf.shape == stacked.shape
        assert leaf.view(torch.uint8).equal(stacked.view(torch.uint8))


def test_what_is_prepared_has_a_size() -> None:
    """Forms are those of GPUs, for which tracing knows the bytes; the CPU has none."""
    q = mxkern.quantize(tensor(2, 5, 96), "mxfp8")
    values = (*q.parts, "mxfp8_e4m3", [2, 5, 96])
    shapes = (*q.map(lambda part: part.to("meta")).parts, *values[3:])
    for number, form in enumerate(("folded", "expanded", "few_tokens"), 1):
        data = OPS.prepare_operand(*shapes, form)
        assert data.dtype == torch.uint8 and data.is_meta
        assert data.shape == (mxkern._core.prepared_bytes(number, 0, 2, 5, 96),) and len(data) > 960
        call = lambda f=form: OPS.prepare_operand(*values, f)  # noqa: E731
        refused(ValueError, call, f"prepare_operand: form is '{form}'", "do not read")
    refused(ValueError, lambda: OPS.prepare_operand(*shapes, "source"), "form is 'source'")
    for call, kind in (
        (lambda: ops.prepare_operand(X), TypeError),
        (lambda: ops.prepare_operand(Q, "mxfp6"), ValueError),
        (lambda: ops.prepare_operand(N, form="folded"), ValueError),
        (lambda: ops.prepare_operand(Q, keep_source=1), TypeError),
        (lambda: ops.prepare_operand(Q, out=ops.prepare_operand(Q)), TypeError),
    ):
        refused(kind, call, "prepare_operand: ")


def test_codes_of_another_dtype() -> None:
    codes = torch.zeros(4, 32, dtype=torch.int16)
    for function in (ops.pack_codes, ops.unpack_codes):
        parts = (f"{function.__name__}: codes of mxfp4", "dtype torch.int16", "expected uint8")
        refused(TypeError, lambda f=function: f(codes, "mxfp4"), *parts)
