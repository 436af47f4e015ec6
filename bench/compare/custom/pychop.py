# bench/compare/custom/pychop.py: pychop's rounding to a format, and its blocks, of NumPy arrays.
from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

import numpy as np
from pychop.mx_formats import mx_quantize
from pychop.np.lightchop import LightChop_

import mxkern
from bench.compare.rival import ROUNDS, SECONDS, record, report
from bench.copy_speed import best_times
from bench.inputs import random_values

SHAPE = (4096, 4096)
FORMATS = {"e5m10": (5, 10), "e4m3_ieee": (4, 3), "e8m7": (8, 7)}
BLOCKS = (512, 512)  # which take it half a second


def run() -> Iterator[dict[str, Any]]:
    """One record a format, and one of blocks of 32 under E8M0."""
    rival = f"pychop {importlib.metadata.version('pychop')}"
    x = random_values(SHAPE)
    out = np.empty_like(x)
    for name, bits in FORMATS.items():
        chop = LightChop_(*bits, 1)
        different = np.count_nonzero(chop.quantize(x[:64]) != mxkern.round_to(x[:64], name))
        assert different == 0, f"{name}: {different} values differ"
        calls = [
            lambda c=chop: c.quantize(x),
            lambda n=name: mxkern.round_to(x, n, out=out),
        ]
        times = best_times(calls, SECONDS, ROUNDS)
        yield record("round_to", rival, name, SHAPE, "float32", times)
    x = random_values(BLOCKS)
    format = mxkern.Scheme("e3m4_none_b32")
    calls = [
        lambda: mx_quantize(x, format=(3, 4), block_size=32),
        lambda: mxkern.fake_quantize(x, format, scale_rule="floor"),
    ]
    times = best_times(calls, SECONDS, ROUNDS)
    yield record("fake_quantize", rival, format.name, BLOCKS, "float32", times)


if __name__ == "__main__":
    report(run())
