# mxkern/ops/explain_grouped_gemm.py: how grouped_gemm would compute a product, here or on another
# device.
from __future__ import annotations

from typing import Any

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.ops.explain_gemm import GemmExplanation
from mxkern.values.names import AskedForm, Dtype, GroupedPrecision
from mxkern.values.prepared_operand import Operand


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
    found = _core.explain_grouped_gemm(calls, a, b, ends, dtype, precision, device, form)
    return GroupedGemmExplanation(*found)
