# bench/custom_gemm.py: products with operands by schemes of the user's own beside those of MXFP8,
# on a GPU where there is one; python -m bench.custom_gemm [FILE] writes the records.
from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import mxkern
from bench import machine

SCHEMES = ("e3m4b64", "e2m1b16", "int4b32", "int12b32")  # bfloat16 does not hold the last one
SHAPES = ((1024, 1024, 1024), (16, 1024, 1024))  # M, N, K
ON_A_GPU = ((8192, 4096, 4096), (16, 4096, 4096))
ROUNDS = 20
EXACT: dict[str, Any] = {"dtype": "bfloat16", "precision": "exact"}


def run() -> Iterator[dict[str, Any]]:
    """One record a product; calls take turns, and the shortest time counts."""
    on_cuda = torch.cuda.is_available()
    for m, n, k in ON_A_GPU if on_cuda else SHAPES:
        device = "cuda" if on_cuda else "cpu"
        x, w = (torch.randn(rows, k, device=device, dtype=torch.bfloat16) for rows in (m, n))
        calls: dict[str, Callable[[], Any]] = {"bfloat16, PyTorch": lambda x=x, w=w: x @ w.T}
        for scheme in ("mxfp8", *SCHEMES):
            right, left = mxkern.quantize(w, scheme), mxkern.quantize(x, scheme)
            calls[f"bfloat16 x {scheme}"] = lambda a=x, b=right: mxkern.gemm(a, b, **EXACT)
            calls[f"{scheme} x {scheme}"] = lambda a=left, b=right: mxkern.gemm(a, b, **EXACT)
        times = {name: [_seconds(call, on_cuda) for _ in range(3)] for name, call in calls.items()}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                times[name].append(_seconds(call, on_cuda))
        for name, seconds in times.items():
            yield {"product": name, "shape": [m, n, k], "seconds": min(seconds)}


def _seconds(call: Callable[[], Any], on_cuda: bool) -> float:
    if on_cuda:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    if on_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def main() -> None:
    records = list(run())
    for record in records:
        print(f"{record['seconds'] * 1e3:9.3f} ms  {record['shape']!s:20} {record['product']}")
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            json.dump({"machine": machine.describe(), "records": records}, file, indent=1)


if __name__ == "__main__":
    main()
