# bench/compare/fake_quantize/torchmx.py: TorchMX's MXTensor.to_mx and to_dtype.
from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

import torch
from torchmx.mx_tensor import MXTensor

import mxkern
from bench.compare.quantize.torchmx import CASES, SHAPE
from bench.compare.rival import ROUNDS, SECONDS, record, report
from bench.copy_speed import best_times
from bench.inputs import check_equal


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme."""
    rival = f"TorchMX {importlib.metadata.version('torchmx')}"
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)

    def theirs(x: torch.Tensor, element: Any) -> torch.Tensor:
        return MXTensor.to_mx(x, element, 32).to_dtype(torch.bfloat16)

    def ours(x: torch.Tensor, scheme: str) -> torch.Tensor:
        return mxkern.fake_quantize(x, scheme, scale_rule="floor")

    for scheme, element in CASES.items():
        some = x[:128]
        check_equal(
            scheme, theirs(some, element).float().numpy(), ours(some, scheme).float().numpy()
        )
        calls = [lambda e=element: theirs(x, e), lambda s=scheme: ours(x, s)]
        times = best_times(calls, SECONDS, ROUNDS)
        yield record("fake_quantize", rival, scheme, SHAPE, "bfloat16", times)


if __name__ == "__main__":
    report(run())
