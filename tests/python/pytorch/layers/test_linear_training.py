# tests/python/pytorch/layers/test_linear_training.py: how near a layer's products are to plain
# ones, for all recipes, dtypes and shapes.
from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import RECIPES, data, decibels, gradients, normal  # noqa: E402

import mxkern.torch as mxt  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

# Of y, dx and dw, in dB. Normal data of bfloat16 gives 0.5 to 1.5 more.
BARS = {
    "mxfp8": (27, 27, 27),
    "mxfp8 32x32": (27, 27, 27),
    "hybrid": (27, 24, 24),
    "nvfp4": (15, 14, 14),
    "mxfp4": (15, 13.5, 13.5),
    "mxfp6_e2m3": (27, 27, 27),
    "mxfp6_e3m2": (22, 22, 22),
    "mxint8": (38, 38, 38),
}


def plain(x: Any, w: Any, b: Any, g: Any) -> tuple[Any, ...]:
    y = torch.nn.functional.linear(x.double(), w.double(), b.double())
    return y, *gradients(y, (x, w, b), g.double())


@pytest.mark.parametrize("m", [128, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", RECIPES)
def test_bars(name: str, m: int) -> None:
    x, w, b, g = data(m, 256, 512)
    y = mxt.linear(x, w, b, RECIPES[name], seed=1, step=2)
    got = y, *gradients(y, (x, w, b), g)
    reached = [decibels(*pair) for pair in zip(plain(x, w, b, g), got, strict=True)]
    assert all(own >= bar for own, bar in zip(reached, (*BARS[name], 40), strict=True)), reached
    assert [t.dtype for t in got] == [torch.bfloat16] * 4


def test_plain_wgrad() -> None:
    x, w, b, g = data(256, 128, 256)
    y = mxt.linear(x, w, b, mxt.mxfp8(wgrad="plain"))
    wanted = plain(x, w, b, g)
    assert decibels(wanted[2], gradients(y, w, g)[0]) >= 34


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16])
def test_dtypes(dtype: Any, weight_dtype: Any) -> None:
    x, w, b, g = data(128, 64, 256, dtype, weight_dtype)
    y = mxt.linear(x, w, b, mxt.mxfp8())
    got = gradients(y, (x, w, b), g)
    assert [t.dtype for t in (y, *got)] == [dtype, dtype, weight_dtype, weight_dtype]
    for wanted, own in zip(plain(x, w, b, g), (y, *got), strict=True):
        assert decibels(wanted, own) >= 27


def test_the_dtype_of_torch_autocast() -> None:
    x, w, b, g = data(64, 32, 96, torch.float32)
    with torch.autocast(x.device.type, torch.bfloat16):
        y = mxt.linear(x, w, b, mxt.mxfp8())
    assert y.dtype == torch.bfloat16
    assert [t.dtype for t in gradients(y, (x, w, b), g.bfloat16())] == [torch.float32] * 3
    assert torch.equal(y, mxt.linear(x, w, b, mxt.mxfp8()).bfloat16())


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_leading_dimensions(name: str) -> None:
    x, w, b, _ = data(60, 32, 64)
    flat = mxt.linear(x, w, b, RECIPES[name])
    for shape in [(60, 64), (4, 15, 64), (2, 3, 10, 64)]:
        y = mxt.linear(x.reshape(shape), w, b, RECIPES[name])
        assert torch.equal(y, flat.reshape(*shape[:-1], 32))
    one = mxt.linear(x[0], w, b, RECIPES[name])
    assert one.shape == (32,) and torch.equal(one, mxt.linear(x[:1], w, b, RECIPES[name])[0])


@pytest.mark.parametrize("name", RECIPES)
def test_no_tokens(name: str) -> None:
    x, w, b, g = data(0, 32, 64)
    y = mxt.linear(x, w, b, RECIPES[name])
    dx, dw, db = gradients(y, (x, w, b), g)
    assert y.shape == (0, 32) and dx.shape == (0, 64)
    assert not dw.any() and not db.any() and dw.shape == w.shape


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "mxfp4"])
def test_gradients_that_lie_apart(name: str) -> None:
    x, w, b, g = data(48, 32, 64)

    def run(upstream: Any) -> tuple[Any, ...]:
        y = mxt.linear(x, w, b, RECIPES[name], seed=3)
        return gradients(y, (x, w, b), upstream)

    apart = torch.empty(32, 48, dtype=g.dtype).copy_(g.t()).t()
    assert not apart.is_contiguous()
    for ours, theirs in zip(run(apart), run(g), strict=True):
        assert torch.equal(ours, theirs)
    y = mxt.linear(x, w, b, RECIPES[name], seed=3)
    for ours, theirs in zip(
        torch.autograd.grad(y.sum(), (x, w, b)), run(torch.ones_like(g)), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_without_a_recipe_it_is_plain() -> None:
    x, w, b, g = data(16, 32, 64, torch.float32)
    y = mxt.linear(x, w, b)
    assert torch.equal(y, torch.nn.functional.linear(x, w, b))
    assert torch.equal(mxt.linear(x, w), torch.nn.functional.linear(x, w))
    gradients(y, (x, w, b), g)


def test_main_grad_is_added_to() -> None:
    x, w, b, g = data(64, 32, 96)
    for recipe in (mxt.mxfp8(), mxt.mxfp8(wgrad="plain")):
        w.main_grad = torch.ones(32, 96)
        y = mxt.linear(x, w, b, recipe)
        dw = torch.autograd.grad(y, w, g, allow_unused=True)[0]
        assert dw is None
        once = w.main_grad - 1
        mxt.linear(x, w, b, recipe).backward(g)
        assert w.grad is None
        wanted = normal(64, 32, seed=3, grad=False).double().t() @ x.double()
        assert decibels(wanted, once) > 27 and decibels(2 * wanted, w.main_grad - 1) > 27
        del w.main_grad


def test_wrong_arguments() -> None:
    x, w, b, _ = data(16, 32, 64)
    recipe = mxt.mxfp8()
    cases: list[tuple[type[Exception], tuple[Any, ...], str]] = [
        (TypeError, (x, w, b, "mxfp8"), r"recipe is 'mxfp8'; .*mxkern\.torch\.mxfp8\(\)"),
        (TypeError, (x, w, b, mxt.mxfp8), r"call it: mxfp8\(\)"),
        (TypeError, (x.int(), w, b, recipe), r"x has dtype int32; expected .*convert"),
        (TypeError, (x, w.tolist(), b, recipe), r"weight is a list; expected a tensor"),
        (ValueError, (x[:, :63], w, b, recipe), r"x has shape \(16, 63\); expected \[\.\.\., 64\]"),
        (ValueError, (x, w[0], b, recipe), r"weight has shape \(64,\); expected \[N, K\]"),
        (ValueError, (x, w, b[:31], recipe), r"bias has shape \(31,\); expected \(32,\)"),
        (ValueError, (x, w.to("meta"), b, recipe), r"weight is on meta and x on .*move it"),
        (ValueError, (x[0, 0], w, b, recipe), r"x has shape \(\)"),
    ]
    for error, arguments, text in cases:
        with pytest.raises(error, match=text):
            mxt.linear(*arguments)


def test_folded_products_need_hopper(device: str) -> None:
    if device == "cuda" and torch.cuda.get_device_capability() == (9, 0):
        pytest.skip("this is Hopper")
    x, w, b, _ = data(16, 32, 64)
    with pytest.raises(RuntimeError, match="folded"):
        mxt.linear(x, w, b, mxt.mxfp8(precision="folded"))
