# bench/compare/quantize/torchao.py: torchao's to_mx, eager and compiled.
from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.constants import DTYPE_FP6_E2M3
from torchao.prototype.mx_formats.mx_tensor import to_mx

import mxkern
from bench.compare.rival import ROUNDS, SECONDS, record, report
from bench.decode import unpacked_codes
from bench.inputs import check_equal
from mxkern.copy_speed import best_times

SHAPE = (4096, 4096)
CASES = {
    "mxfp8_e4m3": torch.float8_e4m3fn,
    "mxfp6_e2m3": DTYPE_FP6_E2M3,
    "mxfp4": torch.float4_e2m1fn_x2,
}
COMPILED = ("mxfp8_e4m3", "mxfp4")


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme, eager and where that is worth it compiled."""
    version = importlib.metadata.version("torchao")
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    for scheme, element in CASES.items():
        kinds = [("eager", to_mx)]
        if scheme in COMPILED:
            kinds.append(("compiled", torch.compile(to_mx, fullgraph=True)))
        for kind, function in kinds:
            rival = f"torchao {version} {kind}"
            try:
                times = _measure(x, scheme, element, function)
            except Exception as error:  # what a rival cannot do is a result as well
                reason = str(error).strip().splitlines()[0] if str(error).strip() else ""
                yield {"rival": f"{rival} {scheme}", "failed": f"{type(error).__name__}: {reason}"}
                continue
            yield record("quantize", rival, scheme, SHAPE, "bfloat16", times)


def _measure(x: torch.Tensor, scheme: str, element: Any, function: Any) -> list[float]:
    scales, codes = function(x, element, 32, ScaleCalculationMode.FLOOR)
    q = mxkern.quantize(x, scheme, scale_rule="floor")
    ours = q._replace(codes=q.codes.view(torch.uint8).numpy())
    check_equal("scales", scales.view(torch.uint8).numpy(), q.scales.view(torch.uint8).numpy())
    theirs = codes.view(torch.uint8).numpy()
    # torchao keeps 6-bit codes one a byte.
    wanted = unpacked_codes(ours) if scheme == "mxfp6_e2m3" else ours.codes
    check_equal("codes", theirs.reshape(wanted.shape), np.asarray(wanted))
    return best_times(
        [
            lambda: function(x, element, 32, ScaleCalculationMode.FLOOR),
            lambda: mxkern.quantize(x, scheme, scale_rule="floor"),
        ],
        SECONDS,
        ROUNDS,
    )


if __name__ == "__main__":
    report(run())
