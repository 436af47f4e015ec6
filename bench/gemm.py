# bench/gemm.py: gemm beside NumPy's float32 product of operands that are dequantized already.
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mxkern
from bench.copy_speed import best_times
from bench.decode import decoded
from bench.inputs import check_close, random_values
from bench.shapes import FEW_ROWS, GEMM_GOAL, GEMM_GOAL_BF16_DOT, GEMM_PAIRS, GEMM_SIZES, SCHEMES

SECONDS = {1024: 4.0, 4096: 12.0}
SECONDS_OF_FEW_ROWS = 2.0
ERROR = 2e-5  # relative L2 to the float64 product: only the float32 sum rounds


def run() -> Iterator[dict[str, Any]]:
    """One record a pair of operands and size."""
    for size in GEMM_SIZES:
        yield from _of_size(size)


def _of_size(size: int) -> Iterator[dict[str, Any]]:
    goal = GEMM_GOAL_BF16_DOT if "bf16" in mxkern.info().gemm_unit else GEMM_GOAL
    left, right = random_values((size, size), seed=1), random_values((size, size), seed=2)
    out, wide = np.empty((size, size), np.float32), np.empty((size, size), np.float32)

    def product_of(left_kind: str, right_scheme: str) -> Callable[[], object]:
        a, b = _operand(left, left_kind), mxkern.quantize(right, right_scheme)
        _check(a, b, f"gemm {left_kind} {right_scheme} {size}")
        return lambda: mxkern.gemm(a, b, out=out)

    # B as gemm has it, [N, K]: BLAS reads the transpose in place.
    calls = [lambda: np.matmul(left, right.T, out=wide)]
    calls += [product_of(*pair) for pair in GEMM_PAIRS]
    times = best_times(calls, SECONDS[size], idle_before=True)
    for (left_kind, right_scheme), seconds in zip(GEMM_PAIRS, times[1:], strict=True):
        yield {
            "left": left_kind,
            "right": right_scheme,
            "size": size,
            "seconds": seconds,
            "flops_per_second": 2 * size**3 / seconds,
            "numpy_seconds": times[0],
            "ratio": times[0] / seconds,
            # The products of a float32 or float16 operand are not exact in bfloat16.
            "goal": GEMM_GOAL if left_kind in ("float32", "float16") else goal,
        }


def run_few_rows() -> Iterator[dict[str, Any]]:
    """One record a number of float32 rows and scheme of the weights."""
    size = max(GEMM_SIZES)
    wide = random_values((size, size), seed=2)
    weights = {scheme: mxkern.quantize(wide, scheme) for scheme in SCHEMES}
    for rows in FEW_ROWS:
        x = random_values((rows, size), seed=1)
        calls = [_numpy_product(x, wide), *(_product(x, w) for w in weights.values())]
        times = best_times(calls, SECONDS_OF_FEW_ROWS, idle_before=True)
        for scheme, seconds in zip(weights, times[1:], strict=True):
            yield {
                "scheme": scheme,
                "shape": [rows, size, size],
                "seconds": seconds,
                "numpy_seconds": times[0],
                "ratio": times[0] / seconds,
            }


def _numpy_product(x: np.ndarray, w: np.ndarray) -> Callable[[], object]:
    out = np.empty((len(x), len(w)), np.float32)
    return lambda: np.matmul(x, w.T, out=out)


def _product(x: np.ndarray, w: mxkern.BlockScaled) -> Callable[[], object]:
    _check(x, w, f"gemm {len(x)} {w.scheme}")
    out = np.empty((len(x), w.shape[0]), np.float32)
    return lambda: mxkern.gemm(x, w, out=out)


def _operand(values: np.ndarray, kind: str) -> Any:
    if kind in mxkern.schemes:
        return mxkern.quantize(values, kind)
    return random_values(values.shape, kind, seed=1)


def _check(a: Any, b: mxkern.BlockScaled, what: str) -> None:
    """Some rows of the product against float64."""
    found = mxkern.gemm(a, b)
    some = slice(0, None, max(found.shape[0] // 64, 1))
    wide = decoded(a) if isinstance(a, mxkern.BlockScaled) else a
    wanted = wide[some].astype(np.float64) @ decoded(b).astype(np.float64).T
    check_close(what, found[some], wanted, ERROR)
