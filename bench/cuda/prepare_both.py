# bench/cuda/prepare_both.py: both directions of a tensor quantized and folded, beside a copy of it
# and beside quantize_both; python -m bench.cuda.prepare_both [FILE] writes the records.
from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import mxkern
from bench import machine
from bench.cuda.timing import copies_needed, copy_bytes_per_second, median_seconds

SHAPES = ((8192, 4096), (8192, 8192), (4096, 4096))
TYPES = (torch.bfloat16, torch.float16)
SCHEME = "mxfp8_e4m3"


def run() -> Iterator[dict[str, Any]]:
    """One record a shape and way, caches cold; then of one tensor again and again, as far as the
    second-level cache keeps it. Bytes first."""
    for dtype in TYPES:
        _check(dtype)
        for shape in SHAPES:
            copy = copy_bytes_per_second(shape)
            for warm in (False, True):
                yield from _measure(shape, dtype, copy, warm)


def _measure(
    shape: tuple[int, int], dtype: torch.dtype, copy: float, warm: bool
) -> Iterator[dict[str, Any]]:
    torch.cuda.empty_cache()
    size = shape[0] * shape[1] * dtype.itemsize
    count = 1 if warm else copies_needed(size)
    tensors = [torch.randn(shape, device="cuda").to(dtype) for _ in range(count)]
    targets = [torch.empty_like(x) for x in tensors]
    ways: dict[str, Callable[[Any, Any], object]] = {
        "copy": lambda x, to: to.copy_(x),
        "prepare_both": lambda x, to: mxkern.prepare_both(x, SCHEME),
        "quantize_both": lambda x, to: mxkern.quantize_both(x, SCHEME),
    }
    for way, call in ways.items():
        pairs = zip(tensors, targets, strict=True)
        seconds = median_seconds([partial(call, x, to) for x, to in pairs])
        yield {
            "way": way,
            "shape": list(shape),
            "dtype": str(dtype).removeprefix("torch."),
            "warm": warm,
            "seconds": seconds,
            "bytes": 2 * size,  # what has to be read and written at least: 2 + 2 an element
            "copy_bytes_per_second": copy,
        }


def _check(dtype: torch.dtype) -> None:
    """What prepare_operand makes of quantize_both's results."""
    x = torch.randn(260, 392, device="cuda").to(dtype)
    both = mxkern.prepare_both(x, SCHEME)
    spreads = both.row_spreads, both.column_spreads
    for got, q, spread in zip(both[:2], mxkern.quantize_both(x, SCHEME), spreads, strict=True):
        wanted = mxkern.prepare_operand(q, form="folded", keep_source=False)
        rows, columns = got.shape
        row_bytes = -(-columns // 128) * 128
        lines = [p.data[: rows * row_bytes].view(rows, row_bytes) for p in (got, wanted)]
        assert torch.equal(lines[0][:, :columns], lines[1][:, :columns]), "elements differ"
        tails = [p.data[-(-rows * row_bytes // 256) * 256 :] for p in (got, wanted)]
        assert torch.equal(tails[0][: 4 * rows], tails[1][: 4 * rows]), "exponents differ"
        assert spread.shape == (rows,)


def main() -> None:
    """Prints the times and shares, and writes the records where a file is named."""
    records = []
    for r in run():
        records.append(r)
        share = r["bytes"] / r["seconds"] / r["copy_bytes_per_second"]
        state = "warm" if r["warm"] else "cold"
        named = f"{r['dtype']:9} {r['shape']!s:13} {state} {r['way']:14}"
        print(f"{named} {r['seconds'] * 1e6:8.1f} us  {share:.2f} of copy")
    if len(sys.argv) > 1:
        described = machine.describe() | {"gpu": torch.cuda.get_device_name()}
        with open(sys.argv[1], "w") as file:
            json.dump({"machine": described, "records": records}, file, indent=1)


if __name__ == "__main__":
    main()
