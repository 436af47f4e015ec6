# bench/compare/gemm/torchmx.py: TorchMX's product of operands quantized ahead.
from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

import torch
from torchmx.mx_tensor import MXTensor

import mxkern
from bench.compare.quantize.torchmx import CASES
from bench.compare.rival import ROUNDS, SECONDS, record, report
from bench.copy_speed import best_times
from bench.inputs import check_close

SIZE = 1024


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme."""
    version = importlib.metadata.version("torchmx")
    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.randn((SIZE, SIZE), generator=generator).to(torch.bfloat16) for _ in range(2)
    )
    for scheme, element in CASES.items():
        a, b = (MXTensor.to_mx(x, element, 32) for x in (left, right))
        p, q = (mxkern.quantize(x, scheme, scale_rule="floor") for x in (left, right))
        theirs = torch.matmul(a, b.t()).float().numpy()
        ours = mxkern.gemm(p, q, dtype="bfloat16").float().numpy()
        check_close(f"product in {scheme}", theirs, ours, 1e-2)  # both round to bfloat16
        times = best_times(
            [
                lambda a=a, b=b: torch.matmul(a, b.t()),
                lambda p=p, q=q: mxkern.gemm(p, q, dtype="bfloat16"),
            ],
            SECONDS,
            ROUNDS,
            idle_before=True,
        )
        shape = (SIZE, SIZE, SIZE)
        yield record("gemm", f"TorchMX {version}", scheme, shape, "bfloat16", times)


if __name__ == "__main__":
    report(run())
