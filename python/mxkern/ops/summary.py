# mxkern/ops/summary.py: what a BlockScaled prints: its parts, the range of its scales, first
# values; and a table of its parts for notebooks.
from __future__ import annotations

import math
from html import escape
from typing import Any

from mxkern import _core
from mxkern.arrays import adapter_of
from mxkern.ops.calls import calls
from mxkern.values.block_scaled import BlockScaled, above
from mxkern.values.custom_scheme import core_of, custom_of
from mxkern.values.scheme import Scheme, schemes
from mxkern.values.value import fields_text

_VALUES = 6  # shown
_SCALES = 1 << 20  # looked at, so that printing a large tensor takes no time


def summary(q: BlockScaled) -> str:
    """Several lines for people. A BlockScaled whose parts do not fit prints as its fields."""
    try:
        scheme, codes, scales = _checked(q)
    except (TypeError, ValueError, RuntimeError) as error:
        return f"BlockScaled({fields_text(q)})  # not valid: {error}"
    adapter = adapter_of("repr", "q.codes", q.codes)
    is_own = scheme.core is not None
    packed = f"{scheme.bits}-bit {scheme.format}" + (", packed" if scheme.bits < 8 else "")
    lines = [
        f"BlockScaled {scheme.name}, shape {q.shape}, {adapter.name}, {q.nbytes} bytes, "
        f"{q.bits_per_element:.4g} bits per element",
        f"  codes   {adapter.dtype_name(codes)} {tuple(codes.shape)}: "
        + ("one byte each" if scheme.bits == 8 and not is_own else packed),
        f"  scales  {adapter.dtype_name(scales)} {tuple(scales.shape)}, {q.scale_layout}, "
        f"one for {scheme.block_text}",
    ]
    if is_own:
        if scheme.has_tensor_scale:
            lines.append(f"  tensor_scale  one for {scheme.tensor_scale_of}")
        return "\n".join(lines)
    tensor_scale: Any = q.tensor_scale
    if tensor_scale is not None:  # a number, or an array of one
        tensor_scale = float(getattr(tensor_scale, "reshape", lambda _: tensor_scale)(()))
    # Only what is shown leaves a GPU.
    looked_at = adapter.raw_bytes(scales.reshape(-1)[:_SCALES])
    lines[-1] += _scale_range(scheme, looked_at, q)
    if tensor_scale is not None:
        lines.append(f"  tensor_scale  {tensor_scale:.6g}")
    values: list[float] = []
    if 0 not in q.shape:
        row = codes[(0,) * (len(q.shape) - 1)][: scheme.block_bytes]
        values = _first_values(scheme, adapter.raw_bytes(row), looked_at, tensor_scale, q.shape[-1])
    if values:
        more = ", ..." if q.shape[-1] > len(values) else ""
        lines.append(f"  values  {', '.join(f'{value:.4g}' for value in values)}{more}")
    return "\n".join(lines)


def _checked(q: BlockScaled) -> tuple[Scheme, Any, Any]:
    """The scheme, and codes and scales that fit it and one another."""
    if (own := custom_of("repr", getattr(q, "scheme", None))) is not None:
        _, codes, scales = _core.custom_view(calls, "repr", "q", q, own.core)
        return own, codes, scales
    view, _, codes, scales = _core.quantized_view(calls, "repr", "q", q)
    return tuple(schemes)[view[0]], codes, scales


def html_summary(q: BlockScaled) -> str:
    """A small table, or the text of one whose parts do not fit."""
    try:
        _, codes, scales = _checked(q)
    except (TypeError, ValueError, RuntimeError):
        return f"<pre>{escape(summary(q))}</pre>"
    adapter = adapter_of("repr", "q.codes", q.codes)
    rows = {
        "scheme": q.scheme,
        "shape": q.shape,
        "scale layout": q.scale_layout,
        "codes": f"{adapter.name} {adapter.dtype_name(codes)} {tuple(codes.shape)}",
        "scales": f"{adapter.name} {adapter.dtype_name(scales)} {tuple(scales.shape)}",
        "bytes": f"{q.nbytes}, {q.bits_per_element:.4g} bits per element",
    }
    cells = [f"<tr><th>{name}</th><td>{escape(str(text))}</td></tr>" for name, text in rows.items()]
    return f"<table>{''.join(cells)}</table>"


above.summary, above.html_summary = summary, html_summary


def _scale_range(scheme: Scheme, looked_at: Any, q: BlockScaled) -> str:
    """The smallest and the largest scale, and how many blocks are poisoned. Swizzled scales have
    padding among them, which is no scale, so they are left out."""
    if q.scale_layout != "row_major" or looked_at.size == 0:
        return ""
    size = math.prod(scheme.scales_shape(q.shape, q.scale_layout))
    if scheme.scale_format == "ue4m3":
        looked_at = looked_at & 0x7F  # the eighth bit says nothing
    finite = looked_at[looked_at != scheme.nan_scale]
    poisoned = looked_at.size - finite.size
    text = f", {poisoned} poisoned" if poisoned else ""
    if finite.size:
        low, high = int(finite.min()), int(finite.max())
        text = f": {_scale_text(scheme, low)} to {_scale_text(scheme, high)}{text}"
    if looked_at.size < size:
        text += f" in the first {looked_at.size}"
    return text


def _scale_text(scheme: Scheme, byte: int) -> str:
    if scheme.scale_format == "e8m0":
        return f"2^{byte - 127}"
    return f"{core_of(scheme).decode_scale(byte):g}"


def _first_values(
    scheme: Scheme, codes: Any, scales: Any, tensor_scale: Any, columns: int
) -> list[float]:
    """The start of the first row, of the codes and the scale of its first block."""
    import numpy as np

    columns = min(columns, scheme.block)
    size = columns if scheme.bits == 8 else scheme.block_bytes
    scalar = None if tensor_scale is None else np.array(tensor_scale, np.float32)
    block = BlockScaled(
        np.ascontiguousarray(codes[:size]),
        np.ascontiguousarray(scales[:1]),
        scalar,
        scheme.name,
        (columns,),
        "row_major",
    )
    return [
        float(value) for value in _core.dequantize(calls, block, "float32", None, None)[:_VALUES]
    ]
