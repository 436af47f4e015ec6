# mxkern/torch/quantized/operations.py: what PyTorch's operations do to a QuantizedTensor.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mxkern.torch.quantized.tensor import (
    HANDLERS,
    QuantizedTensor,
    checked_dtype,
    columns_of,
    functions,
    operand_of,
    refuse,
    rows_of,
    transposed_shape,
)
from mxkern.torch.recipes.operand_calls import precision_of
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.scheme import schemes

_aten = torch.ops.aten
_Handler = Callable[..., Any]


def _handles(*ops: Any) -> Callable[[_Handler], _Handler]:
    def keep(handler: _Handler) -> _Handler:
        HANDLERS.update(dict.fromkeys(ops, handler))
        return handler

    return keep


def product(x: Any, weight: Any, bias: Any = None, **options: Any) -> Any:
    """x . W^T + bias, for a stored weight W [..., N, K] and a plain x."""
    if bias is not None:
        bias = bias.detach()
    # Ahead of autograd, tensors still say that they require grad.
    return multiply(x.detach(), weight, bias, dtype=x.dtype, **options)


def multiply(x: Any, weight: Any, bias: Any, precision: str = "auto", **options: Any) -> Any:
    """x . W^T + bias, for x plain or quantized. Only "auto" reads what is prepared: the others are
    a recipe's, whose layer multiplies codes and scales as they are."""
    plain = x.codes if isinstance(x, BlockScaled) else x
    rows = x.shape[-2] if len(x.shape) > 1 else 1
    operand = operand_of(weight, rows) if precision == "auto" else rows_of(weight)
    if isinstance(x, BlockScaled):
        precision = precision_of(precision, x, rows_of(weight))
    call = functions(plain, weight.codes)
    return call.gemm(x, operand, bias=bias, precision=precision, **options)


def input_gradient(gradient: Any, weight: Any) -> Any:
    """G . W by the weight's columns, or else by its decoded values."""
    columns, call = columns_of(weight), functions(gradient, weight.codes)
    if columns is None:
        return gradient @ call.dequantize(rows_of(weight), dtype=gradient.dtype)
    return call.gemm(gradient, columns, dtype=gradient.dtype)


@_handles(_aten.detach.default, _aten.alias.default)
def _alias(op: Any, q: QuantizedTensor) -> Any:
    return q.viewed(op)


@_handles(_aten.clone.default, _aten.empty_like.default, _aten.zeros_like.default)
@_handles(_aten._to_copy.default, _aten._pin_memory.default)
def _copied(
    op: Any, q: QuantizedTensor, *others: Any, dtype: Any = None, layout: Any = None, **options: Any
) -> Any:
    options.pop("memory_format", None)
    wanted = q.facts.dtype if dtype is None else checked_dtype(dtype)
    return q.mapped(lambda part: op(part, *others, **options), dtype=wanted, partial=False)


@_handles(_aten.is_pinned.default)
def _is_pinned(op: Any, q: QuantizedTensor, *others: Any, **options: Any) -> bool:
    return all(part.is_pinned() for part in q.parts if part is not None)


@_handles(_aten.new_zeros.default, _aten.new_empty.default)
def _new(
    op: Any, q: Any, size: Any, *, dtype: Any = None, layout: Any = None, **options: Any
) -> Any:
    scheme, facts = schemes[q.scheme], q.facts
    if facts.transposed or len(size) not in (2, 3):
        refuse(op, f"size is {tuple(size)}, where [N, K] or [E, N, K] was expected")
    shapes: list[Any] = []
    for side in (tuple(size), transposed_shape(size)):
        shapes += [scheme.codes_shape(side), scheme.scales_shape(side, facts.scale_layout), ()]
    parts = [
        None if part is None else op(part, shape, **options)
        for part, shape in zip(q.parts, shapes, strict=True)
    ]
    wanted = facts.dtype if dtype is None else checked_dtype(dtype)
    return QuantizedTensor(parts, tuple(size), facts._replace(dtype=wanted, partial=False))


@_handles(_aten.copy_.default)
def _copy(op: Any, q: Any, source: Any, non_blocking: bool = False) -> Any:
    """In place, in the same memory, or refused."""
    if not isinstance(q, QuantizedTensor):
        refuse(op, "it would write decoded values to a plain tensor")
    way_out = "replace the parameter, as load_state_dict(..., assign=True) does"
    if q.shape != source.shape or q.facts.transposed:
        raise ValueError(
            f"QuantizedTensor.copy_: source has shape {tuple(source.shape)}; expected "
            f"{q.stored_shape}; {way_out}"
        )
    has_columns = q.column_codes is not None
    if not isinstance(source, QuantizedTensor):
        if q.facts.partial and q.tensor_scale is not None:
            raise ValueError(
                "QuantizedTensor.copy_: destination is a view of some rows, which share a tensor "
                "scale with the others; expected all rows; copy to the whole tensor"
            )
        source = QuantizedTensor.from_float(
            source, q.facts.operand, columns=has_columns, scale_layout=q.scale_layout
        )
    found, wanted = [(t.scheme, t.scale_layout, t.facts.transposed) for t in (source, q)]
    if found != wanted or (has_columns and source.column_codes is None):
        raise ValueError(
            f"QuantizedTensor.copy_: source is {source!r}; expected the scheme, the layout and the "
            f"columns of {q!r}; {way_out}, or copy source.dequantize(), which quantizes again"
        )
    for part, new in zip(q.parts, source.parts, strict=True):
        if part is not None:
            part.copy_(new, non_blocking=non_blocking)
    q._ready.clear()
    return q


def _rows(op: Any, q: QuantizedTensor, dim: int, start: int, stop: int, drop: bool = False) -> Any:
    """Some rows, or some experts: a view."""
    if dim % q.dim() != 0 or q.facts.transposed:
        refuse(op, "only whole rows have codes and scales of their own")
    if q.dim() == 2 and (q.column_codes is not None or q.scale_layout != "row_major"):
        refuse(op, "blocks along columns, or swizzled scales, hold several rows")
    shape = q.stored_shape[1:] if drop else (stop - start, *q.stored_shape[1:])

    def taken(part: Any) -> Any:
        if part.dim() == 0:
            return _aten.alias(part)
        return part[start] if drop else part[start:stop]

    return q.viewed(taken, shape, partial=True)


@_handles(_aten.slice.Tensor)
def _slice(op: Any, q: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    if step != 1:
        refuse(op, f"step is {step}, not 1")
    start, stop, _ = slice(start, end).indices(q.shape[dim])
    if (start, stop) == (0, q.shape[dim]):
        return _alias(_aten.alias.default, q)
    return _rows(op, q, dim, start, max(start, stop))


@_handles(_aten.select.int)
def _select(op: Any, q: Any, dim: int, index: int) -> Any:
    if q.dim() != 3:
        refuse(op, "a QuantizedTensor has two dimensions or three")
    return _rows(op, q, dim, range(q.shape[0])[index], 0, drop=True)


@_handles(_aten.unbind.int)
def _unbind(op: Any, q: Any, dim: int = 0) -> Any:
    return [_select(op, q, dim, index) for index in range(q.shape[0])]


@_handles(_aten.split.Tensor, _aten.split_with_sizes.default)
def _split(op: Any, q: Any, sizes: Any, dim: int = 0) -> Any:
    extent, start, parts = q.shape[dim], 0, []
    if isinstance(sizes, int):
        sizes = [min(sizes, extent - at) for at in range(0, extent, sizes)] or [0]
    for size in sizes:
        parts.append(_slice(op, q, dim, start, start + size))
        start += size
    return parts


@_handles(_aten.view.default, _aten._unsafe_view.default, _aten.expand.default)
@_handles(_aten.as_strided.default)
def _view(op: Any, q: Any, size: Any, *others: Any, **options: Any) -> Any:
    like = torch.empty_strided(q.shape, q.stride(), device="meta")
    made = op(like, size, *others, **options)
    if (made.shape, made.stride(), made.storage_offset()) != (like.shape, like.stride(), 0):
        refuse(op, f"the result has shape {tuple(made.shape)}, where {tuple(q.shape)} was expected")
    return _alias(_aten.alias.default, q)


@_handles(_aten.t.default, _aten.transpose.int, _aten.permute.default)
def _transpose(op: Any, q: Any, *dims: Any) -> Any:
    wanted = torch.empty_strided(q.shape, q.stride(), device="meta").mT
    made = op(torch.empty_strided(q.shape, q.stride(), device="meta"), *dims)
    if (made.shape, made.stride()) != (wanted.shape, wanted.stride()):
        refuse(op, "only the last two dimensions may be transposed")
    return q.viewed(_aten.alias.default, transposed=not q.facts.transposed)


@_handles(_aten.mm.default, _aten.bmm.default)
def _product(op: Any, a: Any, b: Any) -> Any:
    if isinstance(a, QuantizedTensor):
        if isinstance(b, QuantizedTensor):
            refuse(op, "both operands are stored")
        return _product(op, b.mT, a.mT).mT
    if b.facts.transposed:
        return product(a, b)
    return input_gradient(a.detach(), b)


@_handles(_aten.addmm.default)
def _sum(op: Any, bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    if isinstance(b, QuantizedTensor) and b.facts.transposed and bias.dim() == 1 and beta == 1:
        return product(a, b, bias, alpha=alpha)
    return torch.add(bias * beta, _product(_aten.mm.default, a, b), alpha=alpha)
