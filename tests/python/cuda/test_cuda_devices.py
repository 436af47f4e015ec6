# tests/python/cuda/test_cuda_devices.py: arrays on a CUDA device that is not the current one,
# streams of the wrong device, arrays on two devices. Skipped where there is one device.
from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from test_cuda import FRAMEWORKS, assert_same_parts, on_host

import mxkern
from support import array_of, assert_same, available, capture, random_values, raw

pytestmark = pytest.mark.skipif(
    len(mxkern.info().devices) < 2, reason="there are not two CUDA devices"
)


def on_second(framework: str, x: np.ndarray) -> Any:
    """x, bit for bit, as an array of the framework on the second device."""
    if framework == "torch":
        return array_of("torch", x).to("cuda:1")
    if framework == "jax":
        import jax

        if len(jax.devices()) < 2 or jax.default_backend() == "cpu":
            pytest.skip("JAX has no two CUDA devices here")
        return jax.device_put(array_of("jax", x), jax.devices()[1])
    import cupy

    with cupy.cuda.Device(1):
        return cupy.asarray(x)


def dtype_name(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp4", "nvfp4"])
def test_arrays_of_the_second_device(scheme: str, framework: str) -> None:
    x = random_values((96, 160), "float32", 3)
    given = on_second(framework, x)
    for layout in ("row_major", "swizzled"):
        what = f"{framework} {scheme} {layout}"
        want = mxkern.quantize(x, scheme, scale_layout=layout)
        q = mxkern.quantize(given, scheme, scale_layout=layout)
        assert q.codes.device == q.scales.device == given.device, what
        assert_same_parts(q, want, what)
        rows, columns = mxkern.quantize_both(given, scheme, scale_layout=layout)
        assert_same_parts(rows, want, f"{what} both: rows")
        want = mxkern.quantize_columns(x, scheme, scale_layout=layout)
        assert_same_parts(columns, want, f"{what} both: columns")
        decoded = mxkern.dequantize(q)
        assert decoded.device == given.device
        want_decoded = mxkern.dequantize(mxkern.quantize(x, scheme), dtype=dtype_name(decoded))
        assert_same(on_host(decoded), raw(want_decoded), what)
    assert float(mxkern.tensor_amax(given)) == np.abs(x).max()
    turned = mxkern.random_hadamard(given)
    assert_same(on_host(turned), raw(mxkern.random_hadamard(x)), framework)


@pytest.mark.skipif(not available("jax"), reason="jax is missing")
def test_programs_of_jax_on_the_second_device() -> None:
    import jax

    x = random_values((96, 160), "float32", 3)
    given = on_second("jax", x)
    q = jax.jit(lambda x: mxkern.quantize(x, "nvfp4"))(given)
    assert q.codes.device == given.device
    assert_same_parts(q, mxkern.quantize(x, "nvfp4"), "jit")
    product = jax.jit(lambda q: mxkern.gemm(q, q, dtype="bfloat16"))(q)
    assert_same(on_host(product), on_host(mxkern.gemm(q, q, dtype="bfloat16")), "gemm")


def test_the_current_device_stays(torch: Any) -> None:
    x = random_values((64, 128), "bfloat16")
    for current, other in ((0, 1), (1, 0)):
        given = array_of("torch", x).to(f"cuda:{other}")
        with torch.cuda.device(current):
            for scheme in ("mxfp8", "nvfp4"):
                assert_same_parts(
                    mxkern.quantize(given, scheme), mxkern.quantize(x, scheme), scheme
                )
                mxkern.dequantize(mxkern.quantize(given[None], scheme))
                assert torch.cuda.current_device() == current


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_grouped_products_on_the_second_device(framework: str) -> None:
    """Of codes and of weights in every form, while the first one is current."""
    plain, values = (
        random_values((40, 160), "float16", 3),
        random_values((3, 72, 160), "float32", 4),
    )
    ends = np.array([10, 10, 37], np.int32)
    x, own_ends = on_second(framework, plain), on_second(framework, ends)
    w = mxkern.quantize(on_second(framework, values), "mxfp4")
    forms = [None, "few_tokens", "expanded"]
    if mxkern.explain_gemm(w, w).device == "sm_90":
        forms.append("folded")
    for form in forms:
        precision, a, left = "exact", x, plain
        if form == "folded":
            precision, a, left = (
                "folded",
                mxkern.quantize(x, "mxfp8"),
                mxkern.quantize(plain, "mxfp8"),
            )
        b = w if form is None else mxkern.prepare_operand(w, form=form)
        got = mxkern.grouped_gemm(a, b, own_ends, precision=precision)
        assert got.device == x.device
        want = mxkern.grouped_gemm(left, mxkern.quantize(values, "mxfp4"), ends)
        difference = np.linalg.norm(on_host(got).view(np.float32).reshape(want.shape) - want)
        assert difference <= (5e-4 if form == "folded" else 2e-5) * np.linalg.norm(want), form


WORK_ON_THE_SECOND_DEVICE = """
import ctypes
import torch
import mxkern

driver = ctypes.CDLL("libcuda.so.1")

def has_context(device):
    flags, active = ctypes.c_uint(), ctypes.c_int()
    assert driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) == 0
    return active.value != 0

x = torch.randn(128, 256, device="cuda:1", dtype=torch.bfloat16)
q = mxkern.quantize(x, "nvfp4")
experts = mxkern.quantize(x.view(2, 64, 256), "mxfp8")
ends = torch.tensor([5, 120], dtype=torch.int32, device="cuda:1")
work = {
    "quantize": lambda: mxkern.quantize(x, "mxfp8"),
    "quantize_columns": lambda: mxkern.quantize_columns(x, "mxfp4"),
    "quantize_both": lambda: mxkern.quantize_both(x, "nvfp4"),
    "dequantize": lambda: mxkern.dequantize(q),
    "gemm of codes": lambda: mxkern.gemm(q, q),
    "gemm of a plain operand": lambda: mxkern.gemm(x, q),
    "grouped_gemm": lambda: mxkern.grouped_gemm(x, experts, ends),
    "grouped_gemm of codes": lambda: mxkern.grouped_gemm(q, experts, ends),
    "prepare_operand": lambda: mxkern.prepare_operand(q),
    "random_hadamard": lambda: mxkern.random_hadamard(x),
    "tensor_amax": lambda: mxkern.tensor_amax(x),
    "swizzle_scales": lambda: mxkern.swizzle_scales(q.scales),
}
assert has_context(1)
assert not has_context(0), "PyTorch uses the first device"
for name, call in work.items():
    for _ in range(2):
        call()
        assert not has_context(0), name
torch.cuda.synchronize("cuda:1")
"""


def test_a_device_that_nobody_uses_gets_no_context(torch: Any) -> None:
    """It would take some hundred megabytes of that device. In a process of its own."""
    command = [sys.executable, "-c", WORK_ON_THE_SECOND_DEVICE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


def test_streams_of_the_second_device(torch: Any) -> None:
    """Its current stream is the one that counts, and a stream that is given has to be its own."""
    x = random_values((512, 1024), "float32")
    source = array_of("torch", x).pin_memory()
    own = torch.cuda.Stream("cuda:1")
    with torch.cuda.stream(own):
        torch.cuda._sleep(20_000_000)
        given = source.to("cuda:1", non_blocking=True)
        with torch.cuda.device(0):
            q = mxkern.quantize(given, "nvfp4")
    torch.cuda.synchronize("cuda:1")
    assert_same_parts(q, mxkern.quantize(x, "nvfp4"), "behind a copy on its own stream")
    given = source.to("cuda:1")
    q = mxkern.quantize(given, "mxfp8", stream=own.cuda_stream)
    torch.cuda.synchronize("cuda:1")
    assert_same_parts(q, mxkern.quantize(x, "mxfp8"), "a stream of its own")
    foreign = torch.cuda.Stream("cuda:0").cuda_stream
    with pytest.raises(ValueError, match="quantize: stream is one of cuda:0"):
        mxkern.quantize(given, "mxfp8", stream=foreign)
    assert_same_parts(mxkern.quantize(given, "mxfp8"), mxkern.quantize(x, "mxfp8"), "afterwards")


def test_graph_of_the_second_device(torch: Any) -> None:
    with torch.cuda.device(1):
        x = torch.randn(256, 512, device="cuda:1", dtype=torch.bfloat16)
        mxkern.quantize_both(x, "nvfp4", hadamard=16)
        graph, captured = capture(lambda: mxkern.quantize_both(x, "nvfp4", hadamard=16))
        x.copy_(torch.randn(256, 512, device="cuda:1"))
        graph.replay()
        for got, want in zip(captured, mxkern.quantize_both(x, "nvfp4", hadamard=16), strict=True):
            assert_same(on_host(got.codes), on_host(want.codes), "codes")
            assert_same(on_host(got.scales), on_host(want.scales), "scales")


def test_mixed_devices(torch: Any) -> None:
    x = torch.randn(64, 128)
    here, there = x.to("cuda:0"), x.to("cuda:1")
    q_here, q_there = mxkern.quantize(here, "nvfp4"), mxkern.quantize(there, "nvfp4")
    with pytest.raises(ValueError, match="amax is on cuda:0; expected cuda:1"):
        mxkern.quantize(there, "nvfp4", amax=torch.ones((), device="cuda:0"))
    with pytest.raises(ValueError, match=r"out\.codes is on cuda:1; expected cuda:0"):
        mxkern.quantize(here, "nvfp4", out=q_there)
    with pytest.raises(ValueError, match=r"q\.scales is on cuda:1; expected cuda:0"):
        mxkern.dequantize(q_here.replace(scales=q_there.scales))
    with pytest.raises(ValueError, match="out is on cuda:1; expected cuda:0"):
        mxkern.dequantize(q_here, out=torch.empty(64, 128, device="cuda:1"))
