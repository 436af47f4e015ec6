# mxkern/ops/explain_gemm.py: how gemm would compute a product, here or on another device: the
# plan, and what it says.
from __future__ import annotations

from typing import Any, NamedTuple

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values.names import AskedForm, Dtype, GemmPrecision
from mxkern.values.prepared_operand import Operand


class GemmExplanation(NamedTuple):
    """What explain_gemm says; prints as a list."""

    device: str
    path: str
    reason: str
    left: str
    right: str
    kernel: str
    error: str
    workspace_bytes: int

    def __str__(self) -> str:
        return self._listed("gemm")

    def _listed(self, function: str) -> str:
        lines = [
            ("reason", self.reason),
            ("a", self.left),
            ("b", self.right),
            ("kernel", self.kernel),
            ("error", self.error),
            ("workspace", f"{self.workspace_bytes} bytes"),
        ]
        text = [f"{function} on {self.device}: {self.path}"]
        return "\n".join([*text, *(f"  {name:11}{value}" for name, value in lines if value)])

    def __repr__(self) -> str:
        return str(self)


def explain_gemm(
    a: Any,
    b: Operand[Any],
    *,
    beta: float = 0.0,
    dtype: Dtype = "float32",
    precision: GemmPrecision = "auto",
    device: str | None = None,
    form: AskedForm | None = None,
) -> GemmExplanation:
    """How gemm computes a product: the path, why, the kernel, the error to expect, the memory.

    a, b, dtype, precision  as in gemm
    beta                    as in gemm; an output that is added to may take more memory
    device                  None: the one that a and b are on, "cuda:0" for example; or "cpu",
                            "sm_80", "sm_90", ...: a kind of GPU, which need not be here
    form                    "folded", "expanded", "few_tokens" or "panels": as though
                            prepare_operand had made b ready in this form, of which panels are the
                            CPU's and the others a GPU's, or of device="sm_90"; None: b as it is

    Nothing is computed. Raises what gemm would: TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> q = mxkern.quantize(np.ones((4096, 4096), np.float32), "mxfp8")
    >>> print(mxkern.explain_gemm(q, q, dtype="bfloat16", device="sm_90").path)
    folded or exact
    >>> x = np.ones((16, 4096), np.float16)
    >>> print(mxkern.explain_gemm(x, q, device="sm_90", form="few_tokens").path)
    few tokens
    """
    asked = a, b, dtype, precision, beta, device, form
    return GemmExplanation(*_core.explain_gemm(calls, "explain_gemm", *asked))


class GemmPlan:
    """How gemm computes a product, as plan_gemm works it out; prints as explain_gemm's text."""

    __slots__ = ("_explanation",)

    def __init__(self, explanation: GemmExplanation) -> None:
        self._explanation = explanation

    def explain(self) -> GemmExplanation:
        """The plan in words, by their names."""
        return self._explanation

    @property
    def device(self) -> str:
        """ "cpu", "sm_90" """
        return self._explanation.device

    @property
    def path(self) -> str:
        """Which kernels multiply: "exact", "folded or exact", "few tokens", "portable", ..."""
        return self._explanation.path

    @property
    def reason(self) -> str:
        """Why they do."""
        return self._explanation.reason

    @property
    def error(self) -> str:
        """The error to expect."""
        return self._explanation.error

    @property
    def workspace_bytes(self) -> int:
        """The working memory that the product takes."""
        return self._explanation.workspace_bytes

    def __str__(self) -> str:
        return str(self._explanation)

    def __repr__(self) -> str:
        return str(self)


def plan_gemm(
    a: Any,
    b: Operand[Any],
    *,
    beta: float = 0.0,
    dtype: Dtype = "float32",
    precision: GemmPrecision = "auto",
    device: str | None = None,
    form: AskedForm | None = None,
) -> GemmPlan:
    """The plan of gemm for a product: arguments and errors as of explain_gemm, which says in words
    what this returns. Shapes, dtypes, schemes and forms decide it, and the alignment of memory; the
    values do not.

    >>> import mxkern, numpy as np
    >>> q = mxkern.quantize(np.ones((4096, 4096), np.float32), "mxfp8")
    >>> plan = mxkern.plan_gemm(q, q, dtype="bfloat16", device="sm_90")
    >>> plan.path, plan.workspace_bytes > 0
    ('folded or exact', True)
    """
    asked = a, b, dtype, precision, beta, device, form
    return GemmPlan(GemmExplanation(*_core.explain_gemm(calls, "plan_gemm", *asked)))
