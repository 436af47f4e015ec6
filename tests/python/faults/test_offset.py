# tests/python/faults/test_offset.py: offsets of stochastic rounding that are arrays, on the CPU.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxkern
from support import FRAMEWORKS, array_of, available, random_values, raw, refused

OPTIONS = {"rounding": "stochastic", "seed": 11}
X = random_values((64, 96), "float32")
VALUES = {"int32": (0, 5, -1), "uint32": (2**32 - 1,), "int64": (2**40 + 1, -2), "uint64": (9,)}


def parts(q: Any) -> list[bytes]:
    return [raw(part).tobytes() for part in q.parts if part is not None]


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_value_is_the_offset(framework: str, dtype: str) -> None:
    if not available(framework):
        pytest.skip(f"{framework} is not installed")
    if framework == "jax" and dtype.endswith("64"):
        pytest.skip("JAX has 64-bit integers only if it is told to")
    x = array_of(framework, X)
    for value in VALUES[dtype]:
        for shape in ((), (1,), (1, 1)):
            offset = array_of(framework, np.full(shape, value, dtype))
            given, number = ({**OPTIONS, "offset": each} for each in (offset, value % 2**64))
            for call in (mxkern.quantize, mxkern.quantize_columns, mxkern.quantize_both):
                got, want = call(x, "mxfp4", **given), call(x, "mxfp4", **number)
                pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
                assert all(parts(a) == parts(b) for a, b in pairs), (call, value, shape)
            assert parts(mxkern.quantize_nvfp4(x, **given)) == parts(
                mxkern.quantize_nvfp4(x, **number)
            )
            fake = mxkern.fake_quantize(x, "mxfp6", **given)
            assert raw(fake).tobytes() == raw(mxkern.fake_quantize(x, "mxfp6", **number)).tobytes()


def test_out_is_written() -> None:
    q = mxkern.quantize(X, "mxfp4")
    offset = np.array(4)
    assert mxkern.quantize(X, "mxfp4", out=q, offset=offset, **OPTIONS) is q
    assert parts(q) == parts(mxkern.quantize(X, "mxfp4", offset=4, **OPTIONS))


@pytest.mark.parametrize("call", [mxkern.quantize, mxkern.quantize_both, mxkern.fake_quantize])
def test_errors(call: Any) -> None:
    def wrong(offset: Any, **options: Any) -> Any:
        return lambda: call(X, "mxfp8", offset=offset, **{**OPTIONS, **options})

    refused(ValueError, wrong(np.zeros(2, np.int32)), "offset has shape (2,); expected an int")
    refused(TypeError, wrong(np.zeros(1, np.float32)), "offset is a numpy.ndarray; expected an int")
    for dtype in ("int16", "uint8", "bool", "float64"):
        parts = ("or an array of one element of int64", f"its dtype is {dtype}: convert it to")
        refused(TypeError, wrong(np.zeros((), dtype)), "offset is a numpy.ndarray", *parts)
    refused(ValueError, lambda: call(X, "mxfp8", offset=np.array(1)), "rounding is 'nearest'")
    if available("torch"):
        other = array_of("torch", np.zeros(1, np.int64))
        refused(TypeError, wrong(other), "offset is a PyTorch array beside NumPy arrays")


class OnDevice:
    """A number that lies on a CUDA device, as PyTorch, CuPy and JAX show it."""

    __cuda_array_interface__: dict[str, Any] = {}  # noqa: RUF012

    def __index__(self) -> int:
        raise AssertionError("this would wait for the device")


def test_seeds_on_a_device() -> None:
    options = {"rounding": "stochastic", "seed": OnDevice()}
    parts = ("quantize: seed is a ", "on a CUDA device", "pass int(seed)", "count in offset")
    refused(TypeError, lambda: mxkern.quantize(X, "mxfp4", **options), *parts)
    size = ("random_hadamard: size is a ", "on a CUDA device", "pass int(size)")
    refused(TypeError, lambda: mxkern.random_hadamard(X, OnDevice()), *size)


def test_functions_and_operators_agree() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from mxkern.torch import operators

    x = torch.from_numpy(X)
    for module in (mxkern, operators):
        for dtype in (torch.int16, torch.uint8, torch.float32):
            call = lambda m=module, d=dtype: m.quantize(  # noqa: E731
                x, "mxfp4", offset=torch.tensor(3, dtype=d), **OPTIONS
            )
            refused(TypeError, call, "quantize: offset", "torch." if module is operators else "")
        minus = module.quantize(x, "mxfp4", offset=torch.tensor(-1), **OPTIONS)
        assert parts(minus) == parts(mxkern.quantize(x, "mxfp4", offset=2**64 - 1, **OPTIONS))
        for seed in (torch.tensor(11), np.int16(11)):
            q = module.quantize(x, "mxfp4", rounding="stochastic", seed=seed)
            assert parts(q) == parts(mxkern.quantize(x, "mxfp4", **OPTIONS))
