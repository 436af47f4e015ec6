# tests/python/cuda/test_cuda_grouped_gemm.py: grouped products on CUDA devices against double
# precision.
from __future__ import annotations

import itertools
from typing import Any

import pytest
from cuda_gemm_support import EXACT_ERROR, FOLDABLE, FOLDED_ERROR, exact, relative

import mxkern
from support import DTYPES, SCHEMES, refused

pytestmark = pytest.mark.skipif(
    not mxkern.info().devices, reason=f"no CUDA device can be used: {mxkern.info().cuda}"
)
torch = pytest.importorskip("torch", reason="torch is not installed")
if mxkern.info().devices and not torch.cuda.is_available():
    pytest.skip("this PyTorch has no CUDA", allow_module_level=True)

GROUPS, N, K = 6, 200, 416


def normal(*shape: int, seed: int = 0, dtype: Any = None) -> Any:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, device="cuda", generator=generator).to(dtype or torch.float32)


def ends_of(*counts: int) -> Any:
    return torch.tensor(counts, device="cuda").cumsum(0).to(torch.int32)


def product(a: Any, b: Any, ends: Any) -> Any:
    left, right = exact(a), exact(b)
    out = torch.zeros(len(left), right.shape[1], device="cuda", dtype=torch.float64)
    begin = 0
    for g, end in enumerate(ends.tolist()):
        out[begin:end] = left[begin:end] @ right[g].T
        begin = end
    return out


@pytest.mark.parametrize("form", [None, "few_tokens", "expanded"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_kind_of_rows(scheme: str, form: str | None) -> None:
    q = mxkern.quantize(normal(GROUPS, N, K), scheme)
    b = q if form is None else mxkern.prepare_operand(q, form=form)
    for counts in ((1, 0, 2, 0, 3, 0), (7, 30, 0, 2, 9, 1), (100, 3, 0, 257, 40, 64)):
        ends = ends_of(*counts)
        x = normal(sum(counts) + 5, K, seed=1)
        for dtype in DTYPES:
            plain = x.to(getattr(torch, dtype))
            got = mxkern.grouped_gemm(plain, b, ends)
            assert relative(got, product(plain, q, ends)) <= EXACT_ERROR, (counts, dtype)
            assert not got[-5:].any()
        a = mxkern.quantize(x, "mxfp8", scale_layout="swizzled")
        assert relative(mxkern.grouped_gemm(a, b, ends), product(a, q, ends)) <= EXACT_ERROR


HOPPER = pytest.mark.skipif(
    not mxkern.info().devices or torch.cuda.get_device_capability() != (9, 0),
    reason="folded products are Hopper's",
)


def folded(q: Any) -> Any:
    return mxkern.prepare_operand(q, form="folded", keep_source=False)


@HOPPER
@pytest.mark.parametrize("scheme", FOLDABLE)
def test_folded(scheme: str) -> None:
    """From codes and from what was prepared of either; the bytes are the same."""
    q = mxkern.quantize(normal(GROUPS, N, K), scheme)
    for counts in ((1, 0, 2, 0, 3, 0), (100, 3, 0, 257, 40, 64)):
        ends = ends_of(*counts)
        a = mxkern.quantize(normal(sum(counts) + 5, K, seed=1), "mxfp8", scale_layout="swizzled")
        want = product(a, q, ends)
        options = {"precision": "folded"}
        got = mxkern.grouped_gemm(a, q, ends, **options)
        assert relative(got, want) <= FOLDED_ERROR and not got[-5:].any()
        for left, right in ((folded(a), q), (a, folded(q)), (folded(a), folded(q))):
            assert mxkern.grouped_gemm(left, right, ends, **options).equal(got)
        for dtype, rounding in (("bfloat16", 2e-3), ("float16", 3e-4)):
            small = mxkern.grouped_gemm(a, q, ends, dtype=dtype, **options)
            assert relative(small, want) <= FOLDED_ERROR + rounding


@HOPPER
def test_folded_rows_of_each_group_are_a_product() -> None:
    """Many tiles a multiprocessor, groups of all sizes, and rows of one that are in no whole tile;
    what multiplies one of them alone gives the same sums."""
    groups, n, k = 40, 1500, 1056
    w = mxkern.quantize(normal(groups, n, k), "mxfp4")
    counts = [(i * 7919) % 301 if i % 5 else 0 for i in range(groups)]
    ends = ends_of(*counts)
    x = mxkern.prepare_operand(
        normal(sum(counts), k, seed=1, dtype=torch.bfloat16), scheme="mxfp8", form="folded"
    )
    factors = normal(groups, seed=3)
    got = mxkern.grouped_gemm(x, folded(w), ends, factors=factors, precision="folded")
    rows = x.source
    begin = 0
    for g, end in enumerate(ends.tolist()):
        own = rows.replace(
            codes=rows.codes[begin:end], scales=rows.scales[begin:end], shape=(end - begin, k)
        )
        matrix = w.replace(codes=w.codes[g], scales=w.scales[g], shape=(n, k))
        alone = mxkern.gemm(own, matrix, alpha=factors[g].item(), precision="folded")
        if begin < end:
            assert relative(got[begin:end], alone.double()) <= 1e-6, g
        begin = end


@HOPPER
def test_folded_is_refused() -> None:
    x, ends = normal(9, K), ends_of(4, 5)
    w = mxkern.quantize(normal(2, N, K), "mxfp4")
    a = mxkern.quantize(x, "mxfp8")

    def call(a: Any, w: Any) -> Any:
        return lambda: mxkern.grouped_gemm(a, w, ends, precision="folded")

    refused(ValueError, call(x, w), "grouped_gemm: precision is folded, but a is float32")
    other = mxkern.quantize(normal(2, N, K), "nvfp4")
    refused(ValueError, call(a, other), "but b is nvfp4", "pass precision exact")
    wide = mxkern.quantize(normal(2, N, K), "mxfp8")
    alone = mxkern.prepare_operand(wide, form="few_tokens", keep_source=False)
    refused(RuntimeError, call(a, alone), "b was prepared in the form few_tokens without its codes")


@HOPPER
@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp6_e2m3"])
def test_folded_rows_and_weights_of_four_bits(scheme: str) -> None:
    """Read from the form few_tokens, without a source; also of rows that are copies."""
    q = mxkern.quantize(normal(GROUPS, N, K), "mxfp4")
    b = mxkern.prepare_operand(q, form="few_tokens", keep_source=False)
    for counts in ((1, 0, 2, 0, 3, 0), (7, 30, 0, 2, 9, 1), (100, 3, 0, 257, 40, 64)):
        ends, count = ends_of(*counts), sum(counts)
        a = mxkern.quantize(normal(count + 5, K, seed=1), scheme)
        rows = mxkern.prepare_operand(a, form="folded", keep_source=False)
        plan = mxkern.explain_grouped_gemm(rows, b, ends, precision="folded")
        assert plan.path == "few tokens, folded"
        for left in (a, rows):
            got = mxkern.grouped_gemm(left, b, ends, precision="folded", dtype="float32")
            assert relative(got, product(a, q, ends)) <= FOLDED_ERROR, counts
            assert not got[-5:].any()
        numbers = (torch.arange(count, device="cuda") * 7 % (count + 5)).to(torch.int32)
        copies = mxkern.dequantize(a)[numbers.long()]
        options = {"rows": numbers, "precision": "folded", "dtype": "float32"}
        got = mxkern.grouped_gemm(rows, b, ends, **options)
        assert relative(got, product(copies, q, ends)) <= FOLDED_ERROR, counts


def test_factors_and_bias() -> None:
    q = mxkern.quantize(normal(GROUPS, N, K), "nvfp4")
    b = mxkern.prepare_operand(q, form="few_tokens")
    ends, factors = ends_of(9, 0, 40, 3, 2, 6), normal(GROUPS, seed=4)
    bias = normal(GROUPS, 2 * N, seed=5, dtype=torch.bfloat16)[:, :N]
    x = normal(60, K, seed=1, dtype=torch.bfloat16)
    got = mxkern.grouped_gemm(x, b, ends, factors=factors, bias=bias, alpha=0.5)
    group = torch.repeat_interleave(
        torch.arange(GROUPS, device="cuda"), torch.diff(ends, prepend=ends[:1] * 0)
    )
    want = product(x, q, ends) * 0.5 * factors.double()[group, None] + bias.double()[group]
    assert relative(got, want) <= EXACT_ERROR


@pytest.mark.parametrize("form", [None, "few_tokens", "expanded"])
def test_beta(form: str | None) -> None:
    q = mxkern.quantize(normal(GROUPS, N, K), "mxfp4")
    b = q if form is None else mxkern.prepare_operand(q, form=form)
    for counts in ((1, 0, 2, 0, 3, 0), (100, 3, 0, 257, 40, 64)):
        ends = ends_of(*counts)
        x = normal(sum(counts) + 5, K, seed=1, dtype=torch.bfloat16)
        want = product(x, q, ends)
        for dtype, rounding in (("float32", 0.0), ("bfloat16", 2e-3), ("float16", 3e-4)):
            before = normal(len(x), N, seed=7).to(getattr(torch, dtype))
            out = before.clone()
            assert mxkern.grouped_gemm(x, b, ends, out=out, beta=0.5) is out
            assert relative(out, want + 0.5 * before.double()) <= EXACT_ERROR + rounding
            assert out[-5:].equal(before[-5:] * 0.5), (counts, dtype)


def test_gradients_of_micro_batches_are_added() -> None:
    total = torch.zeros(GROUPS, N, 64, device="cuda")
    want = torch.zeros_like(total, dtype=torch.float64)
    ends = ends_of(32, 0, 64, 96, 0, 224)
    for seed in range(3):
        dy = mxkern.quantize_columns(normal(416, N, seed=seed), "mxfp8")
        x = mxkern.quantize_columns(normal(416, 64, seed=seed + 10), "mxfp8")
        mxkern.grouped_gemm(dy, x, ends, out=total, beta=1.0)
        begin = 0
        for g, end in enumerate(ends.tolist()):
            want[g] += exact(dy)[:, begin:end] @ exact(x)[:, begin:end].T
            begin = end
    assert relative(total, want) <= EXACT_ERROR


def test_explained_on_the_device_that_it_is_about() -> None:
    q = mxkern.quantize(normal(GROUPS, N, K), "mxfp4")
    ends = ends_of(1, 0, 2, 0, 3, 0)
    x = normal(6, K, seed=1, dtype=torch.bfloat16)
    here = mxkern.explain_grouped_gemm(x, q, ends)
    major, minor = torch.cuda.get_device_capability()
    assert here.device == f"sm_{major}{minor}"
    named = mxkern.explain_grouped_gemm(x, q, ends, device=here.device)
    assert (named.path, named.left, named.right) == (here.path, here.left, here.right)
    ready = mxkern.prepare_operand(q, form="few_tokens")
    assert mxkern.explain_grouped_gemm(x, ready, ends).workspace_bytes <= here.workspace_bytes


def test_wrong_ends_give_nan() -> None:
    b = mxkern.quantize(normal(2, N, K), "mxfp4")
    x = normal(9, K, dtype=torch.bfloat16)
    for bad in ([5, 4], [-1, 4], [3, 10]):
        ends = torch.tensor(bad, dtype=torch.int32, device="cuda")
        assert mxkern.grouped_gemm(x, b, ends, dtype="bfloat16").isnan().all()


def test_in_a_graph_with_a_router() -> None:
    """Ends that a kernel ahead finds, other ones each time; nothing waits for them on the host."""
    q = mxkern.quantize(normal(GROUPS, N, K), "mxfp4")
    b = mxkern.prepare_operand(q, form="few_tokens")
    x = normal(32, K, seed=1, dtype=torch.bfloat16)
    experts = torch.randint(GROUPS, (32,), device="cuda")

    def layer() -> Any:
        order = experts.argsort(stable=True)
        count = torch.zeros(GROUPS, dtype=torch.int32, device="cuda")
        count.scatter_add_(0, experts, torch.ones_like(experts, dtype=torch.int32))
        ends = count.cumsum(0, dtype=torch.int32)
        return mxkern.grouped_gemm(x[order], b, ends, dtype="bfloat16")[order.argsort()]

    layer()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer()
    values = mxkern.dequantize(q).double()
    for seed in range(3):
        generator = torch.Generator("cuda").manual_seed(seed)
        experts.copy_(torch.randint(GROUPS, (32,), device="cuda", generator=generator))
        graph.replay()
        want = torch.einsum("mk,mnk->mn", x.double(), values[experts])
        assert relative(out.double(), want) <= 3e-3


def test_compiled() -> None:
    import mxkern.torch

    b = mxkern.prepare_operand(mxkern.quantize(normal(3, N, K), "mxfp4"), form="few_tokens")
    ends, x = ends_of(3, 0, 9), normal(12, K, dtype=torch.bfloat16)
    layer = lambda x: mxkern.grouped_gemm(x, b, ends, dtype=x.dtype).relu()  # noqa: E731
    assert torch.compile(layer, fullgraph=True, backend="aot_eager")(x).equal(layer(x))


def test_cupy() -> None:
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    q = mxkern.quantize(normal(3, N, K, dtype=torch.float16), "mxfp8")
    x, ends = normal(12, K, dtype=torch.float16), ends_of(3, 0, 9)
    want = mxkern.grouped_gemm(x, q, ends, dtype="float16")
    weights = mxkern.quantize(cupy.from_dlpack(normal(3, N, K, dtype=torch.float16)), "mxfp8")
    got = mxkern.grouped_gemm(cupy.from_dlpack(x), weights, cupy.from_dlpack(ends), dtype="float16")
    assert torch.from_dlpack(got).equal(want)


def product_of_columns(a: Any, b: Any, ends: Any) -> Any:
    left, right = exact(a), exact(b)
    bounds = [0, *ends.tolist()]
    pairs = itertools.pairwise(bounds)
    return torch.stack([left[:, i:j] @ right[:, i:j].T for i, j in pairs])


COLUMN_ENDS = (0, 32, 32, 160, 256, 1056, 1120)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_groups_of_columns(scheme: str) -> None:
    """Plain columns, and codes with what was made of them ahead; the bytes are the same."""
    k = 1130
    ends = torch.tensor(COLUMN_ENDS, dtype=torch.int32, device="cuda")
    x, y = normal(150, k, seed=1), normal(N, k)
    q = mxkern.quantize(y, scheme)
    ready = mxkern.prepare_operand(q, form="expanded")
    for dtype in DTYPES:
        plain = x.to(getattr(torch, dtype))
        got = mxkern.grouped_gemm(plain, ready, ends)
        assert relative(got, product_of_columns(plain, q, ends)) <= EXACT_ERROR, dtype
        assert mxkern.grouped_gemm(plain, q, ends).equal(got)
    a = mxkern.quantize(x, "mxfp8", scale_layout="swizzled")
    bias, factors = normal(len(ends), N, seed=5), normal(len(ends), seed=4)
    got = mxkern.grouped_gemm(a, ready, ends, factors=factors, bias=bias, alpha=0.5)
    want = product_of_columns(a, q, ends) * factors.double()[:, None, None] * 0.5
    assert relative(got, want + bias.double()[:, None]) <= EXACT_ERROR


@HOPPER
@pytest.mark.parametrize("scheme", FOLDABLE)
def test_folded_groups_of_columns(scheme: str) -> None:
    """The gradients of experts: tokens that were quantized along the columns."""
    k = 1120
    ends = torch.tensor(COLUMN_ENDS, dtype=torch.int32, device="cuda")
    a = mxkern.quantize_columns(normal(k, 1500, seed=1), scheme)
    b = mxkern.quantize_columns(normal(k, 700), "mxfp8", scale_layout="swizzled")
    want = product_of_columns(a, b, ends)
    got = mxkern.grouped_gemm(a, b, ends, precision="folded")
    assert relative(got, want) <= FOLDED_ERROR
    assert mxkern.grouped_gemm(folded(a), folded(b), ends, precision="folded").equal(got)
    for dtype, rounding in (("bfloat16", 2e-3), ("float16", 3e-4)):
        small = mxkern.grouped_gemm(a, b, ends, dtype=dtype, precision="folded")
        assert relative(small, want) <= FOLDED_ERROR + rounding


def test_wrong_ends_of_columns_give_nan() -> None:
    b = mxkern.quantize(normal(N, K), "mxfp4")
    for x in (normal(9, K, dtype=torch.bfloat16), normal(9, K)):
        for bad in ([64, 32], [-32, 32], [32, K + 32], [16, 32]):
            ends = torch.tensor(bad, dtype=torch.int32, device="cuda")
            assert mxkern.grouped_gemm(x, b, ends).isnan().all()
