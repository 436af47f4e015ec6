# tests/python/ops/test_custom_gemm.py: products with operands by schemes of the user's own, in
# bfloat16 where that holds their values, against float64.
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mxkern
from support import array_of, framework_params

EXACT = [
    "e3m4b64",
    "e2m1b16",
    "int4b32",
    "int9b48",
    "uint8b10",
    "e5m7b32",
    "e4m3b128x128",
    "e3m4_row",
]
INEXACT = ["e4m8b32", "int12b32", "e2m1b16:ue4m3", "nvfp4_32"]
COMPILED = ["mxfp8_e4m3", "mxfp4", "nvfp4", "mxint8"]
M, N, K = 40, 24, 160


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape)
    return (values * 2.0 ** np.arange(-3, shape[-1] - 3) % 5).astype(np.float32)


W = normal(N, K, seed=1)


def decoded(operand: Any) -> np.ndarray:
    if isinstance(operand, mxkern.BlockScaled):
        operand = mxkern.dequantize(operand)
    return operand.astype(np.float64)


def assert_product(got: Any, a: Any, b: Any) -> None:
    """Within the bound that gemm states, of relative L2."""
    want = decoded(a) @ np.swapaxes(decoded(b), -1, -2)
    assert np.linalg.norm(got - want) <= 2e-5 * np.linalg.norm(want)


@pytest.mark.parametrize("right", EXACT + INEXACT)
@pytest.mark.parametrize(
    "left", ["e3m4b64", "e4m8b32", "mxfp8_e4m3", "nvfp4", "bfloat16", "float32"]
)
def test_against_float64(left: str, right: str) -> None:
    a, b = normal(M, K), normal(N, K, seed=1)
    qb = mxkern.quantize(b, right)
    qa = a if left == "float32" else a.astype(ml_dtypes.bfloat16) if left == "bfloat16" else None
    qa = mxkern.quantize(a, left) if qa is None else qa
    assert_product(mxkern.gemm(qa, qb), qa, qb)
    for rows in (1, 3):  # few, of which other schemes have code of their own
        few = mxkern.quantize(a[:rows], left) if "float" not in left else qa[:rows]
        assert_product(mxkern.gemm(few, qb), few, qb)
    way = "bfloat16" if right in EXACT else "float32"
    assert mxkern.explain_gemm(qa, qb).path == f"decoded to {way}"


@pytest.mark.parametrize("right", COMPILED)
@pytest.mark.parametrize("left", ["e3m4b64", "e4m8b32"])
def test_compiled_right_operands_stay_codes(left: str, right: str) -> None:
    qa, qb = mxkern.quantize(normal(M, K), left), mxkern.quantize(normal(N, K, seed=1), right)
    assert_product(mxkern.gemm(qa, qb), qa, qb)
    told = mxkern.explain_gemm(qa, qb)
    assert told.path == "decoded to bfloat16" and "multiply its codes" in told.reason
    assert "decoded" not in told.right
    assert ("decoded to bfloat16" in told.left) == (left == "e3m4b64")


def test_prepared_right_operands() -> None:
    qa, qb = (
        mxkern.quantize(normal(M, K), "e3m4b64"),
        mxkern.quantize(normal(N, K, seed=1), "mxfp8"),
    )
    assert_product(mxkern.gemm(qa, mxkern.prepare_operand(qb)), qa, qb)
    assert mxkern.explain_gemm(qa, mxkern.prepare_operand(qb)).path == "decoded to bfloat16"
    with pytest.raises(TypeError, match="pass its source"):
        mxkern.gemm(mxkern.prepare_operand(qb), qa)


def test_batches_and_outputs() -> None:
    qa, qb = (
        mxkern.quantize(normal(3, M, K), "e3m4b64"),
        mxkern.quantize(normal(3, N, K), "e3m4b64"),
    )
    assert_product(mxkern.gemm(qa, qb), qa, qb)
    one = mxkern.quantize(normal(N, K, seed=4), "e3m4b64")
    assert_product(mxkern.gemm(qa, one), qa, one)
    wide = np.ones((3, M, 2 * N), np.float32)
    out = wide[..., :N]
    bias = np.arange(N, dtype=np.float32)
    assert mxkern.gemm(qa, one, out=out, alpha=0.5, beta=2.0, bias=bias) is out
    want = 0.5 * decoded(qa) @ decoded(one).T + 2.0 + bias
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-3)
    assert (wide[..., N:] == 1).all()
    for dtype in ("float16", "bfloat16"):
        assert str(mxkern.gemm(qa, one, dtype=dtype).dtype) == dtype


def test_infinite_and_missing_values() -> None:
    a, b = np.ones((36, 64), np.float32), np.ones((8, 64), np.float32)
    b[3, 5], b[4, 40] = np.nan, np.inf
    for scheme in ("e3m4b32", "e5m2_ieeeb32"):
        q = (
            mxkern.quantize(b, scheme, saturate=False)
            if "ieee" in scheme
            else mxkern.quantize(b, scheme)
        )
        for left in (a, a.astype(ml_dtypes.bfloat16), mxkern.quantize(a, "mxfp8")):
            got = mxkern.gemm(left, q)
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(got, decoded(left) @ decoded(q).T)


def test_errors() -> None:
    q = mxkern.quantize(normal(N, K), "e3m4b64")
    with pytest.raises(ValueError, match=r"gemm: .*shape"):
        mxkern.gemm(normal(M, K - 1), q)
    with pytest.raises(ValueError, match="bias"):
        mxkern.gemm(q, q, bias=np.ones(3, np.float32))
    with pytest.raises(ValueError, match="out"):
        mxkern.gemm(q, q, beta=1.0)
    memory = np.zeros((N, 4 * N), np.uint8)
    own = mxkern.BlockScaled.from_parts(memory, np.full((N, 2), 127, np.uint8), scheme="e3m4b64")
    with pytest.raises(ValueError, match=r"out"):
        mxkern.gemm(np.ones((N, 4 * N), np.float32), own, out=memory.view(np.float32))


def test_torch_tensors_on_the_cpu() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.from_numpy(normal(M, K))
    q = mxkern.quantize(torch.from_numpy(normal(N, K, seed=1)), "e3m4b64")
    got = mxkern.gemm(x.bfloat16(), q, dtype="bfloat16")
    want = x.bfloat16().double() @ mxkern.dequantize(q).double().T
    assert got.dtype == torch.bfloat16
    assert (got.double() - want).norm() <= 4e-3 * want.norm()


@pytest.mark.parametrize("framework", framework_params("numpy", "torch", "jax"))
def test_explanations_for_arrays_of_frameworks(framework: str) -> None:
    x, q = array_of(framework, normal(M, K)), mxkern.quantize(array_of(framework, W), "e3m4b64")
    for a in (x, mxkern.quantize(x, "e3m4b64"), mxkern.quantize(x, "mxfp8")):
        text = mxkern.explain_gemm(a, q)
        assert (text.device, text.path) == ("cpu", "decoded to bfloat16")


def test_explanations_raise_what_gemm_would() -> None:
    x, q = normal(M, K), mxkern.quantize(normal(N, K, seed=1), "e3m4b64")
    explain = mxkern.explain_gemm
    assert explain(x, q).device == "cpu"
    assert explain(x, q, device="sm_90a").device == "sm_90"
    for b in (q, mxkern.quantize(normal(N, K), "e4m8b32")):
        with pytest.raises(RuntimeError, match="explain_gemm: precision is 'folded'"):
            explain(x, b, precision="folded")
        with pytest.raises(ValueError, match=r"explain_gemm: .*the same last axis K"):
            explain(x[:, 1:], b)
        with pytest.raises(ValueError, match=r"explain_gemm: .*equal leading dimensions"):
            explain(x, mxkern.quantize(normal(2, N, K), b.scheme))
        with pytest.raises(TypeError, match="explain_gemm: a has dtype float64"):
            explain(x.astype(np.float64), b)
        with pytest.raises(TypeError, match="explain_gemm: a is a list"):
            explain(x.tolist(), b)
        with pytest.raises(ValueError, match="explain_gemm: device is 'sm_75'"):
            explain(x, b, device="sm_75")
        with pytest.raises(ValueError, match="explain_gemm: form is 'fast'"):
            explain(x, b, form="fast", device="sm_90")
    with pytest.raises(TypeError, match="explain_gemm: a PreparedOperand"):
        explain(mxkern.prepare_operand(mxkern.quantize(x, "mxfp8")), q)
