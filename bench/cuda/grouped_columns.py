# bench/cuda/grouped_columns.py: the gradients of the weights of a mixture of experts, beside
# PyTorch's grouped product of bfloat16 columns.
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import mxkern
from bench.cuda.grouped import BFLOAT16, ROUTINGS, SHAPES, ends_of_routing
from bench.cuda.timing import SETTLE_SECONDS, median_seconds

TOKENS = (256, 1024, 4096, 16384)
BLOCK = 32  # each expert's tokens are padded to so many
SCHEME = "mxfp8_e4m3"
READY, ADDED, FOLDED, QUANTIZED, EXACT = (
    "folded, both ready",
    "the same, added to the outputs",
    "folded in the call",
    "quantized from bfloat16 and folded in the call",
    "exact, in the call",
)
WAYS = ((BFLOAT16, ""), *((SCHEME, way) for way in (READY, ADDED, FOLDED, QUANTIZED, EXACT)))


def run() -> Iterator[dict[str, Any]]:
    """One record a shape, way and number of tokens."""
    for experts, n, k, chosen in SHAPES:
        for tokens in TOKENS:
            yield from _measure(experts, n, k, chosen, tokens)


def _measure(experts: int, n: int, k: int, chosen: int, tokens: int) -> Iterator[dict[str, Any]]:
    torch.cuda.empty_cache()
    generator = torch.Generator("cuda").manual_seed(0)
    ends = [
        _padded(ends_of_routing(experts, tokens, chosen, i, generator)) for i in range(ROUTINGS)
    ]
    rows = max(int(end[-1]) for end in ends)
    gradient, x = (
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16, generator=generator)
        for columns in (n, k)
    )
    out = torch.empty(experts, n, k, device="cuda", dtype=torch.bfloat16)
    for scheme, way in WAYS:
        call = _call(way, gradient, x, out)
        if way:
            _check(call, gradient, x, ends[0], out)
        yield {
            "shape": [experts, n, k],
            "experts_of_a_token": chosen,
            "scheme": scheme,
            "way": way,
            "tokens": tokens,
            "rows": rows,
            "seconds": median_seconds([partial(call, end) for end in ends], SETTLE_SECONDS),
            "settle_seconds": SETTLE_SECONDS,
        }


def _padded(ends: torch.Tensor) -> torch.Tensor:
    counts = ends.diff(prepend=ends[:1] * 0)
    return ((counts + BLOCK - 1) // BLOCK * BLOCK).cumsum(0).to(torch.int32)


def _call(
    way: str, gradient: torch.Tensor, x: torch.Tensor, out: torch.Tensor
) -> Callable[[torch.Tensor], Any]:
    if not way:
        turned = gradient.t()
        return lambda ends: torch._grouped_mm(turned, x, offs=ends)
    sides = (gradient, x)
    precision = "exact" if way == EXACT else "folded"
    beta = 1.0 if way == ADDED else 0.0
    product = partial(mxkern.grouped_gemm, out=out, beta=beta, precision=precision)
    if way == QUANTIZED:
        return lambda ends: product(*(mxkern.quantize_columns(s, SCHEME) for s in sides), ends)
    a, b = (mxkern.quantize_columns(side, SCHEME) for side in sides)
    if way in (READY, ADDED):
        a, b = (mxkern.prepare_operand(q, form="folded", keep_source=False) for q in (a, b))
    return lambda ends: product(a, b, ends)


def _check(
    call: Callable[[torch.Tensor], Any], gradient: Any, x: Any, ends: torch.Tensor, out: Any
) -> None:
    out.zero_()
    call(ends)
    left, right = (
        mxkern.dequantize(mxkern.quantize_columns(side[:, :256].contiguous(), SCHEME))
        for side in (gradient, x)
    )
    begin = 0
    for expert, end in enumerate(ends[:8].tolist()):
        want = left[:, begin:end].double() @ right[:, begin:end].double().T
        error = (out[expert, :256, :256].double() - want).norm().item()
        assert error <= 2.4e-3 * want.norm().item(), f"{tuple(out.shape)}: expert {expert}"
        begin = end
