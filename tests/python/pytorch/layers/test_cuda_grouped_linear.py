# tests/python/pytorch/layers/test_cuda_grouped_linear.py: the layers of experts on CUDA devices: a
# loop of linear, nothing that waits for the device, and graphs whose ends change.
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mxkern

torch = pytest.importorskip("torch", reason="torch is not installed")
if not mxkern.info().devices or not torch.cuda.is_available():
    pytest.skip(f"no CUDA device can be used: {mxkern.info().cuda}", allow_module_level=True)

from grouped_cases import LOOPED, SWITCHES, ends_of, grouped_data, looped  # noqa: E402
from layer_cases import assert_equal, decibels, gradients, normal  # noqa: E402

import mxkern.torch as mxt  # noqa: E402

TOKENS, ENDS = 300, (45, 45, 200, 290)
CLOSE = 50  # dB: products that are the same but for the order of sums
RECIPES = {
    "mxfp8": mxt.mxfp8(),
    "mxfp4": mxt.mxfp4(),
    "nvfp4": mxt.nvfp4(),
    "dequantized": mxt.nvfp4(backward="dequantized"),
    "kept plain": mxt.nvfp4(save="plain", save_weight="requantize"),
    "none": None,
}


@pytest.fixture(autouse=True)
def on_cuda() -> Iterator[None]:
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(None)


def close(got: Any, wanted: Any) -> None:
    for number, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, number
        assert torch.equal(ours, theirs) or decibels(theirs, ours) >= CLOSE, number


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("name", LOOPED)
def test_a_loop_of_linear(name: str, switch: str) -> None:
    recipe = LOOPED[name].with_(**SWITCHES[switch])
    for turned in (False, True):
        for dtype in (torch.bfloat16, torch.float32):
            x, w, b, g = grouped_data(ENDS, TOKENS, dtype)
            lies = w.detach().mT.contiguous().mT.requires_grad_() if turned else w
            y = mxt.grouped_linear(x, lies, ends_of(*ENDS), recipe, b)
            wanted = looped(x, w, ENDS, recipe, b)
            close((y, *gradients(y, (x, lies, b), g)), (wanted, *gradients(wanted, (x, w, b), g)))
            assert not y[ENDS[-1] :].any()


@pytest.mark.parametrize("ends", [(300,), (0,), (1, 2, 3, 4), (0, 0, 300), (31, 64, 65, 299)])
def test_ends_anywhere(ends: tuple[int, ...]) -> None:
    for recipe in (LOOPED["mxfp8"], LOOPED["nvfp4"], LOOPED["mxfp4 hadamard 128"], None):
        x, w, b, g = grouped_data(ends, TOKENS)
        y, wanted = (
            mxt.grouped_linear(x, w, ends_of(*ends), recipe, b),
            looped(x, w, ends, recipe, b),
        )
        close((y, *gradients(y, (x, w, b), g)), (wanted, *gradients(wanted, (x, w, b), g)))


def layer(recipe: Any) -> Any:
    step = torch.tensor(3)

    def run(x: Any, w: Any, ends: Any, b: Any, g: Any) -> tuple[Any, ...]:
        y = mxt.grouped_linear(x, w, ends, recipe, b, seed=5, step=step)
        return (y, *gradients(y, (x, w, b), g))

    return run


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_waits(name: str) -> None:
    x, w, b, g = grouped_data(ENDS, TOKENS)
    ends, run = ends_of(*ENDS), layer(RECIPES[name])
    wanted = run(x, w, ends, b, g)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        got = run(x, w, ends, b, g)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert_equal(got, wanted)


@pytest.mark.parametrize("name", RECIPES)
def test_graphs(name: str) -> None:
    """A graph that is run again reads other tokens, and other ends."""
    x, w, b, g = grouped_data(ENDS, TOKENS)
    ends, run = ends_of(*ENDS), layer(RECIPES[name])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run(x, w, ends, b, g)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = run(x, w, ends, b, g)
    for seed, others in enumerate(((0, 1, 150, 300), (300, 300, 300, 300), (0, 0, 0, 33))):
        with torch.no_grad():
            x.copy_(normal(*x.shape, seed=seed + 10))
        ends.copy_(ends_of(*others))
        graph.replay()
        torch.cuda.synchronize()
        assert_equal(got, run(x, w, ends, b, g))


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_compiled(name: str) -> None:
    torch._dynamo.reset()
    run = layer(RECIPES[name])
    step = torch.tensor(3)

    def alone(x: Any, w: Any, ends: Any, b: Any) -> Any:
        return mxt.grouped_linear(x, w, ends, RECIPES[name], b, seed=5, step=step)

    compiled = torch.compile(alone, fullgraph=True)
    for ends in (ENDS, (0, 1, 150, 300)):
        x, w, b, g = grouped_data(ends, TOKENS)
        y = compiled(x, w, ends_of(*ends), b)
        got = (y, *gradients(y, (x, w, b), g))
        assert_equal(got, run(x, w, ends_of(*ends), b, g))


def test_ends_outside() -> None:
    """No memory is read that is not there."""
    for recipe in (mxt.mxfp8(), mxt.nvfp4()):
        x, w, b, g = grouped_data(ENDS, TOKENS)
        for ends in ((0, 100, 50, 300), (-5, 10, 20, 30), (0, 0, 0, 10**6)):
            y = mxt.grouped_linear(x, w, ends_of(*ends), recipe, b)
            assert y.isnan().all()
            gradients(y, (x, w, b), g)
            torch.cuda.synchronize()
