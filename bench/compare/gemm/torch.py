# bench/compare/gemm/torch.py: PyTorch's plain products of operands dequantized ahead.
from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

import torch

import mxkern
from bench.compare.rival import ROUNDS, SECONDS, record, report
from bench.copy_speed import best_times
from bench.inputs import check_close

SIZE = 1024
SCHEME = "mxfp8_e4m3"


def run() -> Iterator[dict[str, Any]]:
    """One record a dtype."""
    version = importlib.metadata.version("torch")
    generator = torch.Generator().manual_seed(0)
    a, b = (
        mxkern.quantize(torch.randn((SIZE, SIZE), generator=generator), SCHEME) for _ in range(2)
    )
    for name in ("bfloat16", "float32"):
        left, right = (mxkern.dequantize(q, dtype=name) for q in (a, b))
        theirs = torch.matmul(left, right.t()).float().numpy()
        ours = mxkern.gemm(a, b, dtype=name).float().numpy()
        check_close(f"product in {name}", theirs, ours, 1e-2)
        times = best_times(
            [
                lambda left=left, right=right: torch.matmul(left, right.t()),
                lambda name=name: mxkern.gemm(a, b, dtype=name),
            ],
            SECONDS,
            ROUNDS,
            idle_before=True,
        )
        rival = f"PyTorch {version}, dequantized to {name} ahead"
        yield record("gemm", rival, SCHEME, (SIZE, SIZE, SIZE), name, times)


if __name__ == "__main__":
    report(run())
