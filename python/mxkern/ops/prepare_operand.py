# mxkern/ops/prepare_operand.py: an operand of gemm, made ready once for many products.
from __future__ import annotations

from typing import Any, Literal, overload

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.ops.refresh_operand import refreshed
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.names import AskedForm, ScaleRule, SchemeName
from mxkern.values.options import ASKED_FORMS, options_of, position
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.scheme import Scheme, scheme_of
from mxkern.values.value import Array

_FUNCTION = "prepare_operand"


_Form = Literal["auto", AskedForm]


@overload
def prepare_operand(
    x: BlockScaled[Array],
    *,
    form: _Form = ...,
    keep_source: bool = ...,
    out: PreparedOperand[Array] | None = ...,
    stream: int | None = ...,
) -> PreparedOperand[Array]: ...
@overload
def prepare_operand(
    x: Array,
    scheme: SchemeName | Scheme,
    *,
    form: _Form = ...,
    scale_rule: ScaleRule = ...,
    keep_source: bool = ...,
    out: PreparedOperand[Array] | None = ...,
    stream: int | None = ...,
) -> PreparedOperand[Array]: ...
def prepare_operand(
    x: Any,
    scheme: SchemeName | Scheme | None = None,
    *,
    form: _Form = "auto",
    scale_rule: ScaleRule = "rceil",
    keep_source: bool = True,
    out: PreparedOperand | None = None,
    stream: int | None = None,
) -> PreparedOperand:
    """Makes an operand ready for gemm, once for many products: weights, as a rule.

    x            a BlockScaled [..., N, K], or a plain array [..., N, K] that is quantized to
                 `scheme` on the way: folded in the same pass over x
    scheme       with a plain x: a name in mxkern.schemes
    form         "folded": FP8 elements that hold their block scales (the floating-point MX
                 schemes); "expanded": bfloat16 elements (all schemes); "few_tokens": an order for
                 products with a left operand of few rows, plain in 16 bits or quantized (all
                 schemes); "panels": the order of a CPU's vectors (all schemes); "auto": panels on
                 the CPU, on a GPU folded where the scheme has it, else expanded
    scale_rule   with a plain x: as in quantize
    keep_source  whether codes and scales are kept, for what the form cannot do. A folded operand
                 without them multiplies with precision="folded" only, an expanded one exactly,
                 one of few_tokens with few tokens, and panels on the right of products of rows.
                 nvfp4's are always kept.
    out          a PreparedOperand of the same scheme and shape to refresh: all of its arrays are
                 written in place, the codes and scales that it keeps too, and it is returned. Its
                 form, and what it keeps, stay as they are
    stream       CUDA: a stream handle, instead of the framework's current stream

    folded is for Hopper, expanded for compute capability 8.0 and newer, few_tokens for 9.0 to
    11.x; code for other GPUs than 9.0 is compiled, never executed. panels are for CPUs with AVX2
    or AVX-512. Elsewhere the result holds the source alone, and gemm takes it all the same. Raises
    TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> w = mxkern.prepare_operand(np.ones((4, 64), np.float32), "mxfp8")
    >>> w.scheme, w.shape, w.form
    ('mxfp8_e4m3', (4, 64), 'panels')
    >>> mxkern.gemm(np.ones((1, 64), np.float32), w)
    array([[64., 64., 64., 64.]], dtype=float32)
    """
    wanted = position(_FUNCTION, "form", form, ASKED_FORMS)
    errors.flag(_FUNCTION, "keep_source", keep_source)
    check_kind(x, scheme, scale_rule)
    record = options = None
    if scheme is not None:
        record = scheme_of(_FUNCTION, scheme)
        options = options_of(_FUNCTION, record, scale_rule=scale_rule)
    if out is not None:
        return refreshed(x, record, options, scale_rule, form, out, stream)
    return _core.prepare_operand(calls, x, record, options, wanted, keep_source, None, stream)


def check_kind(x: Any, scheme: Any, scale_rule: Any) -> None:
    """A scheme, and a scale rule, are for what is not quantized."""
    if isinstance(x, BlockScaled):
        if scheme is not None:
            raise ValueError(
                f"{_FUNCTION}: scheme is {errors.described(scheme)}, but x is quantized already; "
                "leave scheme out"
            )
        if not (isinstance(scale_rule, str) and scale_rule == "rceil"):
            raise ValueError(
                f"{_FUNCTION}: scale_rule is {errors.described(scale_rule)}, but x is quantized "
                "already; leave scale_rule out"
            )
        return
    if isinstance(x, PreparedOperand):
        raise TypeError(
            f"{_FUNCTION}: x is {errors.described(x)}; expected a BlockScaled or a plain array; "
            "pass what it was prepared from"
        )
    if scheme is None:
        raise TypeError(
            f"{_FUNCTION}: scheme is None, and x is {errors.described(x)}; expected a scheme for "
            "it, or a BlockScaled"
        )
