# mxkern/jax/mesh_axes.py: over which axes of a mesh arrays differ from device to device,
# which jax.shard_map notes in their types. What is made of them differs over all of these.
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax


def over_their_axes(results: Sequence[Any], arrays: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The shapes and dtypes of results, and the arrays that they are made of, as values that differ
    over each axis that one of the arrays differs over. Outside of jax.shard_map nothing does."""
    axes = frozenset[str]().union(*map(_axes_of, arrays))
    if not axes:
        return list(results), list(arrays)
    typed = _types_over(axes)
    promised = [jax.ShapeDtypeStruct(each.shape, each.dtype, **typed) for each in results]
    return promised, [_spread(array, axes) for array in arrays]


def over_the_axes_of(array: Any, other: Any) -> Any:
    """An array as one that differs over the axes that the other one differs over, too."""
    return _spread(array, _axes_of(other))


def _axes_of(array: Any) -> frozenset[str]:
    kind = jax.typeof(array) if hasattr(jax, "typeof") else None
    manual = getattr(kind, "mat", None)  # since JAX 0.10; before that the axes alone
    axes: frozenset[str] = getattr(kind, "vma", frozenset()) if manual is None else manual.varying
    return axes


def _types_over(axes: frozenset[str]) -> dict[str, Any]:
    """What jax.ShapeDtypeStruct takes for them. The mesh says that they are axes of its own."""
    mesh = jax.sharding.get_abstract_mesh()
    here = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    if hasattr(jax.sharding, "ManualAxisType"):
        kind = jax.sharding.ManualAxisType(varying=axes)
        return {"sharding": here, "manual_axis_type": kind}
    return {"sharding": here, "vma": axes}


def _spread(array: Any, axes: frozenset[str]) -> Any:
    """Its gradient is the sum over the axes that are new."""
    new = tuple(axes - _axes_of(array))
    if not new:
        return array
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, new, to="varying")
    return jax.lax.pvary(array, new)
