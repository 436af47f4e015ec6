# tests/python/cuda/test_cuda_offset_array.py: offsets of stochastic rounding that lie on the
# device.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_cuda import FRAMEWORKS, on_device, on_host

import mxkern
from support import random_values, refused

if not mxkern.info().devices:
    pytest.skip(f"no CUDA device can be used: {mxkern.info().cuda}", allow_module_level=True)

OPTIONS = {"rounding": "stochastic", "seed": 11}
X = random_values((128, 256), "bfloat16")


def parts(q: Any) -> list[bytes]:
    return [on_host(part).tobytes() for part in q.parts if part is not None]


@pytest.mark.parametrize("dtype, value", [("int32", -3), ("uint32", 2**32 - 1), ("int64", 2**40)])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_value_is_the_offset(framework: str, dtype: str, value: int) -> None:
    if framework == "jax" and dtype == "int64":
        pytest.skip("JAX has 64-bit integers only if it is told to")
    x = on_device(framework, X)
    offset = on_device(framework, np.full(1, value, dtype))
    number = value % 2**64
    for scheme in ("mxfp8", "mxfp4", "nvfp4"):
        for call in (mxkern.quantize, mxkern.quantize_columns):
            got = call(x, scheme, offset=offset, **OPTIONS)
            assert parts(got) == parts(call(x, scheme, offset=number, **OPTIONS)), scheme
        both = mxkern.quantize_both(x, scheme, offset=offset, **OPTIONS)
        want = mxkern.quantize_both(x, scheme, offset=number, **OPTIONS)
        assert [parts(q) for q in both] == [parts(q) for q in want], scheme
    if framework != "jax":
        got = mxkern.quantize(x, "mxfp4", offset=offset, stream=1, **OPTIONS)
        assert parts(got) == parts(mxkern.quantize(x, "mxfp4", offset=number, **OPTIONS))


def test_a_graph_counts_steps() -> None:
    torch = pytest.importorskip("torch")
    x = on_device("torch", X)
    step = torch.zeros((), dtype=torch.int64, device="cuda")
    q = mxkern.quantize(x, "mxfp4", offset=step, **OPTIONS)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mxkern.quantize(x, "mxfp4", offset=step, out=q, **OPTIONS)
        step += 1
    for offset in range(3):
        graph.replay()
        assert parts(q) == parts(mxkern.quantize(x, "mxfp4", offset=offset, **OPTIONS)), offset


def test_errors() -> None:
    torch = pytest.importorskip("torch")
    x = on_device("torch", X)
    for call in (mxkern.quantize, mxkern.quantize_both):
        for offset, text in (
            (torch.zeros(1, dtype=torch.int64), "offset is on cpu; expected cuda:0"),
            (torch.zeros(2, dtype=torch.int64, device="cuda"), "offset has shape (2,)"),
        ):
            refused(
                ValueError,
                lambda c=call, o=offset: c(x, "mxfp8", offset=o, **OPTIONS),
                text,
            )
    q = mxkern.quantize(x, "mxfp8")
    offset = q.codes.view(torch.int64)[0, :1]
    overlaps = lambda: mxkern.quantize(x, "mxfp8", offset=offset, out=q, **OPTIONS)  # noqa: E731
    refused(ValueError, overlaps, "out.codes overlaps offset_at")
