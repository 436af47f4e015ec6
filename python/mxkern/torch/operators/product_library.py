# mxkern/torch/operators/product_library.py: the products as PyTorch's operators.
from __future__ import annotations

from typing import Any

import torch

from mxkern import faults
from mxkern import functions as eager
from mxkern.faults.shapes import grouped_shape, product_shape
from mxkern.torch.operators.definition import define, torch_dtype
from mxkern.torch.operators.operands import operand_of_kind
from mxkern.values.names import DtypeName

FIELDS = 6  # arguments of an operand, as kind_of gives them


def fields_of_operand(name: str) -> str:
    """The arguments of an operand in a schema."""
    return (
        f"Tensor {name}, Tensor? {name}_scales, Tensor? {name}_tensor_scale, Tensor? "
        f"{name}_source, str {name}_kind, SymInt[]? {name}_shape"
    )


_OPERANDS = ", ".join(map(fields_of_operand, ("a", "b")))
_PRODUCT = (
    "Tensor? bias=None, Tensor? addend=None, *, float alpha=1.0, float beta=0.0, "
    'str precision="auto", str dtype="float32"'
)
# Programs on disk call what there was when they were compiled: what is added comes last.
_GROUPED = (
    "Tensor ends, Tensor? factors=None, Tensor? bias=None, Tensor? addend=None, "
    "Tensor? rows=None, *, "
    'float alpha=1.0, float beta=0.0, str dtype="float32", str precision="exact"'
)


def split_arguments(function: str, arguments: tuple[Any, ...], others: int) -> tuple[Any, ...]:
    """Both operands, and so many other arguments: PyTorch leaves out the last ones that are None,
    and gives all by position."""
    a, b, rest = arguments[:FIELDS], arguments[FIELDS : 2 * FIELDS], arguments[2 * FIELDS :]
    operands = operand_of_kind(function, "a", *a), operand_of_kind(function, "b", *b)
    return *operands, *rest, *[None] * (others - len(rest))


def _traced_gemm(*arguments: Any, dtype: DtypeName = "float32", **options: Any) -> Any:
    a, b, _, addend = split_arguments("gemm", arguments, 2)
    shape = product_shape("gemm", tuple(a.shape), tuple(b.shape))
    _check_addend("gemm", addend, dtype)
    return arguments[FIELDS].new_empty(shape, dtype=torch_dtype("gemm", dtype))


@define("gemm", f"({_OPERANDS}, {_PRODUCT}) -> Tensor", _traced_gemm)
def gemm(*arguments: Any, dtype: DtypeName = "float32", **options: Any) -> Any:
    a, b, bias, addend = split_arguments("gemm", arguments, 2)
    out = _output_of("gemm", addend, dtype)
    return eager.gemm(a, b, bias=bias, out=out, dtype=dtype, **options)


def _traced_grouped_gemm(*arguments: Any, dtype: DtypeName = "float32", **options: Any) -> Any:
    a, b, ends, _, _, addend, rows = split_arguments("grouped_gemm", arguments, 5)
    shape = grouped_shape("grouped_gemm", tuple(a.shape), tuple(b.shape), ends.numel())
    if rows is not None:
        if len(shape) == 3:
            faults.rows_of_columns("grouped_gemm", tuple(b.shape))
        shape = (rows.numel(), shape[1])
    _check_addend("grouped_gemm", addend, dtype)
    return arguments[FIELDS].new_empty(shape, dtype=torch_dtype("grouped_gemm", dtype))


@define("grouped_gemm", f"({_OPERANDS}, {_GROUPED}) -> Tensor", _traced_grouped_gemm)
def grouped_gemm(*arguments: Any, dtype: DtypeName = "float32", **options: Any) -> Any:
    a, b, ends, factors, bias, addend, rows = split_arguments("grouped_gemm", arguments, 5)
    out = _output_of("grouped_gemm", addend, dtype)
    options |= {"factors": factors, "bias": bias, "rows": rows, "dtype": dtype}
    return eager.grouped_gemm(a, b, ends, out=out, **options)


def _output_of(function: str, addend: Any, dtype: str) -> Any:
    """What a product with a beta is added to; None for others. An operator that writes to its
    argument would be one more: the addend is copied instead."""
    _check_addend(function, addend, dtype)
    return None if addend is None else addend.clone(memory_format=torch.contiguous_format)


def _check_addend(function: str, addend: Any, dtype: str) -> None:
    """What beta adds has the dtype of the product, as compiled code makes room for it."""
    if addend is not None and addend.dtype != torch_dtype(function, dtype):
        raise TypeError(
            f"{function}: addend has dtype {addend.dtype}; expected {dtype}, that of the product; "
            "pass dtype= of the addend"
        )
