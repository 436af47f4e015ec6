# mxkern/jax: what arrays of JAX call, as programs or as parts of one. It stands above the
# operations, whose checks it shares; mxkern/arrays, which stands below them, is told of it.
"""Layers for JAX: recipes, and dot, which multiplies by one and is differentiated.

    import mxkern.jax

    y = mxkern.jax.dot(x, w, mxkern.jax.mxfp8())    # x [..., K] . w [N, K]^T

The functions of mxkern itself take JAX's arrays without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mxkern.arrays.adapter import TracedCalls

if TYPE_CHECKING:
    from mxkern.jax.linear import dot
    from mxkern.values.recipe import Operand, Recipe, mx, mxfp4, mxfp8, nvfp4

__all__ = ["Operand", "Recipe", "dot", "mx", "mxfp4", "mxfp8", "nvfp4"]


def make_jax_calls() -> TracedCalls:
    from mxkern.jax.programs import JaxPrograms  # imports JAX

    return JaxPrograms()


def __getattr__(name: str) -> Any:
    # mxkern imports this package, and JAX is imported by those who use it.
    if name not in __all__:
        raise AttributeError(f"module 'mxkern.jax' has no attribute {name!r}")
    module = "mxkern.jax.linear" if name == "dot" else "mxkern.values.recipe"
    try:
        value = globals()[name] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        message = (
            "mxkern.jax.dot needs JAX, which is not installed; install it with pip install jax"
        )
        raise ModuleNotFoundError(message, name="jax") from None
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
