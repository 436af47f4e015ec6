# mxkern/arrays/jax_trees.py: what JAX sees in a BlockScaled and a PreparedOperand: their arrays are
# leaves of a tree, and what these leave open is static.
from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import jax

from mxkern.block_scaled import BlockScaled
from mxkern.prepared_operand import PreparedOperand
from mxkern.scheme import Scheme, schemes

_INT = frozenset({int})


class Static(tuple[Any, ...]):
    """What a tree has beside its leaves: the scheme and another name, and a shape. Where that
    follows from the leaves, as it mostly does, all that is compared of it is a K that ends within a
    block: one matrix, a stack of matrices and a part of one are trees of the same kind. A tuple of
    what is compared, as JAX compares and hashes one at each call."""

    names: tuple[str, ...]
    shape: Any
    follows: bool

    def __new__(cls, names: tuple[str, ...], shape: Any, follows: bool) -> Static:
        compared = _within_a_block(names[0], shape) if follows else shape
        self = super().__new__(cls, (names, follows, compared))
        self.names, self.shape, self.follows = names, shape, follows
        return self

    def __repr__(self) -> str:
        return ", ".join((*self.names, str(self.shape)))


def register() -> None:
    """Tells JAX of both, once."""
    _register(BlockScaled, BlockScaled._fields[:3], _flat_quantized, _quantized)
    _register(PreparedOperand, PreparedOperand._fields[1:3], _flat_prepared, _prepared)


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
    codes, scales, tensor_scale, scheme, shape, scale_layout = q
    follows = type(shape) is tuple and _INT.issuperset(map(type, shape))  # 4.0 equals 4
    if follows:
        are_array = hasattr(type(codes), "dtype")
        try:
            static = _static_of_arrays(are_array, codes.shape, scheme, shape, scale_layout)
            return (codes, scales, tensor_scale), static
        except (AttributeError, TypeError):  # codes are no array; or something has no hash
            follows = not _is_array(codes) or shape == _shape_held(codes, scheme, shape)
    return (codes, scales, tensor_scale), _static((scheme, scale_layout), shape, follows)


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
    if static.follows and _is_array(codes):  # and none of the marks that JAX puts there
        shape = _shape_held(codes, scheme, shape)
    return BlockScaled(codes, scales, tensor_scale, scheme, shape, scale_layout)


def _flat_prepared(w: PreparedOperand) -> tuple[tuple[Any, ...], Static]:
    form, data, source, scheme, shape = w
    follows = isinstance(source, BlockScaled) and source[4] == shape
    return (data, source), _static((scheme, form), shape, follows)


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


def _is_array(codes: Any) -> bool:
    """Or a description of one."""
    shape = getattr(codes, "shape", None)
    return isinstance(shape, tuple) and len(shape) > 0 and hasattr(codes, "dtype")


def _shape_held(codes: Any, scheme: Any, shape: Any) -> Any:
    """The shape of the tensor that has these codes."""
    try:
        return _kept_shape(codes.shape, scheme, shape)
    except TypeError:
        return shape


@lru_cache(maxsize=4096)
def _kept_shape(codes_shape: tuple[Any, ...], scheme: Any, shape: Any) -> Any:
    """The last extent stays where the codes hold it and no whole block more, as packed codes do not
    say how much of their last block is filled."""
    record = _record_of(scheme, shape)
    if record is None:
        return shape
    *outer, size = codes_shape
    columns = shape[-1]
    if record.bits == 8:
        columns = size
    elif isinstance(size, int) and isinstance(columns, int):
        blocks, rest = divmod(size, record.block_bytes)
        if rest == 0 and blocks != -(-columns // record.block):
            columns = blocks * record.block
    return (*outer, columns)


def _within_a_block(scheme: Any, shape: Any) -> Any:
    """The last extent, where codes do not tell it."""
    record = _record_of(scheme, shape)
    if record is None:
        return shape
    whole = record.bits == 8 or (isinstance(shape[-1], int) and shape[-1] % record.block == 0)
    return None if whole else shape[-1]


def _record_of(scheme: Any, shape: Any) -> Scheme | None:
    """None of what is no scheme or no shape, which the operations refuse."""
    known = isinstance(scheme, str) and scheme in schemes
    return schemes[scheme] if known and isinstance(shape, tuple) and shape else None


def _written(static: Static) -> bytes:
    shape = [int(n) for n in static.shape]
    return json.dumps({"names": static.names, "shape": shape, "follows": static.follows}).encode()


def _read(text: bytes | bytearray) -> Static:
    static = json.loads(bytes(text))
    return Static(tuple(static["names"]), tuple(static["shape"]), static["follows"])
