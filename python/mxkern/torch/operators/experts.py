# mxkern/torch/operators/experts.py: the layer of a mixture of experts, and what it consists of
# beside products, as functions of mxkern.torch.
from __future__ import annotations

from typing import Any

import torch

from mxkern.torch.operators.checks import (
    check_number,
    check_operand,
    check_plain,
    check_tensor,
    checked_integer,
    dtype_name,
    scheme_name,
)
from mxkern.torch.operators.keywords import refuse_others
from mxkern.torch.operators.operands import kind_of
from mxkern.torch.operators.products import check_precision
from mxkern.values import errors
from mxkern.values.names import Dtype, GroupedPrecision, SchemeName
from mxkern.values.prepared_operand import Operand
from mxkern.values.scheme import Scheme

_ops = torch.ops.mxkern


def _check_activation(
    function: str, alpha: Any, limit: Any, offset: Any, interleaved: Any
) -> dict[str, Any]:
    check_number(function, "alpha", alpha)
    check_number(function, "offset", offset)
    if limit is not None:
        check_number(function, "limit", limit)
    errors.flag(function, "interleaved", interleaved)
    return {"alpha": alpha, "limit": limit, "offset": offset, "interleaved": interleaved}


def swiglu(
    x: Any,
    *,
    alpha: float = 1.0,
    limit: float | None = None,
    offset: float = 0.0,
    interleaved: bool = False,
    **options: Any,
) -> Any:
    """mxkern.swiglu as an operator."""
    function = "swiglu"
    refuse_others(function, options)
    check_plain(function, "x", x)
    return _ops.swiglu(x, **_check_activation(function, alpha, limit, offset, interleaved))


def combine(
    y: Any, rows: Any, weights: Any, tokens: int, *, dtype: Dtype | None = None, **options: Any
) -> Any:
    """mxkern.combine as an operator."""
    function = "combine"
    refuse_others(function, options)
    check_plain(function, "y", y)
    check_tensor(function, "rows", rows)
    if weights is not None:
        check_plain(function, "weights", weights)
    count = checked_integer(function, "tokens", tokens, 2**31 - 2)
    name = None if dtype is None else dtype_name(function, dtype)
    return _ops.combine(y, rows, weights, count, dtype=name)


def expert_layer(
    x: Any,
    gate_up: Operand[Any],
    down: Operand[Any],
    ends: Any,
    rows: Any,
    weights: Any = None,
    *,
    gate_up_bias: Any = None,
    down_bias: Any = None,
    gate_up_factors: Any = None,
    down_factors: Any = None,
    alpha: float = 1.0,
    limit: float | None = None,
    offset: float = 0.0,
    interleaved: bool = False,
    scheme: SchemeName | Scheme | None = None,
    scale_rule: str = "rceil",
    precision: GroupedPrecision = "exact",
    dtype: Dtype | None = None,
    **options: Any,
) -> Any:
    """mxkern.expert_layer as an operator."""
    function = "expert_layer"
    refuse_others(function, options)
    check_precision(function, precision)
    operands: tuple[Any, ...] = ()
    for argument, operand in (("x", x), ("gate_up", gate_up), ("down", down)):
        check_operand(function, argument, operand)
        operands += kind_of(function, operand)
    check_tensor(function, "ends", ends)
    check_tensor(function, "rows", rows)
    others = {
        "weights": weights,
        "gate_up_bias": gate_up_bias,
        "down_bias": down_bias,
        "gate_up_factors": gate_up_factors,
        "down_factors": down_factors,
    }
    for argument, value in others.items():
        if value is not None:
            check_plain(function, argument, value)
    return _ops.expert_layer(
        *operands,
        ends,
        rows,
        *others.values(),
        **_check_activation(function, alpha, limit, offset, interleaved),
        scheme=None if scheme is None else scheme_name(function, scheme),
        scale_rule=scale_rule,
        precision=precision,
        dtype=None if dtype is None else dtype_name(function, dtype),
    )
