# tests/python/pytorch/layers/test_cuda_graphs.py: training steps of layers captured in CUDA graphs.
from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device", allow_module_level=True)

import mxkern.torch as mxt  # noqa: E402


def model(recipe: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 32))
    return mxt.quantize_(layers.to("cuda", torch.bfloat16), mxt.Training(recipe, **options))


def captured(layers: Any, x: Any) -> Any:
    """A graph of forward and backward, which leaves the gradients in place."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            layers(x).float().square().sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    for parameter in layers.parameters():
        parameter.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layers(x).float().square().sum().backward()
    return graph


@pytest.mark.parametrize("recipe", [mxt.mxfp8(), mxt.nvfp4(), mxt.mxfp4()], ids=str)
def test_replays_are_eager_steps(recipe: Any) -> None:
    x = torch.randn(48, 64, device="cuda", dtype=torch.bfloat16)
    layers, other = model(recipe), model(recipe)
    graph = captured(layers, x)
    seen = []
    for _ in range(3):
        for parameter in layers.parameters():
            parameter.grad.zero_()
        graph.replay()
        seen.append(layers[0].weight.grad.clone())
        other[0].step.set(int(layers[0].step.value) - 1)
        other.zero_grad()
        other(x).float().square().sum().backward()
        assert torch.equal(seen[-1], other[0].weight.grad)
    assert recipe.is_stochastic == (not torch.equal(seen[0], seen[1]))


def test_cached_weights_are_read_where_they_are_refreshed() -> None:
    x = torch.randn(48, 64, device="cuda", dtype=torch.bfloat16)
    layers = model(mxt.mxfp8(), cache_weights=True)
    graph = captured(layers, x)
    with torch.no_grad():
        layers[0].weight.mul_(2)
    mxt.refresh_weights(layers)
    for parameter in layers.parameters():
        parameter.grad.zero_()
    graph.replay()
    other = model(mxt.mxfp8())
    with torch.no_grad():
        other[0].weight.mul_(2)
    other(x).float().square().sum().backward()
    assert torch.equal(layers[0].weight.grad, other[0].weight.grad)
