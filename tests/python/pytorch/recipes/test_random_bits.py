# tests/python/pytorch/recipes/test_random_bits.py: which random bits a layer's gradients are
# rounded with.
from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import data, decibels, gradients, normal  # noqa: E402

import mxkern  # noqa: E402
import mxkern.torch as mxt  # noqa: E402
from mxkern.torch.recipes.random_bits import rank_seed  # noqa: E402
from mxkern.values.seeds import mixed, of_text  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")


def weight_gradient(seed: int, step: Any, recipe: Any = None) -> Any:
    x, w, _, g = data(64, 32, 64)
    y = mxt.linear(x, w, None, recipe or mxt.mxfp4(), seed=seed, step=step)
    return gradients(y, w, g)[0]


def test_seed_and_step() -> None:
    one = weight_gradient(1, 2)
    assert torch.equal(one, weight_gradient(1, 2))
    assert torch.equal(one, weight_gradient(1, torch.tensor(2)))
    assert not torch.equal(one, weight_gradient(2, 2))
    assert not torch.equal(one, weight_gradient(1, 3))
    nearest = mxt.mxfp4(rounding="nearest")
    assert torch.equal(weight_gradient(1, 2, nearest), weight_gradient(2, 3, nearest))


def test_the_mean_of_many_draws() -> None:
    """Rounding up nothing saturates, so that the mean is the gradient of x, of unrounded g."""
    g = normal(16, 32, seed=3, grad=False, dtype=torch.float32)
    x = normal(16, 64, dtype=torch.float32)
    w = torch.eye(64)[:32].contiguous()  # its codes are exact
    draws = []
    for step in range(4096):
        y = mxt.linear(x, w, None, mxt.mxfp4(), seed=7, step=step)
        draws.append(gradients(y, x, g)[0][:, :32])
    stacked = torch.stack(draws)
    error = stacked.double().mean(0) - g.double()
    spread = stacked.double().std(0) / 64
    assert (error.abs() <= 5 * spread + 1e-6).all()
    assert decibels(g, draws[0]) < 20 < decibels(g, stacked.double().mean(0))


def model() -> Any:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).bfloat16()
    return mxt.quantize_(layers, mxt.Training(mxt.nvfp4(), seed=5))


def test_layers_and_micro_batches() -> None:
    layers = model()
    assert layers[0].seed != layers[1].seed
    assert layers[0].step is layers[1].step
    x, _, _, g = data(48, 64, 64)

    def gradient_of(model: Any) -> Any:
        return gradients(model(x), model[0].weight, g)[0]

    first, second = gradient_of(layers), gradient_of(layers)
    assert not torch.equal(first, second)
    again = model()
    assert torch.equal(gradient_of(again), first) and torch.equal(gradient_of(again), second)
    layers[0].step.set(0)
    assert torch.equal(gradient_of(layers), first), "a step that is set again"
    with torch.no_grad():
        before = int(layers[0].step.value)
        layers(x)
        assert int(layers[0].step.value) == before, "evaluation draws nothing"


def test_forwards_before_their_backwards() -> None:
    layers, x = model(), data(48, 64, 64)[0]
    g = data(48, 64, 64)[3]
    apart = [gradients(layers(x), layers[0].weight, g)[0] for _ in range(2)]
    layers[0].step.set(0)
    outs = [layers(x) for _ in range(2)]
    for wanted, y in zip(apart, outs, strict=True):
        assert torch.equal(gradients(y, layers[0].weight, g)[0], wanted)


def test_copies_count_apart() -> None:
    layers = model()
    other = copy.deepcopy(layers)
    assert other[0].step is other[1].step and other[0].step is not layers[0].step
    x = data(48, 64, 64)[0]
    other(x)
    assert int(layers[0].step.value) == 0 and int(other[0].step.value) == 1


def test_seeds() -> None:
    assert rank_seed(7, None) == 7 and rank_seed(7, 0) == 7
    many = {rank_seed(7, rank) for rank in range(100)} | {of_text(7, f"h.{i}") for i in range(100)}
    assert len(many) == 200 and all(0 <= seed < 2**64 for seed in many)
    assert mixed(1, 2, 3) != mixed(1, 3, 2)


@pytest.mark.parametrize(
    ("scheme", "shared", "own"), [("mxfp4", 0.120, 0.061), ("nvfp4", 0.097, 0.051)]
)
def test_ranks_with_seeds_of_their_own(scheme: str, shared: float, own: float) -> None:
    """What docs/guide/numerics.md says of the mean of 8 ranks' gradients."""
    common = normal(256, 1024, grad=False, dtype=torch.float32)
    ranks = [
        common + 0.3 * normal(256, 1024, seed=rank, grad=False, dtype=torch.float32)
        for rank in range(1, 9)
    ]
    mean = sum(ranks) / 8

    def error(seeds: list[int]) -> float:
        rounded = [
            mxkern.fake_quantize(x, scheme, rounding="stochastic", seed=seed)
            for x, seed in zip(ranks, seeds, strict=True)
        ]
        return float((sum(rounded) / 8 - mean).norm() / mean.norm())

    assert error([5] * 8) == pytest.approx(shared, rel=0.02)
    assert error(list(range(8))) == pytest.approx(own, rel=0.02)
