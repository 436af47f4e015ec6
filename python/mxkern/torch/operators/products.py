# mxkern/torch/operators/products.py: the products of mxkern.torch, which may be written to a
# tensor.
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from mxkern.arrays.torch import check_storage
from mxkern.arrays.torch_functions import transforms_active
from mxkern.faults.operands import GROUPED_PRECISIONS, beta_needs_out
from mxkern.torch.operators.checks import (
    check_number,
    check_operand,
    check_plain,
    check_tensor,
    dtype_name,
    dtype_name_of_out,
)
from mxkern.torch.operators.keywords import refuse_others
from mxkern.torch.operators.operands import kind_of
from mxkern.values import errors
from mxkern.values.names import Dtype, GemmPrecision, GroupedPrecision
from mxkern.values.options import PRECISIONS
from mxkern.values.prepared_operand import Operand

_ops = torch.ops.mxkern


def gemm(
    a: Any,
    b: Operand[Any],
    *,
    dtype: Dtype = "float32",
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Any = None,
    precision: GemmPrecision = "auto",
    **options: Any,
) -> Any:
    """mxkern.gemm as an operator."""
    function = "gemm"
    refuse_others(function, options)
    operands = _operands(function, a, b)
    _check_numbers(function, alpha, beta, out)
    check_precision(function, precision, PRECISIONS)
    if bias is not None:
        check_plain(function, "bias", bias)
    name, addend = _output(function, dtype_name(function, dtype), beta, out)
    numbers = {"alpha": alpha, "beta": beta, "precision": precision, "dtype": name}
    return _written(function, _ops.gemm(*operands, bias, addend, **numbers), out)


def grouped_gemm(
    a: Any,
    b: Operand[Any],
    ends: Any,
    *,
    dtype: Dtype = "float32",
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    factors: Any = None,
    bias: Any = None,
    rows: Any = None,
    precision: GroupedPrecision = "exact",
    **options: Any,
) -> Any:
    """mxkern.grouped_gemm as an operator."""
    function = "grouped_gemm"
    refuse_others(function, options)
    check_precision(function, precision)
    operands = _operands(function, a, b)
    check_tensor(function, "ends", ends)
    _check_numbers(function, alpha, beta, out)
    for argument, value in (("factors", factors), ("bias", bias)):
        if value is not None:
            check_plain(function, argument, value)
    if rows is not None:
        check_tensor(function, "rows", rows)
    name, addend = _output(function, dtype_name(function, dtype), beta, out)
    numbers = {"alpha": alpha, "beta": beta, "precision": precision, "dtype": name}
    product = _ops.grouped_gemm(*operands, ends, factors, bias, addend, rows, **numbers)
    return _written(function, product, out)


def _operands(function: str, a: Any, b: Any) -> tuple[Any, ...]:
    check_operand(function, "a", a)
    check_operand(function, "b", b)
    return *kind_of(function, a), *kind_of(function, b)


def _check_numbers(function: str, alpha: Any, beta: Any, out: Any) -> None:
    check_number(function, "alpha", alpha)
    check_number(function, "beta", beta)
    if out is None and beta != 0.0:
        beta_needs_out(function, beta)


def check_precision(
    function: str, precision: Any, names: Iterable[str] = GROUPED_PRECISIONS
) -> None:
    """An unknown name is the operator's to refuse."""
    if not isinstance(precision, str):
        raise errors.unknown_name(function, "precision", precision, names)


def _output(function: str, dtype: str, beta: float, out: Any) -> tuple[str, Any]:
    """The dtype of a product, and what beta adds to it."""
    if out is None:
        return dtype, None
    check_plain(function, "out", out)
    # PyTorch's copy_ does not survive a storage that was freed.
    has_memory = out.layout == torch.strided and not out.is_meta
    if has_memory and not torch.compiler.is_compiling() and not transforms_active():
        check_storage(function, "out", out)
    return dtype_name_of_out(function, dtype, out), out if beta != 0.0 else None


def _written(function: str, product: Any, out: Any) -> Any:
    if out is None:
        return product
    if out.shape != product.shape:
        raise ValueError(
            f"{function}: out has shape {tuple(out.shape)}; expected {tuple(product.shape)}"
        )
    if out.device != product.device:
        raise ValueError(
            f"{function}: out is on {out.device}, and the product on {product.device}; expected "
            f"one device; leave out out, or pass one made with device={str(product.device)!r}"
        )
    return out.copy_(product)
