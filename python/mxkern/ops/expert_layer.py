# mxkern/ops/expert_layer.py: the feed-forward layer of a mixture of experts as one function.
from __future__ import annotations

import math
from typing import Any

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values import errors
from mxkern.values.names import Dtype, GroupedPrecision, ScaleRule, SchemeName
from mxkern.values.options import options_of
from mxkern.values.prepared_operand import Operand
from mxkern.values.scheme import Scheme, scheme_of
from mxkern.values.value import Array

_FUNCTION = "expert_layer"


def expert_layer(
    x: Any,
    gate_up: Operand[Array],
    down: Operand[Array],
    ends: Any,
    rows: Any,
    weights: Any = None,
    *,
    gate_up_bias: Any = None,
    down_bias: Any = None,
    gate_up_factors: Any = None,
    down_factors: Any = None,
    alpha: float = 1.0,
    limit: float | None = None,
    offset: float = 0.0,
    interleaved: bool = False,
    scheme: SchemeName | Scheme | None = None,
    scale_rule: ScaleRule = "rceil",
    precision: GroupedPrecision = "exact",
    dtype: Dtype | None = None,
    out: Any = None,
    stream: int | None = None,
) -> Array:
    """The feed-forward layer of a mixture of experts: each token's copies go through their experts,
    and are added up with their weights.

        up = grouped_gemm(x, gate_up, ends, rows=rows, bias=gate_up_bias)
        hidden = swiglu(up, alpha=alpha, limit=limit, offset=offset, interleaved=interleaved)
        y = grouped_gemm(hidden, down, ends, bias=down_bias)
        out = combine(y, rows, weights, len(x))

    x            [T, H]: a plain array, a BlockScaled or a PreparedOperand; T tokens
    gate_up      a BlockScaled or PreparedOperand [E, 2 F, H], of any scheme
    down         a BlockScaled or PreparedOperand [E, N, F], of any scheme
    ends         an int32 array [E]: where the copies for each expert end, as in grouped_gemm. Those
                 behind the last end count for nothing
    rows         an int32 array [M]: the token that each copy is of; copies are sorted by expert
    weights      a float32 array [M]: what each counts in the sum of its token; None: 1
    gate_up_bias, down_bias        plain arrays [E, 2 F] and [E, N]
    gate_up_factors, down_factors  float32 arrays [E], as factors of grouped_gemm
    alpha, limit, offset, interleaved  of the activation, as in swiglu
    scheme       what x, if it is plain, and hidden are quantized to; None: neither is
    scale_rule   with a scheme: as in quantize
    precision    "exact", or on Hopper GPUs "folded", as in grouped_gemm
    dtype        "float32", "float16" or "bfloat16": of the result and of all that lies between;
                 None: that of out or of a plain x, bfloat16 beside a quantized one
    out          an array [T, N] to write to; it is returned
    stream       CUDA: a stream handle, instead of the framework's current stream

    The bytes are those of the calls above, with quantize where there is a scheme. Deterministic. On
    a CUDA device ends, rows and weights stay there, and the call waits for nothing; what is wrong
    with them raises ValueError on the CPU, and gives NaN there. Returns an array [T, N] of
    gate_up's framework. Raises TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> gate_up = mxkern.quantize(np.ones((2, 64, 32), np.float32), "mxfp4")   # two experts
    >>> down = mxkern.quantize(np.ones((2, 32, 32), np.float32), "mxfp4")
    >>> x = np.ones((3, 32), np.float32)                                       # three tokens
    >>> ends, rows = np.int32([2, 4]), np.int32([0, 2, 0, 1])
    >>> weights = np.float32([0.25, 1, 0.75, 2])
    >>> mxkern.expert_layer(x, gate_up, down, ends, rows, weights)[:, 0]
    array([32768., 65536., 32768.], dtype=float32)
    """
    errors.flag(_FUNCTION, "interleaved", interleaved)
    record = options = None
    if scheme is not None:
        record = scheme_of(_FUNCTION, scheme)
        options = options_of(_FUNCTION, record, scale_rule=scale_rule)
    elif not (isinstance(scale_rule, str) and scale_rule == "rceil"):
        raise ValueError(
            f"{_FUNCTION}: scale_rule is {errors.described(scale_rule)}, but scheme is None; leave "
            "scale_rule out, or pass scheme="
        )
    bound = math.inf if limit is None else limit
    activation = (alpha, bound, offset, interleaved)
    operands = (x, gate_up, down, ends, rows, weights)
    others = (gate_up_bias, down_bias, gate_up_factors, down_factors)
    result: Array = _core.expert_layer(
        calls, *operands, *others, *activation, record, options, precision, dtype, out, stream
    )
    return result
