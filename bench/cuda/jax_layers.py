# bench/cuda/jax_layers.py: a token step of many layers as one program of JAX: products of few
# tokens one behind the other, recorded in CUDA graphs by XLA and not, beside XLA's in bfloat16.
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

LAYERS, ROUNDS, STEPS = 16, 7, 25
EXTENTS, TOKENS = (4096, 8192), (1, 16)
# Read once, when JAX starts: so each way has a process of its own.
_WAYS = {True: "", False: "--xla_gpu_enable_command_buffer="}


def run() -> Iterator[dict[str, Any]]:
    """One record for a way, an extent, a count of tokens and recorded or not."""
    for recorded, flags in _WAYS.items():
        environment = {
            **os.environ,
            "XLA_FLAGS": flags,
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        command = [sys.executable, "-m", "bench.cuda.jax_layers"]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode != 0:
            reason = (done.stderr.strip() or "nothing was said").splitlines()[-1]
            yield {"rival": f"JAX {flags}".strip(), "failed": reason[:200]}
            continue
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                yield {"recorded": recorded, **json.loads(line)}


def main() -> None:
    """Measures in this process, and prints a record a line."""
    import jax
    import jax.numpy as jnp

    import mxkern

    if jax.default_backend() != "gpu":
        raise SystemExit("JAX does not run on a GPU here")
    for extent in EXTENTS:
        keys = jax.random.split(jax.random.key(extent), LAYERS + 1)
        # So that values stay as large as they are.
        plain = [
            jax.random.normal(k, (extent, extent), jnp.bfloat16) / extent**0.5 for k in keys[1:]
        ]
        quantized = [mxkern.quantize(w, "mxfp4") for w in plain]
        few = [mxkern.prepare_operand(q, form="few_tokens") for q in quantized]
        ways: dict[str, tuple[Callable[..., Any], Any]] = {
            "mxkern, mxfp4": (lambda x, w: mxkern.gemm(x, w, dtype="bfloat16"), few),
            "XLA, bfloat16": (lambda x, w: x @ w.T, plain),
        }
        for tokens in TOKENS:
            x = jax.random.normal(keys[0], (tokens, extent), jnp.bfloat16)
            _check(x, few[0], quantized[0])
            for way, (product, weights) in ways.items():
                seconds = _seconds(product, x, weights)
                record = {"way": way, "shape": [extent, extent], "tokens": tokens}
                record |= {"layers": LAYERS, "donated": True, "seconds": seconds}
                print(json.dumps(record), flush=True)


def _check(x: Any, weights: Any, q: Any) -> None:
    """A product is right before it is timed."""
    import jax.numpy as jnp

    import mxkern

    want = jnp.matmul(x.astype("float32"), mxkern.dequantize(q).T, precision="highest")
    error = jnp.linalg.norm(mxkern.gemm(x, weights) - want) / jnp.linalg.norm(want)
    assert float(error) <= 1e-4, f"a product is off by {float(error)}"


def _seconds(product: Callable[..., Any], x: Any, weights: Any) -> float:
    """Of a layer, by the best of some rounds of many steps and one wait. Each step goes on with
    what the last one made, and gives its memory away: where arrays lie elsewhere from step to step
    XLA records a graph anew."""
    import jax

    @partial(jax.jit, donate_argnums=0)
    def program(x: Any, weights: Any) -> Any:
        for w in weights:
            x = product(x, w)
        return x

    best = float("inf")
    for _ in range(ROUNDS):
        y = jax.block_until_ready(program(program(x.copy(), weights), weights))
        begin = time.perf_counter()
        for _ in range(STEPS):
            y = program(y, weights)
        jax.block_until_ready(y)
        best = min(best, time.perf_counter() - begin)
    assert bool(jax.numpy.isfinite(y).all()), "what is multiplied again and again stays finite"
    return best / STEPS / LAYERS


if __name__ == "__main__":
    main()
