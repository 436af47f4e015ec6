# mxkern/torch/operators/checks.py: what the functions of mxkern.torch check ahead of an operator,
# whose own refusal names the argument but no way out.
from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from mxkern import _core
from mxkern.arrays.adapter import PLAIN_DTYPES
from mxkern.arrays.torch import check_no_tangent, distributed
from mxkern.faults.arrays import factor as check_factor
from mxkern.faults.offset import check_offset
from mxkern.faults.operands import no_block_scaled
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.errors import other_dtype
from mxkern.values.options import OFFSET_DTYPES, dtype_position, name_of_dtype
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.scheme import NAMES, Scheme, unknown_scheme

# While PyTorch traces, numbers may be symbols.
_INTEGERS = (int, torch.SymInt)
_NUMBERS = (*_INTEGERS, torch.SymFloat, numbers.Real)
_SMALLEST_NORMAL = 2.0**-126
_LARGEST = 2.0**128 - 2.0**104  # of float32


def check_tensor(function: str, argument: str, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{function}: {argument} is {errors.described(value)}; expected a torch.Tensor; "
            f"convert an array with torch.from_numpy, or call mxkern.{function}"
        )
    if hasattr(value, "to_local"):
        raise distributed(function, argument)


def check_plain(function: str, argument: str, value: Any, *, derivative: bool = False) -> None:
    """A tensor whose derivative is not lost. torch.func hides from operators that there is one."""
    check_tensor(function, argument, value)
    if derivative:
        return
    if torch.is_grad_enabled() and value.requires_grad:
        raise ValueError(
            f"{function}: {argument} requires grad, and the result would have none; expected a "
            f"tensor without; pass {argument}.detach(), or call under torch.no_grad()"
        )
    check_no_tangent(function, argument, value)


def check_quantized(function: str, argument: str, q: Any) -> None:
    if not isinstance(q, BlockScaled):
        raise no_block_scaled(function, argument, q)
    if not isinstance(q.shape, (tuple, list)) or not all(isinstance(n, _INTEGERS) for n in q.shape):
        raise TypeError(
            f"{function}: {argument}.shape is {errors.described(q.shape)}; expected a tuple of ints"
        )
    if not isinstance(q.scale_layout, str):
        raise TypeError(
            f"{function}: {argument}.scale_layout is {errors.described(q.scale_layout)}; expected "
            "'row_major' or 'swizzled'"
        )
    check_plain(function, f"{argument}.codes", q.codes)
    check_plain(function, f"{argument}.scales", q.scales)
    if q.tensor_scale is None:
        return
    if isinstance(q.tensor_scale, _NUMBERS):
        raise TypeError(
            f"{function}: {argument}.tensor_scale is {errors.described(q.tensor_scale)}; expected "
            f"a float32 tensor, as an operator takes it; convert with "
            f"torch.tensor({argument}.tensor_scale)"
        )
    check_plain(function, f"{argument}.tensor_scale", q.tensor_scale)


def check_operand(function: str, argument: str, operand: Any) -> None:
    if isinstance(operand, BlockScaled):
        check_quantized(function, argument, operand)
    elif not isinstance(operand, PreparedOperand):
        check_plain(function, argument, operand)
    elif operand.source is not None:
        check_quantized(function, f"{argument}.source", operand.source)


def checked_integer(function: str, argument: str, value: Any, high: int) -> Any:
    """value, an int or a symbol in [0, high]."""
    if isinstance(value, bool) or not isinstance(value, _INTEGERS):
        return errors.integer(function, argument, value, 0, high)  # NumPy's are fine, others not
    if value < 0 or value > high:
        raise errors.out_of_range(function, argument, int(value), 0, high)
    return value


def _is_traced_scalar(value: Any) -> bool:
    """Whether PyTorch traces a scalar of NumPy's, which it has as an array without dimensions."""
    return torch.compiler.is_compiling() and isinstance(value, np.ndarray) and value.ndim == 0


def check_number(function: str, argument: str, value: Any) -> None:
    if _is_traced_scalar(value):
        raise TypeError(
            f"{function}: {argument} is a scalar of NumPy, which compiled code has as an array; "
            f"expected a number; make it one outside of compiled code, with float({argument})"
        )
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        raise errors.no_number(function, argument, value)
    if isinstance(value, int):
        errors.real(function, argument, value)  # may lie beyond all floats


def float32_tensor(function: str, argument: str, value: Any, like: Any) -> Any:
    """amax or tensor_scale as a tensor, if it is a number."""
    if value is None:
        return value
    if isinstance(value, torch.Tensor):
        check_plain(function, argument, value)
        return value
    if _is_traced_scalar(value):
        return torch.as_tensor(value).to(like.device, torch.float32)
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        raise TypeError(
            f"{function}: {argument} is {errors.described(value)}; expected a number, or a float32 "
            "tensor of one element"
        )
    number = errors.real(function, argument, value)
    check_factor(function, argument, number)
    known = isinstance(value, numbers.Real) and not torch.compiler.is_compiling()
    if known and 0 < abs(number) < _SMALLEST_NORMAL:
        # Where PyTorch flushes subnormals, full would make it zero.
        bits = _core.float32_bits(number)
        return torch.full((), bits, dtype=torch.int32, device=like.device).view(torch.float32)
    if isinstance(value, numbers.Real):
        value = min(number, _LARGEST)  # what rounds to it lies beyond what full takes
    return torch.full((), value, dtype=torch.float32, device=like.device)


def offset_tensor(function: str, options: dict[str, Any]) -> Any:
    """The offset of stochastic rounding, taken out of the options, if it is a tensor."""
    value = options.get("offset")
    if not isinstance(value, torch.Tensor):
        return None
    check_plain(function, "offset", value)
    name = str(value.dtype).removeprefix("torch.")
    if name not in OFFSET_DTYPES:
        raise TypeError(
            f"{function}: offset has dtype {name}; expected an int, or a tensor of "
            f"{errors.listed(OFFSET_DTYPES)}; convert with offset.to(torch.int64)"
        )
    check_offset(function, value)
    del options["offset"]
    return value


def dtype_name(function: str, dtype: Any) -> str:
    """The name of a dtype, for its name or what a framework calls it; an unknown one is the
    operator's to refuse."""
    name = dtype if isinstance(dtype, str) else name_of_dtype(dtype)
    if name is None:
        raise errors.unknown_name(function, "dtype", dtype, PLAIN_DTYPES)
    return str(name)


def plain_dtype_name(function: str, argument: str, array: Any) -> str:
    """The name of a tensor's dtype, which is a plain one."""
    name = str(array.dtype).removeprefix("torch.")
    if name not in PLAIN_DTYPES:
        raise TypeError(
            f"{function}: {argument} has dtype {name}; expected {errors.listed(PLAIN_DTYPES)}; "
            f"convert with {argument}.to(torch.float32)"
        )
    return name


def dtype_name_of_out(function: str, dtype: str, out: Any) -> str:
    """The name of out's dtype, which a dtype that is given does not contradict."""
    own = plain_dtype_name(function, "out", out)
    if dtype not in ("float32", own):
        dtype_position(function, dtype)  # for its error, where there is no such dtype
        raise other_dtype(function, dtype, own)
    return own


def scheme_name(function: str, scheme: Any) -> str:
    """The name without aliases; an unknown one is the operator's to refuse."""
    if isinstance(scheme, Scheme):
        return scheme.name
    if not isinstance(scheme, str):
        raise unknown_scheme(function, scheme)
    return NAMES.get(scheme, scheme)


def refuse_gradient(function: str, arguments: Any) -> None:
    """ValueError for one of a tensor, as the functions raise it for tensors that have memory."""
    leaves = tree_leaves(arguments) if torch.is_grad_enabled() else ()
    if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
        raise ValueError(
            f"{function}: an argument requires grad, and the result would have none; expected "
            "tensors without; pass x.detach(), or call under torch.no_grad()"
        )


def refuse_some_on_meta(function: str, arguments: Any) -> None:
    """One tensor on the meta device is enough for PyTorch to compute nothing: what it gives then is
    not on that device if others are not, and has no values either."""
    tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    if len({tensor.is_meta for tensor in tensors}) == 2:
        raise ValueError(
            f"{function}: an argument is on the meta device and has no values, and another one is "
            "on another device; expected one device; materialize the one on meta first, as with "
            "torch.empty_like(x, device=...) and its values"
        )
