# tests/python/support.py: inputs that hit every corner, arrays of each framework, and comparisons
# that say where and what.
from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mxkern
import reference

ROOT = Path(__file__).parent.parent.parent
SCHEMES = tuple(reference.SCHEMES)
DTYPES = ("float32", "float16", "bfloat16")
NUMPY_DTYPES = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
FRAMEWORKS = ("numpy", "torch", "jax")


class Foreign:
    """An array of a library that nobody knows, but for DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@functools.cache
def available(framework: str) -> bool:
    try:
        importlib.import_module(framework)
    except ImportError:
        return False
    return True


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language, without those of a framework that is missing."""
    text = (ROOT / page).read_text()
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    missing = [
        name for name in ("torch", "jax", "safetensors", "transformers") if not available(name)
    ]
    return [b for b in found if not re.search(rf"^import ({'|'.join(missing) or '-'})$", b, re.M)]


def mostly_slow(cases: Iterable[Any], *quick: str) -> list[Any]:
    """Cases to parametrize a test with: those whose text or id is among `quick` run always, the
    others where slow tests do."""
    found, listed = set(), []
    for case in cases:
        param = case if hasattr(case, "marks") else pytest.param(case)
        name = param.id or str(param.values[0])
        found.add(name)
        slow = [] if name in quick else [pytest.mark.slow]
        listed.append(pytest.param(*param.values, id=param.id, marks=[*param.marks, *slow]))
    assert found.issuperset(quick), f"{sorted(set(quick) - found)} are among no cases: {found}"
    return listed


def framework_params(*names: str) -> list[Any]:
    """The frameworks as pytest parameters; one that is not installed is skipped with a reason."""
    return [
        pytest.param(
            name,
            marks=pytest.mark.skipif(not available(name), reason=f"{name} is not installed"),
        )
        for name in names or FRAMEWORKS
    ]


def array_of(framework: str, x: np.ndarray) -> Any:
    """x, bit for bit, as an array of the framework."""
    if framework == "numpy":
        return x
    if framework == "jax":
        import jax.numpy as jnp

        return jnp.asarray(x)
    import torch

    if x.dtype.kind != "V":
        return torch.from_numpy(x.copy())
    unsigned = {1: np.uint8, 2: np.int16}[x.dtype.itemsize]
    dtype = getattr(torch, x.dtype.name)
    return torch.from_numpy(x.view(unsigned).copy()).view(dtype)


def raw(array: Any) -> np.ndarray:
    """The bytes of an array of any framework: its shape, and one axis more for wide elements."""
    if type(array).__module__.startswith("torch"):
        import torch

        wide = array.element_size()
        flat = array.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        array = flat.reshape(*array.shape, wide)
        return array[..., 0] if wide == 1 else array
    array = np.asarray(array)
    wide = array.dtype.itemsize
    data = np.frombuffer(array.tobytes(), np.uint8).reshape(*array.shape, wide)
    return data[..., 0] if wide == 1 else data


def assert_same(got: np.ndarray, want: np.ndarray, what: str) -> None:
    """Byte arrays, or float arrays bit for bit except for which NaN it is."""
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, expected {want.dtype}"
    unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32}[got.dtype.itemsize]
    differs = got.view(unsigned) != want.view(unsigned)
    if got.dtype.itemsize > 1:
        differs &= ~(np.isnan(got) & np.isnan(want))
    if differs.any():
        places = np.argwhere(differs)
        place = tuple(int(i) for i in places[0])
        pytest.fail(
            f"{what}: {len(places)} of {got.size} differ, the first at {place}: got {got[place]} "
            f"(0x{int(got.view(unsigned)[place]):x}), expected {want[place]} "
            f"(0x{int(want.view(unsigned)[place]):x}), shape {got.shape}"
        )


def assert_same_parts(got: mxkern.BlockScaled, want: mxkern.BlockScaled, what: str) -> None:
    assert got.facts == want.facts, what
    assert_same(raw(got.codes), raw(want.codes), f"{what}: codes")
    assert_same(raw(got.scales), raw(want.scales), f"{what}: scales")
    assert (got.tensor_scale is None) == (want.tensor_scale is None)
    if want.tensor_scale is not None:
        assert_same(raw(got.tensor_scale), raw(want.tensor_scale), f"{what}: tensor_scale")


def random_values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Normal values under row scales of many octaves."""
    generator = np.random.default_rng([seed, *shape])
    x = generator.standard_normal(shape)
    octaves = generator.integers(-12, 12, (*shape[:-1], 1))
    return (x * 2.0**octaves).astype(NUMPY_DTYPES[dtype])


def corner_values(rows: int, columns: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Random values, with runs of zeros of both signs, subnormals, huge values, ties, exact powers
    of two, and single NaN and Inf."""
    generator = np.random.default_rng([seed, rows, columns])
    target = NUMPY_DTYPES[dtype]
    info = ml_dtypes.finfo(target)
    x = random_values((rows, columns), dtype, seed).astype(np.float64)
    for i, start in enumerate(range(0, columns, 16)):
        part = x[i % max(rows, 1), start : start + 16] if rows else x[:0, :0]
        kind = i % 8
        if kind == 0:
            part[:] = 0.0
            part[::3] = -0.0
        elif kind == 1:
            part *= float(info.smallest_subnormal) * 8
        elif kind == 2:
            part[:] = np.sign(part) * float(info.max)
        elif kind == 3:
            part[:] = generator.integers(-24, 25, part.shape) / 4
        elif kind == 4:
            part[:] = 2.0 ** generator.integers(-6, 7, part.shape)
        elif kind == 5 and part.size:
            part[generator.integers(part.size)] = np.nan
        elif kind == 6 and part.size:
            part[generator.integers(part.size)] = -np.inf
    with np.errstate(over="ignore"):
        return x.astype(target)


def check_quantized(
    q: mxkern.BlockScaled, want: reference.Quantized, shape: tuple[int, ...], what: str
) -> None:
    """Every byte of q against the reference, in q's layout; shape is that of the result."""
    assert q.shape == shape, f"{what}: shape {q.shape}, expected {shape}"
    codes, scales = want.codes, want.scales
    if want.close is not None:
        codes, scales = _with_close_calls(q, want, shape)
    if q.scale_layout == "swizzled":
        scales = reference.swizzle(scales)
    packed = reference.pack(codes, q.scheme, shape[-1])
    assert_same(raw(q.scales), scales, f"{what}: scales")
    assert_same(raw(q.codes), packed, f"{what}: codes")
    if want.tensor_scale is None:
        assert q.tensor_scale is None
    else:
        got = np.asarray(q.tensor_scale, np.float32)
        assert_same(got.reshape(1), np.array([want.tensor_scale]), f"{what}: tensor_scale")


def _with_close_calls(
    q: mxkern.BlockScaled, want: reference.Quantized, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Where the two choices of 4over6 are as good as equal, the one that q took."""
    scales = raw(q.scales)
    if q.scale_layout == "swizzled":
        rows = shape[-2] if len(shape) > 1 else 1
        scales = raw(mxkern.unswizzle_scales(scales, rows, want.scales.shape[-1]))
    other = want.close & (scales.reshape(want.scales.shape) != want.scales)
    assert other.mean() < 0.05, "close calls are rare"
    return (
        np.where(other[..., None], want.other_codes, want.codes),
        np.where(other, want.other_scales, want.scales),
    )


def capture(work: Callable[[], Any]) -> tuple[Any, Any]:
    """A CUDA graph of work() on the current device, and what it writes to.

    The stream is a new one: PyTorch's own for captures is of the device that was current when the
    process captured first, and with several devices that depends on the order of tests.
    """
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        result = work()
    return graph, result


def refused(kind: type[Exception], call: Callable[[], Any], *parts: str) -> None:
    """call raises kind (no subclass), with a message that holds all the parts."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind, repr(caught.value)
    message = str(caught.value)
    for part in parts:
        assert part in message, f"{part!r} is not in: {message}"
