# mxkern/torch/layers/grouped_plain.py: grouped products of operands that are not quantized, and
# sums.
"""torch.nn.functional.grouped_mm as operators that take any shape and dtype, compiled too: it
wants extents in multiples of 16 bytes, leaves rows behind the last end as they are, and is traced
in bfloat16 alone.

On CUDA devices PyTorch has kernels for bfloat16; in other dtypes it waits for the ends.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.functional import pad
from torch.utils.flop_counter import register_flop_formula

from mxkern.torch.operators.compiler import as_dtype

_library = torch.library.Library("mxkern", "FRAGMENT")
_MULTIPLE = 8  # elements: 16 bytes of the smallest dtype


def _spans(ends: Any, tokens: int) -> list[slice]:
    """The groups, where ends lie on the host."""
    spans, begin = [], 0
    for g, end in enumerate(ends.tolist()):
        if not begin <= end <= tokens:
            raise ValueError(f"grouped_linear: ends[{g}] is {end}; expected {begin} to {tokens}")
        spans.append(slice(begin, end))
        begin = end
    return spans


def _to_multiple(x: Any, *axes: int) -> Any:
    """x with zeros behind the last elements of some of its last two axes."""
    missing = [-x.shape[axis] % _MULTIPLE if axis in axes else 0 for axis in (-1, -2)]
    return pad(x, (0, missing[0], 0, missing[1])) if any(missing) else x


def _rows(a: Any, b: Any, ends: Any, bias: Any = None) -> Any:
    tokens, outputs = a.shape[0], b.shape[1]
    if not a.is_cuda:
        y = a.new_zeros((tokens, outputs))
        for g, span in enumerate(_spans(ends, a.shape[0])):
            one = None if bias is None else bias[g]
            y[span] = torch.nn.functional.linear(a[span], b[g], one)
        return y
    if a.numel() == 0 or b.numel() == 0:
        return a.new_zeros((tokens, outputs))
    right = _to_multiple(b, -1, -2)
    y = torch.nn.functional.grouped_mm(_to_multiple(a, -1), right.mT, offs=ends)[:, :outputs]
    place = torch.arange(tokens, dtype=torch.int32, device=a.device)
    if bias is not None:
        group = torch.searchsorted(ends, place, right=True).clamp(max=ends.shape[0] - 1)
        y = y + bias[group]
    return torch.where((place < ends[-1])[:, None], y, y.new_zeros(())).contiguous()


def _columns(a: Any, b: Any, ends: Any) -> Any:
    groups, rows, outputs = ends.shape[0], a.shape[1], b.shape[1]
    if not a.is_cuda:
        y = a.new_zeros((groups, rows, outputs))
        for g, span in enumerate(_spans(ends, a.shape[0])):
            y[g] = a[span].t() @ b[span]
        return y
    if a.numel() == 0 or b.numel() == 0:
        return a.new_zeros((groups, rows, outputs))
    left, right = _to_multiple(a, -1), _to_multiple(b, -1)
    y = torch.nn.functional.grouped_mm(left.t(), right, offs=ends)
    return y[:, :rows, :outputs].contiguous()


def _sums(x: Any, ends: Any) -> Any:
    if not x.is_cuda:
        sums = [x[span].sum(0, dtype=torch.float32) for span in _spans(ends, x.shape[0])]
        return torch.stack(sums)
    inside = ends.clamp(0, x.shape[0]).cummax(0).values  # whatever a caller gives
    counts = torch.diff(inside, prepend=inside.new_zeros(1)).long()
    return torch.segment_reduce(x.float(), "sum", lengths=counts, axis=0, unsafe=True, initial=0)


for _name, _schema, _work, _traced in (
    (
        "plain_group_rows",
        "(Tensor a, Tensor b, Tensor ends, Tensor? bias=None) -> Tensor",
        _rows,
        lambda a, b, ends, bias=None: a.new_empty((a.shape[0], b.shape[1])),
    ),
    (
        "plain_group_columns",
        "(Tensor a, Tensor b, Tensor ends) -> Tensor",
        _columns,
        lambda a, b, ends: a.new_empty((ends.shape[0], a.shape[1], b.shape[1])),
    ),
    (
        "group_sums",
        "(Tensor x, Tensor ends) -> Tensor",
        _sums,
        lambda x, ends: x.new_empty((ends.shape[0], x.shape[1]), dtype=torch.float32),
    ),
):
    _library.define(_name + _schema, tags=torch.Tag.pt2_compliant_tag)
    _library.impl(_name, _work, "CompositeExplicitAutograd")
    torch.library.register_fake(f"mxkern::{_name}", _traced, lib=_library)

_operators = [torch.ops.mxkern.plain_group_rows, torch.ops.mxkern.plain_group_columns]


@register_flop_formula(_operators)  # type: ignore[untyped-decorator]
def _flops(a: Any, b: Any, *rest: Any, **options: Any) -> int:
    """As though each row belonged to a group, as for grouped_gemm."""
    count: int = 2 * math.prod(a) * b[1]
    return count


def plain_rows(a: Any, b: Any, ends: Any, dtype: Any, bias: Any = None) -> Any:
    """a[m] . b[g]^T + bias[g] for the rows m of each group, of a [T, K] and b [G, N, K], in a's
    dtype and given in another; zeros behind the last end."""
    bias = None if bias is None else bias.to(a.dtype)
    return as_dtype(torch.ops.mxkern.plain_group_rows(a, b.to(a.dtype), ends, bias), dtype)


def plain_columns(a: Any, b: Any, ends: Any, dtype: Any) -> Any:
    """a^T . b over the rows of each group, of a [T, M] and b [T, N]: [G, M, N], in a's dtype and
    given in another."""
    return as_dtype(torch.ops.mxkern.plain_group_columns(a, b.to(a.dtype), ends), dtype)


def group_sums(x: Any, ends: Any) -> Any:
    """The sums of the rows of each group of x [T, N], in float32 and in one order: [G, N]."""
    return torch.ops.mxkern.group_sums(x, ends)
