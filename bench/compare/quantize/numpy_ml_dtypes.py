# bench/compare/quantize/numpy_ml_dtypes.py: MX quantization as vectorized NumPy with ml_dtypes.
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

import mxkern
from bench.compare.rival import ROUNDS, SECONDS, record, report
from bench.copy_speed import best_times
from bench.decode import unpacked_codes
from bench.inputs import check_equal, random_values

SHAPE = (4096, 4096)
CASES = {
    "mxfp8_e4m3": (ml_dtypes.float8_e4m3fn, 8, 448),
    "mxfp6_e2m3": (ml_dtypes.float6_e2m3fn, 2, 7.5),
    "mxfp4": (ml_dtypes.float4_e2m1fn, 2, 6),
}


def quantize(x: np.ndarray, scheme: str) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scale bytes after the rule `floor`, of a last axis of whole blocks. 4- and 6-bit
    codes stay one a byte."""
    dtype, max_exponent, largest = CASES[scheme]
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    amax = np.abs(blocks).max(axis=-1)
    exponent = (amax.view(np.uint32) >> 23).astype(np.int32) - max_exponent
    scales = np.clip(exponent, 0, 254)
    scaled = np.ldexp(blocks, 127 - scales[..., np.newaxis])
    np.clip(scaled, -largest, largest, out=scaled)
    return scaled.astype(dtype).reshape(x.shape), scales.astype(np.uint8)


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme."""
    x = random_values(SHAPE)
    for scheme in CASES:
        q = mxkern.quantize(x, scheme, scale_rule="floor")
        codes, scales = quantize(x, scheme)
        check_equal(f"scales of {scheme}", scales, q.scales.view(np.uint8))
        check_equal(f"codes of {scheme}", codes.view(np.uint8), unpacked_codes(q))
        times = best_times(
            [
                lambda scheme=scheme: quantize(x, scheme),
                lambda scheme=scheme: mxkern.quantize(x, scheme, scale_rule="floor"),
            ],
            SECONDS,
            ROUNDS,
        )
        yield record("quantize", "NumPy + ml_dtypes", scheme, SHAPE, "float32", times)


if __name__ == "__main__":
    report(run())
