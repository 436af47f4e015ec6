# tests/python/pytorch/layers/test_one_call.py: an eager forward is one call, which gives what the
# functions give where something observes them, and keeps the same tensors.
from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import EVERY, assert_equal, data, gradients, saved_by  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import mxkern.torch as mxt  # noqa: E402
from mxkern.ops.linear_forward import linear_forward  # noqa: E402
from mxkern.torch.layers import linear_function  # noqa: E402
from support import mostly_slow  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")


class Observed(TorchDispatchMode):  # type: ignore[misc]  # no types there
    """Sees operators, and lets them be."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        return function(*args, **(kwargs or {}))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many forwards were one call."""
    count = [0]

    def counted(*arguments: Any) -> Any:
        count[0] += 1
        return linear_forward(*arguments)

    monkeypatch.setattr(linear_function, "linear_forward", counted)
    return count


def codes(tensors: list[Any]) -> list[Any]:
    return [t.detach().reshape(-1).view(torch.uint8) for t in tensors]


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("name", mostly_slow(EVERY, "mxfp8", "nvfp4", "backward dequantized"))
def test_as_observed(name: str, needs: tuple[bool, bool], calls: list[int]) -> None:
    recipe = EVERY[name]
    # Without bytes between the rows of folded operands, or behind them, which nobody writes.
    x, w, b, g = (
        data(256, 256, 256) if torch.get_default_device().type == "cuda" else data(64, 32, 96)
    )
    for tensor, needed in zip((x, w), needs, strict=True):
        tensor.requires_grad_(needed)
    y, saved = saved_by(lambda: mxt.linear(x, w, b, recipe, seed=5, step=2))
    assert calls == [int(recipe.is_one_call)]
    with Observed():
        wanted, wanted_saved = saved_by(lambda: mxt.linear(x, w, b, recipe, seed=5, step=2))
        assert calls == [int(recipe.is_one_call)], "operators are not seen"
    assert torch.equal(y, wanted)
    assert_equal(codes(saved), codes(wanted_saved))
    inputs = [t for t in (x, w, b) if t.requires_grad]
    assert_equal(gradients(y, inputs, g), gradients(wanted, inputs, g))
    with torch.no_grad():
        assert torch.equal(mxt.linear(x, w, b, recipe, seed=5, step=2), wanted)


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_cached_weights(name: str, calls: list[int]) -> None:
    x, w, b, g = data(32, 48, 64)
    layer = mxt.Linear(64, 48, recipe=EVERY[name], seed=5, device=x.device, dtype=x.dtype)
    layer.weight, layer.bias = torch.nn.Parameter(w.detach()), torch.nn.Parameter(b.detach())
    wanted = gradients(layer(x), (x, layer.weight, layer.bias), g)
    layer.cache = mxt.WeightCache()
    for _ in range(2):
        assert_equal(gradients(layer(x), (x, layer.weight, layer.bias), g), wanted)
    assert calls == [3]


def test_rows_that_lie_apart_and_transposes(calls: list[int]) -> None:
    x, w, b, _ = data(64, 96, 64)
    apart = torch.cat([x, x], 1)[:, :64]
    turned = w.t().contiguous().t()
    for recipe in (mxt.mxfp8(), mxt.nvfp4()):
        wanted = mxt.linear(x, w, b, recipe)
        assert torch.equal(mxt.linear(apart, turned, b, recipe), wanted)
        with torch.no_grad():
            assert torch.equal(mxt.linear(apart, turned, b, recipe), wanted)


def test_rows_that_fill_no_group_of_a_transform(calls: list[int]) -> None:
    x, w, b, _ = data(17, 32, 64)
    mxt.linear(x, w, b, mxt.nvfp4())
    assert calls == [0], "zero rows are added to the columns' side"
    with torch.no_grad():
        mxt.linear(x, w, b, mxt.nvfp4())
    assert calls == [1]


def test_tensors_that_wrap_others_are_refused_as_before() -> None:
    x, w, b, _ = data(32, 32, 64)
    with pytest.raises(RuntimeError, match=r"vmap|setup_context"):
        torch.func.vmap(lambda row: mxt.linear(row, w, b, mxt.mxfp8()))(x[:, None])


def test_what_outlived_its_transform_is_read() -> None:
    x, w, b, _ = data(32, 32, 64)
    kept: list[Any] = []

    def keep(tensor: Any) -> Any:
        kept.append(tensor)
        return tensor.sum()

    torch.func.grad(keep)(x.detach())
    assert torch.equal(mxt.linear(kept[0], w, b, mxt.mxfp8()), mxt.linear(x, w, b, mxt.mxfp8()))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (2, 3, 0), (0, 2, 0)])
def test_rows_of_no_element(shape: tuple[int, ...]) -> None:
    x, w, b = torch.zeros(shape), torch.zeros(5, 0), torch.arange(5.0)
    wanted = torch.nn.functional.linear(x, w, b)
    for recipe in (mxt.mxfp8(), mxt.nvfp4(), mxt.mxfp8(backward="plain")):
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = mxt.linear(x, w, b, recipe)
        assert torch.equal(y, wanted)
        of_x, of_w = gradients(y, (x, w), torch.ones_like(y))
        assert of_x.shape == shape and of_w.shape == (5, 0)
