# tests/python/pytorch/layers/test_compiled_layer.py: compiled layers give the bits of eager ones.
from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import EVERY, RECIPES, assert_equal, data, gradients  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

import mxkern.torch as mxt  # noqa: E402
from support import mostly_slow  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", mostly_slow(["aot_eager", "inductor"], "aot_eager"))
@pytest.mark.parametrize("name", mostly_slow(EVERY, "mxfp8", "nvfp4", "backward dequantized"))
def test_equal(name: str, backend: str) -> None:
    x, w, b, g = data(33, 48, 80)
    recipe = EVERY[name]

    def layer(x: Any, w: Any, b: Any, step: Any) -> Any:
        return mxt.linear(x, w, b, recipe, seed=5, step=step)

    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for step in (3, 4):
        eager, own = (f(x, w, b, torch.tensor(step)) for f in (layer, compiled))
        ours, theirs = (gradients(y, (x, w, b), g) for y in (own, eager))
        assert_equal((own, *ours), (eager, *theirs))


def model(recipe: Any) -> Any:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.Linear(96, 32)
    ).bfloat16()
    return mxt.quantize_(layers, mxt.Training(recipe))


@pytest.mark.parametrize("inside", [True, False])
def test_autocast(inside: bool) -> None:
    layers = model(mxt.mxfp4())
    x = data(32, 64, 64)[0]

    def run(x: Any) -> Any:
        with mxt.autocast(mxt.mxfp8()):
            return layers(x)

    wanted = run(x)
    compiled = torch.compile(run if inside else layers, fullgraph=True, backend="aot_eager")
    if inside:
        got = compiled(x)
    else:
        with mxt.autocast(mxt.mxfp8()):
            got = compiled(x)
        assert not torch.equal(compiled(x), wanted), "outside of it the model's own recipe counts"
    assert torch.equal(got, wanted)


def test_steps_and_tokens_do_not_recompile() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    layers = model(mxt.nvfp4())
    compiled = torch.compile(layers, fullgraph=True, backend=counter, dynamic=True)
    outs = []
    for tokens in (48, 64, 80, 80):
        x = data(tokens, 64, 64)[0]
        y = compiled(x)
        outs.append(torch.autograd.grad(y.sum(), layers[0].weight)[0])
    assert counter.frame_count == 1
    assert not torch.equal(outs[-1], outs[-2]), "each step draws other bits"


def test_modules_advance_as_eager() -> None:
    x = data(32, 64, 64)[0]
    results = []
    for compiled in (False, True):
        layers = model(RECIPES["nvfp4"])
        run = torch.compile(layers, fullgraph=True, backend="aot_eager") if compiled else layers
        results.append([torch.autograd.grad(run(x).sum(), layers[0].weight)[0] for _ in range(3)])
    assert_equal(*results)
    assert not torch.equal(results[0][0], results[0][1])
