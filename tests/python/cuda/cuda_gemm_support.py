# tests/python/cuda/cuda_gemm_support.py: operands of many distributions on a CUDA device, and
# products in double precision.
from __future__ import annotations

from typing import Any

import mxkern

FOLDABLE = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4")
DISTRIBUTIONS = ("normal", "channels", "student", "lognormal", "outliers")
# Octaves between the largest and the smallest scale of a row within which it is folded.
SPREAD_LIMITS = {
    "mxfp8_e4m3": 8,
    "mxfp8_e5m2": 22,
    "mxfp6_e3m2": 23,
    "mxfp6_e2m3": 11,
    "mxfp4": 28,
}
FOLDED_ERROR, EXACT_ERROR = 5e-4, 2e-5


def values(kind: str, rows: int, columns: int, seed: int) -> Any:
    """A float32 matrix on the device."""
    import torch

    generator = torch.Generator("cuda").manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", generator=generator)

    x = normal(rows, columns)
    if kind in ("channels", "outliers"):
        count = max(1, columns // 200)
        chosen = torch.randperm(columns, device="cuda", generator=generator)[:count]
        x[:, chosen] *= 60
    if kind == "student":
        x /= (normal(3, rows, columns).square().sum(0) / 3).sqrt().clamp_min(1e-3)
    if kind == "apart":
        x *= (torch.rand(x.shape, device="cuda", generator=generator) * 17 - 8.5).round().exp2()
    if kind == "lognormal":
        blocks = -(-columns // 32)
        gain = (normal(rows, blocks) * 2.2).clamp(-8.5, 8.5).round().exp2()
        x *= gain.repeat_interleave(32, 1)[:, :columns]
    return x


def exact(operand: Any) -> Any:
    """The values of an operand in double precision."""
    if isinstance(operand, mxkern.PreparedOperand):
        operand = operand.source
    if isinstance(operand, mxkern.BlockScaled):
        operand = mxkern.dequantize(operand)
    return operand.double()


def product(a: Any, b: Any) -> Any:
    return exact(a) @ exact(b).transpose(-1, -2)


def relative(got: Any, want: Any) -> float:
    """Relative L2 error."""
    norm = want.norm().item()
    error = (got.double() - want).norm().item()
    return error if norm == 0 else error / norm


def with_spread(scheme: str, rows: int, columns: int, octaves: int, seed: int) -> Any:
    """A BlockScaled whose scales span exactly so many octaves in one row, and fewer in the others.
    Its last block has the smallest scale of that row and is not zero."""
    import torch

    q = mxkern.quantize(values("normal", rows, columns, seed).bfloat16(), scheme)
    scales = q.scales.view(torch.uint8)
    scales.fill_(127)
    row = seed % rows
    scales[row, -1] = 127 - octaves
    return q


def quantized(scheme: str, rows: int, columns: int, seed: int, **options: Any) -> Any:
    kind = DISTRIBUTIONS[seed % len(DISTRIBUTIONS)]
    return mxkern.quantize(values(kind, rows, columns, seed).bfloat16(), scheme, **options)


def assert_near(got: Any, want: Any, limit: float, what: object = "") -> None:
    """A product whose relative error was below the limit before it was rounded to its dtype."""
    rounding = relative(want.to(got.dtype), want)
    assert relative(got, want) <= limit + rounding, what
