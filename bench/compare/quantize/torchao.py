# bench/compare/quantize/torchao.py: torchao's to_mx, eager and compiled.
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_mx

import mxkern
from bench.compare.rival import ROUNDS, SECONDS, report
from bench.compare.torchao_kinds import records
from bench.copy_speed import best_times
from bench.decode import unpacked_codes
from bench.inputs import check_equal


def measure(x: torch.Tensor, scheme: str, element: Any, function: Any) -> list[float]:
    """The times of both, whose codes and scales are the same."""
    scales, codes = function(x, element, 32, ScaleCalculationMode.FLOOR)
    q = mxkern.quantize(x, scheme, scale_rule="floor")
    ours = q.replace(codes=q.codes.view(torch.uint8).numpy())
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
    report(records("quantize", to_mx, measure))
