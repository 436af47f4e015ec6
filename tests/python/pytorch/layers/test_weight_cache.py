# tests/python/pytorch/layers/test_weight_cache.py: weights that are quantized once between two
# steps.
from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import assert_equal, data, gradients  # noqa: E402

import mxkern  # noqa: E402
import mxkern.torch as mxt  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

RECIPES = {
    "mxfp8": mxt.mxfp8(),
    "nvfp4": mxt.nvfp4(),
    "requantize": mxt.mxfp8(save_weight="requantize"),
    "dequantized": mxt.mxfp8(backward="dequantized"),
    "forward plain": mxt.mxfp4(forward="plain"),
}


def pair(recipe: Any) -> tuple[Any, Any]:
    """A layer that keeps its quantized weight, and one that does not, of one parameter."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(64, 48)).bfloat16()
    kept = mxt.quantize_(copy.copy(plain), mxt.Training(recipe, cache_weights=True))
    other = mxt.Linear.from_linear(plain[0], recipe, seed=kept[0].seed, step=kept[0].step)
    return kept[0], other


def run(layer: Any, x: Any, g: Any) -> tuple[Any, ...]:
    y = layer(x)
    return y, *gradients(y, (x, layer.weight, layer.bias), g)


@pytest.mark.parametrize("name", RECIPES)
def test_equal_to_uncached(name: str) -> None:
    kept, other = pair(RECIPES[name])
    x, _, _, g = data(40, 48, 64)
    for _ in range(2):
        assert_equal(run(kept, x, g), run(other, x, g))
    with torch.no_grad():
        assert torch.equal(kept(x), other(x))


@pytest.mark.parametrize("foreach", [False, True])
def test_an_optimizer_step_is_noticed(foreach: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, other = pair(mxt.mxfp8())
    x, _, _, g = data(40, 48, 64)
    quantized = []
    own = mxkern.quantize_both

    def watched(t: Any, *rest: Any, **options: Any) -> Any:
        quantized.append(tuple(t.shape))
        return own(t, *rest, **options)

    monkeypatch.setattr(mxkern.functions, "quantize_both", watched)
    optimizer = torch.optim.AdamW(kept.parameters(), lr=0.1, foreach=foreach)
    for _ in range(3):
        for _ in range(4):
            kept(x).backward(g)
        optimizer.step()
        optimizer.zero_grad()
    assert quantized.count((48, 64)) == 1 + 3
    assert_equal(run(kept, x, g), run(other, x, g))


def test_other_changes_are_noticed() -> None:
    kept, other = pair(mxt.mxfp8())
    x, _, _, g = data(40, 48, 64)
    run(kept, x, g)
    with torch.no_grad():
        kept.weight.mul_(2)
    assert_equal(run(kept, x, g), run(other, x, g))
    kept.load_state_dict({k: v / 3 for k, v in kept.state_dict().items()})
    assert_equal(run(kept, x, g), run(other, x, g))
    kept.weight.data.mul_(5)  # which PyTorch does not count
    mxt.refresh_weights(kept)
    assert_equal(run(kept, x, g), run(other, x, g))


def test_refreshing_keeps_addresses() -> None:
    kept, _ = pair(mxt.nvfp4())
    x, _, _, g = data(40, 48, 64)
    run(kept, x, g)

    def parts() -> list[Any]:
        return list(kept.cache.given(kept.recipe)[1])

    before = [(t.data_ptr(), t.clone()) for t in parts()]
    assert len(before) == 6
    with torch.no_grad():
        kept.weight.copy_(kept.weight.flip(0) * 3)
    run(kept, x, g)
    assert [t.data_ptr() for t in parts()] == [address for address, _ in before]
    assert any(
        not torch.equal(
            t.view(torch.uint8) if t.dim() else t, old.view(torch.uint8) if old.dim() else old
        )
        for t, (_, old) in zip(parts(), before, strict=True)
    )


def test_refreshing_between_forward_and_backward_raises() -> None:
    kept, _ = pair(mxt.mxfp8())
    x, _, _, g = data(40, 48, 64)
    y = kept(x)
    with torch.no_grad():
        kept.weight.mul_(2)
    kept(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(g)


def test_compiled() -> None:
    torch._dynamo.reset()
    kept, other = pair(mxt.mxfp8())
    x, _, _, g = data(40, 48, 64)
    run(kept, x, g)
    compiled = torch.compile(kept, fullgraph=True, backend="aot_eager")
    optimizer = torch.optim.SGD(kept.parameters(), lr=0.1)
    for _ in range(2):
        y = compiled(x)
        got = (y, *gradients(y, (x, kept.weight, kept.bias), g))
        assert_equal(got, run(other, x, g))
        kept(x).backward(g)
        optimizer.step()
