# bench/cuda/few_tokens.py: products of few rows with block-scaled weights that are not in the
# cache, beside cuBLAS of bfloat16 weights.
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import mxkern
from bench.cuda.timing import SETTLE_SECONDS, median_seconds, rested_seconds

# Rows and columns of the weights.
SHAPES = (
    (8192, 8192), (28672, 8192), (8192, 28672), (4096, 4096), (14336, 4096), (4096, 14336),
    (128256, 4096),
)  # fmt: skip
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SCHEMES = ("mxfp8_e4m3", "mxfp6_e2m3", "mxfp4", "nvfp4")
ROTATED_BYTES = 200 << 20  # three times the L2 cache of an H200
CURVE_SHAPE = (8192, 8192)
CURVE_TOKENS = (
    1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192,
)  # fmt: skip
BFLOAT16 = "bfloat16"
# What sustained work slows down, and has a goal: measured after a rest as well.
RESTED = (((8192, 8192), 8), ((8192, 8192), 16), ((8192, 8192), 64), ((28672, 8192), 16))


def goal_seconds(scheme: str, tokens: int, shape: tuple[int, int]) -> float | None:
    """What is wanted on an H200; other machines have no goals in microseconds."""
    if "H200" not in torch.cuda.get_device_name() or scheme == BFLOAT16:
        return None
    narrow = scheme in ("mxfp4", "nvfp4")
    if shape == (8192, 8192) and tokens <= 16 and scheme != "mxfp6_e2m3":
        return 11.5e-6 if narrow else 19.5e-6
    if shape == (8192, 8192) and tokens == 64 and scheme in ("mxfp4", "mxfp8_e4m3"):
        return 18e-6 if narrow else 24e-6
    if shape == (28672, 8192) and tokens <= 16 and scheme in ("mxfp4", "mxfp8_e4m3"):
        return 37e-6 if narrow else 63e-6
    return None


def run() -> Iterator[dict[str, Any]]:
    """One record a shape, scheme and number of tokens."""
    for shape in SHAPES:
        for scheme in (BFLOAT16, *SCHEMES):
            yield from _measure(shape, scheme, TOKENS, "few_tokens")


def curve() -> Iterator[dict[str, Any]]:
    """One shape from one token to many: what bfloat16 activations cost, and quantized ones."""
    for scheme in (BFLOAT16, "mxfp8_e4m3", "mxfp4"):
        yield from _measure(CURVE_SHAPE, scheme, CURVE_TOKENS, "few_tokens")
    yield from _measure(CURVE_SHAPE, "mxfp8_e4m3", CURVE_TOKENS, "expanded")
    for scheme in ("mxfp8_e4m3", "mxfp4"):
        few = [tokens for tokens in CURVE_TOKENS if tokens >= 64]
        yield from _measure(CURVE_SHAPE, scheme, few, "folded")


def _measure(
    shape: tuple[int, int], scheme: str, tokens: Any, form: str
) -> Iterator[dict[str, Any]]:
    torch.cuda.empty_cache()
    n, k = shape
    generator = torch.Generator("cuda").manual_seed(0)
    weights, size = [], 0
    while size < ROTATED_BYTES:
        w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16, generator=generator)
        if scheme == BFLOAT16:
            weights.append((w, w.T))
            size += w.nbytes
            continue
        q = mxkern.quantize(w, scheme)
        weights.append((mxkern.prepare_operand(q, form=form), q))
        size += q.nbytes
    for m in tokens:
        x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16, generator=generator)
        out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        calls: list[Callable[[], object]] = []
        for ready, other in weights:
            if scheme == BFLOAT16:
                calls.append(partial(torch.mm, x, other, out=out))
            elif form == "folded":
                calls.append(partial(_layer, x, ready, out))
            else:
                calls.append(partial(mxkern.gemm, x, ready, out=out))
        if scheme != BFLOAT16:
            _check(calls[0], x, weights[0][1], out, form)
        is_rested = form == "few_tokens" and (shape, m) in RESTED and scheme != "mxfp6_e2m3"
        yield {
            "shape": [n, k],
            "scheme": scheme,
            "tokens": m,
            "form": form,
            "seconds": median_seconds(calls, SETTLE_SECONDS),
            "settle_seconds": SETTLE_SECONDS,
            "rested_seconds": rested_seconds(calls) if is_rested else None,
            "goal_seconds": goal_seconds(scheme, m, shape) if form == "few_tokens" else None,
            "weight_bytes": weights[0][1].nbytes,
        }


def _layer(x: torch.Tensor, ready: Any, out: torch.Tensor) -> None:
    activations = mxkern.prepare_operand(x, "mxfp8", keep_source=False)
    mxkern.gemm(activations, ready, out=out, precision="folded")


def _check(call: Callable[[], object], x: Any, q: Any, out: Any, form: str) -> None:
    call()
    if form == "folded":
        x = mxkern.dequantize(mxkern.quantize(x, "mxfp8"))
    want = x[:8].double() @ mxkern.dequantize(q).double().T
    error = ((out[:8].double() - want).norm() / want.norm()).item()
    assert error <= 2.4e-3, f"{q.scheme} x {tuple(x.shape)}: relative error {error:.1e}"
