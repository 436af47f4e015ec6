# mxkern/torch/operators/prepared_both.py: prepare_both as an operator of PyTorch.
from __future__ import annotations

import math
from typing import Any

import torch

from mxkern import _core
from mxkern import functions as eager
from mxkern.faults.shapes import transposed
from mxkern.ops.prepare_both import PreparedBoth
from mxkern.torch.operators.checks import check_plain, scheme_name
from mxkern.torch.operators.compiler import constant
from mxkern.torch.operators.definition import define, plain_shape
from mxkern.torch.operators.keywords import refuse_others
from mxkern.torch.operators.operands import block_scaled
from mxkern.values.names import SchemeName
from mxkern.values.options import (
    ASKED_FORMS,
    FORMS,
    PREPARED_FORMS,
    SCALE_RULES,
    position,
    usable_form,
)
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.scheme import Scheme, Shape, scheme_of

_FUNCTION = "prepare_both"
_NAMES = tuple(FORMS)


def _parts(x: Any, scheme: str, form: str, shape: Shape) -> list[Any]:
    """Without values: what one side consists of."""
    record = scheme_of(_FUNCTION, scheme)
    if form == "source":
        scales = getattr(torch, record.scales_dtype, torch.uint8)
        return [
            x.new_empty(record.codes_shape(shape), dtype=getattr(torch, record.codes_dtype)),
            x.new_empty(record.scales_shape(shape, "row_major"), dtype=scales),
        ]
    *batch, rows, columns = (int(extent) for extent in shape)
    number = position(_FUNCTION, "form", form, PREPARED_FORMS)
    size = _core.prepared_bytes(number, record.id, math.prod(batch), rows, columns)
    return [x.new_empty(size, dtype=torch.uint8)]


def _traced(x: Any, scheme: str, form: str, **_: Any) -> list[Any]:
    shape = plain_shape(_FUNCTION, x)
    shapes = shape, transposed(_FUNCTION, shape)
    parts = [part for extents in shapes for part in _parts(x, scheme, form, extents)]
    return parts + [x.new_empty(extents[:-1], dtype=torch.uint8) for extents in shapes]


@define(
    _FUNCTION,
    '(Tensor x, str scheme, str form, *, str scale_rule="rceil") -> Tensor[]',
    _traced,
)
def both_parts(x: Any, scheme: Any, form: str, *, scale_rule: Any = "rceil") -> list[Any]:
    """What two operands of the form consist of, and their spreads."""
    both = eager.prepare_both(x, scheme, scale_rule=scale_rule)
    if both.rows.form != form:
        raise ValueError(
            f"{_FUNCTION}: form is {form!r}, and products on {x.device} read {both.rows.form!r}; "
            "mxkern.torch.prepare_both looks for it"
        )
    sides = (both.rows, both.columns)
    parts = [p.source.parts[:2] if p.source is not None else (p.data,) for p in sides]
    return [*parts[0], *parts[1], both.row_spreads, both.column_spreads]


@constant
def _form(scheme: str, device: int) -> str:
    """The form of both on a device, which is what it is for all of a program."""
    wanted = position(_FUNCTION, "form", "folded", ASKED_FORMS)
    return str(_NAMES[usable_form(_FUNCTION, wanted, scheme_of(_FUNCTION, scheme).id, device)])


def _operand(form: Any, parts: list[Any], name: Any, shape: Any) -> PreparedOperand:
    if form != "source":
        return PreparedOperand(form, parts[0], None, name, shape)
    return PreparedOperand(
        form, None, block_scaled(tuple(parts), name, shape, "row_major"), name, shape
    )


def prepare_both(
    x: Any, scheme: SchemeName | Scheme, *, scale_rule: str = "rceil", **options: Any
) -> PreparedBoth:
    """mxkern.prepare_both as an operator."""
    refuse_others(_FUNCTION, options)
    check_plain(_FUNCTION, "x", x)
    name: Any = scheme_name(_FUNCTION, scheme)
    position(_FUNCTION, "scale_rule", scale_rule, SCALE_RULES)
    form: Any = _form(name, x.device.index if x.device.type == "cuda" else -1)
    shape = tuple(x.shape)
    turned = transposed(_FUNCTION, shape)
    *parts, row_spreads, column_spreads = torch.ops.mxkern.prepare_both(
        x, name, form, scale_rule=scale_rule
    )
    half = len(parts) // 2
    rows = _operand(form, parts[:half], name, shape)
    columns = _operand(form, parts[half:], name, turned)
    return PreparedBoth(rows, columns, row_spreads, column_spreads)
