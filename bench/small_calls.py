# bench/small_calls.py: what a call costs when there is hardly any work, and the import.
from __future__ import annotations

import subprocess
import sys
import timeit
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import mxkern
from bench.inputs import random_values
from bench.shapes import IMPORT_SECONDS, SMALL, SMALL_CALL_MICROSECONDS

CALLS = 500
REPEATS = 120


def run() -> Iterator[dict[str, Any]]:
    """One record a call: its time, that of allocating its outputs with np.empty, the difference."""
    x = random_values(SMALL)
    rows, columns = SMALL
    q = mxkern.quantize_mxfp8(x)
    w = mxkern.quantize_nvfp4(x)
    y, b = np.empty_like(x), x[0].copy()

    def allocate_codes() -> None:
        np.empty((rows, columns), ml_dtypes.float8_e4m3fn)
        np.empty((rows, columns // 32), ml_dtypes.float8_e8m0fnu)

    def allocate_packed() -> None:
        np.empty((rows, columns // 2), np.uint8)
        np.empty((rows, columns // 16), ml_dtypes.float8_e4m3fn)
        np.empty((), np.float32)

    def allocate_values() -> None:
        np.empty((rows, columns), np.float32)

    def nothing() -> None:
        pass

    cases: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        ("quantize_mxfp8(x)", lambda: mxkern.quantize_mxfp8(x), allocate_codes),
        ("quantize_mxfp8(x, out=q)", lambda: mxkern.quantize_mxfp8(x, out=q), nothing),
        ('quantize(x, "mxfp8_e4m3")', lambda: mxkern.quantize(x, "mxfp8_e4m3"), allocate_codes),
        ("quantize_nvfp4(x)", lambda: mxkern.quantize_nvfp4(x), allocate_packed),
        ("dequantize(q)", lambda: mxkern.dequantize(q), allocate_values),
        (
            'fake_quantize(x, "mxfp8_e4m3")',
            lambda: mxkern.fake_quantize(x, "mxfp8"),
            allocate_values,
        ),
        ("gemm(q, q)", lambda: mxkern.gemm(q, q), allocate_values),
        ("gemm(q, w, out=y)", lambda: mxkern.gemm(q, w, out=y), nothing),
        ("gemm(x, w, bias=b, out=y)", lambda: mxkern.gemm(x, w, bias=b, out=y), nothing),
    ]
    cases += _torch_cases(x, nothing)
    times = _microseconds([call for _, *pair in cases for call in pair])
    for (name, _, _), whole, empty in zip(cases, times[::2], times[1::2], strict=True):
        yield {
            "call": name,
            "microseconds": whole,
            "allocation_microseconds": empty,
            "beyond_allocation_microseconds": whole - empty,
            "goal_microseconds": SMALL_CALL_MICROSECONDS if "quantize" in name else None,
        }


def _torch_cases(x: Any, nothing: Callable[[], None]) -> list[Any]:
    """The same of PyTorch's tensors on the CPU, where PyTorch is."""
    try:
        import torch
    except ImportError:
        return []
    t = torch.from_numpy(x)
    p, y = mxkern.quantize_mxfp8(t), torch.empty_like(t)
    w = mxkern.quantize_nvfp4(t)
    return [
        ("quantize_mxfp8(t), PyTorch", lambda: mxkern.quantize_mxfp8(t), nothing),
        ("quantize_mxfp8(t, out=q), PyTorch", lambda: mxkern.quantize_mxfp8(t, out=p), nothing),
        ("quantize_nvfp4(t), PyTorch", lambda: mxkern.quantize_nvfp4(t), nothing),
        ("dequantize(q), PyTorch", lambda: mxkern.dequantize(p), nothing),
        ("gemm(q, q), PyTorch", lambda: mxkern.gemm(p, p), nothing),
        ("gemm(q, w, out=y), PyTorch", lambda: mxkern.gemm(p, w, out=y), nothing),
    ]


def import_time() -> dict[str, Any]:
    """Seconds of `import mxkern` in a fresh interpreter, the best of several."""
    program = "import time; t = time.perf_counter(); import mxkern; print(time.perf_counter() - t)"
    runs = [
        float(subprocess.check_output([sys.executable, "-c", program], text=True)) for _ in range(7)
    ]
    return {"seconds": min(runs), "goal_seconds": IMPORT_SECONDS}


def _microseconds(calls: Sequence[Callable[[], object]]) -> list[float]:
    """The shortest time of each. They take turns, as a processor changes its clock in between."""
    rounds = [[timeit.timeit(call, number=CALLS) for call in calls] for _ in range(REPEATS)]
    return [min(times) / CALLS * 1e6 for times in zip(*rounds, strict=True)]
