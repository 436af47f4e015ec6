# bench/cuda/linear_layer.py: a training step of one linear layer, by mxkern.torch, by the functions
# alone and by cuBLAS in bfloat16; python -m bench.cuda.linear_layer [FILE] writes the records.
from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import mxkern
import mxkern.torch as mxt
from bench import layer_calls, machine
from bench.cuda.timing import SETTLE_SECONDS, median_seconds

TOKENS = 8192
SHAPES = ((4096, 4096), (14336, 4096), (8192, 8192))  # N, K
TURNS = 3
# Times bfloat16's speed.
GOALS = {
    ("functions, prepare_both", (4096, 4096)): 1.48,
    ("functions, prepare_both", (8192, 8192)): 1.70,
}
RECIPES = {
    "mxfp8": mxt.mxfp8(),
    "mxfp8 32x32": mxt.mxfp8(weight_block="32x32"),
    "hybrid": mxt.mxfp8("hybrid"),
    "nvfp4": mxt.nvfp4(),
    "mxfp4": mxt.mxfp4(),
}


def run() -> Iterator[dict[str, Any]]:
    """One record a shape and way; ways take turns, and the medians of the turns count."""
    for n, k in SHAPES:
        torch.cuda.empty_cache()
        yield from _steps(n, k)
    for record in layer_calls.run():
        yield {"part": "host", **record}


def _steps(n: int, k: int) -> Iterator[dict[str, Any]]:
    torch.manual_seed(0)
    options: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    x = torch.randn(TOKENS, k, **options).requires_grad_()
    w = torch.nn.Parameter(torch.randn(n, k, **options) / k**0.5)
    g = torch.randn(TOKENS, n, **options)
    ways: dict[str, Callable[[], Any]] = {"bfloat16": partial(_plain, x, w, g)}
    ways["functions, mxfp8"] = partial(_functions, x.detach(), w.detach(), g)
    ways["functions, prepare_both"] = partial(_prepared, x.detach(), w.detach(), g)
    for name, recipe in RECIPES.items():
        ways[f"layer, {name}"] = partial(_layer, x, w, g, recipe, None)
    cached = mxt.Linear.from_linear(_linear(w), mxt.mxfp8())
    cached.cache = mxt.WeightCache()
    ways["layer, mxfp8, cached weight"] = partial(_module, cached, x, w, g)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(TURNS):
        for way, call in ways.items():
            times[way].append(median_seconds([call], SETTLE_SECONDS))
    for way, seconds in times.items():
        yield {
            "part": "step",
            "tokens": TOKENS,
            "shape": [n, k],
            "way": way,
            "seconds": statistics.median(seconds),
            "turns": seconds,
        }


def _linear(w: Any) -> torch.nn.Linear:
    linear = torch.nn.Linear(1, 1, bias=False, device="meta")
    linear.weight = w
    return linear


def _plain(x: Any, w: Any, g: Any) -> Any:
    return torch.autograd.grad(torch.nn.functional.linear(x, w), (x, w), g)


def _layer(x: Any, w: Any, g: Any, recipe: Any, cached: Any) -> Any:
    return torch.autograd.grad(mxt.linear(x, w, None, recipe, cached=cached), (x, w), g)


def _module(module: Any, x: Any, w: Any, g: Any) -> Any:
    return torch.autograd.grad(module(x), (x, w), g)


def _functions(x: Any, w: Any, g: Any) -> Any:
    """What the layer calls, without PyTorch's autograd."""
    product = partial(mxkern.gemm, dtype=torch.bfloat16, precision="folded")
    x_rows, x_columns = mxkern.quantize_both(x, "mxfp8")
    w_rows, w_columns = mxkern.quantize_both(w, "mxfp8")
    y = product(x_rows, w_rows)
    g_rows, g_columns = mxkern.quantize_both(g, "mxfp8")
    return y, product(g_rows, w_columns), product(g_columns, x_columns)


def _prepared(x: Any, w: Any, g: Any) -> Any:
    """The same by prepare_both: products only multiply."""
    product = partial(mxkern.gemm, dtype=torch.bfloat16, precision="folded")
    of_x, of_w = mxkern.prepare_both(x, "mxfp8"), mxkern.prepare_both(w, "mxfp8")
    y = product(of_x.rows, of_w.rows)
    of_g = mxkern.prepare_both(g, "mxfp8")
    return y, product(of_g.rows, of_w.columns), product(of_g.columns, of_x.columns)


def main() -> None:
    """Prints the ratios, and writes the records where a file is named."""
    records = list(run())
    steps = [r for r in records if r["part"] == "step"]
    plain = {tuple(r["shape"]): r["seconds"] for r in steps if r["way"] == "bfloat16"}
    for r in records:
        if r["part"] == "step":
            ratio = plain[tuple(r["shape"])] / r["seconds"]
            goal = GOALS.get((r["way"], tuple(r["shape"])))
            said = f"{ratio:.3f}" + ("" if goal is None else f"  goal {goal}")
            print(f"{r['shape']!s:16} {r['way']:32} {r['seconds'] * 1e3:8.3f} ms  {said}")
        else:
            print(f"host {r['call']:32} {r['microseconds']:8.1f} us, {r['functions']} functions")
    if len(sys.argv) > 1:
        described = machine.describe() | {"gpu": torch.cuda.get_device_name()}
        with open(sys.argv[1], "w") as file:
            json.dump({"machine": described, "records": records}, file, indent=1)


if __name__ == "__main__":
    main()
