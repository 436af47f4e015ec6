# mxkern/jax: what arrays of JAX call, as programs or as parts of one. It stands above the
# operations, whose checks it shares; mxkern/arrays, which stands below them, is told of it.
from __future__ import annotations

from mxkern.arrays.adapter import TracedCalls


def make_jax_calls() -> TracedCalls:
    from mxkern.jax.programs import JaxPrograms  # imports JAX

    return JaxPrograms()
