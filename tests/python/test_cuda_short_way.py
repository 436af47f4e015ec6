# tests/python/test_cuda_short_way.py: dense PyTorch tensors on CUDA devices take a short way, which
# gives what the general one does.
from __future__ import annotations

from typing import Any

import pytest

import mxkern
from mxkern import schemes
from mxkern.arrays import adapter_of
from mxkern.gemm_operands import PRECISIONS
from mxkern.options import options_of
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
def test_short_and_long_way_agree(torch: Any, scheme: str, shape: tuple[int, ...]) -> None:
    """Dense tensors take a short way; rows that lie apart take the general one."""
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
                for part in long[: 3 if scheme == "nvfp4" else 2]:
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


def test_what_takes_the_short_way(torch: Any) -> None:
    """None is an answer that costs time alone, so nothing else would tell."""
    x = torch.randn(64, 96, device="cuda", dtype=torch.bfloat16)
    mxkern.tensor_amax(x)  # the first call finds the way
    short = adapter_of("test", "x", x).short_way
    if short is None:
        pytest.skip("this PyTorch lacks what makes the way short")
    options = options_of("test", schemes["nvfp4"])
    nvfp4, mxfp8 = schemes["nvfp4"].id, schemes["mxfp8"].id
    amax = torch.ones((), device="cuda")
    assert short.quantize(x, nvfp4, 0, options, False, amax, None, None) is not None
    assert short.quantize_both(x, mxfp8, 1, options, options, None, None) is not None
    q = mxkern.quantize(x, "mxfp8")
    assert short.dequantize(q, 0, None) is not None
    assert short.quantize(x, mxfp8, 0, options, False, None, None, q) is q
    y = torch.empty(64, 96, device="cuda")
    assert short.dequantize(q, 1, y) is y
    few = mxkern.prepare_operand(q, form="few_tokens")
    out = torch.empty(64, 64, device="cuda", dtype=torch.bfloat16)
    assert short.gemm(x, few, 0, 1.0, 0.0, None, 0, out) is out
    assert short.gemm(q, q, 2, 1.0, 0.0, None, 1, None).dtype == torch.bfloat16
    assert short.gemm(mxkern.prepare_operand(q), q, 2, 1.0, 0.0, None, 0, None) is not None
    bias = torch.zeros(64, device="cuda")
    cube = torch.stack([x, x])
    assert short.gemm(cube, few, 2, 1.0, 0.0, bias, 0, None).shape == (2, 64, 64)
    assert short.gemm(x[0], few, 2, 1.0, 0.5, None, 0, out[0]) is not None
    assert short.gemm(x, few, 2, 1.0, 0.5, None, 0, None) is None, "beta needs out"
    assert short.gemm(x, few, 2, 1.0, 0.0, bias[:-1], 0, None) is None
    apart = mxkern.quantize(x.repeat(1, 2)[:, :96], "mxfp8", scale_layout="".join(["swiz", "zled"]))
    assert short.dequantize(apart, 0, None) is not None, "what the long way made"

    assert short.quantize(x.T, mxfp8, 0, options, False, None, None, None) is None
    assert short.quantize(x.cpu(), mxfp8, 0, options, False, None, None, None) is None
    assert short.quantize(x.int(), mxfp8, 0, options, False, None, None, None) is None
    assert short.quantize(x, mxfp8, 0, options, False, amax, None, None) is None, (
        "amax is for nvfp4"
    )
    assert short.quantize(x.to_sparse(), mxfp8, 0, options, False, None, None, None) is None
    assert short.quantize(torch._neg_view(x), mxfp8, 0, options, False, None, None, None) is None
    assert short.quantize(torch.nn.Parameter(x), mxfp8, 0, options, False, None, None, None) is None
    assert short.dequantize(q.replace(scales=q.scales[:-1]), 0, None) is None
    assert short.dequantize(q.replace(scheme="mxfp4"), 0, None) is None
    wrong = [
        q.replace(scheme="mxint8"),
        q.replace(scale_layout="swizzled"),
        q.replace(shape=(96, 64)),
    ]
    inside = torch.empty_like(q.codes).view(torch.uint8).flatten()
    wrong.append(
        q.replace(
            scales=inside[:192].view(64, 3).view(torch.float8_e8m0fnu),
            codes=inside.view(64, 96).view(torch.float8_e4m3fn),
        )
    )
    for out in wrong:
        assert short.quantize(x, mxfp8, 0, options, False, None, None, out) is None
    overlapping = x.view(torch.uint8).flatten()[:6144].view(64, 96).view(torch.float8_e4m3fn)
    out = q.replace(codes=overlapping)
    assert short.quantize(x, mxfp8, 0, options, False, None, None, out) is None
    assert short.dequantize(q, 0, y[:32]) is None
    assert short.gemm(x, q.replace(codes=q.codes.cpu()), 0, 1.0, 0.0, None, 0, None) is None


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


def test_without_the_table_of_dlpack(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch before 2.10: tensors are asked for their attributes."""
    from mxkern.arrays.torch_cuda_calls import torch_cuda_calls

    monkeypatch.setattr(torch.Tensor, "__dlpack_c_exchange_api__", None, raising=False)
    short = torch_cuda_calls()
    if short is None:
        pytest.skip("this PyTorch lacks what makes the way short")
    x = torch.randn(2, 33, 96, device="cuda", dtype=torch.bfloat16)
    options = options_of("test", schemes["mxfp4"])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for scheme in schemes:
            want = mxkern.quantize(x, scheme)
            got = short.quantize(x, scheme.id, 0, options, False, None, None, None)
            assert_same_tensors(got, want)
            assert short.quantize(x, scheme.id, 0, options, False, None, None, got) is got
            assert torch.equal(short.dequantize(got, 0, None), mxkern.dequantize(want))
        w = mxkern.prepare_operand(mxkern.quantize(x[0], "mxfp4"), form="few_tokens")
        product = short.gemm(x, w, 0, 1.0, 0.0, None, 0, None)
        assert torch.equal(product, mxkern.gemm(x, w))
    assert short.quantize(x.transpose(1, 2), 0, 0, options, False, None, None, None) is None
    assert short.quantize(x.cpu(), 0, 0, options, False, None, None, None) is None


def test_grouped_products(torch: Any) -> None:
    """The short way, and arguments that take the long one: the same bytes."""
    q = mxkern.quantize(torch.randn(3, 40, 96, device="cuda"), "nvfp4")
    x = torch.randn(20, 96, device="cuda", dtype=torch.bfloat16)
    ends = torch.tensor([4, 4, 17], dtype=torch.int32, device="cuda")
    factors, bias = torch.randn(3, device="cuda"), torch.randn(3, 40, device="cuda")
    apart = torch.cat([bias, bias], -1)[:, :40]
    short, exact = adapter_of("test", "x", x).short_way, PRECISIONS["exact"]
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
            if short is not None:
                given = (ends, factors, bias, 0, 1.0, 0.0, exact, None)
                assert short.grouped_gemm(a, b, *given) is not None
                assert short.grouped_gemm(a, b, ends.long(), *given[1:]) is None
                assert short.grouped_gemm(a, b, ends[:2], *given[1:]) is None
                assert short.grouped_gemm(a, b, ends.cpu(), *given[1:]) is None
                assert short.grouped_gemm(a, b, ends, factors.half(), *given[2:]) is None
                narrow = (ends, factors, bias[:, :39], *given[3:])
                assert short.grouped_gemm(a, b, *narrow) is None
    refused(TypeError, lambda: mxkern.grouped_gemm(x, q, ends.long()), "ends has dtype int64")
    refused(ValueError, lambda: mxkern.grouped_gemm(x, q, ends.cpu()), "ends is on cpu")
    refused(ValueError, lambda: mxkern.grouped_gemm(x[:, :64], q, ends), "the same last axis K")
    refused(
        ValueError,
        lambda: mxkern.grouped_gemm(x, q, ends, factors=factors, out=torch.empty(3, device="cuda")),
        "out has shape",
    )
