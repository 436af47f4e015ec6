# bench/weights.py: products with prepared weights, beside the speed at which memory is read and
# PyTorch's product of bfloat16 weights.
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import mxkern
from bench.copy_speed import best_times
from bench.decode import decoded
from bench.inputs import check_close, random_values

SCHEMES = ("mxfp4", "nvfp4", "mxfp6_e2m3", "mxfp8_e4m3", "mxint8")
CASES = (
    *(("bfloat16", rows) for rows in (1, 4, 16, 64, 512)),
    *(("float32", rows) for rows in (1, 64, 512)),
)
SIZE = 8192
SECONDS = {1: 2.0, 4: 2.0, 16: 3.0, 64: 4.0, 512: 8.0}
CACHE_BYTES = 96 << 20  # of weights that take turns, so that none is in a cache
ERROR = 2e-5
EXPERTS, USED, OUTPUTS, INPUTS = 64, 8, 5760, 2880  # those of gpt-oss


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme, and number and type of rows."""
    values = random_values((SIZE, SIZE), seed=2)
    rivals = _torch_weights(values)
    for scheme in SCHEMES:
        q = mxkern.quantize(values, scheme)
        ready = mxkern.prepare_operand(q)
        copies = max(2, -(-CACHE_BYTES // int(ready.data.nbytes)))
        weights = [
            ready,
            *(ready.replace(data=_aligned_copy(ready.data)) for _ in range(copies - 1)),
        ]
        sources = [q, *(q.map(np.copy) for _ in range(copies - 1))]
        for dtype, rows in CASES:
            x = random_values((rows, SIZE), dtype, seed=1)
            _check(x, ready, f"gemm {rows} {dtype} {scheme}")
            read_bytes = int(ready.data.nbytes)
            data = [w.data for w in weights]
            calls = [
                Reader(mxkern.info().threads, data),
                Reader(1, data),
                _product(x, weights),
                _product(x, sources),
            ]
            has_rival = rivals and dtype == "bfloat16"
            if has_rival:
                calls.append(_torch_product(x, rivals))
            read, read_alone, *times = best_times(calls, SECONDS[rows], idle_before=True)
            read = min(read, read_alone) / len(data)
            record = {
                "scheme": scheme,
                "dtype": dtype,
                "rows": rows,
                "shape": [rows, SIZE, SIZE],
                "bytes": read_bytes,
                "read_seconds": read,
                "seconds": times[0],
                "unprepared_seconds": times[1],
                "read_share": read / times[0],
            }
            if has_rival:
                record["torch_seconds"] = times[2]
            yield record


def run_experts() -> Iterator[dict[str, Any]]:
    """Four tokens, two rows for each of the experts in use."""
    random = np.random.default_rng(3)
    few = mxkern.quantize(random_values((USED, OUTPUTS, INPUTS), seed=4), "mxfp4")
    repeats = EXPERTS // USED
    parts = [np.tile(part, (repeats, 1, 1)) for part in (few.codes, few.scales.view(np.uint8))]
    experts = mxkern.BlockScaled.from_parts(
        *parts, scheme="mxfp4", shape=(EXPERTS, OUTPUTS, INPUTS)
    )
    ready = mxkern.prepare_operand(experts, keep_source=False)
    del experts, parts
    x = random_values((2 * USED, INPUTS), "bfloat16", seed=5)

    def ends_of(used: np.ndarray) -> np.ndarray:
        rows = np.zeros(EXPERTS, np.int32)
        rows[used] = 2
        return np.cumsum(rows, dtype=np.int32)

    turns = [ends_of(np.sort(random.choice(EXPERTS, USED, replace=False))) for _ in range(EXPERTS)]
    of_each = int(ready.data.nbytes) // EXPERTS

    def multiply(ends: np.ndarray) -> object:
        return mxkern.grouped_gemm(x, ready, ends, dtype="bfloat16")

    calls = [Reader(mxkern.info().threads, [ready.data]), Reader(1, [ready.data])]
    calls.append(_taking_turns(multiply, turns))
    read, read_alone, seconds = best_times(calls, 6.0, idle_before=True)
    read = min(read, read_alone) * USED / EXPERTS
    yield {
        "scheme": "mxfp4",
        "shape": [2 * USED, OUTPUTS, INPUTS],
        "experts": EXPERTS,
        "used": USED,
        "bytes": USED * of_each,
        "read_seconds": read,
        "seconds": seconds,
        "read_share": read / seconds,
    }


class Reader:
    """Reads arrays one after the other with so many threads, each its own slices."""

    def __init__(self, threads: int, arrays: list[np.ndarray]) -> None:
        words = [array[: len(array) // 64 * 64].view(np.int32) for array in arrays]
        self._own, *self._others = zip(
            *(np.array_split(array, threads) for array in words), strict=True
        )
        self._pool = ThreadPoolExecutor(max(threads - 1, 1))

    def __call__(self) -> None:
        waiting = [self._pool.submit(_read, parts) for parts in self._others]
        _read(self._own)
        for future in waiting:
            future.result()


def _read(arrays: Iterable[np.ndarray]) -> None:
    for array in arrays:
        np.max(array)


def _taking_turns(function: Callable[[Any], object], values: list[Any]) -> Callable[[], object]:
    turns = itertools.cycle(values)
    return lambda: function(next(turns))


def _product(x: np.ndarray, weights: list[Any]) -> Callable[[], object]:
    out = np.empty((len(x), SIZE), x.dtype)
    return _taking_turns(lambda w: mxkern.gemm(x, w, out=out), weights)


def _aligned_copy(data: np.ndarray) -> np.ndarray:
    larger = np.empty(len(data) + 64, np.uint8)
    first = -larger.ctypes.data % 64
    copy = larger[first : first + len(data)]
    copy[...] = data
    return copy


def _torch_weights(values: np.ndarray) -> list[Any]:
    """Of another number of bytes than those of mxkern's, out of the caches as well."""
    try:
        import torch
    except ImportError:
        return []
    torch.set_num_threads(mxkern.info().threads)
    weights = torch.from_numpy(values).to(torch.bfloat16)
    return [weights, weights.clone()]


def _torch_product(x: np.ndarray, weights: list[Any]) -> Callable[[], object]:
    import torch

    rows = torch.from_numpy(x.view(np.uint16)).view(torch.bfloat16)
    out = torch.empty(len(x), SIZE, dtype=torch.bfloat16)
    return _taking_turns(lambda w: torch.mm(rows, w.mT, out=out), weights)


def _check(x: np.ndarray, w: mxkern.PreparedOperand[Any], what: str) -> None:
    """Some columns of the product against float64."""
    found = mxkern.gemm(x, w)[:, ::512]
    some = w.source
    assert some is not None
    wanted = x.astype(np.float64) @ decoded(some)[::512].astype(np.float64).T
    check_close(what, found, wanted, ERROR)
