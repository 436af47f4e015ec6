# mxkern/ops/explain_gemm.py: how gemm would compute a product, here or on another device: the
# plan, and what it says.
from __future__ import annotations

import re
from typing import Any, NamedTuple

from mxkern import _core, errors
from mxkern.arrays.adapter import CPU, collapsed, dense_buffer
from mxkern.calls import calls
from mxkern.faults import number as number_of
from mxkern.names import AskedForm, Dtype, GemmPrecision
from mxkern.options import PRECISIONS, PREPARED_FORMS, dtype_position, position
from mxkern.prepared_operand import Operand, PreparedOperand


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
    form                    "folded", "expanded" or "few_tokens": as though prepare_operand had
                            made b ready in this form, which takes a GPU or device="sm_90"; None: b
                            as it is

    Nothing is computed. Raises what gemm would: TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> q = mxkern.quantize(np.ones((4096, 4096), np.float32), "mxfp8")
    >>> print(mxkern.explain_gemm(q, q, dtype="bfloat16", device="sm_90").path)
    folded or exact
    >>> x = np.ones((16, 4096), np.float16)
    >>> print(mxkern.explain_gemm(x, q, device="sm_90", form="few_tokens").path)
    few tokens
    """
    asked = a, b, beta, dtype, precision, device, form
    return _planned("explain_gemm", *asked).explain()


class GemmPlan:
    """How gemm computes a product, as plan_gemm works it out; prints as explain_gemm's text."""

    __slots__ = ("_explanation",)

    def __init__(self, plan: _core.GemmPlan) -> None:
        self._explanation = GemmExplanation(*fields_of(plan.explain()))

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
    return _planned("plan_gemm", a, b, beta, dtype, precision, device, form)


def _planned(
    function: str,
    a: Any,
    b: Operand[Any],
    beta: float,
    dtype: Dtype,
    precision: GemmPrecision,
    device: str | None,
    form: AskedForm | None,
) -> GemmPlan:
    result_dtype = dtype_position(function, dtype)
    wanted = position(function, "precision", precision, PRECISIONS)
    added = number_of(function, "beta", beta)
    left, right, a_shape, b_shape = _core.operand_views(calls, function, a, b)
    right, on, kind = planned_right(function, b, right, device, form)
    extents = collapsed((*a_shape[:-1], b_shape[-2]))
    buffer = dense_buffer(None, result_dtype, on, extents)
    try:
        return GemmPlan(_core.plan_gemm(left, right, buffer, added, wanted, kind))
    except (ValueError, RuntimeError) as error:
        worded = errors.renamed(errors.renamed(error, "gemm", function), "plan_gemm", function)
        raise worded from None


def fields_of(found: Any) -> list[Any]:
    """What the library says, in the order of GemmExplanation."""
    return [getattr(found, name) for name in GemmExplanation._fields]


def planned_right(
    function: str, b: Operand[Any], view: Any, device: Any, form: Any
) -> tuple[Any, int, str]:
    """The view of b, as it is or as though it was prepared; the device it is on; and the one that
    is asked about, empty for that one."""
    on = view[1][2] if len(view) == 4 else view[2]
    kind = _kind_of_device(function, device, on)
    if form is None:
        return view, on, kind
    number = position(function, "form", form, PREPARED_FORMS)
    if isinstance(b, PreparedOperand) and b.form != "source":
        raise ValueError(f"{function}: form is given, but b is prepared already; leave form out")
    if kind == "cpu" or (not kind and on == CPU):
        raise ValueError(
            f"{function}: form is {errors.described(form)} and the device is the CPU, whose "
            "products read codes and scales as they lie; expected a GPU; pass its kind, as "
            "device='sm_90', or leave form out"
        )
    scheme, _, _, *extents = view[:6]
    try:
        _core.prepared_form(number, scheme, on)  # for its error, where the scheme has no such form
    except ValueError as error:
        raise errors.renamed(error, "usable_prepared_form", function) from None
    # Without what prepare_operand would write: plans read nothing.
    return (number, view, 0, _core.prepared_bytes(number, scheme, *extents)), on, kind


def _kind_of_device(function: str, device: Any, on: int) -> str:
    """A device as the library takes it; empty for the one that the operands are on."""
    if device is None:
        return ""
    if not isinstance(device, str) or not device:
        raise TypeError(
            f"{function}: device is {errors.described(device)}; expected 'cpu', 'cuda:0' or "
            "another one that a and b are on, or a kind of GPU, as 'sm_90'"
        )
    if re.fullmatch(r"cuda(:\d+)?", device):
        if on != CPU and device in ("cuda", f"cuda:{on}"):
            return ""
        where = "the CPU" if on == CPU else f"cuda:{on}"
        raise ValueError(
            f"{function}: device is {device!r}, and b is on {where}; expected a device that a and "
            "b are on, or a kind of GPU; pass its kind, as device='sm_90'"
        )
    # As nvcc writes them: what is for one architecture, or for its family, is no GPU of its own.
    return re.sub(r"(?<=^sm_)(\d+)[af]$", r"\1", device)
