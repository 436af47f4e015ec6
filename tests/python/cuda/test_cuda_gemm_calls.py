# tests/python/cuda/test_cuda_gemm_calls.py: prepared operands, streams, graphs, devices, frameworks
# and errors of products on CUDA devices.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_gemm_support import (
    EXACT_ERROR,
    FOLDABLE,
    FOLDED_ERROR,
    assert_near,
    product,
    quantized,
    relative,
    values,
)

import mxkern
from support import DTYPES, SCHEMES, available, capture, random_values

pytestmark = pytest.mark.skipif(
    not mxkern.info().devices, reason=f"no CUDA device can be used: {mxkern.info().cuda}"
)
torch = pytest.importorskip("torch", reason="torch is not installed")
if mxkern.info().devices and not torch.cuda.is_available():
    pytest.skip("this PyTorch has no CUDA", allow_module_level=True)


def on_hopper() -> bool:
    return bool(torch.cuda.get_device_capability()[0] == 9)


hopper = pytest.mark.skipif(
    not (mxkern.info().devices and on_hopper()), reason="folded products are for Hopper"
)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_prepared_operands_give_the_same_bytes(scheme: str) -> None:
    a, b = quantized("mxfp8", 150, 320, 1), quantized(scheme, 96, 320, 2)
    forms = ["auto", "expanded", "few_tokens"] + (["folded"] if scheme in FOLDABLE else [])
    plain = values("normal", 9, 320, 4).bfloat16()
    for form in forms:
        ready = mxkern.prepare_operand(b, form=form)
        assert ready.scheme == scheme and ready.shape == (96, 320)
        assert scheme in repr(ready) and ready.nbytes >= b.nbytes
        for dtype in ("bfloat16", "float32"):
            for precision in ["auto", "exact"] + (
                ["folded"] if on_hopper() and scheme in FOLDABLE else []
            ):
                options = {"dtype": dtype, "precision": precision}
                got, want = mxkern.gemm(a, ready, **options), mxkern.gemm(a, b, **options)
                if form == "few_tokens" and precision != "folded":  # sums of another order
                    assert_near(got, product(a, b), EXACT_ERROR, (form, options))
                else:
                    assert torch.equal(got, want), (form, options)
        assert relative(mxkern.gemm(plain, ready), product(plain, b)) <= EXACT_ERROR, form
    left = mxkern.prepare_operand(a)
    assert torch.equal(mxkern.gemm(left, b, dtype="float16"), mxkern.gemm(a, b, dtype="float16"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_prepared_from_a_plain_array(scheme: str, dtype: str) -> None:
    x = values("lognormal", 70, 416, 1).to(getattr(torch, dtype))
    b = quantized("mxfp8", 60, 416, 2)
    for rule in ["rceil"] if scheme == "nvfp4" else ["rceil", "floor", "even"]:
        ready = mxkern.prepare_operand(x, scheme, scale_rule=rule)
        options = {} if scheme == "nvfp4" else {"scale_rule": rule}
        q = mxkern.quantize(x, scheme, **options)
        two_steps = mxkern.prepare_operand(q)
        assert ready.form == two_steps.form and ready.source.facts == q.facts
        for got, want in zip(ready.source.parts[:2], q.parts[:2], strict=True):
            assert torch.equal(got.view(torch.uint8), want.view(torch.uint8)), rule
        got = mxkern.gemm(ready, b, dtype="bfloat16")
        assert torch.equal(got, mxkern.gemm(q, b, dtype="bfloat16")), rule


@hopper
def test_without_source() -> None:
    x = values("normal", 70, 416, 1).bfloat16()
    b = quantized("mxfp8", 60, 416, 5)
    ready = mxkern.prepare_operand(x, "mxfp8", keep_source=False)
    assert ready.source is None and "not kept" in repr(ready)
    want = mxkern.gemm(mxkern.quantize(x, "mxfp8"), b, precision="folded")
    assert torch.equal(mxkern.gemm(ready, b, precision="folded"), want)
    for precision in ("auto", "exact"):
        with pytest.raises(ValueError, match=r"without its codes and scales.*folded"):
            mxkern.gemm(ready, b, dtype="bfloat16", precision=precision)


@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp4", "mxint8"])
def test_expanded_without_source(scheme: str) -> None:
    """Exact, whatever the output; what would have to fold it is refused."""
    x, q = values("normal", 70, 416, 1).bfloat16(), quantized(scheme, 60, 416, 5)
    ready = mxkern.prepare_operand(q, form="expanded", keep_source=False)
    assert ready.source is None
    for a in (x, mxkern.quantize(x, "mxfp8"), mxkern.quantize(x, "nvfp4")):
        for dtype in ("float32", "bfloat16"):
            want = mxkern.gemm(a, q, dtype=dtype, precision="exact")
            for precision in ("auto", "exact"):
                assert torch.equal(mxkern.gemm(a, ready, dtype=dtype, precision=precision), want)
            assert torch.equal(mxkern.gemm(a, ready, dtype=dtype, stream=1), want)
    both = mxkern.prepare_operand(mxkern.quantize(x, "mxfp6"), form="expanded", keep_source=False)
    want = mxkern.gemm(mxkern.quantize(x, "mxfp6"), q)
    assert torch.equal(mxkern.gemm(both, ready), want)
    with pytest.raises(ValueError, match=r"without its codes and scales|whose block scales fit"):
        mxkern.gemm(mxkern.quantize(x, "mxfp8"), ready, precision="folded")


@pytest.mark.parametrize("form", ["auto", "few_tokens"])
def test_short_and_long_way_agree(form: str) -> None:
    """A stream that is named takes the general way; 1 is the default one."""
    b = mxkern.prepare_operand(quantized("mxfp8", 96, 320, 2), form=form)
    plain, bias = values("normal", 9, 320, 4).bfloat16(), torch.randn(96, device="cuda")
    before = torch.randn(9, 96, device="cuda")
    for a in (plain, mxkern.quantize(plain, "mxfp8"), mxkern.quantize(plain, "nvfp4")):
        for dtype in DTYPES:
            for given in ({}, {"bias": bias}, {"bias": bias.half(), "beta": 0.5}):
                options = {"alpha": 0.5, **given}
                want = before.to(getattr(torch, dtype))
                mxkern.gemm(a, b, out=want, stream=1, **options)
                out = before.to(want.dtype)
                assert mxkern.gemm(a, b, out=out, **options) is out
                assert torch.equal(out, want)
                if "beta" not in given:
                    assert torch.equal(mxkern.gemm(a, b, dtype=dtype, **options), want)
    cube = plain[:8].reshape(2, 4, 320)
    assert torch.equal(mxkern.gemm(cube, b).reshape(8, 96), mxkern.gemm(plain[:8], b))
    assert torch.equal(mxkern.gemm(plain[0], b), mxkern.gemm(plain[:1], b)[0])


def test_deterministic() -> None:
    a, b = quantized("mxfp8", 1000, 2048, 1), quantized("mxfp4", 1500, 2048, 2)
    plain = values("normal", 24, 2048, 3).bfloat16()
    for left, options in ((a, {"dtype": "bfloat16"}), (a, {}), (plain, {"dtype": "bfloat16"})):
        first = mxkern.gemm(left, b, **options)
        for _ in range(3):
            assert torch.equal(mxkern.gemm(left, b, **options), first)


def test_graph_capture() -> None:
    x = values("normal", 256, 512, 1).bfloat16()
    w = mxkern.prepare_operand(mxkern.quantize(values("normal", 384, 512, 2), "mxfp8"))
    few = mxkern.prepare_operand(w.source, form="few_tokens")

    def work() -> list[Any]:
        q = mxkern.quantize(x, "mxfp8")
        return [
            mxkern.gemm(q, w, dtype="bfloat16"),
            mxkern.gemm(q, w),
            mxkern.gemm(x, w, dtype="bfloat16"),
            mxkern.gemm(x[:4], few, dtype="bfloat16"),
            mxkern.gemm(mxkern.prepare_operand(x, "mxfp8"), w, dtype="float16"),
        ]

    work()
    graph, captured = capture(work)
    for seed in (5, 6):
        x.copy_(values("normal" if seed == 5 else "lognormal", 256, 512, seed))
        graph.replay()
        for i, (got, want) in enumerate(zip(captured, work(), strict=True)):
            assert torch.equal(got, want), f"output {i}"


def test_calls_do_not_synchronize() -> None:
    x = values("normal", 256, 512, 1).bfloat16()
    w = mxkern.quantize(values("normal", 384, 512, 2), "mxfp8")

    def work() -> None:
        q = mxkern.quantize(x, "mxfp8")
        mxkern.gemm(q, w, dtype="bfloat16")
        mxkern.gemm(q, w)
        mxkern.gemm(x, w)
        mxkern.gemm(x[:3], mxkern.prepare_operand(w, form="few_tokens"), dtype="bfloat16")
        mxkern.gemm(q, mxkern.prepare_operand(w), dtype="bfloat16")

    work()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(400_000_000)
        work()
        assert not torch.cuda.current_stream().query(), "a call waited for the device"
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()


def test_streams() -> None:
    x = values("normal", 512, 1024, 1).bfloat16()
    q, w = mxkern.quantize(x, "mxfp8"), mxkern.quantize(values("normal", 512, 1024, 2), "mxfp8")
    want = mxkern.gemm(q, w, dtype="bfloat16")
    torch.cuda.synchronize()
    results = []
    for stream in [torch.cuda.Stream() for _ in range(4)]:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000)
            results.append(mxkern.gemm(q, w, dtype="bfloat16"))
    own = torch.cuda.Stream()
    for handle in (own.cuda_stream, 1):
        results.append(mxkern.gemm(q, w, dtype="bfloat16", stream=handle))
        ready = mxkern.prepare_operand(w, stream=handle)
        results.append(mxkern.gemm(q, ready, dtype="bfloat16", stream=handle))
    torch.cuda.synchronize()
    for got in results:
        assert torch.equal(got, want)


def test_other_devices() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one CUDA device")
    # Programs of JAX leave the device that they ran on as the current one.
    with torch.cuda.device(0):
        a = mxkern.quantize(values("normal", 64, 128, 1).to("cuda:1"), "mxfp8")
        got = mxkern.gemm(a, a, dtype="bfloat16")
        assert got.device == torch.device("cuda:1") and torch.cuda.current_device() == 0
        assert_near(got, product(a, a), FOLDED_ERROR)
        here = mxkern.quantize(values("normal", 64, 128, 1), "mxfp8")
        with pytest.raises(ValueError, match="expected cuda:"):
            mxkern.gemm(here, a)


@pytest.mark.parametrize("framework", ["cupy", "jax"])
def test_other_frameworks(framework: str) -> None:
    if not available(framework):
        pytest.skip(f"{framework} is missing")
    from test_cuda import on_device

    x, y = (random_values((n, 96), "float32", n) for n in (40, 56))
    a, b = (mxkern.quantize(on_device(framework, v), "mxfp8") for v in (x, y))
    want = mxkern.gemm(*(mxkern.quantize(v, "mxfp8") for v in (x, y)))
    for right in (b, mxkern.prepare_operand(b)):
        got = mxkern.gemm(a, right)
        assert type(got) is type(a.codes)
        got = got.get() if framework == "cupy" else np.asarray(got)
        assert np.linalg.norm(got - want) <= EXACT_ERROR * np.linalg.norm(want)


def test_bad_input() -> None:
    q = mxkern.quantize(values("normal", 32, 64, 1), "mxfp8")
    nvfp4 = mxkern.quantize(values("normal", 32, 64, 1), "nvfp4")
    cpu = mxkern.quantize(torch.randn(32, 64), "mxfp8")
    call = mxkern.gemm
    with pytest.raises(ValueError, match=r"expected (cuda:0|cpu)"):
        call(q, cpu)
    with pytest.raises(ValueError, match="same last axis"):
        call(q, mxkern.quantize(torch.randn(32, 96).cuda(), "mxfp8"))
    with pytest.raises(ValueError, match="bias is on cpu"):
        call(q, q, bias=torch.zeros(32))
    with pytest.raises(ValueError, match="out is on cpu; expected cuda:0, where"):
        call(q, q, out=torch.zeros(32, 32))
    with pytest.raises(ValueError, match="out overlaps"):
        call(q, q, out=q.codes.view(torch.bfloat16))
    with pytest.raises(ValueError, match="precision is 'fast'"):
        call(q, q, precision="fast")
    with pytest.raises(ValueError, match="precision is folded, but b is nvfp4"):
        call(q, nvfp4, precision="folded")
    with pytest.raises(ValueError, match="precision is folded, but a is bfloat16"):
        call(torch.zeros(4, 64, device="cuda", dtype=torch.bfloat16), q, precision="folded")
    with pytest.raises(ValueError, match="form is folded, but the scheme is nvfp4"):
        mxkern.prepare_operand(nvfp4, form="folded")
    ready = mxkern.prepare_operand(q)
    if ready.data is not None:
        with pytest.raises(ValueError, match="data has shape"):
            call(q, ready.replace(data=ready.data[:-1]))
        with pytest.raises(ValueError, match=r"b\.data is on cpu; expected cuda:0"):
            call(q, ready.replace(data=ready.data.cpu()))
        with pytest.raises(ValueError, match="source"):
            call(q, ready.replace(source=nvfp4))
    with pytest.raises(TypeError, match="one framework"):
        call(np.zeros((3, 64), np.float32), q)
    want = product(q, q)
    assert relative(call(q, q), want) <= EXACT_ERROR, "after errors"
