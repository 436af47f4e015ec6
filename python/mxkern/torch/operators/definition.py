# mxkern/torch/operators/definition.py: how an operation becomes an operator of PyTorch.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mxkern.arrays.adapter import PLAIN_DTYPES
from mxkern.torch.operators.checks import plain_dtype_name, refuse_gradient, refuse_some_on_meta
from mxkern.values import errors
from mxkern.values.options import dtype_position
from mxkern.values.scheme import Shape, scheme_of

# Integers of an operator have 64 bits and a sign: seeds are meant modulo 2**64, and the 128 bits of
# a sign mask are written as a decimal string.
_WORD = 2**64 - 1
TWO_LEVEL = "_two_level"  # ends the names of operators whose results have a tensor scale
library = torch.library.Library("mxkern", "DEF")
_WITH_GRADIENT = ("fake_quantize", "custom_fake_quantize", "round_to")


def define(
    name: str, schema: str, traced: Callable[..., Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An operator of the function that does its work, on every device, and of one that gives its
    results without values. torch.library.custom_op does the same, at 50 us a call instead of 12;
    what it adds is a gradient that fails in the backward pass, which is late."""

    function = name.removesuffix(TWO_LEVEL)

    def trace(*arguments: Any, **options: Any) -> Any:
        # An operator with a derivative has it for x, its first argument.
        without = arguments[1:] if name in _WITH_GRADIENT else arguments
        refuse_gradient(function, (without, options))
        refuse_some_on_meta(function, (arguments, options))
        return traced(*arguments, **options)

    def defined(work: Callable[..., Any]) -> Callable[..., Any]:
        library.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
        library.impl(name, work, "CompositeExplicitAutograd")
        torch.library.register_fake(f"mxkern::{name}", trace, lib=library)
        return work

    return defined


def torch_dtype(function: str, name: str) -> Any:
    return getattr(torch, PLAIN_DTYPES[dtype_position(function, name)])


def given(function: str, options: dict[str, Any], offset_at: Any = None) -> dict[str, Any]:
    """Keyword arguments of mxkern's functions for those of an operator, which has an argument of
    its own for an offset that is a tensor."""
    for name in ("seed", "offset"):
        if options.get(name) is not None:
            options[name] &= _WORD
    if (error := options.pop("block_error", None)) is not None:
        options["four_over_six"] = error
    if (mask := options.get("sign_mask")) is not None:
        if not mask.isdecimal():
            raise ValueError(
                f"{function}: sign_mask is {errors.described(mask)}; expected the digits of an int"
            )
        options["sign_mask"] = int(mask)
    if offset_at is not None:
        if options.get("offset", 0) != 0:
            raise ValueError(
                f"{function}: offset and offset_at are both given; expected one of them"
            )
        options["offset"] = offset_at
    return options


def straight_through(name: str) -> None:
    """Gives an operator the derivative of the identity in its first argument."""

    def set_up_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        ctx.inputs = len(inputs)
        with torch.enable_grad():  # autograd has turned it off around this call
            refuse_gradient("fake_quantize", inputs[1:])

    torch.library.register_autograd(
        f"mxkern::{name}",
        lambda ctx, gradient: (gradient, *[None] * (ctx.inputs - 1)),
        setup_context=set_up_context,
        lib=library,
    )


def new_parts(function: str, x: Any, scheme: str, shape: Shape, layout: str) -> tuple[Any, ...]:
    """Codes, scales and, where the scheme has one, the tensor scale, without values."""
    record = scheme_of(function, scheme)
    codes, scales = record.codes_shape(shape), record.scales_shape(shape, layout)
    parts = (
        x.new_empty(codes, dtype=getattr(torch, record.codes_dtype)),
        x.new_empty(scales, dtype=getattr(torch, record.scales_dtype, torch.uint8)),
    )
    return (*parts, x.new_empty((), dtype=torch.float32)) if record.has_tensor_scale else parts


def plain_shape(function: str, x: Any) -> Shape:
    """The shape of a plain tensor; its extents may be symbols."""
    plain_dtype_name(function, "x", x)
    if x.dim() == 0:
        raise ValueError(f"{function}: x is 0-d; expected one dimension or more")
    return tuple(x.shape)
