# tests/python/cuda/test_cuda_custom_gemm.py: products by schemes of the user's own on CUDA devices,
# in bfloat16 and in float32, against double precision.
from __future__ import annotations

from typing import Any

import pytest

import mxkern

pytestmark = pytest.mark.skipif(
    not mxkern.info().devices, reason=f"no CUDA device can be used: {mxkern.info().cuda}"
)
torch = pytest.importorskip("torch", reason="torch is not installed")
if mxkern.info().devices and not torch.cuda.is_available():
    pytest.skip("this PyTorch has no CUDA", allow_module_level=True)

SHAPES = [(1, 1, 1), (5, 9, 33), (130, 257, 160), (256, 128, 96), (300, 264, 1056)]


def normal(rows: int, k: int, seed: int) -> Any:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(rows, k, generator=generator, device="cuda")


def decoded(operand: Any) -> Any:
    values = mxkern.dequantize(operand) if isinstance(operand, mxkern.BlockScaled) else operand
    return values.double()


@pytest.mark.parametrize("right", ["e3m4b64", "e2m1b16", "int9b48", "e4m3b128x128", "int12b32"])
@pytest.mark.parametrize("left", ["e3m4b64", "e4m8b32", "mxfp8", "nvfp4", "bfloat16", "float32"])
def test_against_float64(left: str, right: str) -> None:
    for m, n, k in SHAPES:
        x, b = normal(m, k, 0), mxkern.quantize(normal(n, k, 1), right)
        a = x.to(getattr(torch, left)) if "float" in left else mxkern.quantize(x, left)
        want = decoded(a) @ decoded(b).T
        got = mxkern.gemm(a, b)
        assert (got.double() - want).norm() <= 2e-5 * want.norm(), (m, n, k)
        rounded = mxkern.gemm(a, b, dtype="bfloat16")
        assert (rounded.double() - want).norm() <= 5e-3 * want.norm(), (m, n, k)


def test_compiled_and_prepared_right_operands() -> None:
    a, b = (
        mxkern.quantize(normal(70, 256, 0), "e3m4b64"),
        mxkern.quantize(normal(96, 256, 1), "mxfp8"),
    )
    want = decoded(a) @ decoded(b).T
    for right in (b, mxkern.prepare_operand(b), mxkern.prepare_operand(b, form="expanded")):
        got = mxkern.gemm(a, right)
        assert (got.double() - want).norm() <= 2e-5 * want.norm()


def test_a_batch_beside_one_matrix_and_what_is_in_out() -> None:
    a = mxkern.quantize(normal(3 * 40, 128, 0).view(3, 40, 128), "e3m4b64")
    b, bias = mxkern.quantize(normal(24, 128, 1), "int4b32"), normal(1, 24, 2)[0]
    assert mxkern.explain_gemm(a, b).device.startswith("sm_")
    out = torch.ones(3, 40, 24, device="cuda")
    assert mxkern.gemm(a, b, out=out, alpha=0.5, beta=2.0, bias=bias) is out
    want = 0.5 * decoded(a) @ decoded(b).T + 2.0 + bias.double()
    assert (out.double() - want).norm() <= 2e-5 * want.norm()
