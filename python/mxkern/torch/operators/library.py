# mxkern/torch/operators/library.py: the operations as PyTorch's operators, torch.ops.mxkern, with
# what tracing has to know of their results; the products are in product_library.py.
# mxkern/torch/operators/__init__.py is for users.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mxkern import functions as eager
from mxkern.faults.shapes import transposed
from mxkern.torch.operators.definition import (
    TWO_LEVEL,
    define,
    given,
    new_parts,
    plain_shape,
    straight_through,
    torch_dtype,
)
from mxkern.torch.operators.operands import block_scaled, held_shape, present
from mxkern.values.names import DtypeName, ScaleLayout, SchemeName
from mxkern.values.scheme import Shape, scheme_of, swizzled_size

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
_QUANTIZE = f"Tensor x, str scheme, {_SCALARS}, {_OPTIONS}, {_ADDED}"
_BOTH_OPTIONS = f"{_OPTIONS}, bool hadamard_rows=False, {_ADDED}"
_QUANTIZE_BOTH = f"Tensor x, str scheme, {_BOTH_SCALARS}, {_BOTH_OPTIONS}"
_FAKE_QUANTIZE = f"(Tensor x, str scheme, {_SCALARS}, *, {_ROUNDING}, {_BLOCK}, {_ADDED}) -> Tensor"
_DEQUANTIZE = (
    "(Tensor codes, Tensor scales, Tensor? tensor_scale, str scheme, SymInt[]? shape=None, *, "
    f'{_LAYOUT}, str dtype="float32") -> Tensor'
)


def _check_levels(function: str, scheme: str, two_level: bool) -> None:
    if scheme_of(function, scheme).has_tensor_scale != two_level:
        wanted, other = ("with", "") if two_level else ("without", TWO_LEVEL)
        raise ValueError(
            f"{function}: scheme is {scheme!r}; expected one {wanted} a tensor scale; call "
            f"torch.ops.mxkern.{function}{other}"
        )


def _define_quantizer(
    function: str,
    arguments: str,
    sides: Callable[[str, Shape], tuple[Shape, ...]],
    work: Callable[..., tuple[Any, ...]],
) -> None:
    """Two operators: one returns codes and scales, the other a tensor scale with them. DTensor's
    sharding rules take operators whose number of results is fixed."""
    for two_level in (False, True):
        returns = ["Tensor", "Tensor", *["Tensor"] * two_level]
        returns *= len(sides(function, (1, 1)))

        def traced(
            x: Any,
            scheme: str,
            *scalars: Any,
            scale_layout: str = "row_major",
            two_level: bool = two_level,
            **options: Any,
        ) -> tuple[Any, ...]:
            _check_levels(function, scheme, two_level)
            return tuple(
                part
                for shape in sides(function, plain_shape(function, x))
                for part in new_parts(function, x, scheme, shape, scale_layout)
            )

        def run(
            x: Any, scheme: str, *scalars: Any, two_level: bool = two_level, **options: Any
        ) -> tuple[Any, ...]:
            _check_levels(function, scheme, two_level)
            return work(x, scheme, *scalars, **options)

        name = function + TWO_LEVEL * two_level
        define(name, f"({arguments}) -> ({', '.join(returns)})", traced)(run)


def _one_way(function: str) -> Callable[..., tuple[Any, ...]]:
    """The work of quantize or quantize_columns."""

    def work(
        x: Any,
        scheme: SchemeName,
        amax: Any = None,
        tensor_scale: Any = None,
        offset_at: Any = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        options = given(function, options, offset_at)
        quantizes = getattr(eager, function)
        return present(quantizes(x, scheme, amax=amax, tensor_scale=tensor_scale, **options))

    return work


def _both(
    x: Any,
    scheme: SchemeName,
    row_amax: Any = None,
    column_amax: Any = None,
    row_tensor_scale: Any = None,
    column_tensor_scale: Any = None,
    offset_at: Any = None,
    **options: Any,
) -> tuple[Any, ...]:
    rows, columns = eager.quantize_both(
        x,
        scheme,
        amax=(row_amax, column_amax),
        tensor_scale=(row_tensor_scale, column_tensor_scale),
        **given("quantize_both", options, offset_at),
    )
    return (*present(rows), *present(columns))


_define_quantizer("quantize", _QUANTIZE, lambda function, shape: (shape,), _one_way("quantize"))
_define_quantizer(
    "quantize_columns",
    _QUANTIZE,
    lambda function, shape: (transposed(function, shape),),
    _one_way("quantize_columns"),
)
_define_quantizer(
    "quantize_both",
    _QUANTIZE_BOTH,
    lambda function, shape: (shape, transposed(function, shape)),
    _both,
)


@define(
    "fake_quantize",
    _FAKE_QUANTIZE,
    lambda x, *rest, **options: x.new_empty(plain_shape("fake_quantize", x)),
)
def fake_quantize(
    x: Any,
    scheme: SchemeName,
    amax: Any = None,
    tensor_scale: Any = None,
    offset_at: Any = None,
    **options: Any,
) -> Any:
    options = given("fake_quantize", options, offset_at)
    return eager.fake_quantize(x, scheme, amax=amax, tensor_scale=tensor_scale, **options)


straight_through("fake_quantize")


def _traced_dequantize(
    codes: Any,
    scales: Any,
    tensor_scale: Any,
    scheme: str,
    shape: list[int] | None = None,
    *,
    dtype: str = "float32",
    **options: Any,
) -> Any:
    values = held_shape("dequantize", codes, scheme) if shape is None else tuple(shape)
    return codes.new_empty(values, dtype=torch_dtype("dequantize", dtype))


@define("dequantize", _DEQUANTIZE, _traced_dequantize)
def dequantize(
    codes: Any,
    scales: Any,
    tensor_scale: Any,
    scheme: SchemeName,
    shape: list[int] | None = None,
    *,
    scale_layout: ScaleLayout = "row_major",
    dtype: DtypeName = "float32",
) -> Any:
    values = held_shape("dequantize", codes, scheme) if shape is None else shape
    q = block_scaled((codes, scales, tensor_scale), scheme, values, scale_layout)
    return eager.dequantize(q, dtype=dtype)


def _traced_transpose(
    codes: Any, scales: Any, scheme: str, shape: list[int], *, scale_layout: str = "row_major"
) -> tuple[Any, Any]:
    function = "transpose_square_blocks"
    record, turned = scheme_of(function, scheme), transposed(function, tuple(shape))
    extents = record.scales_shape(turned, scale_layout)
    return codes.new_empty(record.codes_shape(turned)), scales.new_empty(extents)


@define(
    "transpose_square_blocks",
    f"(Tensor codes, Tensor scales, str scheme, SymInt[] shape, *, {_LAYOUT}) -> (Tensor, Tensor)",
    _traced_transpose,
)
def transpose_square_blocks(
    codes: Any,
    scales: Any,
    scheme: SchemeName,
    shape: list[int],
    *,
    scale_layout: ScaleLayout = "row_major",
) -> tuple[Any, ...]:
    q = block_scaled((codes, scales), scheme, shape, scale_layout)
    return eager.transpose_square_blocks(q).parts[:2]


def _traced_amax(x: Any, *, columns: bool = False, **options: Any) -> Any:
    shape = plain_shape("tensor_amax", x)
    if columns:
        transposed("tensor_amax", shape)  # for its check
    return x.new_empty((), dtype=torch.float32)


@define("tensor_amax", f"(Tensor x, *, {_HADAMARD}, bool columns=False) -> Tensor", _traced_amax)
def tensor_amax(x: Any, **options: Any) -> Any:
    return eager.tensor_amax(x, **given("tensor_amax", options))


@define(
    "random_hadamard",
    "(Tensor x, int size=16, *, str? sign_mask=None, bool inverse=False) -> Tensor",
    lambda x, *rest, **options: x.new_empty(plain_shape("random_hadamard", x)),
)
def random_hadamard(x: Any, size: int = 16, **options: Any) -> Any:
    return eager.random_hadamard(x, size, **given("random_hadamard", options))


def _traced_swizzle(scales: Any) -> Any:
    rows = scales.shape[-2] if scales.dim() > 1 else 1
    return scales.new_empty((*scales.shape[:-2], swizzled_size(rows, scales.shape[-1])))


@define("swizzle_scales", "(Tensor scales) -> Tensor", _traced_swizzle)
def swizzle_scales(scales: Any) -> Any:
    return eager.swizzle_scales(scales)


@define(
    "unswizzle_scales",
    "(Tensor scales, SymInt rows, SymInt blocks) -> Tensor",
    lambda scales, rows, blocks: scales.new_empty((*scales.shape[:-1], rows, blocks)),
)
def unswizzle_scales(scales: Any, rows: int, blocks: int) -> Any:
    return eager.unswizzle_scales(scales, rows, blocks)
