# tests/python/cuda/test_cuda_fake_quantize.py: fake_quantize on a GPU gives what it gives on the
# CPU.
from __future__ import annotations

from typing import Any

import pytest
from test_cuda import FRAMEWORKS, on_device, on_host

import mxkern
from fake_quantize_options import options_of
from support import DTYPES, SCHEMES, assert_same, corner_values, random_values, raw

if not mxkern.info().devices:
    pytest.skip(f"no CUDA device can be used: {mxkern.info().cuda}", allow_module_level=True)

SQUARES_BY_CHOICE: dict[str, Any] = {"block": (16, 16), "four_over_six": True}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_is_the_cpus(scheme: str, dtype: str, framework: str) -> None:
    choices = options_of(scheme) + [SQUARES_BY_CHOICE] * (scheme == "nvfp4")
    for x in (corner_values(3, 50, dtype), random_values((2, 40, 96), dtype)):
        given = on_device(framework, x)
        for options in choices:
            got = mxkern.fake_quantize(given, scheme, **options)
            assert type(got) is type(given) and got.dtype == given.dtype
            want = mxkern.fake_quantize(x, scheme, **options)
            assert_same(on_host(got), raw(want), f"{framework} {dtype} {scheme} {options}")


@pytest.mark.parametrize("options", [{}, SQUARES_BY_CHOICE], ids=str)
def test_in_place_and_in_a_graph(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    values = random_values((64, 160), "float32")
    want = mxkern.fake_quantize(values, "nvfp4", **options)
    x = on_device("torch", values)
    assert mxkern.fake_quantize(x, "nvfp4", out=x, **options) is x
    assert_same(on_host(x), raw(want), "in place")
    x = on_device("torch", values)
    y = torch.zeros_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mxkern.fake_quantize(x, "nvfp4", out=y, **options)
    graph.replay()
    assert_same(on_host(y), raw(want), "in a graph")


def test_the_operator_with_its_gradient() -> None:
    pytest.importorskip("torch")
    from mxkern.torch import operators

    values = random_values((8, 64), "float32")
    x = on_device("torch", values).requires_grad_()
    y = operators.fake_quantize(x, "mxfp4")
    want = raw(mxkern.fake_quantize(values, "mxfp4"))
    assert_same(on_host(y.detach()), want, "operator")
    (y * 3).sum().backward()
    assert (x.grad == 3).all()
