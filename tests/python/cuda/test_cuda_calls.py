# tests/python/cuda/test_cuda_calls.py: PyTorch tensors on CUDA devices: dense ones, which are read
# in place, others, and those without memory.
from __future__ import annotations

from typing import Any

import pytest

import mxkern
from support import DTYPES, SCHEMES, array_of, assert_same, corner_values, raw, refused

pytestmark = pytest.mark.skipif(
    not mxkern.info().devices, reason=f"no CUDA device can be used: {mxkern.info().cuda}"
)


def assert_same_tensors(got: mxkern.BlockScaled, want: mxkern.BlockScaled) -> None:
    assert got.facts == want.facts
    for name, a, b in zip(got.__slots__, got.parts, want.parts, strict=False):
        if b is None:
            assert a is None
            continue
        assert a.dtype == b.dtype and a.stride() == b.stride() and a.device == b.device, name
        assert_same(raw(a.cpu()), raw(b.cpu()), f"{got.scheme} {name}")


@pytest.mark.parametrize("shape", [(70, 96), (3, 33, 64)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_dense_and_apart(torch: Any, scheme: str, shape: tuple[int, ...]) -> None:
    """Rows that lie apart give what dense ones do."""
    values = corner_values(shape[0] * (shape[1] if len(shape) > 2 else 1), shape[-1], "bfloat16")
    x = array_of("torch", values).cuda().reshape(shape)
    wide = torch.zeros((*shape[:-1], shape[-1] + 8), device="cuda", dtype=x.dtype)
    wide[..., : shape[-1]] = x
    apart = wide[..., : shape[-1]]
    amaxes: list[dict[str, Any]] = [{}]
    if scheme == "nvfp4":
        amaxes += [{"amax": torch.full((), 5.0, device="cuda")}, {"amax": 5.0}]
    for layout in ("row_major", "swizzled"):
        for given in amaxes:
            options = {"scale_layout": layout, **given}
            for call in (mxkern.quantize, mxkern.quantize_columns):
                short, long = call(x, scheme, **options), call(apart, scheme, **options)
                assert_same_tensors(short, long)
                for part in filter(lambda part: part is not None, long.parts):
                    part.reshape(-1).view(torch.uint8).fill_(0x5A)
                assert call(x, scheme, out=long, **options) is long
                assert_same_tensors(short, long)
            both = mxkern.quantize_both(x, scheme, **options)
            others = mxkern.quantize_both(apart, scheme, **options)
            for a, b in zip(both, others, strict=True):
                assert_same_tensors(a, b)
    q = mxkern.quantize(x, scheme)
    codes = torch.cat([q.codes, q.codes], -1)[..., : q.codes.shape[-1]]
    for dtype in DTYPES:
        got = mxkern.dequantize(q, dtype=dtype)
        want = mxkern.dequantize(q.replace(codes=codes), dtype=dtype)
        assert got.dtype == want.dtype
        assert_same(raw(got.cpu()), raw(want.cpu()), scheme)
        filled = torch.full_like(want, float("nan"))
        assert mxkern.dequantize(q, out=filled) is filled
        assert_same(raw(filled.cpu()), raw(want.cpu()), scheme)


def test_freed_storage(torch: Any) -> None:
    """As training in shards leaves parameters: kernels would read memory that is nobody's."""
    x = torch.randn(64, 96, device="cuda", dtype=torch.bfloat16)
    q = mxkern.quantize(x, "mxfp8")
    for behind in (0, 64):
        gone = torch.randn(64 + behind, 96, device="cuda", dtype=torch.bfloat16)[behind:]
        gone.untyped_storage().resize_(0)
        refused(ValueError, lambda x=gone: mxkern.quantize(x, "mxfp8"), "quantize: x has")
        refused(ValueError, lambda x=gone: mxkern.gemm(x, q), "gemm: a has")
        refused(ValueError, lambda x=gone: mxkern.dequantize(q, out=x), "dequantize: out has")
        codes = torch.empty(64 + behind, 96, device="cuda", dtype=q.codes.dtype)[behind:]
        codes.untyped_storage().resize_(0)
        bad = q.replace(codes=codes)
        refused(ValueError, lambda q=bad: mxkern.dequantize(q), "dequantize: q.codes has")
        refused(ValueError, lambda q=bad: mxkern.gemm(x, q), "gemm: b.codes has")
        refused(ValueError, lambda q=bad: mxkern.quantize(x, "mxfp8", out=q), "out.codes has")


def test_grouped_products(torch: Any) -> None:
    """Biases that lie apart give what dense ones do."""
    q = mxkern.quantize(torch.randn(3, 40, 96, device="cuda"), "nvfp4")
    x = torch.randn(20, 96, device="cuda", dtype=torch.bfloat16)
    ends = torch.tensor([4, 4, 17], dtype=torch.int32, device="cuda")
    factors, bias = torch.randn(3, device="cuda"), torch.randn(3, 40, device="cuda")
    apart = torch.cat([bias, bias], -1)[:, :40]
    for b in (q, mxkern.prepare_operand(q, form="few_tokens")):
        for a in (x, x.float(), mxkern.quantize(x, "mxfp8")):
            for dtype in ("float32", "bfloat16"):
                options = {"factors": factors, "dtype": dtype, "alpha": 0.5}
                got = mxkern.grouped_gemm(a, b, ends, bias=bias, **options)
                assert got.equal(mxkern.grouped_gemm(a, b, ends, bias=apart, **options))
                out = torch.full_like(got, float("nan"))
                version = out._version
                assert mxkern.grouped_gemm(a, b, ends, bias=bias, out=out, **options) is out
                assert out.equal(got) and out._version > version
                added, also = torch.ones_like(got), torch.ones_like(got)
                mxkern.grouped_gemm(a, b, ends, bias=bias, out=added, beta=2.0, **options)
                mxkern.grouped_gemm(a, b, ends, bias=apart, out=also, beta=2.0, **options)
                assert added.equal(also) and (added - got - 2.0).abs().max() < 0.1
    refused(TypeError, lambda: mxkern.grouped_gemm(x, q, ends.long()), "ends has dtype int64")
    refused(ValueError, lambda: mxkern.grouped_gemm(x, q, ends.cpu()), "ends is on cpu")
    refused(ValueError, lambda: mxkern.grouped_gemm(x[:, :64], q, ends), "the same last axis K")
    refused(
        ValueError,
        lambda: mxkern.grouped_gemm(x, q, ends, factors=factors, out=torch.empty(3, device="cuda")),
        "out has shape",
    )
