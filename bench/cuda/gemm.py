# bench/cuda/gemm.py: products of many rows, beside PyTorch's bfloat16 and FP8 of the same run.
from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

import mxkern
from bench.cuda.timing import REST_SECONDS, SETTLE_SECONDS

Call = Callable[[], torch.Tensor]

SQUARES = (
    ("4096³", 4096, 4096, 4096),
    ("8192³", 8192, 8192, 8192),
    ("16384 x 4096 x 14336", 16384, 4096, 14336),
    ("8192 x 14336 x 4096", 8192, 14336, 4096),
)
# Rows and columns of the weights: query, key and value together; output; gate and up; down.
PROJECTIONS = {
    "Llama-8B": {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28672, 4096),
                 "down": (4096, 14336)},
    "Llama-70B": {"qkv": (10240, 8192), "o": (8192, 8192), "gate_up": (57344, 8192),
                  "down": (8192, 28672)},
}  # fmt: skip
TOKENS = (512, 2048, 8192, 16384)
LEAST_ROWS = 2048  # of products that have goals

# Power limits such products. Under load the clock settles 50 ms after a variant has begun, at what
# the variant's power allows: before that it is the clock of what ran before. So variants take long
# turns in random order, and only their ends count.
TIMED_SECONDS, GRAPH_SECONDS = 0.02, 0.005
ROUNDS = 5
# Two other ways to see them: after a rest, and in turns so short that all share one clock.
RESTED_ROUNDS = 5
SHORT_SECONDS, SHORT_ROUNDS = 0.001, 40
CHECKED_ROWS = 96


class Variant(NamedTuple):
    """One way to compute a product. `limit` is of its relative L2 error to the product of what it
    multiplies: values of these schemes, of FLOAT8 elements without block scales, or as they are."""

    name: str
    call: Call
    limit: float
    goals: tuple[tuple[str, float], ...] = ()  # times as fast as which other variants
    values: tuple[str, str] = ("mxfp8", "mxfp8")


class Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    calls: int


BF16, ROWWISE = "cuBLAS bfloat16", "_scaled_mm rowwise"
BFLOAT16_ROUNDING = 1.8e-3
FOLDED, EXACT = 5e-4 + BFLOAT16_ROUNDING, 2e-5 + BFLOAT16_ROUNDING
FAST = 1e-2  # sums of 14 bits along all of K
AS_IT_IS, FLOAT8 = "bfloat16", "float8"


def run() -> Iterator[dict[str, Any]]:
    """One record a shape and variant."""
    for name, m, n, k in SQUARES:
        yield from _measure(name, m, n, k, whole=True)
    for model, projections in PROJECTIONS.items():
        for projection, (n, k) in projections.items():
            for tokens in TOKENS:
                name = f"{model} {projection}, {tokens} tokens"
                yield from _measure(name, tokens, n, k, whole=False)


def _measure(name: str, m: int, n: int, k: int, whole: bool) -> Iterator[dict[str, Any]]:
    torch.cuda.empty_cache()
    generator = torch.Generator("cuda").manual_seed(0)
    x, w = (
        torch.randn(rows, k, device="cuda", dtype=torch.bfloat16, generator=generator)
        for rows in (m, n)
    )
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    variants = [*_rivals(x, w, out), *_folded(x, w, out), *_exact(x, w, out)]
    if whole:
        variants += _other_schemes(x, w, out)
    errors = [_error(variant, x, w) for variant in variants]
    times = _times([variant.call for variant in variants], whole)
    for variant, error, seconds in zip(variants, errors, times, strict=True):
        yield {
            "name": name,
            "shape": [m, n, k],
            "variant": variant.name,
            **seconds,
            "error": error,
            "goals": dict(variant.goals) if m >= LEAST_ROWS else {},
        }


def _rivals(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> Iterator[Variant]:
    yield Variant(BF16, lambda: torch.mm(x, w.T, out=out), EXACT, values=(AS_IT_IS, AS_IT_IS))
    x8, w8 = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")
    rows = torch.ones(x.shape[0], 1, device="cuda")
    columns = torch.ones(1, w.shape[0], device="cuda")
    for name, scales, fast in (
        ("_scaled_mm tensorwise", (one, one), False),
        (ROWWISE, (rows, columns), False),
        (f"{ROWWISE}, fast accumulation", (rows, columns), True),
    ):
        yield Variant(
            name,
            lambda scales=scales, fast=fast: torch._scaled_mm(
                x8, w8.T, *scales, out_dtype=torch.bfloat16, use_fast_accum=fast
            ),
            FAST if fast else FOLDED,
            values=(FLOAT8, FLOAT8),
        )


def _folded(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> Iterator[Variant]:
    a, b = mxkern.quantize(x, "mxfp8"), mxkern.quantize(w, "mxfp8")
    left, right = mxkern.prepare_operand(a), mxkern.prepare_operand(b)

    def folded(a: Any, b: Any) -> Call:
        return lambda: mxkern.gemm(a, b, out=out, precision="folded")

    def layer() -> torch.Tensor:
        ready = mxkern.prepare_operand(x, "mxfp8", keep_source=False)
        return mxkern.gemm(ready, right, out=out, precision="folded")

    yield Variant("folded: core", folded(left, right), FOLDED)
    goals = ((BF16, 1.6), (ROWWISE, 0.95))
    yield Variant("folded: activations in the call", folded(a, right), FOLDED, goals)
    yield Variant("folded: both in the call", folded(a, b), FOLDED, ((BF16, 1.5),))
    yield Variant("from bfloat16: quantize, fold, multiply", layer, FOLDED, ((BF16, 1.45),))
    yield Variant("auto: activations in the call", lambda: mxkern.gemm(a, right, out=out), FOLDED)


def _exact(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> Iterator[Variant]:
    a, b = mxkern.quantize(x, "mxfp8"), mxkern.quantize(w, "mxfp8")
    expanded = mxkern.prepare_operand(b, form="expanded")
    yield Variant("exact: both in the call", _exactly(a, b, out), EXACT, ((BF16, 0.95),))
    yield Variant("exact: weights ahead", _exactly(a, expanded, out), EXACT, ((BF16, 1.0),))


def _exactly(a: Any, b: Any, out: torch.Tensor) -> Call:
    return lambda: mxkern.gemm(a, b, out=out, precision="exact")


def _other_schemes(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> Iterator[Variant]:
    for left, right in (("mxfp8_e4m3", "mxfp4"), ("mxfp4", "mxfp4"), ("mxfp6_e2m3", "mxfp8_e4m3")):
        q = mxkern.quantize(x, left)
        ready = mxkern.prepare_operand(mxkern.quantize(w, right))
        yield Variant(
            f"folded: {left} x {right}, activations in the call",
            lambda q=q, ready=ready: mxkern.gemm(q, ready, out=out, precision="folded"),
            FOLDED,
            values=(left, right),
        )
    p, q = mxkern.quantize(x, "nvfp4"), mxkern.quantize(w, "nvfp4")
    yield Variant(
        "exact: nvfp4 x nvfp4, both in the call",
        _exactly(p, q, out),
        EXACT,
        values=("nvfp4", "nvfp4"),
    )
    expanded = mxkern.prepare_operand(mxkern.quantize(w, "mxfp8"), form="expanded")
    yield Variant(
        "exact: bfloat16 x mxfp8, weights ahead",
        _exactly(x, expanded, out),
        EXACT,
        values=(AS_IT_IS, "mxfp8"),
    )


def _times(calls: list[Call], whole: bool) -> list[dict[str, float]]:
    """Of each call, by how the device is loaded."""
    graphs = [_captured(call, GRAPH_SECONDS) for call in calls]
    before, timed = (round(part / GRAPH_SECONDS) for part in (SETTLE_SECONDS, TIMED_SECONDS))
    times = {"seconds": _in_turns(graphs, before, timed, ROUNDS)}
    if whole:
        times["rested_seconds"] = _in_turns(graphs, 1, 1, RESTED_ROUNDS, REST_SECONDS)
        short = [_captured(call, SHORT_SECONDS) for call in calls]
        times["short_turn_seconds"] = _in_turns(short, 0, 1, SHORT_ROUNDS)
    return [dict(zip(times, each, strict=True)) for each in zip(*times.values(), strict=True)]


def _in_turns(
    graphs: list[Captured], before: int, timed: int, rounds: int, rest: float = 0.0
) -> list[float]:
    """Medians of turns in random order: a graph is replayed `before` times that do not count, and
    `timed` times that do."""
    turns: list[list[float]] = [[] for _ in graphs]
    order = list(range(len(graphs)))
    for turn in range(rounds):
        random.Random(turn).shuffle(order)
        marks = []
        for i in order:
            if rest:
                torch.cuda.synchronize()
                time.sleep(rest)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(before):
                graphs[i].graph.replay()
            begin.record()
            for _ in range(timed):
                graphs[i].graph.replay()
            end.record()
            marks.append((begin, end))
        torch.cuda.synchronize()
        for i, (begin, end) in zip(order, marks, strict=True):
            turns[i].append(begin.elapsed_time(end) / 1e3 / timed / graphs[i].calls)
    return [statistics.median(times) for times in turns]


def _captured(call: Call, seconds: float) -> Captured:
    """A graph of as many calls as take so long."""
    call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    end.synchronize()
    calls = max(1, round(seconds * 1e3 / begin.elapsed_time(end)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return Captured(graph, calls)


def _error(variant: Variant, x: torch.Tensor, w: torch.Tensor) -> float:
    """Relative L2 error to the product of what the variant multiplies, over some rows; a result
    that is wrong is not timed."""
    got = variant.call()
    rows = torch.linspace(0, x.shape[0] - 1, CHECKED_ROWS, device="cuda").long()
    left, right = variant.values
    # A tensor scale is that of the whole tensor.
    left_values = _values(x, left)[rows] if left == "nvfp4" else _values(x[rows], left)
    want = left_values @ _values(w, right).T
    error = ((got[rows].double() - want).norm() / want.norm()).item()
    assert error <= variant.limit, f"{variant.name}: relative error {error:.1e}"
    return error


def _values(t: torch.Tensor, scheme: str) -> torch.Tensor:
    if scheme == AS_IT_IS:
        return t.double()
    if scheme == FLOAT8:
        return t.to(torch.float8_e4m3fn).double()
    return mxkern.dequantize(mxkern.quantize(t, scheme)).double()
