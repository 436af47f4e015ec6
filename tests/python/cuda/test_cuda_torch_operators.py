# tests/python/cuda/test_cuda_torch_operators.py: on CUDA devices: torch.compile, graphs and streams
# over the operators, and what is made of a framework's own functions.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_cuda import FRAMEWORKS, on_device, on_host

import mxkern
from support import SCHEMES, array_of, available, capture, random_values, raw

pytestmark = pytest.mark.skipif(
    not mxkern.info().devices, reason=f"no CUDA device can be used: {mxkern.info().cuda}"
)


def product(x: Any, w: Any) -> Any:
    """Codes, scales, and a product of them."""
    q = mxkern.quantize(x, "nvfp4", rounding="stochastic", seed=2**64 - 3)
    return q, mxkern.gemm(mxkern.quantize(x, "mxfp8"), w, dtype="bfloat16").relu()


def out_of_place(x: Any, w: Any) -> Any:
    rows, columns = mxkern.quantize_both(x, "mxfp6")
    start = mxkern.dequantize(rows)[:, : w.shape[0]].contiguous()
    return columns, mxkern.gemm(x, w, out=start, beta=2.0)


def round_trip(x: Any, w: Any) -> Any:
    packed = mxkern.quantize(x, "mxfp4", scale_layout="swizzled").codes
    return mxkern.fake_quantize(x, w.scheme), mxkern.unpack_codes(packed, "mxfp4", 90)


def tensors(function: Callable[..., Any], torch: Any, *arguments: Any) -> list[Any]:
    leaves: list[Any] = torch.utils._pytree.tree_leaves(function(*arguments))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def assert_same(got: list[Any], want: list[Any], what: str) -> None:
    assert len(got) == len(want)
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert (a.dtype, a.shape, a.device) == (b.dtype, b.shape, b.device), f"{what}: {i}"
        assert np.array_equal(raw(a.cpu()), raw(b.cpu())), f"{what}: leaf {i} has other bytes"


def device_tensor(torch: Any, *shape: int, seed: int = 0) -> Any:
    return array_of("torch", random_values(shape, "bfloat16", seed)).cuda()


@pytest.mark.parametrize("function", [product, out_of_place, round_trip])
def test_compiled(function: Callable[..., Any], torch: Any) -> None:
    import mxkern.torch

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    w = mxkern.quantize(device_tensor(torch, 64, 96, seed=1), "mxfp4")
    ready = mxkern.prepare_operand(w)
    for x in (device_tensor(torch, 40, 96), device_tensor(torch, 200, 96)):
        for b in (w, ready):
            got = tensors(compiled, torch, x, b)
            assert_same(got, tensors(function, torch, x, b), f"{function.__name__} {x.shape}")


def test_generated_code(torch: Any) -> None:
    import mxkern.torch

    pytest.importorskip("triton", reason="Inductor needs triton")
    torch._dynamo.reset()
    compiled = torch.compile(product, fullgraph=True)
    w = mxkern.quantize(device_tensor(torch, 64, 96, seed=1), "mxfp4")
    x = device_tensor(torch, 40, 96)
    assert_same(tensors(compiled, torch, x, w), tensors(product, torch, x, w), "inductor")


def test_operators_are_captured_and_follow_the_stream(torch: Any) -> None:
    from mxkern.torch import operators

    x, w = device_tensor(torch, 40, 96), mxkern.quantize(device_tensor(torch, 64, 96), "mxfp8")

    def work() -> Any:
        q = operators.quantize(x, "mxfp4")
        return [q.codes, q.scales, operators.gemm(q, w, dtype="bfloat16")]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        warm = work()
    torch.cuda.current_stream().wait_stream(stream)
    graph, captured = capture(work)
    graph.replay()
    assert_same(captured, warm, "the same x")
    x.copy_(device_tensor(torch, 40, 96, seed=5))
    graph.replay()
    assert_same(captured, work(), "another x")


def test_opcheck(torch: Any) -> None:
    import mxkern.torch  # noqa: F401

    ops, x = torch.ops.mxkern, device_tensor(torch, 40, 96).float()
    torch.library.opcheck(ops.quantize, (x, "mxfp4"))
    torch.library.opcheck(ops.quantize_two_level, (x, "nvfp4"))
    torch.library.opcheck(ops.fake_quantize, (x.requires_grad_(), "mxfp4"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_fake_quantize(scheme: str, framework: str) -> None:
    x = random_values((40, 96), "bfloat16" if framework != "cupy" else "float16")
    given = on_device(framework, x)
    got = mxkern.fake_quantize(given, scheme)
    assert type(got) is type(given) and got.dtype == given.dtype
    assert np.array_equal(on_host(got), raw(mxkern.fake_quantize(x, scheme)))


@pytest.mark.parametrize("keep_source", [True, False])
@pytest.mark.parametrize("form", ["auto", "expanded", "few_tokens"])
@pytest.mark.parametrize("scheme", ["mxfp8_e4m3", "mxfp4", "nvfp4"])
def test_prepared(scheme: str, form: Any, keep_source: bool, torch: Any) -> None:
    """In compiled code, and in place: the products of a plain call. Bytes may differ where a form
    has room that nothing reads."""
    import mxkern.torch

    old, new = (device_tensor(torch, 40, 96, seed=seed) for seed in (1, 2))
    options: Any = {"form": form, "keep_source": keep_source}
    tokens = device_tensor(torch, 16, 96, seed=3).bfloat16()
    q = mxkern.quantize(new, scheme)
    want = mxkern.prepare_operand(q, **options)

    def assert_equal(got: Any, what: str) -> None:
        assert (got.form, got.scheme, got.shape) == (want.form, want.scheme, want.shape), what
        assert (got.source is None) == (want.source is None), what
        assert (got.data is None) == (want.data is None), what
        if got.source is not None:
            for a, b in zip(got.source.parts, want.source.parts, strict=True):
                assert (a is None) == (b is None), what
                assert a is None or np.array_equal(on_host(a), on_host(b)), what
        folded = got.form == "folded"
        left = mxkern.quantize(tokens, scheme) if folded else tokens
        asked: Any = {"dtype": "bfloat16", "precision": "folded" if folded else "auto"}
        ours, theirs = (mxkern.gemm(left, w, **asked) for w in (got, want))
        assert torch.equal(ours, theirs) and ours.any(), what

    prepare = torch.compile(lambda q: mxkern.prepare_operand(q, **options), backend="aot_eager")
    assert_equal(prepare(q), "compiled")
    for x in ((q,), (new, scheme)):
        ready = mxkern.prepare_operand(mxkern.quantize(old, scheme), **options)
        address = None if ready.data is None else ready.data.data_ptr()
        assert mxkern.prepare_operand(*x, out=ready) is ready
        assert ready.data is None or ready.data.data_ptr() == address
        assert_equal(ready, "in place")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_amax_of_a_transform(dtype: str, torch: Any) -> None:
    """What quantize finds along columns, and the bits of the CPU."""
    x = device_tensor(torch, 128, 72).to(getattr(torch, dtype))
    for size in (16, 32, 64, 128):
        options: Any = {"hadamard": size, "columns": True}
        amax = mxkern.tensor_amax(x, **options)
        assert amax.is_cuda and amax.cpu() == mxkern.tensor_amax(x.cpu(), **options)
        q = mxkern.quantize_columns(x, "nvfp4", hadamard=size)
        assert q.tensor_scale == mxkern.quantize(x, "nvfp4", amax=amax).tensor_scale


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_square_blocks_transposed(scheme: str, framework: str) -> None:
    """The bytes of the CPU; NaN for a square whose rows have different scales."""
    block = mxkern.schemes[scheme].block
    x = random_values((70, 3 * block), "float16")
    q = mxkern.quantize(on_device(framework, x), scheme, block=(block, block))
    want = mxkern.quantize_columns(x, scheme, block=(block, block))
    turned = mxkern.transpose_square_blocks(q)
    assert type(turned.codes) is type(q.codes) and turned.codes.dtype == q.codes.dtype
    for got, part in ((turned.codes, want.codes), (turned.scales, want.scales)):
        assert np.array_equal(on_host(got), raw(part))
    x[0] *= 16
    rows = mxkern.quantize(on_device(framework, x), scheme)
    values = on_host(mxkern.dequantize(mxkern.transpose_square_blocks(rows)))
    assert np.isnan(values.view(np.float32)[:, :block]).all()


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("scheme", ["mxfp4", "nvfp4", "mxfp6_e2m3"])
def test_packing(scheme: str, framework: str) -> None:
    for shape in [(5, 33), (3, 0), (2, 3, 96)]:
        codes = np.random.default_rng(0).integers(0, 16, shape, np.uint8)
        packed = mxkern.pack_codes(on_device(framework, codes), scheme)
        assert np.array_equal(on_host(packed), mxkern.pack_codes(codes, scheme))
        unpacked = mxkern.unpack_codes(packed, scheme, shape[-1])
        assert type(unpacked) is type(packed)
        assert np.array_equal(on_host(unpacked), codes)


@pytest.mark.skipif(not available("jax"), reason="jax is not installed")
def test_packing_inside_of_jit() -> None:
    import jax

    codes = on_device("jax", np.full((2, 32), 7, np.uint8))
    assert (jax.jit(lambda c: mxkern.pack_codes(c, "mxfp4"))(codes) == 0x77).all()
