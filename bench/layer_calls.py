# bench/layer_calls.py: how long an eager forward of a linear layer of PyTorch keeps the host, and
# how many functions it calls; on a GPU where there is one.
from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import mxkern
import mxkern.torch as mxt

CALLS = 25
ROUNDS = 200
RECIPES = {
    "mxfp8": mxt.mxfp8(),
    "mxfp8 32x32": mxt.mxfp8(weight_block="32x32"),
    "nvfp4": mxt.nvfp4(),
}


def run() -> Iterator[dict[str, Any]]:
    """One record a call: its shortest time, and the calls that a profiler sees."""
    calls = _warm_calls()
    rounds = [[_microseconds(call) for call in calls.values()] for _ in range(ROUNDS)]
    for (name, call), times in zip(calls.items(), zip(*rounds, strict=True), strict=True):
        yield {
            "call": name,
            "microseconds": min(times),
            "median_microseconds": sorted(times)[ROUNDS // 2],
            "functions": _functions(call),
        }


def _warm_calls() -> dict[str, Callable[[], Any]]:
    torch.set_num_threads(1)
    # On the CPU the work itself takes next to no time; a GPU keeps up with the host.
    on_cuda = torch.cuda.is_available()
    calls = _cases((256, 512, 256) if on_cuda else (32, 64, 32), "cuda" if on_cuda else "cpu")
    for call in calls.values():
        for _ in range(50):
            call()
    return calls


def _cases(shape: tuple[int, int, int], device: str) -> dict[str, Callable[[], Any]]:
    tokens, features, outputs = shape
    options: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    x = torch.randn(tokens, features, **options).requires_grad_()
    g = torch.randn(tokens, outputs, **options)
    plain = torch.nn.Linear(features, outputs, bias=False, **options)
    frozen_weight = torch.nn.Parameter(plain.weight.detach(), requires_grad=False)
    frozen_plain = torch.nn.Linear(1, 1, bias=False, device="meta")
    frozen_plain.weight = frozen_weight
    calls: dict[str, Callable[[], Any]] = {}
    for name, recipe in RECIPES.items():
        layer = mxt.Linear.from_linear(plain, recipe)
        cached = mxt.Linear.from_linear(plain, recipe)
        cached.cache = mxt.WeightCache()
        frozen = mxt.Linear.from_linear(frozen_plain, recipe)
        calls[f"{name}: layer"] = partial(layer, x)
        calls[f"{name}: cached weight"] = partial(cached, x)
        calls[f"{name}: frozen weight"] = partial(frozen, x)
        calls[f"{name}: no gradients"] = partial(_without_gradients, layer, x)
        calls[f"{name}: forward and backward"] = partial(_step, layer, x, g)
        calls[f"{name}: functions"] = partial(_products, x.detach(), plain.weight.detach(), recipe)
    calls["bfloat16: layer"] = partial(plain, x)
    calls["bfloat16: forward and backward"] = partial(_step, plain, x, g)
    return calls


def _without_gradients(layer: Any, x: Any) -> Any:
    with torch.no_grad():
        return layer(x)


def _step(layer: Any, x: Any, g: Any) -> Any:
    return torch.autograd.grad(layer(x), (x, layer.weight), g)


def _products(x: Any, w: Any, recipe: Any) -> Any:
    """What a forward calls, without PyTorch's autograd."""
    transform = {}
    if recipe.input.hadamard is not None:
        transform = {"hadamard": recipe.input.hadamard}
    rows, _ = mxkern.quantize_both(x, recipe.input.scheme, **transform)
    weight, _ = mxkern.quantize_both(w, recipe.weight.scheme, block=recipe.weight.block)
    on_hopper = x.is_cuda and torch.cuda.get_device_capability() == (9, 0)
    folds = on_hopper and recipe.input.scheme != "nvfp4"
    return mxkern.gemm(rows, weight, dtype="bfloat16", precision="folded" if folds else "auto")


def _microseconds(call: Callable[[], Any]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begin) / CALLS * 1e6


def _functions(call: Callable[[], Any]) -> int:
    """Functions that are called, of Python and of C."""
    count = 0

    def see(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count - 1  # setprofile itself


def main() -> None:
    for record in run():
        print(
            f"{record['microseconds']:8.1f} us, median {record['median_microseconds']:8.1f}, "
            f"{record['functions']:5} functions  {record['call']}"
        )


if __name__ == "__main__":
    main()
