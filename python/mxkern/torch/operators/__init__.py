# mxkern/torch/operators/__init__.py: mxkern inside of torch.compile, and fake_quantize with a
# gradient.
"""The functions of mxkern as operators of PyTorch.

    import mxkern.torch      # from here on torch.compile knows mxkern's functions

    @torch.compile(fullgraph=True)
    def layer(x, w):
        return mxkern.gemm(mxkern.quantize(x, "mxfp8"), w, dtype=x.dtype) + 1

Functions here have the names and arguments of mxkern's, and torch.compile takes them in the place
of those. They run as the operators torch.ops.mxkern.*, which give the same bytes. out= is for the
products only, and stream= for none: compiled code has memory and a stream of its own.

Operators have no derivative, and refuse tensors that ask for one. The exception is fake_quantize,
whose derivative is that of the identity ("straight through"), in torch.func's transforms too.
"""

from __future__ import annotations

from typing import Any

import torch

import mxkern.torch.operators.library  # noqa: F401  # defines the operators
from mxkern import functions as eager
from mxkern.arrays.torch import has_tangent
from mxkern.arrays.torch_functions import transforms_active
from mxkern.faults.shapes import each_way, transposed
from mxkern.ops.prepare_operand import check_kind
from mxkern.ops.quantize_schemes import MXFP6, MXFP8
from mxkern.torch.operators import custom
from mxkern.torch.operators.checks import (
    check_plain,
    check_quantized,
    check_tensor,
    checked_integer,
    dtype_name,
    float32_tensor,
    offset_tensor,
    scheme_name,
)
from mxkern.torch.operators.codes import pack_codes, unpack_codes
from mxkern.torch.operators.compiler import taken_for
from mxkern.torch.operators.custom import round_to
from mxkern.torch.operators.definition import TWO_LEVEL
from mxkern.torch.operators.experts import combine, expert_layer, swiglu
from mxkern.torch.operators.flops import teach_the_counter
from mxkern.torch.operators.keywords import refuse_others
from mxkern.torch.operators.operands import block_scaled
from mxkern.torch.operators.prepared import prepared
from mxkern.torch.operators.prepared_both import prepare_both
from mxkern.torch.operators.products import gemm, grouped_gemm
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.names import Dtype, SchemeName
from mxkern.values.options import (
    BLOCK_ERRORS,
    ROUNDINGS,
    SCALE_LAYOUTS,
    SCALE_RULES,
    four_over_six_of,
)
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.scheme import Scheme, schemes

_ops = torch.ops.mxkern

_MXFP8 = {format: scheme.name for format, scheme in MXFP8.items()}
_MXFP6 = {format: scheme.name for format, scheme in MXFP6.items()}
_TWO_LEVEL = frozenset(scheme.name for scheme in schemes if scheme.has_tensor_scale)
_CHOICES = {
    "scale_rule": tuple(SCALE_RULES),
    "rounding": tuple(ROUNDINGS),
    "scale_layout": tuple(SCALE_LAYOUTS),
}

__all__ = [
    "combine",
    "dequantize",
    "expert_layer",
    "fake_quantize",
    "gemm",
    "grouped_gemm",
    "pack_codes",
    "prepare_both",
    "prepare_operand",
    "quantize",
    "quantize_both",
    "quantize_columns",
    "quantize_mxfp4",
    "quantize_mxfp6",
    "quantize_mxfp8",
    "quantize_mxint8",
    "quantize_nvfp4",
    "random_hadamard",
    "round_to",
    "swiglu",
    "swizzle_scales",
    "tensor_amax",
    "transpose_square_blocks",
    "unpack_codes",
    "unswizzle_scales",
]


def _int64(function: str, argument: str, value: int) -> int:
    """A number below 2**64 as the int of an operator that is equal modulo 2**64."""
    number: int = checked_integer(function, argument, value, 2**64 - 1)
    return number - 2**64 if number >= 2**63 else number


def _options(function: str, options: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of mxkern's functions as an operator takes them."""
    refuse_others(function, options)
    for name in ("seed", "offset"):
        if options.get(name) is not None or (name == "offset" and name in options):
            options[name] = _int64(function, name, options[name])
    if options.get("sign_mask") is not None:
        mask = checked_integer(function, "sign_mask", options["sign_mask"], 2**128 - 1)
        options["sign_mask"] = str(mask)
    for name, choices in _CHOICES.items():
        value = options.get(name, choices[0])
        if not isinstance(value, str) or value not in choices:
            raise errors.unknown_name(function, name, value, choices)
    if options.get("hadamard") is not None:
        checked_integer(function, "hadamard", options["hadamard"], 2**31 - 1)
    for name in ("hadamard_rows", "inverse", "columns"):
        if name in options:
            errors.flag(function, name, options[name])
    if "four_over_six" in options:
        choice = four_over_six_of(function, options["four_over_six"])
        options["four_over_six"] = choice > 0
        if choice > 1:
            options["block_error"] = tuple(BLOCK_ERRORS)[choice - 1]
    block = options.get("block")
    if isinstance(block, tuple) and all(isinstance(extent, int) for extent in block):
        options["block"] = "x".join(str(extent) for extent in block)
    elif block is not None and not isinstance(block, str):
        raise TypeError(f"{function}: block is {errors.described(block)}; expected '32x32' or None")
    return options


def _operator(function: str, scheme: str) -> Any:
    """The one that returns as many tensors as the scheme has."""
    return getattr(_ops, function + TWO_LEVEL if scheme in _TWO_LEVEL else function)


def _quantized(function: str, op: Any, x: Any, scheme: Any, options: dict[str, Any]) -> Any:
    """Runs an operator that quantizes one way: its results."""
    check_plain(function, "x", x, derivative=function == "fake_quantize")
    amax = float32_tensor(function, "amax", options.pop("amax", None), x)
    tensor_scale = float32_tensor(function, "tensor_scale", options.pop("tensor_scale", None), x)
    scalars = (amax, tensor_scale, offset_tensor(function, options))
    return op(x, scheme_name(function, scheme), *scalars, **_options(function, options))


def quantize(x: Any, scheme: SchemeName | Scheme, **options: Any) -> BlockScaled:
    """mxkern.quantize as an operator."""
    return _quantized_rows("quantize", x, scheme, options)


def _quantized_rows(function: str, x: Any, scheme: Any, options: dict[str, Any]) -> BlockScaled:
    layout = options.get("scale_layout", "row_major")
    name = scheme_name(function, scheme)
    parts = _quantized(function, _operator("quantize", name), x, scheme, options)
    return block_scaled(parts, name, tuple(x.shape), layout)


def quantize_columns(x: Any, scheme: SchemeName | Scheme, **options: Any) -> BlockScaled:
    """mxkern.quantize_columns as an operator."""
    function = "quantize_columns"
    layout = options.get("scale_layout", "row_major")
    name = scheme_name(function, scheme)
    parts = _quantized(function, _operator(function, name), x, scheme, options)
    return block_scaled(parts, name, transposed(function, tuple(x.shape)), layout)


def quantize_both(
    x: Any, scheme: SchemeName | Scheme, **options: Any
) -> tuple[BlockScaled, BlockScaled]:
    """mxkern.quantize_both as an operator."""
    function = "quantize_both"
    check_plain(function, "x", x)
    name = scheme_name(function, scheme)
    layout = options.get("scale_layout", "row_major")
    scalars = []
    for argument in ("amax", "tensor_scale"):
        pair = each_way(function, argument, options.pop(argument, None))
        scalars += [float32_tensor(function, argument, side, x) for side in pair]
    scalars.append(offset_tensor(function, options))
    parts = _operator(function, name)(x, name, *scalars, **_options(function, options))
    shape, half = tuple(x.shape), len(parts) // 2
    return (
        block_scaled(parts[:half], name, shape, layout),
        block_scaled(parts[half:], name, transposed(function, shape), layout),
    )


def _quantized_family(
    function: str, x: Any, format: Any, formats: dict[str, SchemeName], options: dict[str, Any]
) -> BlockScaled:
    if not isinstance(format, str) or format not in formats:
        raise errors.unknown_name(function, "format", format, formats)
    return _quantized_rows(function, x, formats[format], options)


def quantize_mxfp8(x: Any, *, format: str = "e4m3", **options: Any) -> BlockScaled:
    """mxkern.quantize_mxfp8 as an operator."""
    return _quantized_family("quantize_mxfp8", x, format, _MXFP8, options)


def quantize_mxfp6(x: Any, *, format: str = "e2m3", **options: Any) -> BlockScaled:
    """mxkern.quantize_mxfp6 as an operator."""
    return _quantized_family("quantize_mxfp6", x, format, _MXFP6, options)


def quantize_mxfp4(x: Any, **options: Any) -> BlockScaled:
    """mxkern.quantize_mxfp4 as an operator."""
    return _quantized_rows("quantize_mxfp4", x, "mxfp4", options)


def quantize_mxint8(x: Any, **options: Any) -> BlockScaled:
    """mxkern.quantize_mxint8 as an operator."""
    return _quantized_rows("quantize_mxint8", x, "mxint8", options)


def quantize_nvfp4(x: Any, **options: Any) -> BlockScaled:
    """mxkern.quantize_nvfp4 as an operator."""
    return _quantized_rows("quantize_nvfp4", x, "nvfp4", options)


class _StraightThrough(torch.autograd.Function):  # type: ignore[misc]  # no types there
    """fake_quantize where torch.func differentiates, which has no use for an operator's."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Any, amax: Any, tensor_scale: Any, offset_at: Any, scheme: str, options: dict[str, Any]
    ) -> Any:
        return _ops.fake_quantize(x, scheme, amax, tensor_scale, offset_at, **options)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.others = len(inputs) - 1

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, *[None] * ctx.others

    @staticmethod
    def jvp(ctx: Any, tangent: Any, *others: Any) -> Any:
        return tangent.clone()


def _is_transformed(x: Any) -> bool:
    """Whether torch.func, or forward-mode differentiation, sees to x."""
    if torch.compiler.is_compiling():
        return False
    return transforms_active() or has_tangent(x)


def _fake_quantized(
    x: Any, scheme: str, amax: Any, tensor_scale: Any, offset_at: Any, **options: Any
) -> Any:
    if _is_transformed(x):
        return _StraightThrough.apply(x, amax, tensor_scale, offset_at, scheme, options)
    return _ops.fake_quantize(x, scheme, amax, tensor_scale, offset_at, **options)


def fake_quantize(x: Any, scheme: SchemeName | Scheme, **options: Any) -> Any:
    """mxkern.fake_quantize as an operator, with the derivative of the identity."""
    if custom.is_custom(scheme, options):
        return custom.fake_quantize(x, scheme, options)
    return _quantized("fake_quantize", _fake_quantized, x, scheme, options)


def prepare_operand(
    x: Any,
    scheme: SchemeName | Scheme | None = None,
    *,
    form: str = "auto",
    scale_rule: str = "rceil",
    keep_source: bool = True,
    **options: Any,
) -> PreparedOperand:
    """mxkern.prepare_operand as an operator; a plain x is quantized by another one first."""
    function = "prepare_operand"
    refuse_others(function, options)
    errors.flag(function, "keep_source", keep_source)
    check_kind(x, scheme, scale_rule)
    if scheme is not None:
        x = _quantized_rows(function, x, scheme, {"scale_rule": scale_rule})
    return prepared(x, form, keep_source)


def dequantize(q: BlockScaled, *, dtype: Dtype = "float32", **options: Any) -> Any:
    """mxkern.dequantize as an operator."""
    refuse_others("dequantize", options)
    check_quantized("dequantize", "q", q)
    return _ops.dequantize(
        *q.parts,
        scheme_name("dequantize", q.scheme),
        q.shape,
        scale_layout=q.scale_layout,
        dtype=dtype_name("dequantize", dtype),
        **options,
    )


def transpose_square_blocks(q: BlockScaled, **options: Any) -> BlockScaled:
    """mxkern.transpose_square_blocks as an operator."""
    function = "transpose_square_blocks"
    refuse_others(function, options)
    check_quantized(function, "q", q)
    name, shape = scheme_name(function, q.scheme), transposed(function, tuple(q.shape))
    parts = _ops.transpose_square_blocks(
        q.codes, q.scales, name, q.shape, scale_layout=q.scale_layout
    )
    return block_scaled((*parts, q.tensor_scale), name, shape, q.scale_layout)


def random_hadamard(x: Any, size: int = 16, **options: Any) -> Any:
    """mxkern.random_hadamard as an operator."""
    check_plain("random_hadamard", "x", x)
    size = checked_integer("random_hadamard", "size", size, 2**31 - 1)
    return _ops.random_hadamard(x, size, **_options("random_hadamard", options))


def tensor_amax(x: Any, **options: Any) -> Any:
    """mxkern.tensor_amax as an operator."""
    check_plain("tensor_amax", "x", x)
    return _ops.tensor_amax(x, **_options("tensor_amax", options))


def swizzle_scales(scales: Any, **options: Any) -> Any:
    """mxkern.swizzle_scales as an operator."""
    refuse_others("swizzle_scales", options)
    check_tensor("swizzle_scales", "scales", scales)
    if scales.dim() == 0:
        raise ValueError("swizzle_scales: scales is 0-d; expected one dimension or more")
    return _ops.swizzle_scales(scales, **options)


def unswizzle_scales(scales: Any, rows: int, blocks: int, **options: Any) -> Any:
    """mxkern.unswizzle_scales as an operator."""
    refuse_others("unswizzle_scales", options)
    check_tensor("unswizzle_scales", "scales", scales)
    rows = checked_integer("unswizzle_scales", "rows", rows, 2**31 - 1)
    blocks = checked_integer("unswizzle_scales", "blocks", blocks, 2**31 - 1)
    return _ops.unswizzle_scales(scales, rows, blocks, **options)


def _teach_the_compiler() -> None:
    """torch.compile takes the functions here in the place of mxkern's."""
    for name in __all__:
        taken_for(getattr(eager, name), skip_signature_check=True)(globals()[name])


_teach_the_compiler()
teach_the_counter()
