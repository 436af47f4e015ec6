# bench/compare/fake_quantize/pychop.py: pychop's mx_quantize, of arrays of NumPy.
from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

from pychop.mx_formats import mx_quantize

import mxkern
from bench.compare.rival import ROUNDS, SECONDS, record, report
from bench.copy_speed import best_times
from bench.inputs import check_equal, random_values

SHAPE = (512, 512)  # which takes it half a second
CASES = {"mxfp8_e4m3": "mxfp8_e4m3", "mxfp6_e2m3": "mxfp6_e2m3", "mxfp4": "mxfp4_e2m1"}


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme."""
    rival = f"pychop {importlib.metadata.version('pychop')}"
    x = random_values(SHAPE)

    def ours(scheme: str) -> Any:
        return mxkern.fake_quantize(x, scheme, scale_rule="floor")

    for scheme, name in CASES.items():
        check_equal(scheme, mx_quantize(x, format=name), ours(scheme))
        calls = [lambda n=name: mx_quantize(x, format=n), lambda s=scheme: ours(s)]
        times = best_times(calls, SECONDS, ROUNDS)
        yield record("fake_quantize", rival, scheme, SHAPE, "float32", times)


if __name__ == "__main__":
    report(run())
