# bench/cuda/quantize.py: every case at two sizes, two from 64 KB to 4 GB, and some of each type.
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import mxkern
from bench.cuda.cases import SHAPES, Case, cases, cases_of_types, custom_cases
from bench.cuda.timing import copies_needed, copy_bytes_per_second, median_seconds

TYPES = (torch.bfloat16, torch.float16, torch.float32)
CUSTOM_SHAPE = (8192, 8192)
CURVE_COLUMNS = 4096
CURVE_BYTES = tuple(1 << shift for shift in range(16, 33, 2))


def run() -> Iterator[dict[str, Any]]:
    """One record a case and shape. Bytes first: the CPU's are what the result has to be."""
    for shape in SHAPES:
        copy = copy_bytes_per_second(shape)
        for case in cases():
            yield {**_measure(case, shape), "copy_bytes_per_second": copy}


def curve() -> Iterator[dict[str, Any]]:
    """Sizes of the input, for rows in MXFP8 and NVFP4 with a given amax."""
    copy = copy_bytes_per_second()
    tiny = torch.zeros(1, device="cuda")
    smallest_kernel = median_seconds([lambda: tiny.add_(1)])
    wanted = {("mxfp8_e4m3", "rows"), ("nvfp4", "rows")}
    for case in cases():
        if (case.scheme, case.operation) in wanted:
            for size in CURVE_BYTES:
                yield {
                    **_measure(case, (size // 2 // CURVE_COLUMNS, CURVE_COLUMNS)),
                    "copy_bytes_per_second": copy,
                    "smallest_kernel_seconds": smallest_kernel,
                }


def types() -> Iterator[dict[str, Any]]:
    """The types of elements beside each other, at the first size."""
    copy = copy_bytes_per_second(SHAPES[0])
    for case in cases_of_types():
        for dtype in TYPES:
            yield {**_measure(case, SHAPES[0], dtype), "copy_bytes_per_second": copy}


def custom() -> Iterator[dict[str, Any]]:
    """Schemes of the user's own."""
    copy = copy_bytes_per_second(CUSTOM_SHAPE)
    for case in custom_cases():
        yield {**_measure(case, CUSTOM_SHAPE), "copy_bytes_per_second": copy}


def _measure(
    case: Case, shape: tuple[int, int], dtype: torch.dtype = torch.bfloat16
) -> dict[str, Any]:
    torch.cuda.empty_cache()
    generator = torch.Generator("cuda").manual_seed(0)
    count = copies_needed(shape[0] * shape[1] * dtype.itemsize)
    calls = []
    moved = 0
    for _ in range(count):
        x = torch.empty(shape, device="cuda", dtype=dtype)
        x.normal_(generator=generator)
        call, moved = case.make(x)
        calls.append(call)
    if count > 1 or shape in (SHAPES[0], CUSTOM_SHAPE):
        _check(case, dtype)
    seconds = median_seconds(calls)
    return {
        "scheme": case.scheme,
        "operation": case.operation,
        "shape": list(shape),
        "dtype": str(dtype).removeprefix("torch."),
        "seconds": seconds,
        "bytes": moved,
        "goal": case.goal,
    }


_checked: set[tuple[str, str, torch.dtype]] = set()


def _check(case: Case, dtype: torch.dtype) -> None:
    """The case's call on a small tensor gives the CPU's bytes; once a run."""
    key = (case.scheme, case.operation, dtype)
    if key in _checked:
        return
    _checked.add(key)
    x = torch.randn(256, 384).to(dtype)
    results = []
    for given in (x.cuda(), x):
        call, _ = case.make(given)
        got = call()
        results.append(_bytes(got if isinstance(got, tuple) else (got,)))
    assert results[0] == results[1], f"{case}: the GPU's bytes are not the CPU's"


def _is_scaled(value: Any) -> bool:
    return isinstance(value, mxkern.BlockScaled)


def _bytes(results: tuple[Any, ...]) -> list[bytes]:
    parts = []
    for result in results:
        arrays = [a for a in result.parts if a is not None] if _is_scaled(result) else [result]
        parts += [a.cpu().contiguous().reshape(-1).view(torch.uint8).numpy() for a in arrays]
    return [part.tobytes() for part in parts]
