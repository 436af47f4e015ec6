# bench/compare/custom/torch.py: blocks in plain PyTorch operations, one after the other, as
# microxcaling's Python path works: a shared exponent, and rounding with each element's own.
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import mxkern
from bench.compare.rival import ROUNDS, SECONDS, record, report
from bench.copy_speed import best_times
from bench.inputs import check_equal, random_values

SHAPE = (4096, 4096)


def blocks(x: Any, element: tuple[int, int], block: int) -> Any:
    """x quantized and decoded: scales by the rule "floor", elements to nearest, ties away."""
    exponent_bits, mantissa_bits = element
    bias = 2 ** (exponent_bits - 1) - 1
    emax = 2**exponent_bits - 1 - bias
    largest = 2.0**emax * (2 - 2.0**-mantissa_bits)
    parts = x.reshape(-1, block)
    shared = torch.frexp(parts.abs().amax(dim=-1, keepdim=True)).exponent - 1 - emax
    scaled = torch.ldexp(parts, -shared)
    own = (torch.frexp(scaled).exponent - 1).clamp(min=1 - bias)
    steps = torch.ldexp(scaled, mantissa_bits - own)
    rounded = torch.sign(steps) * torch.floor(steps.abs() + 0.5)
    values = torch.ldexp(rounded, own - mantissa_bits).clamp(-largest, largest)
    return torch.ldexp(values, shared).reshape(x.shape)


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme."""
    torch.set_num_threads(mxkern.info().threads)
    x = torch.from_numpy(random_values(SHAPE))
    out = torch.empty_like(x)
    for name, element, block in (("e3m4b64", (3, 4), 64), ("e2m3b16", (2, 3), 16)):
        options: dict[str, Any] = {"scale_rule": "floor", "rounding": "nearest_away"}
        ours = mxkern.fake_quantize(x[:64], name, **options)
        check_equal(name, np.asarray(blocks(x[:64], element, block)), np.asarray(ours))
        for rounding in ("nearest_away", "nearest"):
            calls = [
                lambda e=element, b=block: blocks(x, e, b),
                lambda n=name, r=rounding: mxkern.fake_quantize(
                    x, n, scale_rule="floor", rounding=r, out=out
                ),
            ]
            times = best_times(calls, SECONDS, ROUNDS)
            label = f"{name}, {rounding}"
            yield record(
                "fake_quantize", f"torch {torch.__version__}", label, SHAPE, "float32", times
            )


if __name__ == "__main__":
    report(run())
