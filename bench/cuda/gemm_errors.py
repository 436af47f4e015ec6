# bench/cuda/gemm_errors.py: the error of products on a GPU, by distribution, precision and spread.
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import mxkern

ROWS, DEPTH = 1024, 8192
PAIRS = (("mxfp8_e4m3", "mxfp8_e4m3"), ("mxfp8_e4m3", "mxfp4"), ("mxfp4", "mxfp4"))
DISTRIBUTIONS = (
    "normal",
    "0.5 % of channels x60",
    "Student t, 3 degrees",
    "lognormal blocks, 17 octaves",
    "outliers in both, other columns",
)
SPREADS = (0, 4, 6, 7, 8, 9, 10, 12, 16)
_OUTLIERS = (DISTRIBUTIONS[1], DISTRIBUTIONS[4])


def run() -> Iterator[dict[str, Any]]:
    """Relative L2 errors to the product of the decoded operands, in double precision."""
    for kind in DISTRIBUTIONS:
        a, b = _values(kind, 1), _values(kind, 2 if kind in DISTRIBUTIONS[2:] else 1, other=True)
        want = a.double() @ b.double().T
        for left, right in PAIRS:
            p, q = mxkern.quantize(a.bfloat16(), left), mxkern.quantize(b.bfloat16(), right)
            yield {"data": kind, "pair": [left, right], **_errors(p, q, want)}
    for octaves in SPREADS:
        p, q = _opposed(octaves)
        errors = _errors(p, q, None)
        yield {"data": f"opposed scales, {octaves} octaves", "pair": list(PAIRS[0]), **errors}


def _values(kind: str, seed: int, other: bool = False) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed + 10 * other)
    x = torch.randn(ROWS, DEPTH, device="cuda", generator=generator)
    if kind in _OUTLIERS and not (other and kind == _OUTLIERS[0]):
        x[:, torch.randperm(DEPTH, device="cuda", generator=generator)[: DEPTH // 200]] *= 60
    if kind == DISTRIBUTIONS[2]:
        y = torch.randn(3, ROWS, DEPTH, device="cuda", generator=generator)
        x /= (y.square().sum(0) / 3).sqrt().clamp_min(1e-3)
    if kind == DISTRIBUTIONS[3]:
        gain = torch.randn(ROWS, DEPTH // 32, device="cuda", generator=generator) * 2.2
        x *= gain.clamp(-8.5, 8.5).exp2().repeat_interleave(32, 1)
    return x


def _opposed(octaves: int) -> tuple[Any, Any]:
    """Operands whose block scales cancel: where one is small, the other is large."""
    operands = []
    steps = torch.linspace(0, octaves, DEPTH // 32, device="cuda").round().to(torch.uint8)
    for seed, scales in ((1, 127 - steps), (2, 100 + steps)):
        q = mxkern.quantize(_values("normal", seed).bfloat16(), "mxfp8")
        q.scales.view(torch.uint8).copy_(scales.expand(ROWS, -1))
        operands.append(q)
    return operands[0], operands[1]


def _errors(p: Any, q: Any, unquantized: torch.Tensor | None) -> dict[str, Any]:
    want = mxkern.dequantize(p).double() @ mxkern.dequantize(q).double().T

    def relative(got: torch.Tensor, to: torch.Tensor = want) -> float:
        return float((got.double() - to).norm() / to.norm())

    folded = mxkern.gemm(p, q, dtype="bfloat16", precision="folded")
    chosen = mxkern.gemm(p, q, dtype="bfloat16")
    return {
        "quantization": None if unquantized is None else relative(want, unquantized),
        "folded": relative(mxkern.gemm(p, q, precision="folded")),
        "exact": relative(mxkern.gemm(p, q, precision="exact")),
        "auto, bfloat16": relative(chosen),
        "auto_is_folded": bool(torch.equal(folded, chosen)),
    }
