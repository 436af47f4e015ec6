# mxkern/torch/library.py: the operations as PyTorch's operators, torch.ops.mxkern, with what
# tracing has to know of their results. mxkern/torch/operators.py is for users.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import mxkern
from mxkern import errors
from mxkern.arrays.adapter import PLAIN_DTYPES
from mxkern.names import DtypeName, ScaleLayout, SchemeName
from mxkern.options import dtype_position
from mxkern.scheme import Shape, scheme_of, swizzled_size
from mxkern.shapes import grouped_shape, product_shape, transposed
from mxkern.torch.checks import plain_dtype_name, refuse_gradient, refuse_some_on_meta
from mxkern.torch.operands import block_scaled, check_parts, operand_of_kind, present

# Integers of an operator have 64 bits and a sign: seeds are meant modulo 2**64, and the 128 bits of
# a sign mask are written as a decimal string.
_WORD = 2**64 - 1
_ROUNDING = 'str scale_rule="rceil", str rounding="nearest", SymInt? seed=None, SymInt offset=0'
_BLOCK = "str? block=None, bool four_over_six=False"
_LAYOUT = 'str scale_layout="row_major"'
_HADAMARD = "int? hadamard=None, str? sign_mask=None"
# Programs on disk call what there was when they were compiled: what is added comes last.
_ADDED = "str? block_error=None"
_SCALARS = "Tensor? amax=None, Tensor? tensor_scale=None, Tensor? offset_at=None"
_BOTH_SCALARS = (
    "Tensor? row_amax=None, Tensor? column_amax=None, "
    "Tensor? row_tensor_scale=None, Tensor? column_tensor_scale=None, Tensor? offset_at=None"
)
_OPTIONS = f"*, {_ROUNDING}, {_BLOCK}, {_LAYOUT}, {_HADAMARD}"
_QUANTIZE = f"(Tensor x, str scheme, {_SCALARS}, {_OPTIONS}, {_ADDED}) -> Tensor[]"
_BOTH_OPTIONS = f"{_OPTIONS}, bool hadamard_rows=False, {_ADDED}"
_QUANTIZE_BOTH = f"(Tensor x, str scheme, {_BOTH_SCALARS}, {_BOTH_OPTIONS}) -> Tensor[]"
_FAKE_QUANTIZE = f"(Tensor x, str scheme, {_SCALARS}, *, {_ROUNDING}, {_BLOCK}, {_ADDED}) -> Tensor"
_DEQUANTIZE = f'(Tensor[] parts, str scheme, SymInt[] shape, *, {_LAYOUT}, str dtype="float32")'
_OPERANDS = "Tensor[] a, str a_kind, SymInt[] a_shape, Tensor[] b, str b_kind, SymInt[] b_shape"
_PRODUCT = (
    "Tensor? bias=None, Tensor? addend=None, *, float alpha=1.0, float beta=0.0, "
    'str precision="auto", str dtype="float32"'
)
_GROUPED = (
    "Tensor ends, Tensor? factors=None, Tensor? bias=None, Tensor? addend=None, *, "
    'float alpha=1.0, float beta=0.0, str dtype="float32", str precision="exact"'
)

_library = torch.library.Library("mxkern", "DEF")
_WITH_GRADIENT = ("fake_quantize",)


def _define(
    name: str, schema: str, traced: Callable[..., Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An operator of the function that does its work, on every device, and of one that gives its
    results without values. torch.library.custom_op does the same, at 50 us a call instead of 12;
    what it adds is a gradient that fails in the backward pass, which is late."""

    def trace(*arguments: Any, **options: Any) -> Any:
        # Of what has a gradient it is x that has one.
        without = arguments[1:] if name in _WITH_GRADIENT else arguments
        refuse_gradient(name, (without, options))
        refuse_some_on_meta(name, (arguments, options))
        return traced(*arguments, **options)

    def define(work: Callable[..., Any]) -> Callable[..., Any]:
        _library.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
        _library.impl(name, work, "CompositeExplicitAutograd")
        torch.library.register_fake(f"mxkern::{name}", trace, lib=_library)
        return work

    return define


def _dtype(function: str, name: str) -> Any:
    return getattr(torch, PLAIN_DTYPES[dtype_position(function, name)])


def _given(function: str, options: dict[str, Any], offset_at: Any = None) -> dict[str, Any]:
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


def _plain_shape(function: str, x: Any) -> Shape:
    """The shape of a plain tensor; its extents may be symbols."""
    plain_dtype_name(function, "x", x)
    if x.dim() == 0:
        raise ValueError(f"{function}: x is 0-d; expected one dimension or more")
    return tuple(x.shape)


def _new_parts(function: str, x: Any, scheme: str, shape: Shape, layout: str) -> list[Any]:
    """Codes, scales and, for nvfp4, the tensor scale, without values."""
    record = scheme_of(function, scheme)
    codes, scales = record.codes_shape(shape), record.scales_shape(shape, layout)
    parts = [
        x.new_empty(codes, dtype=getattr(torch, record.codes_dtype)),
        x.new_empty(scales, dtype=getattr(torch, record.scales_dtype, torch.uint8)),
    ]
    return [*parts, x.new_empty((), dtype=torch.float32)] if record.has_tensor_scale else parts


def _traced_rows(
    x: Any, scheme: str, *scalars: Any, scale_layout: str = "row_major", **options: Any
) -> list[Any]:
    shape = _plain_shape("quantize", x)
    return _new_parts("quantize", x, scheme, shape, scale_layout)


def _traced_columns(
    x: Any, scheme: str, *scalars: Any, scale_layout: str = "row_major", **options: Any
) -> list[Any]:
    function = "quantize_columns"
    shape = transposed(function, _plain_shape(function, x))
    return _new_parts(function, x, scheme, shape, scale_layout)


def _traced_both(
    x: Any, scheme: str, *scalars: Any, scale_layout: str = "row_major", **options: Any
) -> list[Any]:
    function = "quantize_both"
    shape = _plain_shape(function, x)
    return [
        part
        for side in (shape, transposed(function, shape))
        for part in _new_parts(function, x, scheme, side, scale_layout)
    ]


@_define("quantize", _QUANTIZE, _traced_rows)
def quantize(
    x: Any,
    scheme: SchemeName,
    amax: Any = None,
    tensor_scale: Any = None,
    offset_at: Any = None,
    **options: Any,
) -> list[Any]:
    options = _given("quantize", options, offset_at)
    return present(mxkern.quantize(x, scheme, amax=amax, tensor_scale=tensor_scale, **options))


@_define("quantize_columns", _QUANTIZE, _traced_columns)
def quantize_columns(
    x: Any,
    scheme: SchemeName,
    amax: Any = None,
    tensor_scale: Any = None,
    offset_at: Any = None,
    **options: Any,
) -> list[Any]:
    options = _given("quantize_columns", options, offset_at)
    return present(
        mxkern.quantize_columns(x, scheme, amax=amax, tensor_scale=tensor_scale, **options)
    )


@_define("quantize_both", _QUANTIZE_BOTH, _traced_both)
def quantize_both(
    x: Any,
    scheme: SchemeName,
    row_amax: Any = None,
    column_amax: Any = None,
    row_tensor_scale: Any = None,
    column_tensor_scale: Any = None,
    offset_at: Any = None,
    **options: Any,
) -> list[Any]:
    rows, columns = mxkern.quantize_both(
        x,
        scheme,
        amax=(row_amax, column_amax),
        tensor_scale=(row_tensor_scale, column_tensor_scale),
        **_given("quantize_both", options, offset_at),
    )
    return [*present(rows), *present(columns)]


@_define(
    "fake_quantize",
    _FAKE_QUANTIZE,
    lambda x, *rest, **options: x.new_empty(_plain_shape("fake_quantize", x)),
)
def fake_quantize(
    x: Any,
    scheme: SchemeName,
    amax: Any = None,
    tensor_scale: Any = None,
    offset_at: Any = None,
    **options: Any,
) -> Any:
    options = _given("fake_quantize", options, offset_at)
    return mxkern.fake_quantize(x, scheme, amax=amax, tensor_scale=tensor_scale, **options)


def _set_up_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.inputs = len(inputs)
    with torch.enable_grad():  # autograd has turned it off around this call
        refuse_gradient("fake_quantize", inputs[1:])


# The gradient goes straight through, as that of the identity.
torch.library.register_autograd(
    "mxkern::fake_quantize",
    lambda ctx, gradient: (gradient, *[None] * (ctx.inputs - 1)),
    setup_context=_set_up_context,
    lib=_library,
)


def _traced_dequantize(
    parts: list[Any], scheme: str, shape: list[int], *, dtype: str = "float32", **options: Any
) -> Any:
    check_parts("dequantize", "parts", parts, (2, 3))
    return parts[0].new_empty(tuple(shape), dtype=_dtype("dequantize", dtype))


@_define("dequantize", f"{_DEQUANTIZE} -> Tensor", _traced_dequantize)
def dequantize(
    parts: list[Any],
    scheme: SchemeName,
    shape: list[int],
    *,
    scale_layout: ScaleLayout = "row_major",
    dtype: DtypeName = "float32",
) -> Any:
    check_parts("dequantize", "parts", parts, (2, 3))
    return mxkern.dequantize(block_scaled(parts, scheme, shape, scale_layout), dtype=dtype)


def _traced_gemm(
    a: list[Any],
    a_kind: str,
    a_shape: list[int],
    b: list[Any],
    b_kind: str,
    b_shape: list[int],
    bias: Any = None,
    addend: Any = None,
    *,
    dtype: DtypeName = "float32",
    **options: Any,
) -> Any:
    shape = product_shape("gemm", tuple(a_shape), tuple(b_shape))
    operand_of_kind("gemm", "a", a, a_kind, a_shape)  # for its checks
    operand_of_kind("gemm", "b", b, b_kind, b_shape)
    _check_addend("gemm", addend, dtype)
    return b[0].new_empty(shape, dtype=_dtype("gemm", dtype))


@_define("gemm", f"({_OPERANDS}, {_PRODUCT}) -> Tensor", _traced_gemm)
def gemm(
    a: list[Any],
    a_kind: str,
    a_shape: list[int],
    b: list[Any],
    b_kind: str,
    b_shape: list[int],
    bias: Any = None,
    addend: Any = None,
    *,
    dtype: DtypeName = "float32",
    **options: Any,
) -> Any:
    left = operand_of_kind("gemm", "a", a, a_kind, a_shape)
    right = operand_of_kind("gemm", "b", b, b_kind, b_shape)
    out = _output_of("gemm", addend, dtype)
    return mxkern.gemm(left, right, bias=bias, out=out, dtype=dtype, **options)


def _traced_grouped_gemm(
    a: list[Any],
    a_kind: str,
    a_shape: list[int],
    b: list[Any],
    b_kind: str,
    b_shape: list[int],
    ends: Any,
    factors: Any = None,
    bias: Any = None,
    addend: Any = None,
    *,
    dtype: DtypeName = "float32",
    **options: Any,
) -> Any:
    operand_of_kind("grouped_gemm", "a", a, a_kind, a_shape)  # for its checks
    operand_of_kind("grouped_gemm", "b", b, b_kind, b_shape)
    shapes = tuple(a_shape), tuple(b_shape)
    shape = grouped_shape("grouped_gemm", *shapes, ends.numel())
    _check_addend("grouped_gemm", addend, dtype)
    return b[0].new_empty(shape, dtype=_dtype("grouped_gemm", dtype))


@_define("grouped_gemm", f"({_OPERANDS}, {_GROUPED}) -> Tensor", _traced_grouped_gemm)
def grouped_gemm(
    a: list[Any],
    a_kind: str,
    a_shape: list[int],
    b: list[Any],
    b_kind: str,
    b_shape: list[int],
    ends: Any,
    factors: Any = None,
    bias: Any = None,
    addend: Any = None,
    *,
    dtype: DtypeName = "float32",
    **options: Any,
) -> Any:
    left = operand_of_kind("grouped_gemm", "a", a, a_kind, a_shape)
    right = operand_of_kind("grouped_gemm", "b", b, b_kind, b_shape)
    options = {"factors": factors, "bias": bias, "dtype": dtype, **options}
    out = _output_of("grouped_gemm", addend, dtype)
    return mxkern.grouped_gemm(left, right, ends, out=out, **options)


def _output_of(function: str, addend: Any, dtype: str) -> Any:
    """What a product with a beta is added to; None for others. An operator that writes to its
    argument would be one more: the addend is copied instead."""
    _check_addend(function, addend, dtype)
    return None if addend is None else addend.clone(memory_format=torch.contiguous_format)


def _check_addend(function: str, addend: Any, dtype: str) -> None:
    """What beta adds has the dtype of the product, as compiled code makes room for it."""
    if addend is not None and addend.dtype != _dtype(function, dtype):
        raise TypeError(
            f"{function}: addend has dtype {addend.dtype}; expected {dtype}, that of the product; "
            "pass dtype= of the addend"
        )


def _traced_amax(x: Any) -> Any:
    _plain_shape("tensor_amax", x)
    return x.new_empty((), dtype=torch.float32)


@_define("tensor_amax", "(Tensor x) -> Tensor", _traced_amax)
def tensor_amax(x: Any) -> Any:
    return mxkern.tensor_amax(x)


@_define(
    "random_hadamard",
    "(Tensor x, int size=16, *, str? sign_mask=None, bool inverse=False) -> Tensor",
    lambda x, *rest, **options: x.new_empty(_plain_shape("random_hadamard", x)),
)
def random_hadamard(x: Any, size: int = 16, **options: Any) -> Any:
    return mxkern.random_hadamard(x, size, **_given("random_hadamard", options))


def _traced_swizzle(scales: Any) -> Any:
    rows = scales.shape[-2] if scales.dim() > 1 else 1
    return scales.new_empty((*scales.shape[:-2], swizzled_size(rows, scales.shape[-1])))


@_define("swizzle_scales", "(Tensor scales) -> Tensor", _traced_swizzle)
def swizzle_scales(scales: Any) -> Any:
    return mxkern.swizzle_scales(scales)


@_define(
    "unswizzle_scales",
    "(Tensor scales, SymInt rows, SymInt blocks) -> Tensor",
    lambda scales, rows, blocks: scales.new_empty((*scales.shape[:-1], rows, blocks)),
)
def unswizzle_scales(scales: Any, rows: int, blocks: int) -> Any:
    return mxkern.unswizzle_scales(scales, rows, blocks)
