# tests/python/pytorch/operators/test_checks.py: wrong arguments of mxkern.torch give errors that
# name the function, the argument and the way out, with and without a compiler.
from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mxkern
from support import array_of, mostly_slow, random_values, refused

torch = pytest.importorskip("torch", reason="torch is not installed")

from mxkern.torch import operators as ops  # noqa: E402

X = array_of("torch", random_values((4, 96), "float32"))
Q = mxkern.quantize(X, "mxfp6")
N = mxkern.quantize(X, "nvfp4")
STOCHASTIC = {"scheme": "mxfp4", "rounding": "stochastic"}


@pytest.mark.parametrize("name", ops.__all__)
def test_no_tensor(name: str) -> None:
    function = getattr(ops, name)
    # What goes after the tensor in a call that is right otherwise.
    rest: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(["quantize", "quantize_columns", "quantize_both"], ("mxfp4",)),
        **dict.fromkeys(["fake_quantize", "pack_codes", "unpack_codes"], ("mxfp4",)),
        "gemm": (N,),
        "grouped_gemm": (N, torch.tensor([4], dtype=torch.int32)),
        "unswizzle_scales": (4, 3),
        "prepare_operand": ("mxfp4",),
        "round_to": ("e4m3",),
        "prepare_both": ("mxfp4",),
        "combine": (torch.tensor([0], dtype=torch.int32), None, 1),
        "expert_layer": (N, N, *[torch.tensor([4], dtype=torch.int32)] * 2),
    }
    for value in (None, 3, [1.0], random_values((4, 96), "float32")):
        of_quantized = name in ("dequantize", "transpose_square_blocks")
        wanted = "BlockScaled" if of_quantized else "torch.Tensor"
        call = lambda v=value: function(v, *rest.get(name, ()))  # noqa: E731
        refused(TypeError, call, f"{name}: ", " is ", f"expected a {wanted}")


def test_formats_and_extents() -> None:
    refused(
        ValueError,
        lambda: ops.quantize_mxfp8(X, format="e4m2"),
        "quantize_mxfp8: format is 'e4m2'; expected e4m3 or e5m2",
    )
    refused(TypeError, lambda: ops.quantize_mxfp6(X, format=3), "quantize_mxfp6: format is 3")
    refused(TypeError, lambda: ops.random_hadamard(X, "a"), "random_hadamard: size is 'a'")
    scales = mxkern.swizzle_scales(Q.scales)
    refused(TypeError, lambda: ops.unswizzle_scales(scales, 5.5, 3), "rows is 5.5")
    refused(TypeError, lambda: ops.unswizzle_scales(scales, 4, None), "blocks is None")


@pytest.mark.parametrize(
    ("options", "kind", "parts"),
    [
        ({"scheme": None}, TypeError, ["scheme is None", "mxfp8_e4m3"]),
        ({"scheme": 3}, TypeError, ["scheme is 3", "mxfp8_e4m3"]),
        ({**STOCHASTIC, "seed": -1}, ValueError, ["seed is -1", "0 <= seed <= 2**64 - 1"]),
        ({**STOCHASTIC, "seed": 2**64}, ValueError, ["seed is 18446744073709551616"]),
        ({**STOCHASTIC, "seed": 1.5}, TypeError, ["seed is 1.5", "an int"]),
        ({**STOCHASTIC, "seed": True}, TypeError, ["seed is True", "an int"]),
        ({**STOCHASTIC, "seed": 1, "offset": -3}, ValueError, ["offset is -3"]),
        (
            {**STOCHASTIC, "seed": 1, "offset": torch.ones(1)},
            TypeError,
            ["offset has dtype float32"],
        ),
        (
            {**STOCHASTIC, "seed": 1, "offset": torch.zeros(2, dtype=torch.int64)},
            ValueError,
            ["offset has shape (2,); expected an int"],
        ),
        ({"hadamard": 16, "sign_mask": 1.5}, TypeError, ["sign_mask is 1.5", "an int"]),
        ({**STOCHASTIC, "seed": 1, "offset": None}, TypeError, ["offset is None", "an int"]),
        ({"block": (32, "32")}, TypeError, ["block is (32, '32')"]),
        ({"block": (32,)}, ValueError, ["block is '32'", "'32x32'"]),
        ({"scale_rule": 3}, TypeError, ["scale_rule is 3", "rceil"]),
        ({"rounding": None}, TypeError, ["rounding is None", "stochastic"]),
        ({"scale_layout": 3}, TypeError, ["scale_layout is 3", "swizzled"]),
        ({"hadamard": "16"}, TypeError, ["hadamard is '16'", "an int"]),
        ({"scheme": "nvfp4", "amax": "1"}, TypeError, ["amax is '1'", "a number"]),
        ({"scheme": "nvfp4", "amax": True}, TypeError, ["amax is True", "a number"]),
        ({"scheme": "nvfp4", "amax": [1.0, 2.0]}, TypeError, ["amax is a list", "a number"]),
        ({"scheme": "nvfp4", "amax": -1.0}, ValueError, ["amax is -1.0"]),
        ({"scheme": "nvfp4", "tensor_scale": 10**400}, ValueError, ["tensor_scale is an integer"]),
    ],
    ids=str,
)
def test_options(options: dict[str, Any], kind: type[Exception], parts: list[str]) -> None:
    given: dict[str, Any] = {"scheme": "mxfp8", **options}
    scheme = given.pop("scheme")
    for function in (ops.quantize, ops.quantize_columns, ops.quantize_both):
        call = lambda f=function: f(X, scheme, **given)  # noqa: E731
        refused(kind, call, f"{function.__name__}: ", *parts)


def test_pairs() -> None:
    for pair in ((1.0,), (1.0, 2.0, 3.0)):
        call = lambda p=pair: ops.quantize_both(X, "nvfp4", amax=p)  # noqa: E731
        refused(TypeError, call, "quantize_both: amax is (1.0,", "a pair (rows, columns)")


def test_seeds_of_numpy() -> None:
    seeds = (np.int64(5), np.uint64(2**64 - 1))
    for seed in seeds:
        got, want = (
            function(X, "mxfp4", rounding="stochastic", seed=number).codes
            for function, number in ((ops.quantize, seed), (mxkern.quantize, int(seed)))
        )
        assert got.equal(want)


DTYPES: dict[str, Any] = {
    "gemm": lambda m, dtype: m.gemm(X, Q, dtype=dtype),
    "dequantize": lambda m, dtype: m.dequantize(Q, dtype=dtype),
}


@pytest.mark.parametrize("name", mostly_slow(DTYPES, "gemm"))
def test_dtypes(name: str) -> None:
    """What mxkern takes as a dtype compiled code takes, and nothing else; "nn" is in torch."""
    function = DTYPES[name]
    compiled = torch.compile(lambda dtype: function(mxkern, dtype), backend="aot_eager")
    for dtype in (np.float16, np.dtype("float16"), torch.float16, "float16"):
        torch._dynamo.reset()
        for result in (function(ops, dtype), compiled(dtype)):
            assert result.dtype == torch.float16
            assert result.equal(function(mxkern, dtype))
    for wrong in ("zz", "nn", torch.float64):
        parts = (f"{name}: dtype is ", "expected float32, float16 or bfloat16")
        refused(ValueError, lambda w=wrong: function(ops, w), *parts)
        torch._dynamo.reset()
        with pytest.raises(Exception, match=f"{name}: dtype is .*expected float32"):
            compiled(wrong)
    refused(TypeError, lambda: function(ops, 3), f"{name}: dtype is 3", "float32")
    refused(TypeError, lambda: ops.gemm(X, Q, out=X.double()), "gemm: out has dtype float64")


def test_flags_and_numbers() -> None:
    """As strictly as the functions that they stand for, where an operator would convert."""
    for module in (mxkern, ops):
        flag = "expected True or False"
        for by, error in ((1, TypeError), ("max", ValueError)):
            quantize = lambda m=module, b=by: m.quantize(X, "nvfp4", four_over_six=b)  # noqa: E731
            refused(error, quantize, f"quantize: four_over_six is {by!r}", "mse", "mae")
        hadamard = lambda m=module: m.random_hadamard(X, inverse=1)  # noqa: E731
        refused(TypeError, hadamard, "random_hadamard: inverse is 1", flag)
        refused(
            ValueError, lambda m=module: m.gemm(X, Q, alpha=10**400), "gemm: alpha is an integer"
        )
        for amax, same in ((3.4028235677973362e38, 2.0**128 - 2.0**104), (Fraction(1, 3), 1 / 3)):
            got, want = (
                module.quantize(X, "nvfp4", amax=amax),
                mxkern.quantize(X, "nvfp4", amax=same),
            )
            assert got.scales.view(torch.uint8).equal(want.scales.view(torch.uint8))
        for number in (True, torch.ones(())):
            gemm = lambda m=module, n=number: m.gemm(X, Q, alpha=n)  # noqa: E731
            refused(TypeError, gemm, "gemm: alpha is ", "expected a number")


def test_keywords() -> None:
    """Those of the function that an operator stands for, and no others."""
    calls: dict[str, Callable[[Any], Any]] = {
        "fake_quantize": lambda m: m.fake_quantize(X, "mxfp4", hadamard=16),
        "quantize": lambda m: m.quantize(X, "mxfp4", hadamard_rows=True),
        "quantize_mxfp4": lambda m: m.quantize_mxfp4(X, four_over_six=True),
        "quantize_nvfp4": lambda m: m.quantize_nvfp4(X, scale_rule="floor"),
        "random_hadamard": lambda m: m.random_hadamard(X, seed=1),
        "dequantize": lambda m: m.dequantize(Q, amax=1.0),
        "tensor_amax": lambda m: m.tensor_amax(X, amax=1.0),
        "swizzle_scales": lambda m: m.swizzle_scales(Q.scales, scale_layout="swizzled"),
    }
    for module in (mxkern, ops):
        for name, call in calls.items():
            message = f"{name}() got an unexpected keyword argument "
            refused(TypeError, lambda c=call, m=module: c(m), message)
        wrong = lambda m=module: m.quantize_mxfp4(X, scale_rule="zz")  # noqa: E731
        refused(ValueError, wrong, "quantize_mxfp4: scale_rule is 'zz'", "floor")
        array = lambda m=module: m.quantize(X, "mxfp4", scale_rule=np.ones(2))  # noqa: E731
        refused(TypeError, array, "quantize: scale_rule is a numpy.ndarray", "floor")


def test_results_that_would_have_no_memory() -> None:
    """Inside a transform, and in a mode of fake tensors; operators do what is meant there."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    q = mxkern.quantize(X, "mxfp8")
    no_memory = ("its result would stand for another tensor", "mxkern.torch")
    inside = (torch.func.grad, torch.func.functionalize)
    for transform in inside:
        call = lambda t=transform: t(lambda w: (mxkern.dequantize(q) * w).sum())(X)  # noqa: E731
        refused(TypeError, call, "dequantize: ", *no_memory)
    call = lambda: torch.func.grad(lambda w: (mxkern.gemm(X * 2, q) + w).sum())(X)  # noqa: E731
    refused(TypeError, call, "gemm: a stands for another tensor", "mxkern.torch")
    with FakeTensorMode():
        refused(TypeError, lambda: mxkern.quantize(X, "mxfp8"), "quantize: ", *no_memory)
    gradient = torch.func.grad(lambda w: (ops.dequantize(q) * w).sum())(X)
    assert gradient.equal(mxkern.dequantize(q))


def test_the_record_of_a_scheme() -> None:
    q = Q.replace(scheme=mxkern.schemes[Q.scheme])
    assert ops.gemm(X, q).equal(mxkern.gemm(X, Q))
    assert ops.dequantize(q).equal(mxkern.dequantize(Q))


def test_scales_without_a_dimension() -> None:
    scale = torch.zeros((), dtype=torch.uint8)
    compiled = torch.compile(mxkern.swizzle_scales, backend="aot_eager")
    for function in (mxkern.swizzle_scales, ops.swizzle_scales):
        refused(ValueError, lambda f=function: f(scale), "swizzle_scales: scales is 0-d")
    with pytest.raises(Exception, match="swizzle_scales: scales is 0-d; expected one dimension"):
        compiled(scale)


CODES = {
    "too many columns": (lambda c: mxkern.unpack_codes(c, "mxfp6", 97), "columns is 97"),
    "negative columns": (lambda c: mxkern.unpack_codes(c, "mxfp6", -1), "columns is -1"),
    "no integer": (lambda c: mxkern.unpack_codes(c, "mxfp6", 1.5), "columns is 1.5"),
    "part of a group": (lambda c: mxkern.unpack_codes(c[:, :5], "mxfp6"), "groups of 3 bytes"),
    "no dimension": (lambda c: mxkern.pack_codes(c[0, 0], "mxfp6"), "codes is 0-d"),
    "no scheme": (lambda c: mxkern.pack_codes(c, None), "scheme is None"),
}


@pytest.mark.parametrize("name", mostly_slow(CODES, "too many columns", "no scheme"))
def test_codes(name: str) -> None:
    """What mxkern.unpack_codes refuses, compiled code does not cut to size."""
    function, words = CODES[name]
    with pytest.raises((TypeError, ValueError), match=words):
        function(Q.codes)
    for dynamic in (None, True):
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        with pytest.raises(Exception, match=words):
            compiled(Q.codes)


def test_codes_without_a_compiler() -> None:
    refused(ValueError, lambda: ops.unpack_codes(Q.codes, "mxfp6", 97), "columns is 97", "<= 96")
    refused(ValueError, lambda: ops.unpack_codes(Q.codes, "mxfp6", -1), "columns is -1")
    refused(ValueError, lambda: ops.unpack_codes(Q.codes[:, :5], "mxfp6"), "groups of 3 bytes")
    refused(ValueError, lambda: ops.pack_codes(Q.codes[0, 0], "mxfp6"), "codes is 0-d")


def test_packed_floats_of_pytorch() -> None:
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this PyTorch has no float4_e2m1fn_x2")
    codes = N.codes.view(torch.float4_e2m1fn_x2)
    want = mxkern.unpack_codes(N.codes, "nvfp4")
    assert mxkern.unpack_codes(codes, "nvfp4").equal(want)
    assert ops.unpack_codes(codes, "nvfp4").equal(want)


def test_a_seed_that_is_a_symbol() -> None:
    def function(x: Any, seed: int) -> Any:
        return mxkern.quantize(x, "mxfp4", rounding="stochastic", seed=seed).codes

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=True)
    assert compiled(X, 7).equal(function(X, 7))
    with pytest.raises(Exception, match="seed is -4; expected 0 <= seed"):
        compiled(X, -4)


LOSING: dict[str, Any] = {
    "quantize": lambda m, x: m.quantize(x, "mxfp4").scales.float(),
    "quantize_columns": lambda m, x: m.quantize_columns(x, "mxfp4").scales.float(),
    "quantize_both": lambda m, x: m.quantize_both(x, "mxfp4")[0].scales.float(),
    "gemm": lambda m, x: m.gemm(x, Q),
    "gemm of bias": lambda m, x: m.gemm(X, Q, bias=x[:, 0]),
    "random_hadamard": lambda m, x: m.random_hadamard(x),
    "tensor_amax": lambda m, x: m.tensor_amax(x),
    "quantize of amax": lambda m, x: m.quantize(X, "nvfp4", amax=x[0, 0].abs()).codes.float(),
    "quantize of tensor_scale": lambda m, x: m.quantize(
        X, "nvfp4", tensor_scale=x[0, 0].abs()
    ).codes.float(),
    "fake_quantize of amax": lambda m, x: m.fake_quantize(X, "nvfp4", amax=x[0, 0].abs()),
    "dequantize of tensor_scale": lambda m, x: m.dequantize(N.replace(tensor_scale=x[0, 0].abs())),
    "gemm of out": lambda m, x: m.gemm(X, Q, out=x[:, :4].contiguous(), beta=1.0),
}


@pytest.mark.parametrize("module", [mxkern, ops], ids=["functions", "operators"])
@pytest.mark.parametrize("name", LOSING)
def test_no_derivative_is_lost(name: str, module: Any) -> None:
    """Neither backward nor forward, with torch.func or without: it would read as 0."""

    def function(x: Any) -> Any:
        return LOSING[name](module, x).sum()

    argument = name.rsplit(" ", 1)[-1] if " of " in name else "[xa]"
    with pytest.raises(ValueError, match=f"{argument} requires grad"):
        torch.func.grad(function)(X)
    with pytest.raises(ValueError, match=f"{argument} requires grad"):
        function(X.clone().requires_grad_())
    with pytest.raises(ValueError, match=f"{argument} has a tangent.*torch.func.jvp"):
        torch.func.jvp(function, (X,), (torch.ones_like(X),))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X, torch.ones_like(X))
        with pytest.raises(ValueError, match=f"{argument} has a tangent"):
            function(dual)
        function(X)


def test_the_operator_loses_no_derivative_of_amax() -> None:
    """The gradient of fake_quantize is that of x."""
    function = torch.ops.mxkern.fake_quantize
    amax = torch.tensor(3.0, requires_grad=True)
    for x in (X, X.clone().requires_grad_()):
        refused(ValueError, lambda x=x: function(x, "nvfp4", amax), "requires grad")
    torch._dynamo.reset()
    with pytest.raises(Exception, match="requires grad"):
        torch.compile(lambda x: function(x, "nvfp4", amax), backend="aot_eager")(X)
    assert function(X, "nvfp4", amax.detach()).equal(mxkern.fake_quantize(X, "nvfp4", amax=3.0))


def test_numbers_where_pytorch_flushes_subnormals() -> None:
    want = mxkern.quantize(X, "nvfp4", tensor_scale=1.23e-40)
    assert torch.set_flush_denormal(True)
    try:
        got = ops.quantize(X, "nvfp4", tensor_scale=1.23e-40)
    finally:
        torch.set_flush_denormal(False)
    assert got.tensor_scale.view(torch.int32) == want.tensor_scale.view(torch.int32) != 0
    assert torch.equal(got.codes, want.codes)


def test_shapes_of_both_directions_are_refused_by_the_name_of_the_call() -> None:
    with pytest.raises(Exception, match="quantize_both: x is 0-d"):
        ops.quantize_both(torch.empty((), device="meta"), "mxfp8")


def test_fake_quantize_forward() -> None:
    with pytest.raises(ValueError, match="fake_quantize: x has a tangent"):
        torch.func.jvp(lambda x: mxkern.fake_quantize(x, "mxfp4"), (X,), (torch.ones_like(X),))


def test_traces_that_would_not_hold_the_call() -> None:
    """They record PyTorch's operations alone: what they return later would be memory as it was."""
    from torch.fx.experimental.proxy_tensor import make_fx

    weights = mxkern.quantize(X, "mxfp8")
    calls = {
        "quantize": lambda x: mxkern.quantize(x, "mxfp8").codes,
        "gemm": lambda x: mxkern.gemm(x, weights),
        "tensor_amax": lambda x: mxkern.tensor_amax(x),
    }
    for name, call in calls.items():
        for trace in (lambda f: torch.jit.trace(f, X), lambda f: make_fx(f)(X)):
            refused(
                TypeError, lambda t=trace, c=call: t(c), f"{name}: ", "is traced", "mxkern.torch"
            )
        call(X)
    traced = make_fx(lambda x: ops.gemm(x, weights))(X)
    other = X * 3
    assert torch.equal(traced(other), mxkern.gemm(other, weights))


def test_programs_on_disk() -> None:
    """Operators take what code that was compiled for earlier versions gives them."""
    given = {"scale_rule": "rceil", "rounding": "nearest", "seed": None, "offset": 0, "block": None}
    given |= {"four_over_six": True, "scale_layout": "row_major", "hadamard": None}
    codes = torch.ops.mxkern.quantize_two_level(X, "nvfp4", **given, sign_mask=None)[0]
    want = mxkern.quantize(X, "nvfp4", four_over_six=True).codes
    assert codes.view(torch.uint8).equal(want.view(torch.uint8))
