# bench/compare/custom/gfloat.py: gfloat's vectorized rounding to a format, of NumPy arrays.
from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

import gfloat
import numpy as np
from gfloat.formats import format_info_binary16, format_info_ocp_e4m3

import mxkern
from bench.compare.rival import ROUNDS, SECONDS, record, report
from bench.copy_speed import best_times
from bench.inputs import check_equal, random_values

SHAPE = (4096, 4096)
FORMATS = {"e5m10": format_info_binary16, "e4m3": format_info_ocp_e4m3}


def run() -> Iterator[dict[str, Any]]:
    """One record a format."""
    rival = f"gfloat {importlib.metadata.version('gfloat')}"
    x = random_values(SHAPE)
    out = np.empty_like(x)
    for name, info in FORMATS.items():
        check_equal(name, gfloat.round_ndarray(info, x[:64]), mxkern.round_to(x[:64], name))
        calls = [
            lambda i=info: gfloat.round_ndarray(i, x),
            lambda n=name: mxkern.round_to(x, n, out=out),
        ]
        times = best_times(calls, SECONDS, ROUNDS)
        yield record("round_to", rival, name, SHAPE, "float32", times)


if __name__ == "__main__":
    report(run())
