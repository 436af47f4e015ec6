# bench/cuda/grouped.py: the layers of a mixture of experts, beside PyTorch's grouped product of
# bfloat16 weights.
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import mxkern
from bench.cuda.timing import SETTLE_SECONDS, median_seconds

# Experts, rows and columns of their weights, experts of a token.
SHAPES = ((32, 5760, 2880, 4), (64, 4096, 7168, 8), (8, 14336, 4096, 2))
TOKENS = (1, 4, 16, 64, 256, 1024, 4096)
BFLOAT16 = "bfloat16"
SCHEMES = (BFLOAT16, "mxfp8_e4m3", "mxfp4", "nvfp4")
ROUTINGS = 8  # that calls take turns with


def run() -> Iterator[dict[str, Any]]:
    """One record a shape, scheme and number of tokens."""
    for shape in SHAPES:
        for scheme in SCHEMES:
            yield from _measure(shape, scheme)


def _measure(shape: tuple[int, int, int, int], scheme: str) -> Iterator[dict[str, Any]]:
    torch.cuda.empty_cache()
    experts, n, k, chosen = shape
    generator = torch.Generator("cuda").manual_seed(0)
    w = torch.randn(experts, n, k, device="cuda", dtype=torch.bfloat16, generator=generator)
    q = None if scheme == BFLOAT16 else mxkern.quantize(w, scheme)
    ready = w.transpose(1, 2) if q is None else mxkern.prepare_operand(q, form="few_tokens")
    for tokens in TOKENS:
        rows = tokens * chosen
        x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16, generator=generator)
        out = torch.empty(rows, n, device="cuda", dtype=torch.bfloat16)
        ends = [_ends(experts, tokens, chosen, i, generator) for i in range(ROUTINGS)]
        calls: list[Callable[[], object]] = [
            partial(torch._grouped_mm, x, ready, offs=end)
            if q is None
            else partial(mxkern.grouped_gemm, x, ready, end, out=out)
            for end in ends
        ]
        if q is not None:
            _check(calls[0], x, q, ends[0], out)
        used = sum(int((end.diff(prepend=end[:1] * 0) > 0).sum()) for end in ends) / ROUTINGS
        yield {
            "shape": [experts, n, k],
            "experts_of_a_token": chosen,
            "scheme": scheme,
            "tokens": tokens,
            "experts_with_tokens": used,
            "seconds": median_seconds(calls, SETTLE_SECONDS),
            "settle_seconds": SETTLE_SECONDS,
            "weight_bytes": (w.nbytes if q is None else q.nbytes) * used / experts,
        }


def _ends(
    experts: int, tokens: int, chosen: int, turn: int, generator: torch.Generator
) -> torch.Tensor:
    """Of a routing in which some experts are liked more than others. Few tokens go to experts that
    have had none for a while, so that their weights are not in the cache."""
    rows = tokens * chosen
    if rows <= experts // 2:
        order = torch.randperm(experts, generator=torch.Generator().manual_seed(0))
        expert = order.roll(-turn * rows)[:rows].cuda()
    else:
        liking = 0.5 * torch.randn(experts, device="cuda", generator=generator)
        noise = torch.rand(tokens, experts, device="cuda", generator=generator)
        expert = (liking - torch.log(-torch.log(noise))).topk(chosen, dim=1).indices.flatten()
    return torch.bincount(expert, minlength=experts).cumsum(0).to(torch.int32)


def _check(call: Callable[[], object], x: Any, q: Any, ends: torch.Tensor, out: Any) -> None:
    call()
    expert = torch.bucketize(torch.arange(8, device="cuda")[: len(x)], ends, right=True)
    values = mxkern.dequantize(q)[expert].double()
    want = torch.einsum("mk,mnk->mn", x[: len(expert)].double(), values)
    error = ((out[: len(expert)].double() - want).norm() / want.norm()).item()
    assert error <= 2.4e-3, f"{q.scheme}, {tuple(x.shape)}: relative error {error:.1e}"
