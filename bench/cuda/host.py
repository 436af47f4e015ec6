# bench/cuda/host.py: how long a call of Python keeps the host.
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

import mxkern

# Short rounds, the shortest counts: others use the processors of such machines too.
CALLS = 25
ROUNDS = 200


def run() -> Iterator[dict[str, Any]]:
    """One record a call. The tensor is small, so that the device keeps up."""
    x = torch.randn(256, 512, device="cuda", dtype=torch.bfloat16)
    q = mxkern.quantize(x, "mxfp8")
    amax = mxkern.tensor_amax(x)
    ready = mxkern.prepare_operand(q)
    few = mxkern.prepare_operand(q, form="few_tokens")
    tokens, y = x[:16], torch.empty(16, 256, device="cuda", dtype=torch.bfloat16)
    calls: list[tuple[str, Callable[[], object], float | None]] = [
        ("mxkern.quantize, mxfp8", lambda: mxkern.quantize(x, "mxfp8"), 8e-6),
        ("mxkern.dequantize, mxfp8", lambda: mxkern.dequantize(q), 8e-6),
        (
            "mxkern.quantize, nvfp4, given amax",
            lambda: mxkern.quantize(x, "nvfp4", amax=amax),
            None,
        ),
        ("mxkern.quantize, nvfp4, own amax", lambda: mxkern.quantize(x, "nvfp4"), None),
        ("mxkern.quantize_columns, mxfp8", lambda: mxkern.quantize_columns(x, "mxfp8"), None),
        ("mxkern.quantize_both, mxfp8", lambda: mxkern.quantize_both(x, "mxfp8"), None),
        (
            "mxkern.gemm, mxfp8 x prepared, to bfloat16",
            lambda: mxkern.gemm(q, ready, dtype="bfloat16"),
            None,
        ),
        (
            'mxkern.gemm, mxfp8 x prepared, precision="folded"',
            lambda: mxkern.gemm(q, ready, dtype="bfloat16", precision="folded"),
            None,
        ),
        (
            "mxkern.gemm, few tokens x prepared, to bfloat16",
            lambda: mxkern.gemm(tokens, few, dtype="bfloat16"),
            None,
        ),
        ("mxkern.gemm, few tokens x prepared, out=", lambda: mxkern.gemm(tokens, few, out=y), None),
        ("torch.add(x, 1, out=x), for comparison", lambda: torch.add(x, 1, out=x), None),
    ]
    yield from _measured(calls)
    yield from _measured(_jax_calls())  # afterwards: what JAX does on the host counts for JAX alone


def _measured(
    calls: Sequence[tuple[str, Callable[[], object], float | None]],
) -> Iterator[dict[str, Any]]:
    times = _shortest([call for _, call, _ in calls])
    for (name, _, goal), seconds in zip(calls, times, strict=True):
        yield {"call": name, "seconds": seconds, "goal_seconds": goal}


def _jax_calls() -> list[tuple[str, Callable[[], object], None]]:
    """The same of JAX arrays, outside of programs and in them, where JAX runs on this GPU."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
    except ImportError:
        return []
    if jax.default_backend() != "gpu":
        return []
    x = jax.numpy.ones((256, 512), jax.numpy.bfloat16)
    few = mxkern.prepare_operand(mxkern.quantize(x, "mxfp8"), form="few_tokens")
    tokens = x[:16]
    quantize = jax.jit(lambda x: mxkern.quantize(x, "mxfp8"))
    product = jax.jit(lambda x, w: mxkern.gemm(x, w, dtype="bfloat16"))
    add = jax.jit(lambda x: x + 1)
    return [
        ("mxkern.quantize, mxfp8, of a JAX array", lambda: mxkern.quantize(x, "mxfp8"), None),
        ("jax.jit of mxkern.quantize, mxfp8", lambda: quantize(x), None),
        ("jax.jit of mxkern.gemm, few tokens x prepared", lambda: product(tokens, few), None),
        ("jax.jit of x + 1, for comparison", lambda: add(x), None),
    ]


def _shortest(calls: Sequence[Callable[[], object]]) -> list[float]:
    """The shortest round of each. They take turns, so that none has all of a busy moment."""
    for call in calls:
        for _ in range(100):
            call()
    rounds = [[_seconds(call) for call in calls] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*rounds, strict=True)]


def _seconds(call: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begin) / CALLS
