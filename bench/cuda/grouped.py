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
BFLOAT16, FLOAT8 = "bfloat16", "float8_e4m3fn"  # PyTorch's own
ROWS = "mxfp8_e4m3"  # the scheme of rows that are not plain
# Schemes of weights, and what is done with the rows; "" multiplies plain ones.
FOLDED, IN_THE_CALL = "folded rows", "rows quantized and folded in the call"
WAYS = (
    (BFLOAT16, ""),
    (FLOAT8, "scaled rows"),
    ("mxfp8_e4m3", ""),
    ("mxfp4", ""),
    ("nvfp4", ""),
    ("mxfp8_e4m3", FOLDED),
    ("mxfp8_e4m3", IN_THE_CALL),
    ("mxfp4", FOLDED),
)
ROUTINGS = 8  # that calls take turns with
Call = Callable[[torch.Tensor], Any]


def run() -> Iterator[dict[str, Any]]:
    """One record a shape, scheme, way and number of tokens."""
    for shape in SHAPES:
        for scheme, way in WAYS:
            yield from _measure(shape, scheme, way)


def _measure(shape: tuple[int, int, int, int], scheme: str, way: str) -> Iterator[dict[str, Any]]:
    torch.cuda.empty_cache()
    experts, n, k, chosen = shape
    generator = torch.Generator("cuda").manual_seed(0)
    w = torch.randn(experts, n, k, device="cuda", dtype=torch.bfloat16, generator=generator)
    q = w if scheme in (BFLOAT16, FLOAT8) else mxkern.quantize(w, scheme)
    product = _product_of(q, scheme, way)
    for tokens in TOKENS:
        rows = tokens * chosen
        x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16, generator=generator)
        out = torch.empty(rows, n, device="cuda", dtype=torch.bfloat16)
        ends = [ends_of_routing(experts, tokens, chosen, i, generator) for i in range(ROUTINGS)]
        call = product(x, out)
        if isinstance(q, mxkern.BlockScaled):
            given = mxkern.dequantize(mxkern.quantize(x, ROWS)) if way else x
            _check(partial(call, ends[0]), given, q, ends[0], out)
        used = sum(int((end.diff(prepend=end[:1] * 0) > 0).sum()) for end in ends) / ROUTINGS
        bytes_of_weights = w.nbytes // 2 if scheme == FLOAT8 or way else q.nbytes
        yield {
            "shape": [experts, n, k],
            "experts_of_a_token": chosen,
            "scheme": scheme,
            "way": way,
            "tokens": tokens,
            "experts_with_tokens": used,
            "seconds": median_seconds([partial(call, end) for end in ends], SETTLE_SECONDS),
            "settle_seconds": SETTLE_SECONDS,
            "weight_bytes": bytes_of_weights * used / experts,
        }


def _product_of(q: Any, scheme: str, way: str) -> Callable[[torch.Tensor, torch.Tensor], Call]:
    """What makes the product of some rows, given the ends of their groups."""
    if scheme == BFLOAT16:
        turned = q.transpose(1, 2)
        return lambda x, out: lambda ends: torch._grouped_mm(x, turned, offs=ends)
    if scheme == FLOAT8:
        weights, scales = _scaled(q)

        def scaled(x: torch.Tensor, out: torch.Tensor) -> Call:
            rows, own = _scaled(x)
            return lambda ends: torch._scaled_grouped_mm(
                rows, weights.transpose(1, 2), own, scales, offs=ends, out_dtype=torch.bfloat16
            )

        return scaled
    if not way:
        ready = mxkern.prepare_operand(q, form="few_tokens")
        return lambda x, out: lambda ends: mxkern.grouped_gemm(x, ready, ends, out=out)
    folded = mxkern.prepare_operand(q, form="folded", keep_source=False)

    def rows_of(x: torch.Tensor) -> mxkern.PreparedOperand:
        return mxkern.prepare_operand(x, scheme=ROWS, form="folded", keep_source=False)

    def of_folded(x: torch.Tensor, out: torch.Tensor) -> Call:
        rows = None if way == IN_THE_CALL else rows_of(x)
        return lambda ends: mxkern.grouped_gemm(
            rows_of(x) if rows is None else rows, folded, ends, out=out, precision="folded"
        )

    return of_folded


def _scaled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of 8 bits and their scales."""
    scales = x.abs().amax(-1, keepdim=True).float() / 448
    return (x.float() / scales).to(torch.float8_e4m3fn), scales.squeeze(-1)


def ends_of_routing(
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
