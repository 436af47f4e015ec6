# tests/python/cuda/test_cuda.py: CUDA arrays of PyTorch, CuPy and JAX: NumPy's bytes, streams,
# graphs.
from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mxkern
from support import (
    DTYPES,
    SCHEMES,
    array_of,
    assert_same,
    available,
    capture,
    corner_values,
    random_values,
    raw,
)

pytestmark = pytest.mark.skipif(
    not mxkern.info().devices, reason=f"no CUDA device can be used: {mxkern.info().cuda}"
)

FRAMEWORKS = [
    pytest.param(name, marks=pytest.mark.skipif(not available(name), reason=f"{name} is missing"))
    for name in ("torch", "cupy", "jax")
]


def on_device(framework: str, x: np.ndarray) -> Any:
    """x, bit for bit, as an array of the framework on the first device."""
    if framework == "torch":
        return array_of("torch", x).cuda()
    if framework == "jax":
        import jax

        if jax.default_backend() == "cpu":
            pytest.skip("JAX runs on the CPU here")
        return jax.device_put(array_of("jax", x), jax.devices()[0])
    import cupy

    return cupy.asarray(x)


def on_host(array: Any) -> np.ndarray:
    """The bytes of a device array."""
    kind = type(array).__module__
    if kind.startswith("torch"):
        return raw(array.cpu())
    return raw(array.get() if kind.startswith("cupy") else np.asarray(array))


def assert_same_parts(got: mxkern.BlockScaled, want: mxkern.BlockScaled, what: str) -> None:
    assert got.facts == want.facts, what
    assert_same(on_host(got.codes), raw(want.codes), f"{what}: codes")
    assert_same(on_host(got.scales), raw(want.scales), f"{what}: scales")
    if want.tensor_scale is not None:
        assert_same(on_host(got.tensor_scale), raw(want.tensor_scale), f"{what}: tensor_scale")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_same_bytes(scheme: str, dtype: str, framework: str) -> None:
    for shape in [(3, 50), (70, 96), (2, 3, 40, 64)]:
        x = corner_values(int(np.prod(shape[:-1])), shape[-1], dtype).reshape(shape)
        given = on_device(framework, x)
        for layout in ("row_major", "swizzled"):
            what = f"{framework} {dtype} {scheme} {shape} {layout}"
            want = mxkern.quantize(x, scheme, scale_layout=layout)
            got = mxkern.quantize(given, scheme, scale_layout=layout)
            assert_same_parts(got, want, what)
            assert type(got.codes) is type(given) and type(got.scales) is type(given)
            assert got.codes.device == given.device
            want_columns = mxkern.quantize_columns(x, scheme, scale_layout=layout)
            columns = mxkern.quantize_columns(given, scheme, scale_layout=layout)
            assert_same_parts(columns, want_columns, f"{what} columns")
            rows, columns = mxkern.quantize_both(given, scheme, scale_layout=layout)
            assert_same_parts(rows, want, f"{what} both: rows")
            assert_same_parts(columns, want_columns, f"{what} both: columns")
            decoded = mxkern.dequantize(got, dtype=dtype)
            assert type(decoded) is type(given) and decoded.dtype == given.dtype
            want_decoded = raw(mxkern.dequantize(want, dtype=dtype))
            assert_same(on_host(decoded), want_decoded, f"{what} dequantize")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_sizes_around_those_at_which_kernels_change(scheme: str, framework: str) -> None:
    x = corner_values(300, 4096, "bfloat16")
    given = on_device(framework, x)
    for rows in (120, 127, 128, 144, 159, 160, 256, 300):
        for layout in ("row_major", "swizzled"):
            want = mxkern.quantize(x[:rows], scheme, scale_layout=layout)
            got = mxkern.quantize(given[:rows], scheme, scale_layout=layout)
            assert_same_parts(got, want, f"{scheme} {rows} {layout}")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_options(scheme: str, framework: str) -> None:
    x = random_values((96, 160), "bfloat16")
    given = on_device(framework, x)
    block = mxkern.schemes[scheme].block
    choices: list[dict[str, Any]] = [
        {"rounding": "stochastic", "seed": 7, "offset": 3},
        {"block": f"{block}x{block}"},
        {"hadamard": 32},
    ]
    if scheme == "nvfp4":
        choices += [{"four_over_six": by} for by in ("mse", "mae")]
        choices += [{"amax": 3.5}, {"tensor_scale": 0.25}]
    else:
        choices += [{"scale_rule": rule} for rule in ("floor", "ceil", "even")]
    for options in choices:
        what = f"{framework} {scheme} {options}"
        assert_same_parts(
            mxkern.quantize(given, scheme, **options), mxkern.quantize(x, scheme, **options), what
        )
        want_rows, want_columns = mxkern.quantize_both(x, scheme, **options)
        rows, columns = mxkern.quantize_both(given, scheme, **options)
        assert_same_parts(rows, want_rows, f"{what} both: rows")
        assert_same_parts(columns, want_columns, f"{what} both: columns")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_direction_rounding_and_rule(scheme: str, dtype: str, framework: str) -> None:
    """Of rows of widths with whole calls of Philox and without, whose values reach the largest
    numbers of their dtype: with `even` beyond float32."""
    block = mxkern.schemes[scheme].block
    rules = ("rceil",) if scheme == "nvfp4" else ("rceil", "floor", "ceil", "even")
    for shape in ((40, 96), (130, 136), (35, 100), (128, 256), (33, 77)):
        x = corner_values(*shape, dtype)
        given = on_device(framework, x)
        for rule in rules:
            for rounding in ({}, {"rounding": "stochastic", "seed": 2**63 + 5, "offset": 9}):
                for square in (False, True):
                    options: dict[str, Any] = {**rounding}
                    if scheme != "nvfp4":
                        options["scale_rule"] = rule
                    if square:
                        options["block"] = f"{block}x{block}"
                    what = f"{framework} {dtype} {scheme} {shape} {options}"
                    want = mxkern.quantize(x, scheme, **options)
                    want_columns = mxkern.quantize_columns(x, scheme, **options)
                    assert_same_parts(mxkern.quantize(given, scheme, **options), want, what)
                    columns = mxkern.quantize_columns(given, scheme, **options)
                    assert_same_parts(columns, want_columns, f"{what} columns")
                    rows, columns = mxkern.quantize_both(given, scheme, **options)
                    assert_same_parts(rows, want, f"{what} both: rows")
                    assert_same_parts(columns, want_columns, f"{what} both: columns")
                    faked = mxkern.fake_quantize(given, scheme, **options)
                    want_faked = raw(mxkern.fake_quantize(x, scheme, **options))
                    assert_same(on_host(faked), want_faked, f"{what} fake_quantize")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_other_operations(framework: str) -> None:
    x = random_values((40, 64), "float32", 1)
    given = on_device(framework, x)
    assert_same(on_host(mxkern.random_hadamard(given)), raw(mxkern.random_hadamard(x)), framework)
    amax = mxkern.tensor_amax(given)
    assert type(amax) is type(given) and amax.shape == () and amax.device == given.device
    assert float(amax) == np.abs(x).max()
    assert_same_parts(
        mxkern.quantize(given, "nvfp4", amax=amax), mxkern.quantize(x, "nvfp4"), framework
    )
    want = mxkern.quantize(x, "mxfp8")
    q = mxkern.quantize(given, "mxfp8")
    swizzled = mxkern.swizzle_scales(q.scales)
    assert_same(on_host(swizzled), raw(mxkern.swizzle_scales(want.scales)), framework)
    back = mxkern.unswizzle_scales(swizzled, 40, 2)
    assert_same(on_host(back), raw(want.scales), framework)
    assert "mxfp8_e4m3" in repr(q)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_views(framework: str) -> None:
    x = random_values((70, 200), "float32")
    given = on_device(framework, x)
    for name, part in (
        ("rows apart", np.s_[:, 3:131]),
        ("every other row", np.s_[::2]),
        ("every other column", np.s_[:, ::2]),
        ("one row", np.s_[5]),
        ("nothing", np.s_[:0]),
    ):
        want = mxkern.quantize(np.ascontiguousarray(x[part]), "mxfp4")
        assert_same_parts(mxkern.quantize(given[part], "mxfp4"), want, f"{framework} {name}")
    want = mxkern.quantize(np.ascontiguousarray(x.T), "nvfp4")
    assert_same_parts(mxkern.quantize(given.T, "nvfp4"), want, f"{framework} transposed")


@pytest.mark.parametrize("framework", ["torch", "cupy"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_out_is_filled_and_returned(scheme: str, framework: str) -> None:
    if not available(framework):
        pytest.skip(f"{framework} is missing")
    x, other = (random_values((40, 64), "float32", i) for i in (1, 2))
    given, filled = on_device(framework, x), on_device(framework, other)
    out = mxkern.quantize(filled, scheme)
    assert mxkern.quantize(given, scheme, out=out) is out
    assert_same_parts(out, mxkern.quantize(x, scheme), f"{framework} {scheme}")
    y = mxkern.dequantize(mxkern.quantize(filled, scheme))
    assert mxkern.dequantize(out, out=y) is y
    assert_same(on_host(y), raw(mxkern.dequantize(mxkern.quantize(x, scheme))), scheme)


def test_graph_capture(torch: Any) -> None:
    x = torch.randn(256, 512, device="cuda", dtype=torch.bfloat16)

    def work() -> tuple[Any, ...]:
        rows, columns = mxkern.quantize_both(x, "nvfp4", hadamard=16, scale_layout="swizzled")
        q = mxkern.quantize(x, "mxfp8", scale_layout="swizzled")
        given = mxkern.quantize(x, "nvfp4", amax=3.0)
        return (*rows.parts, *columns.parts, *q.parts[:2], *given.parts, mxkern.dequantize(q))

    work()
    graph, captured = capture(work)
    for seed in (1, 2):
        torch.manual_seed(seed)
        x.copy_(torch.randn(256, 512, device="cuda"))
        graph.replay()
        for i, (a, b) in enumerate(zip(captured, work(), strict=True)):
            assert_same(on_host(a), on_host(b), f"output {i}")


def test_streams_of_the_producer(torch: Any) -> None:
    """Work goes to the stream that is current, behind what was put there before."""
    x = random_values((512, 1024), "float32")
    source = array_of("torch", x).pin_memory()
    results = []
    for stream in [torch.cuda.Stream() for _ in range(4)]:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            given = source.to("cuda", non_blocking=True)
            results.append(mxkern.quantize(given, "nvfp4"))
    want = mxkern.quantize(x, "nvfp4")
    torch.cuda.synchronize()
    for q in results:
        assert_same_parts(q, want, "stream")


def test_calls_do_not_synchronize(torch: Any) -> None:
    x = torch.randn(256, 256, device="cuda")

    def work() -> None:
        mxkern.quantize_both(x, "nvfp4")
        mxkern.quantize(x, "nvfp4", amax=2.0)
        mxkern.dequantize(mxkern.quantize(x, "mxfp4"))
        mxkern.tensor_amax(x)
        mxkern.random_hadamard(x)
        mxkern.swizzle_scales(mxkern.quantize(x, "mxfp4").scales)

    work()  # the first time, kernels are loaded
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(200_000_000)
        work()
        assert not torch.cuda.current_stream().query(), "a call waited for the device"
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()


@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_given_stream(framework: str) -> None:
    if not available(framework):
        pytest.skip(f"{framework} is missing")
    x = random_values((64, 128), "float32")
    given = on_device(framework, x)
    if framework == "torch":
        import torch

        own = torch.cuda.Stream()
        handle, wait = own.cuda_stream, torch.cuda.synchronize
    else:
        import cupy

        own = cupy.cuda.Stream(non_blocking=True)
        handle, wait = own.ptr, cupy.cuda.runtime.deviceSynchronize
    wait()
    want = mxkern.quantize(x, "nvfp4")
    for stream in (handle, 1, 2):
        q = mxkern.quantize(given, "nvfp4", stream=stream)
        rows, columns = mxkern.quantize_both(given, "nvfp4", stream=stream)
        y = mxkern.dequantize(q, stream=stream)
        amax = mxkern.tensor_amax(given, stream=stream)
        turned = mxkern.random_hadamard(given, stream=stream)
        tiles = mxkern.swizzle_scales(q.scales, stream=stream)
        wait()
        assert_same_parts(q, want, f"{framework} stream {stream}")
        assert_same_parts(rows, want, f"{framework} stream {stream}")
        assert_same_parts(columns, mxkern.quantize_columns(x, "nvfp4"), framework)
        assert_same(on_host(y), raw(mxkern.dequantize(want)), framework)
        assert float(amax) == np.abs(x).max()
        assert_same(on_host(turned), raw(mxkern.random_hadamard(x)), framework)
        assert_same(on_host(tiles), raw(mxkern.swizzle_scales(want.scales)), framework)
    for stream in (0, -1, "1"):
        with pytest.raises((TypeError, ValueError), match="stream"):
            mxkern.quantize(given, "nvfp4", stream=stream)


@pytest.mark.skipif(not available("jax"), reason="jax is missing")
def test_no_stream_for_jax() -> None:
    x = on_device("jax", random_values((64, 128), "float32"))
    q = mxkern.quantize(x, "mxfp8")
    for call in (
        lambda: mxkern.quantize(x, "mxfp8", stream=1),
        lambda: mxkern.quantize_both(x, "mxfp8", stream=1),
        lambda: mxkern.dequantize(q, stream=1),
        lambda: mxkern.gemm(q, q, stream=1),
        lambda: mxkern.prepare_operand(q, stream=1),
        lambda: mxkern.tensor_amax(x, stream=1),
        lambda: mxkern.random_hadamard(x, stream=1),
        lambda: mxkern.swizzle_scales(q.scales, stream=1),
    ):
        with pytest.raises(ValueError, match="stream is 1, but JAX has streams of its own"):
            call()


def test_bad_input(torch: Any) -> None:
    x = torch.randn(32, 64, device="cuda")
    q = mxkern.quantize(x, "mxfp8")
    with pytest.raises(TypeError, match="x has dtype int32"):
        mxkern.quantize(x.int(), "mxfp8")
    with pytest.raises(ValueError, match="requires grad"):
        mxkern.quantize(x.clone().requires_grad_(), "mxfp8")
    with pytest.raises(ValueError, match="multiple of hadamard=16"):
        mxkern.quantize(x[:, :50], "mxfp8", hadamard=16)
    with pytest.raises(ValueError, match="block is '32x32' and hadamard is 16"):
        mxkern.quantize(x, "mxfp8", block="32x32", hadamard=16)
    with pytest.raises(ValueError, match="amax is on cpu; expected cuda:0"):
        mxkern.quantize(x, "nvfp4", amax=torch.ones(()))
    with pytest.raises(ValueError, match=r"q\.scales is on cpu; expected cuda:0"):
        mxkern.dequantize(q.replace(scales=q.scales.cpu()))
    with pytest.raises(ValueError, match="out"):
        mxkern.dequantize(q, out=torch.empty(32, 64))
    with pytest.raises(TypeError, match="one framework"):
        mxkern.quantize(x, "nvfp4", amax=np.float32([3]))
    assert_same_parts(
        mxkern.quantize(x, "mxfp8"), mxkern.quantize(x.cpu().numpy(), "mxfp8"), "after errors"
    )


def test_nothing_starts_cuda_before_it_is_used(torch: Any) -> None:
    """A process that is forked from one where CUDA has started cannot use it."""
    code = """
import os, sys, numpy, torch, mxkern
mxkern.quantize(numpy.ones((4, 64), "f"), "mxfp8")
mxkern.quantize(torch.ones(4, 64), "mxfp8")
child = os.fork()
if child == 0:
    q = mxkern.quantize(torch.ones(4, 64, device="cuda"), "mxfp8")
    os._exit(0 if float(mxkern.dequantize(q).sum()) == 256 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_out_of_memory(torch: Any) -> None:
    """The framework's error, and everything works afterwards."""
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(
        (torch.cuda.memory_reserved() + (8 << 20)) / total, 0
    )
    try:
        with pytest.raises(torch.OutOfMemoryError):
            kept = [mxkern.quantize(x, "mxfp8") for _ in range(64)]
            del kept
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
        gc.collect()
        torch.cuda.empty_cache()
    want = mxkern.quantize(x[:64].float().cpu().numpy().astype(ml_dtypes.bfloat16), "mxfp8")
    assert_same_parts(mxkern.quantize(x[:64], "mxfp8"), want, "after running out of memory")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_moved_part_by_part(torch: Any, scheme: str) -> None:
    q = mxkern.quantize(torch.from_numpy(random_values((4, 64), "float32")), scheme)
    there = q.map(lambda part: part.to("cuda"))
    assert mxkern.dequantize(there).cpu().equal(mxkern.dequantize(q))
