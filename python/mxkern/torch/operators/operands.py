# mxkern/torch/operators/operands.py: quantized and prepared operands as the tensors, and words,
# that PyTorch's operators take.
from __future__ import annotations

from typing import Any

from mxkern.torch.operators.checks import scheme_name
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.scheme import Shape, scheme_of


def present(q: BlockScaled) -> tuple[Any, ...]:
    """The tensors of a BlockScaled."""
    return q.parts if q.tensor_scale is not None else q.parts[:2]


def block_scaled(parts: tuple[Any, ...], scheme: Any, shape: Any, scale_layout: Any) -> BlockScaled:
    """The BlockScaled of its tensors."""
    tensor_scale = parts[2] if len(parts) > 2 else None
    return BlockScaled(parts[0], parts[1], tensor_scale, scheme, tuple(shape), scale_layout)


def held_shape(function: str, codes: Any, scheme: Any) -> Shape:
    """The shape of the tensor that codes hold, the padding of packed ones included."""
    bits = scheme_of(function, scheme).bits
    return (*codes.shape[:-1], codes.shape[-1] * 8 // bits)


def kind_of(function: str, operand: Any) -> tuple[Any, ...]:
    """What the operators of products take for an operand: its values, prepared bytes or codes;
    scales; tensor scale; the codes that a prepared one keeps; words for form, scheme and layout;
    and its shape."""
    if isinstance(operand, BlockScaled):
        kind = f"quantized {scheme_name(function, operand.scheme)} {operand.scale_layout}"
        return *operand.parts, None, kind, operand.shape
    if isinstance(operand, PreparedOperand):
        data, source, kind = operand.data, operand.source, f"{operand.form} {operand.scheme}"
        if source is None:
            return data, None, None, None, f"{kind} -", operand.shape
        if data is None:
            return kind_of(function, source)
        codes, *others = source.parts
        return data, *others, codes, f"{kind} {source.scale_layout}", operand.shape
    return operand, None, None, None, "plain - -", tuple(operand.shape)


def operand_of_kind(
    function: str,
    argument: str,
    data: Any,
    scales: Any,
    tensor_scale: Any,
    source: Any,
    kind: str,
    shape: list[int] | None,
) -> Any:
    """The inverse of kind_of. Without a shape it is that of the values, or of what codes hold."""
    words: list[Any] = kind.split(" ")
    if len(words) != 3:
        raise ValueError(
            f"{function}: {argument}_kind is {errors.described(kind)}; expected three words, as "
            f"'plain - -' or 'quantized mxfp4 row_major'; mxkern.torch.{function} finds them"
        )
    form, scheme, layout = words
    has_scales = layout != "-"
    has_source = has_scales and form != "quantized"
    for name, value, wanted in (("scales", scales, has_scales), ("source", source, has_source)):
        if (value is not None) != wanted:
            given, expected = ("given", "none") if value is not None else ("None", "a tensor")
            raise ValueError(
                f"{function}: {argument}_{name} is {given}; expected {expected} where "
                f"{argument}_kind is {kind!r}"
            )
    if form == "plain":
        return data
    if shape is None and form != "quantized":
        raise ValueError(
            f"{function}: {argument}_shape is None; expected the shape of a prepared operand"
        )
    extents = held_shape(function, data, scheme) if shape is None else tuple(shape)
    if form == "quantized":
        return block_scaled((data, scales, tensor_scale), scheme, extents, layout)
    kept = block_scaled((source, scales, tensor_scale), scheme, extents, layout)
    return PreparedOperand(form, data, kept if has_source else None, scheme, extents)
