# mxkern/torch/operators/prepared_both.py: prepare_both as an operator of PyTorch.
from __future__ import annotations

from typing import Any

import torch

from mxkern import functions as eager
from mxkern.faults.shapes import transposed
from mxkern.ops.prepare_both import PreparedBoth
from mxkern.torch.operators.checks import check_plain, scheme_name
from mxkern.torch.operators.definition import define, new_parts, plain_shape
from mxkern.torch.operators.keywords import refuse_others
from mxkern.torch.operators.operands import block_scaled
from mxkern.torch.operators.prepared import form_on, new_data
from mxkern.values.names import SchemeName
from mxkern.values.options import (
    SCALE_RULES,
    position,
)
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.scheme import Scheme, Shape

_FUNCTION = "prepare_both"


def _parts(x: Any, scheme: str, form: str, shape: Shape) -> tuple[Any, ...]:
    """Without values: what one side consists of."""
    if form == "source":
        return new_parts(_FUNCTION, x, scheme, shape, "row_major")
    return (new_data(_FUNCTION, x, scheme, shape, form),)


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
    form: Any = form_on(_FUNCTION, "folded", name, x.device)
    shape = tuple(x.shape)
    turned = transposed(_FUNCTION, shape)
    *parts, row_spreads, column_spreads = torch.ops.mxkern.prepare_both(
        x, name, form, scale_rule=scale_rule
    )
    half = len(parts) // 2
    rows = _operand(form, parts[:half], name, shape)
    columns = _operand(form, parts[half:], name, turned)
    return PreparedBoth(rows, columns, row_spreads, column_spreads)
