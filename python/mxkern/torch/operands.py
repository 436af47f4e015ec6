# mxkern/torch/operands.py: quantized and prepared operands as the lists of tensors, and words, that
# PyTorch's operators take.
from __future__ import annotations

from typing import Any

from mxkern import errors
from mxkern.block_scaled import BlockScaled
from mxkern.prepared_operand import PreparedOperand
from mxkern.scheme import Shape
from mxkern.torch.checks import scheme_name


def present(q: BlockScaled) -> list[Any]:
    """The tensors of a BlockScaled."""
    return [part for part in q.parts if part is not None]


def block_scaled(parts: list[Any], scheme: Any, shape: Any, scale_layout: Any) -> BlockScaled:
    """The BlockScaled of its tensors."""
    tensor_scale = parts[2] if len(parts) > 2 else None
    return BlockScaled(parts[0], parts[1], tensor_scale, scheme, tuple(shape), scale_layout)


def check_parts(function: str, argument: str, parts: list[Any], counts: tuple[int, ...]) -> None:
    if len(parts) not in counts:
        wanted = errors.listed(map(str, counts))
        raise ValueError(f"{function}: {argument} has {len(parts)} tensors; expected {wanted}")


def kind_of(function: str, operand: Any) -> tuple[list[Any], str, Shape]:
    """The tensors of what a product multiplies, its form, scheme and layout, and its shape."""
    if isinstance(operand, BlockScaled):
        kind = f"quantized {scheme_name(function, operand.scheme)} {operand.scale_layout}"
        return present(operand), kind, operand.shape
    if isinstance(operand, PreparedOperand):
        data, source, kind = operand.data, operand.source, f"{operand.form} {operand.scheme}"
        if data is None and source is not None:
            return kind_of(function, source)
        if source is None:
            return [data], f"{kind} -", operand.shape
        return [data, *present(source)], f"{kind} {source.scale_layout}", operand.shape
    return [operand], "plain - -", tuple(operand.shape)


def operand_of_kind(
    function: str, argument: str, parts: list[Any], kind: str, shape: list[int]
) -> Any:
    """The inverse of kind_of."""
    words: list[Any] = kind.split(" ")
    if len(words) != 3:
        raise ValueError(
            f"{function}: {argument}_kind is {errors.described(kind)}; expected three words, as "
            f"'plain - -' or 'quantized mxfp4 row_major'; mxkern.torch.{function} finds them"
        )
    form, scheme, layout = words
    held = (1,) if form == "plain" else (2, 3)
    if form not in ("plain", "quantized"):
        held = (1,) if layout == "-" else (3, 4)
    check_parts(function, argument, parts, held)
    if form == "plain":
        return parts[0]
    if form == "quantized":
        return block_scaled(parts, scheme, shape, layout)
    source = None if layout == "-" else block_scaled(parts[1:], scheme, shape, layout)
    return PreparedOperand(form, parts[0], source, scheme, tuple(shape))
