# tests/python/pytorch/operators/test_products.py: products under torch.compile that are written to
# a tensor, or added to it.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mxkern
from support import array_of, mostly_slow, random_values, refused

torch = pytest.importorskip("torch", reason="torch is not installed")

from mxkern.torch import operators  # noqa: E402
from mxkern.torch.operators.operands import kind_of  # noqa: E402

M, N, K = 12, 8, 96


def tensor(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return array_of("torch", random_values(shape, dtype, seed))


W = mxkern.quantize(tensor(N, K, seed=1), "mxfp4")
EXPERTS = mxkern.quantize(tensor(3, N, K, seed=2), "mxfp6")
ENDS = torch.tensor([4, 4, 9], dtype=torch.int32)
COLUMN_ENDS = torch.tensor([0, 64, 96], dtype=torch.int32)
DOWN = mxkern.quantize(tensor(3, 24, N // 2, seed=3), "mxfp4")
COPIED = (torch.arange(M) % 5).to(torch.int32)

# Of a left operand, with the shape of what they write to.
PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "gemm": (lambda x, **given: mxkern.gemm(x, W, **given), (M, N)),
    "rows": (lambda x, **given: mxkern.grouped_gemm(x, EXPERTS, ENDS, **given), (M, N)),
    "columns": (lambda x, **given: mxkern.grouped_gemm(x, W, COLUMN_ENDS, **given), (3, M, N)),
}


@pytest.mark.parametrize("dtype", mostly_slow(["float32", "bfloat16"], "bfloat16"))
@pytest.mark.parametrize("beta", mostly_slow([0.0, 1.0, -0.5], "-0.5"))
@pytest.mark.parametrize("name", PRODUCTS)
def test_compiled(name: str, beta: float, dtype: str) -> None:
    """The bytes of the plain call, in the tensor that was given."""
    product, shape = PRODUCTS[name]
    x, before = tensor(M, K), tensor(*shape, dtype=dtype, seed=3)
    want = before.clone()
    assert product(x, out=want, alpha=2.0, beta=beta) is want

    def layer(x: Any, out: Any) -> Any:
        return product(x, out=out, alpha=2.0, beta=beta).sum()

    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    out = before.clone()
    assert compiled(x, out).equal(want.sum())
    assert out.equal(want) and not out.equal(before)


def test_operator_of_a_grouped_product_with_a_beta() -> None:
    # opcheck does arithmetic with its arguments, which 8-bit floats do not have.
    experts, matrix = (
        q.replace(codes=q.codes.view(torch.uint8), scales=q.scales.view(torch.uint8))
        for q in (EXPERTS, W)
    )
    x = tensor(M, K)
    for w, ends, shape in ((experts, ENDS, (M, N)), (matrix, COLUMN_ENDS, (3, M, N))):
        operands = *kind_of("grouped_gemm", x), *kind_of("grouped_gemm", w)
        arguments = (*operands, ends, None, None, tensor(*shape, seed=3))
        torch.library.opcheck(torch.ops.mxkern.grouped_gemm, arguments, {"beta": 2.0})
        half = {"beta": 2.0, "dtype": "float16"}
        call = lambda a=arguments, o=half: torch.ops.mxkern.grouped_gemm(*a, **o)  # noqa: E731
        refused(TypeError, call, "grouped_gemm: addend has dtype torch.float32", "float16")


@pytest.mark.parametrize("name", PRODUCTS)
def test_columns_of_a_larger_tensor(name: str) -> None:
    product, shape = PRODUCTS[name]
    x, larger = tensor(M, K), tensor(*shape[:-1], 3 * N, seed=4)
    want = larger.clone()
    want[..., N : 2 * N] = product(x, out=want[..., N : 2 * N].clone(), beta=0.5)
    for function in (product, torch.compile(product, fullgraph=True, backend="aot_eager")):
        got = larger.clone()
        function(x, out=got[..., N : 2 * N], beta=0.5)
        assert got.equal(want)


@pytest.mark.parametrize("name", PRODUCTS)
def test_refused(name: str) -> None:
    own = operators.gemm if name == "gemm" else operators.grouped_gemm
    given = {"gemm": (W,), "rows": (EXPERTS, ENDS), "columns": (W, COLUMN_ENDS)}[name]
    x, shape = tensor(M, K), PRODUCTS[name][1]
    out = torch.zeros(shape)
    function = own.__name__

    def call(kind: type[Exception], *parts: str, **options: Any) -> None:
        refused(kind, lambda: own(x, *given, **options), f"{function}: ", *parts)

    call(ValueError, "beta is 1.0, but there is no out", "pass out=", beta=1.0)
    call(TypeError, "beta is '1'", beta="1", out=out)
    call(ValueError, "out has shape", str(tuple(shape)), out=out[..., :-1].contiguous())
    # What a product could be copied to, once for each matrix.
    larger = torch.zeros(2, *shape)
    call(ValueError, f"out has shape {tuple(larger.shape)}; expected {shape}", out=larger)
    call(TypeError, "out has dtype float64", out=out.double())
    call(ValueError, "dtype is 'float16'", "bfloat16", dtype="float16", out=out.bfloat16())
    call(TypeError, "out is a numpy.ndarray", out=out.numpy())
    call(TypeError, "stream is given", stream=0)
    asks = torch.zeros(shape, requires_grad=True)
    call(ValueError, "out requires grad", out=asks, beta=1.0)


def test_counted_flops() -> None:
    """Two for each multiplication; those of batches, and of all rows of a grouped product."""
    from torch.utils.flop_counter import FlopCounterMode

    batch = mxkern.quantize(tensor(2, M, K), "mxfp8")
    calls: list[tuple[Callable[[], Any], int]] = [
        (lambda: operators.gemm(tensor(M, K), W), 2 * M * N * K),
        (lambda: operators.gemm(batch, W, dtype="bfloat16"), 2 * 2 * M * N * K),
        (lambda: operators.gemm(tensor(K), W), 2 * N * K),
        (lambda: operators.grouped_gemm(tensor(M, K), EXPERTS, ENDS), 2 * M * N * K),
        (lambda: operators.grouped_gemm(tensor(M, K), W, COLUMN_ENDS), 2 * M * N * K),
        (lambda: operators.grouped_gemm(tensor(5, K), EXPERTS, ENDS, rows=COPIED), 2 * M * N * K),
        (
            lambda: operators.expert_layer(tensor(5, K), EXPERTS, DOWN, ENDS, COPIED),
            2 * M * (N * K + 24 * N // 2),
        ),
    ]
    for call, flops in calls:
        with FlopCounterMode(display=False) as counter:
            call()
        assert counter.get_total_flops() == flops
