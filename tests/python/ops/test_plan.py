# tests/python/ops/test_plan.py: plans of products as values.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxkern
from support import array_of, framework_params

X = np.ones((16, 4096), np.float32)
W = np.ones((2048, 4096), np.float32)


def test_says_what_explain_gemm_says() -> None:
    a, b = mxkern.quantize(X, "mxfp8"), mxkern.quantize(W, "mxfp4")
    cases: list[dict[str, Any]] = [
        {},
        {"device": "cpu", "precision": "exact"},
        {"device": "sm_90", "dtype": "bfloat16"},
        {"device": "sm_90", "form": "few_tokens"},
        {"device": "sm_80", "beta": 1.0},
    ]
    for case in cases:
        plan, text = mxkern.plan_gemm(a, b, **case), mxkern.explain_gemm(a, b, **case)
        assert isinstance(plan, mxkern.GemmPlan) and plan.explain() == text
        assert str(plan) == repr(plan) == str(text)
        for name in ("device", "path", "reason", "error", "workspace_bytes"):
            assert getattr(plan, name) == getattr(text, name), name


def test_depends_on_what_is_multiplied() -> None:
    b = mxkern.quantize(W, "mxfp8")
    few = mxkern.plan_gemm(X.astype(np.float16), b, device="sm_90", form="few_tokens")
    assert (few.device, few.path, few.workspace_bytes) == ("sm_90", "few tokens", 0)
    folded = mxkern.plan_gemm(b, b, dtype="bfloat16", device="sm_90")
    assert folded.path == "folded or exact" and folded.workspace_bytes > 2 * b.codes.nbytes
    assert mxkern.plan_gemm(b, b, device="sm_90").path == "exact"
    few_folded = mxkern.plan_gemm(
        mxkern.quantize(X, "mxfp8"),
        mxkern.quantize(W, "mxfp4"),
        device="sm_90",
        precision="folded",
        form="few_tokens",
    )
    assert few_folded.path == "few tokens, folded"
    assert few_folded.explain().kernel.startswith("wgmma of FP8, weights decoded in registers")


@pytest.mark.parametrize("framework", framework_params("torch"))
def test_tensors_that_require_grad(framework: str) -> None:
    x = array_of(framework, X)
    b = mxkern.quantize(x, "mxfp8")
    assert mxkern.plan_gemm(x.requires_grad_(), b).path == "exact"


def test_errors_name_it() -> None:
    q = mxkern.quantize(X, "mxfp8")
    with pytest.raises(ValueError, match=r"^plan_gemm: device is 'sm_91'; expected cpu, sm_80"):
        mxkern.plan_gemm(q, q, device="sm_91")
    with pytest.raises(RuntimeError, match=r"^plan_gemm: precision is folded, and the CPU's"):
        mxkern.plan_gemm(q, q, precision="folded")
    with pytest.raises(ValueError, match=r"^plan_gemm: a has shape"):
        mxkern.plan_gemm(np.ones((4, 64), np.float32), q)
    with pytest.raises(TypeError, match=r"^plan_gemm: b is "):
        mxkern.plan_gemm(X, X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^explain_gemm: device is 'sm_91'; expected cpu, sm_80"):
        mxkern.explain_gemm(q, q, device="sm_91")
