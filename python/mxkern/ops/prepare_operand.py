# mxkern/ops/prepare_operand.py: an operand of gemm, made ready once for many products.
from __future__ import annotations

from typing import Any

from mxkern import _core, errors
from mxkern.arrays import Adapter, adapter_of, collapsed
from mxkern.block_scaled import BlockScaled
from mxkern.gemm_operands import FORM_NAMES, FORMS, PREPARED_FORMS, usable_form
from mxkern.operands import operand_of
from mxkern.ops.run_quantize import new_parts, quantized, result, view_of
from mxkern.options import SCALE_LAYOUTS, options_of, position
from mxkern.outputs import on_stream
from mxkern.prepared_operand import PreparedOperand
from mxkern.scheme import Scheme, scheme_of

_AUTO = "auto"
_CHOICES = {_AUTO: -1} | PREPARED_FORMS


def prepare_operand(
    x: Any,
    scheme: str | Scheme | None = None,
    *,
    form: str = _AUTO,
    scale_rule: str = "rceil",
    keep_source: bool = True,
    stream: int | None = None,
) -> PreparedOperand:
    """Makes an operand ready for gemm, once for many products: weights, as a rule.

    x            a BlockScaled [..., N, K], or a plain array [..., N, K] that is quantized to
                 `scheme` on the way: folded in the same pass over x
    scheme       with a plain x: a name in mxkern.schemes
    form         "folded": FP8 elements that hold their block scales (the floating-point MX
                 schemes); "expanded": bfloat16 elements (all schemes); "few_tokens": an order for
                 products with a left operand of few rows, plain in 16 bits or quantized (all
                 schemes); "auto": folded where the scheme has it, else expanded
    scale_rule   with a plain x: as in quantize
    keep_source  whether codes and scales are kept, for what the form cannot do. A folded operand
                 without them multiplies with precision="folded" only, an expanded one exactly,
                 and one of few_tokens with few tokens. nvfp4's are always kept.
    stream       CUDA: a stream handle, instead of the framework's current stream

    folded is for Hopper, expanded for compute capability 8.0 and newer, few_tokens for 9.0 to
    11.x; code for other GPUs than 9.0 is compiled, never executed. Elsewhere, and on the CPU, the
    result holds the source alone, and gemm takes it all the same. Raises TypeError, ValueError,
    RuntimeError.

    >>> import mxkern, numpy as np
    >>> w = mxkern.prepare_operand(np.ones((4, 64), np.float32), "mxfp8")
    >>> w.scheme, w.shape, w.form
    ('mxfp8_e4m3', (4, 64), 'source')
    >>> mxkern.gemm(np.ones((1, 64), np.float32), w)
    array([[64., 64., 64., 64.]], dtype=float32)
    """
    function = "prepare_operand"
    wanted = position(function, "form", form, _CHOICES)
    errors.flag(function, "keep_source", keep_source)
    if isinstance(x, BlockScaled):
        if scheme is not None:
            raise ValueError(
                f"{function}: scheme is {errors.described(scheme)}, but x is quantized already; "
                "leave scheme out"
            )
        if not (isinstance(scale_rule, str) and scale_rule == "rceil"):
            raise ValueError(
                f"{function}: scale_rule is {errors.described(scale_rule)}, but x is quantized "
                "already; leave scale_rule out"
            )
        calls = adapter_of(function, "x.codes", x.codes).traced_calls
        if calls is not None and stream is None:
            options = options_of(function, scheme_of(function, x.scheme))
            traced = calls.prepare_operand(x, None, wanted, options, keep_source)
            if traced is not None:
                return traced  # type: ignore[no-any-return]
        return _prepared(function, x, wanted, keep_source, stream)
    if isinstance(x, PreparedOperand):
        raise TypeError(
            f"{function}: x is {errors.described(x)}; expected a BlockScaled or a plain array; "
            "pass what it was prepared from"
        )
    if scheme is None:
        raise TypeError(
            f"{function}: scheme is None, and x is {errors.described(x)}; expected a scheme for "
            "it, or a BlockScaled"
        )
    record = scheme_of(function, scheme)
    options = options_of(function, record, scale_rule=scale_rule)
    adapter = adapter_of(function, "x", x)
    if adapter.traced_calls is not None and stream is None:
        traced = adapter.traced_calls.prepare_operand(x, record.id, wanted, options, keep_source)
        if traced is not None:
            return traced  # type: ignore[no-any-return]
    with on_stream(function, stream, adapter, x):
        device = adapter.device(adapter.enter(function, "x", x))
        if usable_form(function, wanted, record.id, device) == FORMS["folded"]:
            return _quantized(function, adapter, x, record, options, keep_source)
        q = quantized(
            function, _core.quantize, record, options, x, "row_major", None, None, None, None
        )
        return _prepared(function, q, wanted, keep_source, None)


def _prepared(
    function: str, q: BlockScaled, wanted: int, keep_source: bool, stream: int | None
) -> PreparedOperand:
    operand = operand_of(function, "x", q)
    adapter, like, shape = operand.adapter, operand.parts[0], operand.shape
    with on_stream(function, stream, adapter, like):
        form = usable_form(function, wanted, operand.scheme.id, adapter.device(like))
        name = FORM_NAMES[form]
        if name == "source":
            return PreparedOperand(name, None, q, operand.scheme.name, shape)
        size = _core.prepared_bytes(form, operand.scheme.id, *collapsed(shape))
        data = adapter.empty(function, (size,), "uint8", like)
        _core.prepare_operand(
            (form, operand.view, adapter.address(data), size), adapter.stream(like)
        )
    source = q if keep_source or operand.scheme.has_tensor_scale else None
    return PreparedOperand(name, adapter.leave(data, q.codes), source, operand.scheme.name, shape)


def _quantized(
    function: str,
    adapter: Adapter,
    x: Any,
    scheme: Scheme,
    options: _core.QuantizeOptions,
    keep_source: bool,
) -> PreparedOperand:
    """Quantized and folded in one pass, to MX schemes."""
    array, _, buffer, shape = adapter.plain(function, "x", adapter.enter(function, "x", x))
    extents, device = buffer[3:6], buffer[2]
    layout = "row_major"
    parts = (
        new_parts(function, adapter, scheme, shape, layout, array)
        if keep_source
        else (None, None, None)
    )
    view = (
        view_of(adapter, scheme, SCALE_LAYOUTS[layout], device, extents, parts)
        if keep_source
        else (scheme.id, 0, device, *extents, None, None, None)
    )
    size = _core.prepared_bytes(FORMS["folded"], scheme.id, *extents)
    data = adapter.empty(function, (size,), "uint8", array)
    _core.quantize_prepared(
        buffer,
        (FORMS["folded"], view, adapter.address(data), size),
        options,
        adapter.stream(array),
    )
    source = result(adapter, parts, scheme, shape, layout, x) if keep_source else None
    return PreparedOperand("folded", adapter.leave(data, x), source, scheme.name, shape)
