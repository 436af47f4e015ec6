# mxkern/arrays/torch_trees.py: what PyTorch sees in a BlockScaled and a PreparedOperand: their
# tensors are leaves of a tree, as torch.export, checkpoints in compiled code and tree_map want it.
from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from torch.utils import _pytree

from mxkern.arrays.tree_shapes import is_array, shape_of_codes, within_a_block
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.prepared_operand import PreparedOperand


def register() -> None:
    """Tells PyTorch of both, once."""
    _register(BlockScaled, _flat_quantized, _quantized)
    _register(PreparedOperand, _flat_prepared, _prepared)


def _register(
    kind: Any,
    flat: Callable[[Any], tuple[list[Any], Any]],
    made: Callable[[Iterable[Any], Any], Any],
) -> None:
    if not hasattr(_pytree, "GetAttrKey"):  # a PyTorch before 2.3
        return

    def flat_with_keys(value: Any) -> tuple[list[Any], Any]:
        _, context = flat(value)
        return [(_pytree.GetAttrKey(name), getattr(value, name)) for name in context[0]], context

    _pytree.register_pytree_node(
        kind,
        flat,
        made,
        serialized_type_name=f"mxkern.{kind.__name__}",
        to_dumpable_context=json.dumps,
        from_dumpable_context=_read,
        flatten_with_keys_fn=flat_with_keys,
    )


# PyTorch compares what a tree has beside its leaves. Of a shape that follows from the codes that is
# a K which ends within a block, so that a program of torch.export takes batches of any size.
def _flat_quantized(q: BlockScaled) -> tuple[list[Any], Any]:
    names = _present(q, ("codes", "scales", "tensor_scale"))
    codes, shape, last = q.codes, q.shape, within_a_block(q.scheme, q.shape)
    follows = last is not shape and not (
        is_array(codes) and shape != shape_of_codes(tuple(codes.shape), q.scheme, shape)
    )
    kept = (last,) if follows else shape
    return _fields(q, names), (names, q.scheme, q.scale_layout, follows, kept)


def _quantized(leaves: Iterable[Any], context: Any) -> BlockScaled:
    names, scheme, scale_layout, follows, shape = context
    codes, scales, tensor_scale = _spread(("codes", "scales", "tensor_scale"), names, leaves)
    if follows and is_array(codes):
        shape = shape_of_codes(tuple(codes.shape), scheme, shape)
    return BlockScaled(codes, scales, tensor_scale, scheme, shape, scale_layout)


def _flat_prepared(w: PreparedOperand) -> tuple[list[Any], Any]:
    names = _present(w, ("data", "source"))
    follows = isinstance(w.source, BlockScaled) and w.source.shape == w.shape
    return _fields(w, names), (names, w.form, w.scheme, follows, None if follows else w.shape)


def _prepared(leaves: Iterable[Any], context: Any) -> PreparedOperand:
    names, form, scheme, follows, shape = context
    data, source = _spread(("data", "source"), names, leaves)
    if follows and isinstance(source, BlockScaled):
        shape = source.shape
    return PreparedOperand(form, data, source, scheme, shape)


def _present(value: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([name for name in names if getattr(value, name) is not None])


def _fields(value: Any, names: tuple[str, ...]) -> list[Any]:
    return [getattr(value, name) for name in names]


def _spread(wanted: tuple[str, ...], names: tuple[str, ...], leaves: Iterable[Any]) -> list[Any]:
    """The leaves, and None where there is none."""
    held = dict(zip(names, leaves, strict=True))
    return [held.get(name) for name in wanted]


def _read(text: str) -> Any:
    names, *others, shape = json.loads(text)
    return (tuple(names), *others, None if shape is None else tuple(shape))
