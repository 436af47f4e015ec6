# mxkern/ops/refresh_operand.py: prepare_operand into the arrays of what was prepared before.
from __future__ import annotations

from typing import Any

from mxkern import _core
from mxkern.arrays import adapter_of
from mxkern.faults import arrays as array_faults
from mxkern.faults import operands as operand_faults
from mxkern.ops.calls import calls
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.keywords import QuantizeKeywords, Takes
from mxkern.values.options import ASKED_FORMS, FORMS, position, usable_form
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.scheme import RECORDS, Scheme

_FUNCTION = "prepare_operand"
_QUANTIZE = Takes(_FUNCTION, QuantizeKeywords)


def refreshed(
    x: Any,
    scheme: Scheme | None,
    options: _core.QuantizeOptions | None,
    scale_rule: str,
    form: str,
    out: PreparedOperand,
    stream: int | None,
) -> PreparedOperand:
    """out, with the values of x: of a BlockScaled, or of a plain array that scheme is for."""
    own = _check(x, scheme, form, out)
    source = out.source
    # The source is written first: a product reads its tensor scale while the kernel before it may
    # still run.
    if source is not None:
        if scheme is not None:
            keywords: dict[str, Any] = {"out": source, "stream": stream}
            keywords["scale_layout"] = source.scale_layout
            if scale_rule != "rceil":
                keywords["scale_rule"] = scale_rule
            _core.quantize(calls, _QUANTIZE.core, False, x, scheme, keywords)
        elif x is not source:
            _copy(x, source, stream)
        x = source
        scheme = options = None
    if out.data is not None:
        keeps = source is not None
        _core.prepare_operand(calls, x, scheme, options, own, keeps, out.data, stream)
    return out


def _check(x: Any, scheme: Scheme | None, form: str, out: Any) -> int:
    """The form of out, which is one for x."""
    if not isinstance(out, PreparedOperand):
        raise TypeError(
            f"{_FUNCTION}: out is {errors.described(out)}; expected a PreparedOperand; leave out "
            "out for a new one"
        )
    own = position(_FUNCTION, "out.form", out.form, FORMS)
    array = x.codes if isinstance(x, BlockScaled) else x
    adapter = adapter_of(_FUNCTION, "x", array)
    if not adapter.takes_out:
        raise errors.not_writable(_FUNCTION, "out", adapter.name)
    if scheme is None:
        _core.quantized_view(calls, _FUNCTION, "x", x)
    name, shape = x.scheme if scheme is None else scheme.name, tuple(x.shape)
    if name != out.scheme or shape != tuple(out.shape):
        raise ValueError(
            f"{_FUNCTION}: out is {out.scheme} {tuple(out.shape)}, and x {name} {shape}; expected "
            "the same scheme and shape; leave out out for a new one"
        )
    if out.data is None and out.source is None:
        operand_faults.no_source(_FUNCTION, "out")
    device = adapter.device(adapter.enter(_FUNCTION, "x", array))
    wanted = own if form == "auto" else ASKED_FORMS[form]
    usable = usable_form(_FUNCTION, wanted, RECORDS[name].id, device)
    if usable != own:
        raise ValueError(
            f"{_FUNCTION}: out.form is {out.form!r}, and x is to be prepared as "
            f"{tuple(FORMS)[usable]!r} where it is; expected the same; leave out out for a new one"
        )
    if isinstance(out.source, BlockScaled):
        _core.quantized_view(calls, _FUNCTION, "out.source", out.source)
        layout = out.source.scale_layout
        if scheme is None and x.scale_layout != layout:
            raise ValueError(
                f"{_FUNCTION}: x.scale_layout is {x.scale_layout!r}, and that of out.source "
                f"{layout!r}; expected the same; quantize x with scale_layout={layout!r}"
            )
    return own


def _copy(q: BlockScaled, source: BlockScaled, stream: int | None) -> None:
    """The parts of q to those of source."""
    adapter = adapter_of(_FUNCTION, "x.codes", q.codes)
    with array_faults.stream(_FUNCTION, stream, adapter, q.codes), adapter.on_device(q.codes):
        for name in ("codes", "scales", "tensor_scale"):
            part, target = getattr(q, name), getattr(source, name)
            if part is None or part is target:
                continue
            argument = f"out.source.{name}"
            dtype = adapter.dtype_name(target)
            like = adapter.enter(_FUNCTION, "x.codes", q.codes)
            array = array_faults.out(
                _FUNCTION, argument, target, adapter, tuple(target.shape), (dtype,), like
            )
            if name != "tensor_scale":  # bytes, whatever type of array they are in
                array, part = (one.view(adapter.namespace.uint8) for one in (array, part))
            array[...] = part
