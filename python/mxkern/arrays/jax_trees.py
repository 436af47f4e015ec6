# mxkern/arrays/jax_trees.py: what JAX sees in a BlockScaled and a PreparedOperand: their arrays are
# leaves of a tree, and what these leave open is static.
from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import jax

from mxkern.arrays.tree_shapes import is_array, shape_of_codes, within_a_block
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.prepared_operand import PreparedOperand

_INT = frozenset({int})


class Static(tuple[Any, ...]):
    """What a tree has beside its leaves: the scheme and another name, and a shape. Where that
    follows from the leaves, as it mostly does, all that is compared of it is a K that ends within a
    block: one matrix, a stack of matrices and a part of one are trees of the same kind. A tuple of
    what is compared, as JAX compares and hashes one at each call."""

    names: tuple[Any, ...]
    shape: Any
    follows: bool

    def __new__(cls, names: tuple[str, ...], shape: Any, follows: bool) -> Static:
        compared = within_a_block(names[0], shape) if follows else shape
        self = super().__new__(cls, (names, follows, compared))
        self.names, self.shape, self.follows = names, shape, follows
        return self

    def __repr__(self) -> str:
        return ", ".join((*self.names, str(self.shape)))


def register() -> None:
    """Tells JAX of both, once."""
    _register(BlockScaled, BlockScaled.__slots__[:3], _flat_quantized, _quantized)
    _register(PreparedOperand, PreparedOperand.__slots__[1:3], _flat_prepared, _prepared)


def _register(
    kind: Any,
    names: tuple[str, ...],
    flat: Callable[[Any], tuple[tuple[Any, ...], Static]],
    made: Callable[[Static, Iterable[Any]], Any],
) -> None:
    keys = tuple(map(jax.tree_util.GetAttrKey, names))

    def flat_with_keys(value: Any) -> tuple[tuple[Any, ...], Static]:
        leaves, static = flat(value)
        return tuple(zip(keys, leaves, strict=True)), static

    jax.tree_util.register_pytree_with_keys(kind, flat_with_keys, made, flat)
    register = getattr(getattr(jax, "export", None), "register_pytree_node_serialization", None)
    if register is not None:
        register(
            kind,
            serialized_name=f"mxkern.{kind.__name__}",
            serialize_auxdata=_written,
            deserialize_auxdata=_read,
        )


# JAX asks at every call of a program, for every operand: what follows from shapes is kept.
def _flat_quantized(q: BlockScaled) -> tuple[tuple[Any, ...], Static]:
    parts = codes, _, _ = q.codes, q.scales, q.tensor_scale
    scheme, shape, scale_layout = q.scheme, q.shape, q.scale_layout
    follows = type(shape) is tuple and _INT.issuperset(map(type, shape))  # 4.0 equals 4
    if follows:
        are_array = hasattr(type(codes), "dtype")
        try:
            static = _static_of_arrays(are_array, codes.shape, scheme, shape, scale_layout)
            return parts, static
        except (AttributeError, TypeError):  # codes are no array; or something has no hash
            follows = not is_array(codes) or shape == _shape_held(codes, scheme, shape)
    return parts, _static((scheme, scale_layout), shape, follows)


@lru_cache(maxsize=4096)
def _static_of_arrays(
    are_array: bool, codes_shape: Any, scheme: Any, shape: tuple[int, ...], scale_layout: Any
) -> Static:
    if not (are_array and isinstance(codes_shape, tuple) and len(codes_shape) > 0):
        raise TypeError("the codes are not known to be an array")
    follows = shape == _kept_shape(codes_shape, scheme, shape)
    return Static((scheme, scale_layout), shape, follows)


def _quantized(static: Static, parts: Iterable[Any]) -> BlockScaled:
    codes, scales, tensor_scale = parts
    scheme, scale_layout = static.names
    shape = static.shape
    if static.follows and is_array(codes):  # and none of the marks that JAX puts there
        shape = _shape_held(codes, scheme, shape)
    return BlockScaled(codes, scales, tensor_scale, scheme, shape, scale_layout)


def _flat_prepared(w: PreparedOperand) -> tuple[tuple[Any, ...], Static]:
    source, shape = w.source, w.shape
    follows = isinstance(source, BlockScaled) and source.shape == shape
    return (w.data, source), _static((w.scheme, w.form), shape, follows)


def _prepared(static: Static, parts: Iterable[Any]) -> PreparedOperand:
    data, source = parts
    scheme, form = static.names
    follows = static.follows and isinstance(source, BlockScaled)
    return PreparedOperand(form, data, source, scheme, source.shape if follows else static.shape)


def _static(names: tuple[str, ...], shape: Any, follows: bool) -> Static:
    try:
        return _kept_static(names, shape, follows)
    except TypeError:  # a list has no hash
        return Static(names, shape, follows)


_kept_static = lru_cache(maxsize=4096)(Static)


def _shape_held(codes: Any, scheme: Any, shape: Any) -> Any:
    """The shape of the tensor that has these codes."""
    try:
        return _kept_shape(codes.shape, scheme, shape)
    except TypeError:
        return shape


_kept_shape = lru_cache(maxsize=4096)(shape_of_codes)


def _written(static: Static) -> bytes:
    shape = [int(n) for n in static.shape]
    return json.dumps({"names": static.names, "shape": shape, "follows": static.follows}).encode()


def _read(text: bytes | bytearray) -> Static:
    static = json.loads(bytes(text))
    return Static(tuple(static["names"]), tuple(static["shape"]), static["follows"])
