# tests/python/ops/test_explain_grouped_gemm.py: what explain_grouped_gemm says, and what it
# refuses.
import numpy as np
import pytest

import mxkern
from support import refused

W = mxkern.quantize(np.ones((4, 64, 256), np.float32), "mxfp4")
ENDS = np.array([8, 16, 24, 32], np.int32)
X = np.ones((32, 256), np.float16)


def test_devices_that_are_not_here():
    text = mxkern.explain_grouped_gemm(X, W, ENDS, device="sm_90")
    assert (text.device, text.path) == ("sm_90", "few tokens")
    assert text.right == "mxfp4, reordered in the call" and text.workspace_bytes > 0
    assert "prepare b in the form few_tokens" in text.reason
    assert str(text).startswith("grouped_gemm on sm_90: few tokens\n  reason ")
    assert repr(text) == str(text) and isinstance(text, mxkern.GemmExplanation)
    ready = mxkern.explain_grouped_gemm(X, W, ENDS, device="sm_90", form="few_tokens")
    assert ready.right == "mxfp4, prepared as few_tokens" and ready.workspace_bytes == 0
    other = mxkern.explain_grouped_gemm(X, W, ENDS, device="sm_80", form="expanded")
    assert other.path == "portable" and other.right == "mxfp4, prepared as expanded"


def test_groups_of_columns():
    q = mxkern.quantize(np.ones((64, 256), np.float32), "mxfp8")
    ends = np.array([32, 256], np.int32)
    for precision, path in (("exact", "exact"), ("folded", "folded")):
        text = mxkern.explain_grouped_gemm(q, q, ends, precision=precision, device="sm_90")
        assert text.path == path, text


def test_the_cpu():
    text = mxkern.explain_grouped_gemm(X, W, ENDS)
    assert (text.device, text.path, text.error) == ("cpu", "exact", "that of a float32 sum")
    assert text.workspace_bytes > 0
    assert mxkern.explain_grouped_gemm(X, W, ENDS, device="cpu") == text
    nothing = mxkern.explain_grouped_gemm(X[:0], W, np.zeros(4, np.int32))
    assert nothing.path == "nothing" and nothing.reason == "the output has no elements"


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    w = mxkern.quantize(torch.ones(2, 64, 256), "nvfp4")
    ends = torch.tensor([3, 5], dtype=torch.int32)
    x = torch.ones(5, 256, dtype=torch.bfloat16)
    text = mxkern.explain_grouped_gemm(x, w, ends, dtype=torch.bfloat16, device="sm_90")
    assert text.path == "few tokens"
    assert text.left == "bfloat16, read as it lies"
    tracked = x.clone().requires_grad_()  # a record has no derivative to lose
    same = mxkern.explain_grouped_gemm(tracked, w, ends, dtype="bfloat16", device="sm_90")
    assert same == text


def test_what_is_refused():
    call, name = mxkern.explain_grouped_gemm, "explain_grouped_gemm: "
    refused(ValueError, lambda: call(X, W, ENDS, precision="auto"), name + "precision is 'auto'")
    refused(ValueError, lambda: call(X, W, ENDS[:3]), name + "ends has shape (3,)")
    refused(ValueError, lambda: call(X, W, ENDS[::-1].copy()), name + "ends[1] is 24")
    refused(TypeError, lambda: call(X, X, ENDS), name + "b is")
    refused(TypeError, lambda: call(X, W, list(ENDS)), name + "ends is")
    refused(ValueError, lambda: call(X[:, :32], W, ENDS), name + "a has shape (32, 32)")
    refused(ValueError, lambda: call(X, W, ENDS, form="few_tokens"), name + "form is", "sm_90")
    refused(ValueError, lambda: call(X, W, ENDS, device="sm_9x"), name)
    q = mxkern.quantize(X, "mxfp8")
    refused(RuntimeError, lambda: call(q, W, ENDS, precision="folded"), name + "precision is")
