# bench/cuda/jax_shards.py: quantization, products and a layer's training step in jax.shard_map on
# all GPUs, beside the same on one; python -m bench.cuda.jax_shards [FILE] writes the records.
from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mxkern
from bench import machine
from mxkern.jax import dot, mxfp8, nvfp4

TOKENS, FEATURES, OUTPUTS = 16384, 4096, 4096
ROUNDS, STEPS = 7, 10
Work = Callable[..., Any]


def _quantize(x: Any, w: Any) -> Any:
    q = mxkern.quantize(x, "mxfp8")
    return q.codes, q.scales


def _product(x: Any, w: Any) -> Any:
    return mxkern.gemm(mxkern.quantize(x, "mxfp8"), mxkern.quantize(w, "mxfp8"), dtype="bfloat16")


def _training(recipe: Any) -> Work:
    def step(x: Any, w: Any) -> Any:
        y, back = jax.vjp(lambda x, w: dot(x, w, recipe, step=0), x, w)
        dx, dw = back(jnp.ones_like(y))
        return y, dx, dw[None]

    return step


WORKS: dict[str, Work] = {
    "quantize": _quantize,
    "product": _product,
    "mxfp8 step": _training(mxfp8()),
    "nvfp4 step": _training(nvfp4()),
}


def run() -> list[dict[str, Any]]:
    """One record a work: seconds on one device and on all, whose shards have the same bytes as
    when one device computes each of them."""
    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("d",))
    keys = jax.random.split(jax.random.key(0))
    x = jax.random.normal(keys[0], (TOKENS, FEATURES), jnp.bfloat16)
    w = jax.random.normal(keys[1], (OUTPUTS, FEATURES), jnp.bfloat16) / FEATURES**0.5
    spread = jax.device_put(x, NamedSharding(mesh, P("d")))
    copied = jax.device_put(w, NamedSharding(mesh, P()))
    records = []
    for name, work in WORKS.items():
        alone = jax.jit(work)
        mapped = jax.jit(
            jax.shard_map(
                work, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"), check_vma=False
            )
        )
        _check(name, alone, mapped(spread, copied), x, w, len(devices))
        records.append(
            {
                "work": name,
                "devices": len(devices),
                "seconds_of_one": _seconds(alone, x, w),
                "seconds_of_all": _seconds(mapped, spread, copied),
            }
        )
    return records


def _check(name: str, alone: Work, got: Any, x: Any, w: Any, count: int) -> None:
    parts = [jax.tree.leaves(alone(part, w)) for part in jnp.split(x, count)]
    for i, leaf in enumerate(jax.tree.leaves(got)):
        want = np.concatenate([np.asarray(part[i]) for part in parts])
        assert np.array_equal(np.asarray(leaf).view(np.uint8), want.view(np.uint8)), f"{name}: {i}"


def _seconds(work: Work, *arguments: Any) -> float:
    jax.block_until_ready(work(*arguments))
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(STEPS):
            result = work(*arguments)
        jax.block_until_ready(result)
        rounds.append((time.perf_counter() - start) / STEPS)
    return statistics.median(rounds)


def main() -> None:
    """Prints the records, and writes them where a file is named."""
    records = run()
    for r in records:
        one, every = r["seconds_of_one"] * 1e6, r["seconds_of_all"] * 1e6
        print(f"{r['work']:10} {one:8.1f} us on one, {every:8.1f} us on {r['devices']}")
    if len(sys.argv) > 1:
        gpu = jax.devices()[0].device_kind
        with open(sys.argv[1], "w") as file:
            json.dump({"machine": machine.describe() | {"gpu": gpu}, "records": records}, file)


if __name__ == "__main__":
    main()
