# mxkern/torch/operators/prepared.py: prepare_operand as an operator of PyTorch.
from __future__ import annotations

import math
from typing import Any

import torch

from mxkern import _core
from mxkern import functions as eager
from mxkern.torch.operators.checks import check_quantized, scheme_name
from mxkern.torch.operators.compiler import constant
from mxkern.torch.operators.definition import define
from mxkern.torch.operators.operands import block_scaled
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.options import ASKED_FORMS, FORMS, PREPARED_FORMS, position, usable_form
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.scheme import scheme_of

_FUNCTION = "prepare_operand"
_NAMES = tuple(FORMS)


def new_data(function: str, x: Any, scheme: str, shape: Any, form: str) -> Any:
    """Without values: the data of a form, where x is."""
    number, record = position(function, "form", form, PREPARED_FORMS), scheme_of(function, scheme)
    *batch, rows, columns = (int(extent) for extent in shape)
    size = _core.prepared_bytes(number, record.id, math.prod(batch), rows, columns)
    return x.new_empty(size, dtype=torch.uint8)


def _traced(
    codes: Any, scales: Any, tensor_scale: Any, scheme: str, shape: list[int], form: str, **_: Any
) -> Any:
    return new_data(_FUNCTION, codes, scheme, (1, *shape), form)


@define(
    _FUNCTION,
    "(Tensor codes, Tensor scales, Tensor? tensor_scale, str scheme, SymInt[] shape, str form, *, "
    'str scale_layout="row_major") -> Tensor',
    _traced,
)
def prepared_data(
    codes: Any,
    scales: Any,
    tensor_scale: Any,
    scheme: Any,
    shape: list[int],
    form: Any,
    *,
    scale_layout: str = "row_major",
) -> Any:
    """The data of a form that products on the device read."""
    q = block_scaled((codes, scales, tensor_scale), scheme, shape, scale_layout)
    data = eager.prepare_operand(q, form=form).data
    if data is None:
        raise ValueError(
            f"{_FUNCTION}: form is {form!r}, which products on {codes.device} do not read; "
            "mxkern.torch.prepare_operand looks for one that they do"
        )
    return data


@constant
def _form(function: str, form: str, scheme: str, device: int) -> str:
    wanted = position(function, "form", form, ASKED_FORMS)
    return str(_NAMES[usable_form(function, wanted, scheme_of(function, scheme).id, device)])


def form_on(function: str, form: str, scheme: str, device: Any) -> str:
    """The form of a PreparedOperand on a device, which is what it is for all of a program."""
    return _form(function, form, scheme, device.index if device.type == "cuda" else -1)


def prepared(q: BlockScaled, form: str, keep_source: bool) -> PreparedOperand:
    """mxkern.prepare_operand of what is quantized, as an operator."""
    check_quantized(_FUNCTION, "x", q)
    name: Any = scheme_name(_FUNCTION, q.scheme)
    found: Any = form_on(_FUNCTION, form, name, q.codes.device)
    if found == "source":
        return PreparedOperand(found, None, q, name, q.shape)
    data = torch.ops.mxkern.prepare_operand(
        *q.parts, name, q.shape, found, scale_layout=q.scale_layout
    )
    kept = keep_source or q.tensor_scale is not None
    return PreparedOperand(found, data, q if kept else None, name, q.shape)
