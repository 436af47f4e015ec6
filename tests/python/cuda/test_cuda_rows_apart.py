# tests/python/cuda/test_cuda_rows_apart.py: results on a CUDA device that are written between what
# else a tensor holds.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mxkern

pytestmark = pytest.mark.skipif(
    not mxkern.info().devices, reason=f"no CUDA device can be used: {mxkern.info().cuda}"
)
torch = pytest.importorskip("torch", reason="torch is not installed")
if mxkern.info().devices and not torch.cuda.is_available():
    pytest.skip("this PyTorch has no CUDA", allow_module_level=True)

N, K = 136, 256


def normal(*shape: int, seed: int = 0, dtype: Any = None) -> Any:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, device="cuda", generator=generator).to(dtype or torch.float32)


def products(rows: int) -> dict[str, tuple[Callable[..., Any], tuple[int, ...]]]:
    x = normal(rows, K, seed=1, dtype=torch.bfloat16)
    q, w = mxkern.quantize(x, "mxfp8"), mxkern.quantize(normal(N, K, seed=2), "mxfp8")
    few = mxkern.prepare_operand(w, form="few_tokens")
    experts = mxkern.prepare_operand(mxkern.quantize(normal(3, N, K), "mxfp4"), form="few_tokens")
    ends = torch.tensor([rows // 3, rows // 3, rows - 1], dtype=torch.int32, device="cuda")
    column_ends = torch.tensor([32, 128, 256], dtype=torch.int32, device="cuda")
    return {
        "folded": (lambda **o: mxkern.gemm(q, w, **o), (rows, N)),
        "exact": (lambda **o: mxkern.gemm(q, w, precision="exact", **o), (rows, N)),
        "few tokens": (lambda **o: mxkern.gemm(x, few, **o), (rows, N)),
        "rows": (lambda **o: mxkern.grouped_gemm(x, experts, ends, **o), (rows, N)),
        "columns": (lambda **o: mxkern.grouped_gemm(q, w, column_ends, **o), (3, rows, N)),
    }


@pytest.mark.parametrize("rows", [1, 7, 40, 300])
@pytest.mark.parametrize("name", ["folded", "exact", "few tokens", "rows", "columns"])
def test_products(name: str, rows: int) -> None:
    """The values of a dense output, and nothing written beside them; by pieces of 16 bytes, and
    where rows start anywhere."""
    product, shape = products(rows)[name]
    for dtype in (torch.float32, torch.bfloat16):
        for first, gap in ((64, 128), (3, 11)):
            for beta in (0.0, 0.5):
                larger = normal(*shape[:-1], N + gap, seed=7, dtype=dtype)
                want, out = larger.clone(), larger[..., first : first + N]
                dense = out.clone(memory_format=torch.contiguous_format)
                want[..., first : first + N] = product(out=dense, beta=beta)
                version = larger._version
                assert product(out=out, beta=beta) is out
                assert larger._version > version
                outside = torch.ones_like(larger, dtype=torch.bool)
                outside[..., first : first + N] = False
                assert larger[outside].equal(want[outside])
                # Rounding to bfloat16 is what sums in another order may change most.
                allowed = 1e-6 if dtype == torch.float32 else 2e-3
                assert (out - want[..., first : first + N]).norm() <= allowed * dense.norm()


def test_dequantize_and_hadamard() -> None:
    q = mxkern.quantize(normal(3, 40, K), "nvfp4")
    larger = normal(3, 40, K + 64, seed=7)
    rest = larger[..., :64].clone()
    mxkern.dequantize(q, out=larger[..., 64:])
    assert larger[..., 64:].equal(mxkern.dequantize(q)) and larger[..., :64].equal(rest)
    view = larger[..., 64:]
    want = mxkern.random_hadamard(view.contiguous())
    assert mxkern.random_hadamard(view, out=view) is view
    assert view.equal(want) and larger[..., :64].equal(rest)
