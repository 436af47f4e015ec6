# tests/python/cuda/test_cuda_experts.py: layers of experts, and what they consist of, on CUDA
# devices: float64, the CPU's bytes, CUDA graphs, and wrong ends and rows.
from __future__ import annotations

from typing import Any

import pytest
from cuda_gemm_support import EXACT_ERROR, exact, relative

import mxkern
from support import DTYPES, SCHEMES

pytestmark = pytest.mark.skipif(
    not mxkern.info().devices, reason=f"no CUDA device can be used: {mxkern.info().cuda}"
)
torch = pytest.importorskip("torch", reason="torch is not installed")
if mxkern.info().devices and not torch.cuda.is_available():
    pytest.skip("this PyTorch has no CUDA", allow_module_level=True)

HOPPER = pytest.mark.skipif(
    not mxkern.info().devices or torch.cuda.get_device_capability() != (9, 0),
    reason="folded products are Hopper's",
)
T, H, F, N, E, M = 60, 256, 160, 128, 5, 200
GPT_OSS: dict[str, Any] = {"alpha": 1.702, "limit": 7.0, "offset": 1.0, "interleaved": True}
ROUTINGS = {"some": [0, 50, 50, 120, 190], "one": [0, 0, 200, 200, 200], "few": [1, 1, 3, 3, 4]}


def normal(*shape: int, seed: int = 0, dtype: Any = None) -> Any:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, device="cuda", generator=generator).to(dtype or torch.float32)


def int32(values: list[int]) -> Any:
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def routing(name: str) -> tuple[Any, Any, Any]:
    rows = (torch.arange(M, device="cuda") * 37 % (T - 1)).to(torch.int32)
    return int32(ROUTINGS[name]), rows, normal(M, seed=9)


def activated(up: Any, alpha: float, limit: float, offset: float, interleaved: bool) -> Any:
    gate, other = up[..., ::2], up[..., 1::2]
    if not interleaved:
        gate, other = up.chunk(2, -1)
    gate, other = gate.clamp(max=limit), other.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (other + offset)


def layer(x: Any, gate_up: Any, down: Any, ends: Any, rows: Any, weights: Any) -> Any:
    """gpt-oss's activation, in float64."""
    x, gate_up, down, weights = exact(x), exact(gate_up), exact(down), weights.double()
    out, begin = torch.zeros(T, N, device="cuda", dtype=torch.float64), 0
    for e, end in enumerate(ends.tolist()):
        copies = rows[begin:end].long()
        y = activated(x[copies] @ gate_up[e].T, **GPT_OSS) @ down[e].T
        out.index_add_(0, copies, weights[begin:end, None] * y)
        begin = max(begin, end)
    return out


def experts(scheme: str, form: Any = None) -> tuple[Any, ...]:
    both = normal(E, 2 * F, H, seed=2), normal(E, N, F, seed=3)
    quantized = [mxkern.quantize(w, scheme) for w in both]
    if form is None:
        return *quantized, *quantized
    return *[mxkern.prepare_operand(q, form=form) for q in quantized], *quantized


@pytest.mark.parametrize("form", [None, "few_tokens", "expanded"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_agrees_with_float64(scheme: str, form: Any) -> None:
    gate_up, down, *sources = experts(scheme, form)
    x = normal(T, H, seed=1, dtype=torch.bfloat16)
    for name in ROUTINGS:
        given = routing(name)
        got = mxkern.expert_layer(x, gate_up, down, *given, dtype="float32", **GPT_OSS)
        assert relative(got, layer(x, *sources, *given)) <= 2 * EXACT_ERROR, name


@HOPPER
def test_folded_is_what_it_consists_of() -> None:
    gate_up, down, *_ = experts("mxfp4", "folded")
    x = normal(T, H, seed=1, dtype=torch.bfloat16)
    ends, rows, weights = routing("some")
    options: dict[str, Any] = {"precision": "folded", "dtype": "bfloat16"}
    got = mxkern.expert_layer(x, gate_up, down, ends, rows, weights, scheme="mxfp8", **options)
    folded = mxkern.prepare_operand(x, "mxfp8", form="folded", keep_source=False)
    up = mxkern.grouped_gemm(folded, gate_up, ends, rows=rows, **options)
    hidden = mxkern.prepare_operand(mxkern.swiglu(up), "mxfp8", form="folded")
    y = mxkern.grouped_gemm(hidden, down, ends, **options)
    used = ROUTINGS["some"][-1]
    assert got.equal(mxkern.combine(y[:used], rows[:used], weights[:used], T))


# Kernels for 8 and for 16 rows make the activation of their sums, where halves of a row are whole
# tiles. Their bytes are those of the product and of the activation behind one another.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options", [{}, GPT_OSS, {"limit": 0.5}], ids=["plain", "gpt-oss", "limit"]
)
def test_is_what_it_consists_of(dtype: str, options: dict[str, Any]) -> None:
    kind = getattr(torch, dtype)
    for scheme in ("mxfp4", "mxfp8", "nvfp4"):
        for copies, between in ((7, 160), (20, 96), (50, 160), (20, 130), (200, 64)):
            x = normal(
                T, H, seed=copies, dtype=torch.float16 if dtype == "float16" else torch.bfloat16
            )
            x[3, 5], x[11, 7] = torch.inf, torch.nan
            both = normal(E, 2 * between, H, seed=2), normal(E, N, between, seed=3)
            quantized = [mxkern.quantize(w, scheme) for w in both]
            nan = 0x7F if scheme == "nvfp4" else 0xFF
            quantized[0].scales.view(torch.uint8)[2, 5, 0] = nan  # of a group that has rows
            gate_up, down = [mxkern.prepare_operand(q, form="few_tokens") for q in quantized]
            ends = int32([copies // 3, copies // 3, copies // 2, copies - 2, copies - 2])
            rows = (torch.arange(copies, device="cuda") * 37 % (T - 1)).to(torch.int32)
            weights, factors = normal(copies, seed=9), normal(E, seed=8)
            bias, down_bias = normal(E, 2 * between, seed=5, dtype=kind), normal(E, N, seed=6)
            own = {"gate_up_bias": bias, "down_bias": down_bias, "dtype": dtype}
            own |= {"gate_up_factors": factors, "down_factors": factors}
            got = mxkern.expert_layer(x, gate_up, down, ends, rows, weights, **own, **options)
            up = mxkern.grouped_gemm(
                x, gate_up, ends, rows=rows, bias=bias, factors=factors, dtype=dtype
            )
            y = mxkern.grouped_gemm(
                mxkern.swiglu(up, **options),
                down,
                ends,
                bias=down_bias,
                factors=factors,
                dtype=dtype,
            )
            used = copies - 2
            want = mxkern.combine(y[:used], rows[:used], weights[:used], T)
            assert want[rows[copies // 3]].isnan().all() and not want.isnan().all()
            assert got.isnan().equal(want.isnan())
            assert got.nan_to_num(0.0).equal(want.nan_to_num(0.0)), (scheme, copies, between)


# Ends that a kernel ahead writes, and nothing between it and the sums.
def test_no_copies() -> None:
    gate_up, down, *_ = experts("mxfp4", "few_tokens")
    x, weights = normal(T, H, seed=1, dtype=torch.bfloat16), normal(M, seed=9)
    ends = torch.full((E,), 7, dtype=torch.int32, device="cuda")
    none = int32([])
    for _ in range(20):
        ends.fill_(7)
        ends.zero_()
        out = mxkern.expert_layer(x, gate_up, down, ends, none, weights[:0])
        assert out.shape == (T, N) and not out.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bytes_of_the_cpu(dtype: str) -> None:
    kind = getattr(torch, dtype)
    y, rows, weights = normal(M, N, dtype=kind), routing("some")[1], normal(M, seed=9)
    rows[3:40] = 7
    rows[50:60] = -1
    got = mxkern.combine(y, rows, weights, T)
    assert got.cpu().equal(mxkern.combine(y.cpu(), rows.cpu(), weights.cpu(), T))
    for options in ({}, GPT_OSS):
        x = normal(33, 2 * 130, dtype=kind) * 6
        assert mxkern.swiglu(x, **options).cpu().equal(mxkern.swiglu(x.cpu(), **options))


@pytest.mark.parametrize("scheme", [None, "mxfp8", "nvfp4"])
def test_rows_are_those_of_copies(scheme: Any) -> None:
    x, (ends, rows, _) = normal(T, H, seed=1, dtype=torch.bfloat16), routing("some")
    gate_up = experts("mxfp4")[0]
    options = {} if scheme != "nvfp4" else {"amax": mxkern.tensor_amax(x)}
    left = [
        a if scheme is None else mxkern.quantize(a, scheme, **options) for a in (x, x[rows.long()])
    ]
    got = mxkern.grouped_gemm(left[0], gate_up, ends, rows=rows)
    assert got.equal(mxkern.grouped_gemm(left[1], gate_up, ends))


def test_in_a_graph_that_finds_other_ends() -> None:
    gate_up, down, *_ = experts("mxfp4", "few_tokens")
    x = normal(T, H, seed=1, dtype=torch.bfloat16)
    ends, rows, weights = (each.clone() for each in routing("some"))
    out = torch.empty(T, N, device="cuda", dtype=torch.bfloat16)
    call = lambda: mxkern.expert_layer(x, gate_up, down, ends, rows, weights, out=out)  # noqa: E731
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for name in ROUTINGS:
        ends.copy_(int32(ROUTINGS[name]))
        graph.replay()
        got = out.clone()
        call()
        assert out.equal(got), name


def test_wrong_ends_and_rows_give_nan() -> None:
    gate_up, down, *_ = experts("mxfp4")
    x = normal(T, H, seed=1, dtype=torch.bfloat16)
    ends, rows, weights = routing("some")
    for bad in ([0, 50, 40, 120, 190], [0, 50, 50, 120, 201]):
        got = mxkern.expert_layer(x, gate_up, down, int32(bad), rows, weights)
        assert got[rows[:50].long()].isnan().all()
    rows = rows.clone()
    rows[7] = T
    assert mxkern.expert_layer(x, gate_up, down, ends, rows, weights).isnan().all()
    got = mxkern.grouped_gemm(x, gate_up, ends, rows=rows)
    assert got[7].isnan().all() and not got[8].isnan().any()
    assert mxkern.combine(got, rows, weights, T).isnan().all()


@HOPPER
@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp6", "mxfp4"])
def test_both_prepared(scheme: str) -> None:
    x = normal(384, 256, dtype=torch.bfloat16)
    x[:64] *= 2.0**-9
    both, on_cpu = mxkern.prepare_both(x, scheme), mxkern.prepare_both(x.cpu(), scheme)
    assert both.row_spreads.cpu().equal(on_cpu.row_spreads)
    assert both.column_spreads.cpu().equal(on_cpu.column_spreads)
    w = mxkern.prepare_both(normal(128, 256, seed=1, dtype=torch.bfloat16), scheme)
    g = mxkern.prepare_both(normal(384, 128, seed=2, dtype=torch.bfloat16), scheme)
    for a, b in ((both.rows, w.rows), (g.rows, w.columns), (g.columns, both.columns)):
        assert a.form == b.form == "folded" and a.source is None and b.source is None
        assert mxkern.gemm(a, b, precision="folded").isfinite().all()
    rows, columns = mxkern.quantize_both(x, scheme)
    for got, q in ((both.rows, rows), (both.columns, columns)):
        other = mxkern.prepare_operand(q, form="folded")
        right = mxkern.quantize(normal(64, q.shape[1], seed=4), scheme)
        assert mxkern.gemm(got, right, precision="folded").equal(
            mxkern.gemm(other, right, precision="folded")
        )
