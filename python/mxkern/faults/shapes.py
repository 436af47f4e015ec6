# mxkern/faults/shapes.py: the shapes of results, from those of arguments.
from __future__ import annotations

from typing import Any

from mxkern import faults
from mxkern.values.scheme import Shape


def transposed(function: str, shape: Shape) -> Shape:
    """[..., K, M] for [..., M, K]."""
    if len(shape) < 2:
        faults.no_columns(function, shape)
    return (*shape[:-2], shape[-1], shape[-2])


def product_shape(function: str, a: Shape, b: Shape) -> Shape:
    """[..., M, N] of [..., M, K] and [..., N, K]."""
    if len(b) < 2 or a[-1] != b[-1] or (len(b) > 2 and a[:-2] != b[:-2]):
        faults.product_shape(function, a, b)
    return (*a[:-1], b[-2])


def grouped_shape(function: str, a: Shape, b: Shape, groups: int) -> Shape:
    """[M, N] of [M, K] and [G, N, K], [G, M, N] of [M, K] and [N, K]."""
    if len(b) not in (2, 3) or len(a) != 2 or a[-1] != b[-1]:
        faults.grouped_shapes(function, a, b)
    return (a[0], b[1]) if len(b) == 3 else (groups, a[0], b[0])


def each_way(function: str, argument: str, value: Any) -> tuple[Any, Any]:
    """One value for both directions, or a pair of values."""
    return faults.pair(function, argument, value) if isinstance(value, tuple) else (value, value)
