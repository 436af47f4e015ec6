# mxkern/ops/prepare_both.py: a tensor quantized along its rows and along its columns, both ready
# for products.
from __future__ import annotations

from typing import Generic, NamedTuple

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values.names import ScaleRule, SchemeName
from mxkern.values.options import options_of
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.scheme import Scheme, scheme_of
from mxkern.values.value import Array

_FUNCTION = "prepare_both"


class PreparedBoth(NamedTuple, Generic[Array]):
    """What prepare_both returns."""

    rows: PreparedOperand[Array]  # [..., M, K]
    columns: PreparedOperand[Array]  # [..., K, M]
    row_spreads: Array  # uint8 [..., M]
    column_spreads: Array  # uint8 [..., K]


def prepare_both(
    x: Array,
    scheme: SchemeName | Scheme,
    *,
    scale_rule: ScaleRule = "rceil",
    stream: int | None = None,
) -> PreparedBoth[Array]:
    """Quantizes x along its rows and along its columns, and folds both, in one call: the operands
    of the products of a training step.

    x           [..., M, K], float32, float16 or bfloat16
    scheme      "mxfp8", "mxfp6", "mxfp4" or another MX scheme of floating point
    scale_rule  as in quantize
    stream      CUDA: a stream handle, instead of the framework's current stream

    Returns a named tuple (rows, columns, row_spreads, column_spreads). rows is [..., M, K] and
    columns [..., K, M], each what prepare_operand makes of a result of quantize_both with
    form="folded" and keep_source=False: gemm takes two of them with precision="folded", and does
    nothing but multiply. On the CPU, and where no product reads folded operands, they hold codes
    and scales. Spreads are uint8, [..., M] and [..., K]: how many octaves below the largest scale
    of a row the smallest one lies, of blocks that are not all zeros; 255 stands for more too. A
    folded product is within 5e-4 where those of both operands stay within the limit of
    docs/guide/gemm.md, 8 for mxfp8_e4m3. Raises TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> x = np.ones((64, 32), np.float32)
    >>> x[32:] = 2.0**-5
    >>> both = mxkern.prepare_both(x, "mxfp8")
    >>> both.rows.shape, both.columns.shape, both.row_spreads.max(), both.column_spreads.max()
    ((64, 32), (32, 64), np.uint8(0), np.uint8(5))
    """
    record = scheme_of(_FUNCTION, scheme)
    options = options_of(_FUNCTION, record, scale_rule=scale_rule)
    return PreparedBoth(*_core.prepare_both(calls, x, record, options, stream))
