# mxkern/ops/explain_grouped_gemm.py: how grouped_gemm would compute a product, here or on another
# device.
from __future__ import annotations

from typing import Any

from mxkern import _core, errors
from mxkern.arrays.adapter import collapsed, dense_buffer
from mxkern.calls import calls
from mxkern.names import AskedForm, Dtype, GroupedPrecision
from mxkern.operand_faults import GROUPED_PRECISIONS
from mxkern.ops.explain_gemm import GemmExplanation, fields_of, planned_right
from mxkern.options import PRECISIONS, dtype_position, position
from mxkern.prepared_operand import Operand
from mxkern.shapes import grouped_shape

_PRECISIONS = {name: PRECISIONS[name] for name in GROUPED_PRECISIONS}


class GroupedGemmExplanation(GemmExplanation):
    """What explain_grouped_gemm says; prints as a list."""

    __slots__ = ()

    def __str__(self) -> str:
        return self._listed("grouped_gemm")


def explain_grouped_gemm(
    a: Any,
    b: Operand[Any],
    ends: Any,
    *,
    dtype: Dtype = "float32",
    precision: GroupedPrecision = "exact",
    device: str | None = None,
    form: AskedForm | None = None,
) -> GroupedGemmExplanation:
    """How grouped_gemm computes a product: the path, why, the kernel, the error to expect, the
    memory.

    a, b, ends, dtype, precision  as in grouped_gemm; of ends the number counts, and on the CPU
                                  what they are
    device, form                  as in explain_gemm

    Nothing is computed. The plan is for groups of about the same size. Raises what grouped_gemm
    would: TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> w = mxkern.quantize(np.ones((8, 2880, 2880), np.float32), "mxfp4")
    >>> x, ends = np.ones((64, 2880), np.float16), np.arange(8, 65, 8, dtype=np.int32)
    >>> plan = mxkern.explain_grouped_gemm(x, w, ends, device="sm_90", form="few_tokens")
    >>> plan.path, plan.right
    ('few tokens', 'mxfp4, prepared as few_tokens')
    """
    function = "explain_grouped_gemm"
    result_dtype = dtype_position(function, dtype)
    wanted = position(function, "precision", precision, _PRECISIONS)
    views = _core.grouped_views(calls, function, a, b, ends, None)
    left, right, a_shape, b_shape, ends, groups = views
    right, on, kind = planned_right(function, b, right, device, form)
    shape = grouped_shape(function, a_shape, b_shape, groups)
    where = ends, groups, len(b_shape) == 2
    buffer = dense_buffer(None, result_dtype, on, collapsed((1, *shape)))
    try:
        found = _core.explain_grouped_gemm(left, right, *where, buffer, wanted, kind)
    except (ValueError, RuntimeError) as error:
        raise errors.renamed(error, "grouped_gemm", function) from None
    return GroupedGemmExplanation(*fields_of(found))
