# bench/compare/fake_quantize/torchao.py: torchao's to_mx and to_dtype, eager and compiled.
from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

import torch
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx

import mxkern
from bench.compare.quantize.torchao import CASES, COMPILED, SHAPE
from bench.compare.rival import ROUNDS, SECONDS, record, report
from bench.inputs import check_equal
from mxkern.copy_speed import best_times


def theirs(x: torch.Tensor, element: Any) -> torch.Tensor:
    """x rounded by the rule `floor`."""
    scales, codes = to_mx(x, element, 32, ScaleCalculationMode.FLOOR)
    return to_dtype(codes, scales, element, 32, x.dtype)


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme, eager and where that is worth it compiled."""
    version = importlib.metadata.version("torchao")
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    for scheme, element in CASES.items():
        kinds = [("eager", theirs)]
        if scheme in COMPILED:
            kinds.append(("compiled", torch.compile(theirs, fullgraph=True)))
        for kind, function in kinds:
            rival = f"torchao {version} {kind}"
            try:
                times = _measure(x, scheme, element, function)
            except Exception as error:  # what a rival cannot do is a result as well
                reason = str(error).strip().splitlines()[0] if str(error).strip() else ""
                yield {"rival": f"{rival} {scheme}", "failed": f"{type(error).__name__}: {reason}"}
                continue
            yield record("fake_quantize", rival, scheme, SHAPE, "bfloat16", times)


def _measure(x: torch.Tensor, scheme: str, element: Any, function: Any) -> list[float]:
    def ours() -> torch.Tensor:
        return mxkern.fake_quantize(x, scheme, scale_rule="floor")

    check_equal(scheme, function(x, element).float().numpy(), ours().float().numpy())
    return best_times([lambda: function(x, element), ours], SECONDS, ROUNDS)


if __name__ == "__main__":
    report(run())
