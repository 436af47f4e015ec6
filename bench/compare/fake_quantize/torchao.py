# bench/compare/fake_quantize/torchao.py: torchao's to_mx and to_dtype, eager and compiled.
from __future__ import annotations

from typing import Any

import torch
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx

import mxkern
from bench.compare.rival import ROUNDS, SECONDS, report
from bench.compare.torchao_kinds import records
from bench.copy_speed import best_times
from bench.inputs import check_equal


def there_and_back(x: torch.Tensor, element: Any) -> torch.Tensor:
    """x rounded by the rule `floor`."""
    scales, codes = to_mx(x, element, 32, ScaleCalculationMode.FLOOR)
    return to_dtype(codes, scales, element, 32, x.dtype)


def measure(x: torch.Tensor, scheme: str, element: Any, function: Any) -> list[float]:
    """The times of both, whose values are the same."""

    def ours() -> torch.Tensor:
        return mxkern.fake_quantize(x, scheme, scale_rule="floor")

    check_equal(scheme, function(x, element).float().numpy(), ours().float().numpy())
    return best_times([lambda: function(x, element), ours], SECONDS, ROUNDS)


if __name__ == "__main__":
    report(records("fake_quantize", there_and_back, measure))
