# mxkern/torch/quantized/linear.py: the linear layer of a weight that is stored quantized.
from __future__ import annotations

from typing import Any, Literal

import torch

from mxkern.torch.operators.checks import plain_dtype_name
from mxkern.torch.quantized.operations import input_gradient, multiply
from mxkern.torch.quantized.tensor import DTYPES, QuantizedTensor, functions
from mxkern.values import errors
from mxkern.values.names import GemmPrecision, SchemeName
from mxkern.values.recipe import Operand


def frozen_linear(
    x: torch.Tensor,
    weight: QuantizedTensor,
    bias: torch.Tensor | None = None,
    *,
    input: SchemeName | Operand | None = None,
    amax: Any = None,
    precision: GemmPrecision | Literal["fast"] = "auto",
) -> torch.Tensor:
    """x . W^T + bias, with a gradient for x and bias and none for the weight.

    x          [..., K], float32, float16 or bfloat16; [..., N] of the same dtype is returned
    weight     a QuantizedTensor [N, K] that requires no grad
    bias       [N], added before the product is rounded
    input      None: x is multiplied as it is (weight only). A scheme, or an Operand: x is quantized
               in the call
    amax       nvfp4: the largest magnitude of all inputs, a float32 tensor (static); by default
               that of x
    precision  as in mxkern.gemm, or "fast", as in a Recipe, where x is quantized

    dx is G . W: by the weight's columns if it has them, else by its decoded values. Raises
    TypeError and ValueError.
    """
    function = "frozen_linear"
    if not isinstance(weight, QuantizedTensor) or weight.dim() != 2 or weight.facts.transposed:
        raise TypeError(
            f"{function}: weight is {errors.described(weight)} of {errors.shape_of(weight)}; "
            "expected a QuantizedTensor [N, K]; call QuantizedTensor.from_float, and for experts "
            "mxkern.grouped_gemm(x, weight.quantized, ends)"
        )
    if not isinstance(x, torch.Tensor) or x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        got = errors.shape_of(x) or errors.described(x)
        raise ValueError(f"{function}: x is {got}; expected a tensor [..., {weight.shape[1]}]")
    if x.dtype not in DTYPES:
        plain_dtype_name(function, "x", x)
    if weight.requires_grad:
        raise ValueError(
            f"{function}: weight requires grad, and would get none; expected one without; hold it "
            "by torch.nn.Parameter(weight, requires_grad=False)"
        )
    if amax is not None and input is None:
        raise ValueError(f"{function}: amax is given, and input is None; pass input='nvfp4'")
    if isinstance(input, Operand) and input.rounding != "nearest":
        raise ValueError(
            f"{function}: input.rounding is {input.rounding!r}; expected 'nearest', as the result "
            "has no seed; pass input.with_(rounding='nearest')"
        )
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    rows = x.flatten(0, -2) if x.dim() > 2 else x
    needed = x.requires_grad or (bias is not None and bias.requires_grad)
    arguments = (rows, bias, weight, amax, input, precision)
    if needed and torch.is_grad_enabled():
        out = _FrozenLinear.apply(*arguments)
    else:
        out = _forward(*arguments)
    return out.view(*x.shape[:-1], weight.shape[0]) if x.dim() > 2 else out


def _forward(x: Any, bias: Any, weight: Any, amax: Any, input: Any, precision: Any) -> Any:
    dtype = x.dtype
    if input is not None:
        scheme, options = input, {}
        if not isinstance(input, str):
            scheme, options = input.scheme, input.options
        x = functions(x).quantize(x, scheme, amax=amax, **options)
    return multiply(x, weight, bias, dtype=dtype, precision=precision)


class _FrozenLinear(torch.autograd.Function):  # type: ignore[misc]  # no types there
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        _, bias, weight, *_ = arguments
        ctx.save_for_backward(weight)
        ctx.bias_dtype = None if bias is None else bias.dtype
        return _forward(*arguments)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Any) -> Any:
        (weight,) = ctx.saved_tensors
        dx = input_gradient(gradient, weight) if ctx.needs_input_grad[0] else None
        db = None
        if ctx.needs_input_grad[1]:
            rows = gradient if gradient.dim() > 1 else gradient[None]
            db = rows.sum(0, dtype=torch.float32).to(ctx.bias_dtype)
        return dx, db, None, None, None, None
