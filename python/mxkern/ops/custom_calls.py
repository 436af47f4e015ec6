# mxkern/ops/custom_calls.py: what the operations do with a scheme of the user's own, and with
# options that take code which knows a scheme at run time: the extension module calls these
# functions.
from __future__ import annotations

import math
from typing import Any

from mxkern import _core, faults
from mxkern.arrays import adapter_of
from mxkern.faults.shapes import transposed
from mxkern.ops.custom_request import request_of
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.custom_scheme import any_scheme_of, core_of
from mxkern.values.dtypes import DTYPES
from mxkern.values.element_format import ElementFormat, element_format
from mxkern.values.options import (
    SCALE_LAYOUTS,
    check_hadamard_groups,
    dtype_position,
    is_array,
    name_of_dtype,
    position,
)
from mxkern.values.scheme import Scheme

_FLOAT64 = DTYPES.index("float64")


class Above:
    """What lies above: the operations over arrays, which are made of this module among others."""

    calls: _core.Calls


above = Above()


def _layout(function: str, scheme: Scheme, name: Any) -> int:
    layout = position(function, "scale_layout", name, SCALE_LAYOUTS)
    if name != "row_major" and (scheme.scale_bits != 8 or scheme.block_rows != 1):
        raise ValueError(
            f"{function}: scale_layout is {name!r}; expected 'row_major' for {scheme.name}, as "
            "tiles are of scales of a byte for blocks of one row"
        )
    return layout


def _checked_out(function: str, out: Any, scheme: Scheme, shape: Any, layout: str) -> Any:
    """A BlockScaled to write to, which says of itself what the result will be."""
    if out is None:
        return None
    if not isinstance(out, BlockScaled):
        raise TypeError(
            f"{function}: out is {errors.described(out)}; expected a BlockScaled, as an "
            "earlier call returned it"
        )
    for field, wanted in (("shape", shape), ("scale_layout", layout)):
        if getattr(out, field) != wanted:
            raise ValueError(
                f"{function}: out.{field} is {errors.described(getattr(out, field))}; "
                f"expected {wanted!r}"
            )
    if any_scheme_of(function, out.scheme, "out.scheme") is not scheme:
        raise ValueError(f"{function}: out.scheme is {out.scheme!r}; expected {scheme.name!r}")
    return out


def quantize(
    function: str, columns: bool, x: Any, scheme: Any, keywords: dict[str, Any]
) -> BlockScaled:
    request = request_of(function, x, scheme, keywords)
    layout_name = keywords.get("scale_layout", "row_major")
    layout = _layout(function, request.scheme, layout_name)
    shape = errors.shape_of(x)
    if columns:
        shape, x = transposed(function, shape), x.swapaxes(-1, -2)
    out = _checked_out(function, keywords.get("out"), request.scheme, shape, layout_name)
    stream = keywords.get("stream")
    size, low, high = request.transform
    if size:
        check_hadamard_groups(
            function, "blocks run along an axis of", x.shape[-1], "x", "hadamard", size
        )
        x = _core.random_hadamard(above.calls, x, size, low, high, False, None, stream)
    q: BlockScaled = _core.custom_quantize(
        above.calls,
        function,
        x,
        request.core,
        request.made_options(transposed=columns),
        layout,
        request.given,
        out,
        stream,
    )
    return q


def quantize_both(
    function: str, x: Any, scheme: Any, keywords: dict[str, Any]
) -> tuple[BlockScaled, BlockScaled]:
    keywords = dict(keywords)
    on_rows = faults.hadamard_rows(
        function, keywords.pop("hadamard_rows", False), keywords.get("hadamard")
    )
    for name in ("scales", "block_amax"):
        if keywords.get(name) is not None:
            raise ValueError(
                f"{function}: {name} is given, and rows and columns have other blocks; call "
                "quantize and quantize_columns with their own"
            )
    outs = keywords.pop("out", None)
    pair = (None, None) if outs is None else faults.pair(function, "out", outs)
    shape = errors.shape_of(x)
    if len(shape) < 2:
        faults.no_columns(function, shape)
    made = []
    for i, columns in enumerate((False, True)):
        own = dict(keywords)
        for name in ("amax", "tensor_scale"):
            if isinstance(own.get(name), tuple):
                own[name] = faults.pair(function, name, own[name])[i]
        if not columns and not on_rows:
            own.pop("hadamard", None)
            own.pop("sign_mask", None)
        made.append(quantize(function, columns, x, scheme, own | {"out": pair[i]}))
    return (made[0], made[1]) if outs is None else outs


def _check_ahead(function: str, x: Any, scheme: Any, keywords: dict[str, Any]) -> None:
    """Raises what the call will raise for its options, while a program is traced: what a callback
    raises reaches nobody in its own words. Arrays are looked at when the program runs."""
    traced = [name for name, value in keywords.items() if errors.is_traced(value)]
    if traced:
        raise TypeError(
            f"{function}: {traced[0]} is traced by JAX, and options of code that knows its scheme "
            "at run time are not; pass a number or a NumPy array"
        )
    import numpy as np

    stand_in = np.zeros([1] * len(errors.shape_of(x)), x.dtype)
    plain = {name: value for name, value in keywords.items() if not is_array(value)}
    plain.pop("axis", None)
    request_of(function, stand_in, scheme, plain)


def fake_quantize(
    function: str, x: Any, scheme: Any, keywords: dict[str, Any], through: bool = True
) -> Any:
    """through: for the extension module, as the derivative is always straight here."""
    if errors.is_traced(x):  # JAX
        _check_ahead(function, x, scheme, keywords)
        calls = adapter_of(function, "x", x).traced_calls
        return calls.callback(lambda value: fake_quantize(function, value, scheme, keywords), x)
    keywords = dict(keywords)
    axis = keywords.pop("axis", -1)
    stream, out = keywords.get("stream"), keywords.get("out")
    request = request_of(function, x, scheme, keywords)
    shape = errors.shape_of(x)
    rank = len(shape)
    axis = errors.integer(function, "axis", axis, -max(rank, 1), max(rank, 1) - 1)

    def rounded(array: Any, *, transposed: bool) -> Any:
        return _core.custom_fake_quantize(
            above.calls,
            function,
            array,
            request.core,
            request.made_options(transposed=transposed),
            request.given,
            None if transposed else out,
            stream,
        )

    if rank < 2 or axis in (-1, rank - 1):
        return rounded(x, transposed=False)
    if out is not None:
        raise ValueError(
            f"{function}: out is given, and axis is {axis}; expected the last axis; leave out out"
        )
    # The axis and all that follows it: one matrix for each index before it.
    axis %= rank
    lead, rest = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    matrices = x.reshape(lead, shape[axis], rest).swapaxes(-1, -2)
    turned = rounded(matrices, transposed=True)
    return turned.swapaxes(-1, -2).reshape(shape)


def _dequantize_dtype(function: str, dtype: Any) -> int:
    named = dtype if isinstance(dtype, str) else name_of_dtype(dtype)
    return _FLOAT64 if named == "float64" else dtype_position(function, dtype)


def dequantize(q: BlockScaled, dtype: Any, out: Any, stream: Any) -> Any:
    function = "dequantize"
    record = any_scheme_of(function, q.scheme, "q.scheme")
    number = _dequantize_dtype(function, dtype)
    return _core.custom_dequantize(above.calls, function, q, core_of(record), number, out, stream)


def round_to(
    function: str, x: Any, format: Any, options: dict[str, Any], out: Any, stream: Any
) -> Any:
    """mxkern.round_to"""
    if errors.is_traced(x):  # JAX
        calls = adapter_of(function, "x", x).traced_calls
        return calls.callback(
            lambda value: round_to(function, value, format, options, None, None), x
        )
    found = element_format(function, "format", format)
    return _core.custom_round(
        above.calls, function, x, found.core, _core.AnyOptions(**options), out, stream
    )


def _as_float32(x: Any) -> Any:
    """A plain operand in float32, without a copy where it is."""
    name = str(getattr(x, "dtype", "")).removeprefix("torch.")
    if name in ("float16", "bfloat16"):
        return x.float() if hasattr(x, "float") else x.astype("float32")
    return x


def _record(operand: Any, argument: str) -> Scheme:
    return any_scheme_of("gemm", operand.scheme, f"{argument}.scheme")


def _decoded(operand: Any, argument: str, dtype: str, stream: Any) -> Any:
    core = core_of(_record(operand, argument))
    number = DTYPES.index(dtype)
    return _core.custom_dequantize(above.calls, "gemm", operand, core, number, None, stream)


def _in_float32(operand: Any, argument: str, stream: Any) -> Any:
    if not isinstance(operand, BlockScaled):
        return _as_float32(operand)
    return _decoded(operand, argument, "float32", stream)


def _decoded_dtype(operand: Any, argument: str) -> str | None:
    """What an operand of a product in bfloat16 is decoded to first; None: it stays as it is."""
    if not isinstance(operand, BlockScaled) or _record(operand, argument).core is None:
        return None
    exact = core_of(_record(operand, argument)).is_exact_in_bfloat16
    return "bfloat16" if exact else "float32"


def _sum_scales(a: Any, b: Any) -> tuple[Any, ...] | None:
    """Both operands' float32 scales, their block and its rows, where sums over their blocks can be
    multiplied with them; None for other operands."""
    if not isinstance(a, BlockScaled) or not isinstance(b, BlockScaled):
        return None
    records = [any_scheme_of("gemm", q.scheme, "scheme") for q in (a, b)]
    block = records[0].block
    if any(r.scale_format != "float32" or r.block != block or not block for r in records):
        return None
    return (a.scales, b.scales, block, *(record.block_rows for record in records))


def _unscaled(q: BlockScaled) -> BlockScaled:
    """The codes' values alone."""
    ones = adapter_of("gemm", "scales", q.scales).namespace.ones_like(q.scales)
    return BlockScaled(q.codes, ones, None, q.scheme, q.shape, q.scale_layout)


def _check_operands(function: str, a: Any, b: Any, precision: Any, accumulate: Any = None) -> bool:
    """Whether b was prepared, which no other operand may be; a precision that there is."""
    if not isinstance(precision, str) or precision not in ("auto", "exact"):
        raise RuntimeError(
            f"{function}: precision is {errors.described(precision)}; expected 'auto' or 'exact' "
            "for schemes of your own, which are decoded to float32 or bfloat16"
        )
    is_prepared = type(b).__name__ == "PreparedOperand"
    if type(a).__name__ == "PreparedOperand" or (is_prepared and accumulate is not None):
        raise TypeError(
            f"{function}: a PreparedOperand beside a scheme of your own; expected BlockScaled "
            "operands; pass its source"
        )
    return is_prepared


def gemm(
    a: Any,
    b: Any,
    dtype: Any,
    out: Any,
    alpha: Any,
    beta: Any,
    bias: Any,
    precision: Any,
    stream: Any,
    accumulate: Any = None,
) -> Any:
    """A product of operands that are decoded first: to bfloat16 where that holds all values of b,
    else to float32."""
    is_prepared = _check_operands("gemm", a, b, precision, accumulate)
    if not is_prepared and not isinstance(b, BlockScaled):
        faults.no_right_operand("gemm", "b", b)
    wanted: ElementFormat | None = None
    if accumulate is not None:
        wanted = element_format("gemm", "accumulate", accumulate)
    scales = _sum_scales(a, b) if wanted is None else None
    if wanted is None and scales is None and _decoded_dtype(b, "b") != "float32":
        own = _decoded_dtype(a, "a")
        left = a if own is None else _decoded(a, "a", own, stream)
        rest = (dtype, out, alpha, beta, bias, precision, stream)
        if _record(b, "b").core is None:
            return _core.gemm(above.calls, left, b, *rest)
        core = core_of(_record(b, "b"))
        return _core.custom_gemm_in_bfloat16(above.calls, left, b, core, *rest)
    left, right = (a, b) if scales is None else (_unscaled(a), _unscaled(b))
    return _core.custom_gemm(
        above.calls,
        _in_float32(left, "a", stream),
        _in_float32(right, "b", stream),
        dtype,
        out,
        alpha,
        beta,
        bias,
        scales,
        None if wanted is None else wanted.core,
        _core.AnyOptions(saturates=False),
        stream,
    )


def _device_explained(function: str, a: Any, b: Any, dtype: Any, device: Any, form: Any) -> str:
    """The name of the device that is asked for, by a product without elements of what a is and of
    a compiled right operand where b is, which checks the rest."""
    parts = b.codes if isinstance(b, BlockScaled) else b.data
    adapter = adapter_of(function, "b", parts)
    none = adapter.leave(adapter.empty(function, (0, 0), "uint8", parts), parts)
    right = BlockScaled(none, none, None, "mxfp8_e4m3", (0, 0), "row_major")
    is_plain = not isinstance(a, BlockScaled) and errors.shape_of(a)
    left = a[..., :0] if is_plain else right if isinstance(a, BlockScaled) else a
    told = _core.explain_gemm(above.calls, function, left, right, dtype, "auto", 0.0, device, form)
    return str(told[0])


def explain_gemm(
    function: str, a: Any, b: Any, dtype: Any, precision: Any, beta: Any, device: Any, form: Any
) -> tuple[Any, ...]:
    """What gemm does with operands by schemes of the user's own, as GemmExplanation has it,
    whatever beta is."""
    dtype_position(function, dtype)
    _check_operands(function, a, b, precision)
    place = _device_explained(function, a, b, dtype, device, form)
    shapes = errors.shape_of(a), errors.shape_of(b)
    fit = shapes[0][-1] == shapes[1][-1] and len(shapes[1]) > 1
    if not fit or (len(shapes[1]) > 2 and shapes[0][:-2] != shapes[1][:-2]):
        faults.product_shape(function, *shapes)
    in_bfloat16 = _sum_scales(a, b) is None and _decoded_dtype(b, "b") != "float32"
    sides, bytes = [], 0
    for argument, operand in (("a", a), ("b", b)):
        shape = errors.shape_of(operand)
        text = f"{shape}, plain"
        if isinstance(operand, BlockScaled):
            text = f"{shape}, {_record(operand, argument).name}"
        own = _decoded_dtype(operand, argument) if in_bfloat16 else "float32"
        if own is not None:
            is_plain = not isinstance(operand, BlockScaled)
            text += f", to {own}" if is_plain else f", decoded to {own}"
            bytes += (2 if own == "bfloat16" else 4) * math.prod(shape)
        sides.append(text)
    error = "relative L2 2e-5, from the float32 sum"
    if in_bfloat16:
        reason = "bfloat16 holds all values of b"
        if _record(b, "b").core is None:
            reason = "b has kernels that multiply its codes, and a is plain to them"
        kernel = "products as of other schemes, summed in float32"
        return (place, "decoded to bfloat16", reason, *sides, kernel, error, bytes)
    return (
        place,
        "decoded to float32",
        "a scheme of your own has no kernels that multiply codes, and bfloat16 does not hold b's "
        "values",
        *sides,
        "float32 products, summed in float32",
        f"{error}; products of bfloat16 numbers are exact before it",
        bytes,
    )
