# tests/python/pytorch/operators/test_own_schemes.py: schemes and formats of the user's own in
# PyTorch: gradients that go straight through, compiled code, and layers of recipes.
from __future__ import annotations

import pytest

import mxkern

torch = pytest.importorskip("torch")
mt = pytest.importorskip("mxkern.torch")


def test_gradients_go_straight_through() -> None:
    x = torch.randn(6, 64, requires_grad=True)
    for made, want in (
        (mt.fake_quantize(x, "e3m4b16"), mxkern.fake_quantize(x.detach(), "e3m4b16")),
        (
            mt.fake_quantize(x, "mxfp4", rounding="up"),
            mxkern.fake_quantize(x.detach(), "mxfp4", rounding="up"),
        ),
        (
            mt.round_to(x, "e5m2", rounding="toward_zero"),
            mxkern.round_to(x.detach(), "e5m2", rounding="toward_zero"),
        ),
    ):
        assert torch.equal(made.detach(), want)
        weight = torch.randn_like(made)
        (gradient,) = torch.autograd.grad((made * weight).sum(), x)
        assert torch.equal(gradient, weight)
    with pytest.raises(ValueError, match="the operator for schemes of your own takes none"):
        mt.fake_quantize(x, "e3m4b16", scales=torch.zeros(6, 4, dtype=torch.uint8))


def test_compiled() -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        return mt.fake_quantize(x * 2, "int4b16:ue4m3") + mt.round_to(x, "e4m3")

    x = torch.randn(4, 64)
    compiled = torch.compile(both, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), both(x))


@pytest.mark.parametrize("scheme", ["e3m4b32", "int8b16:ue4m3", "e4m3b128:float32"])
def test_layer(scheme: str) -> None:
    operand = mt.Operand(scheme)
    recipe = mt.Recipe(operand, operand, operand)
    x = torch.randn(32, 128, requires_grad=True)
    w = torch.randn(48, 128, requires_grad=True)
    y = mt.linear(x, w, recipe=recipe)
    gradient = torch.randn_like(y)
    y.backward(gradient)
    fake = mxkern.fake_quantize
    rows = fake(x.detach(), scheme), fake(w.detach(), scheme), fake(gradient, scheme)
    down = [fake(each, scheme, axis=0) for each in (x.detach(), w.detach(), gradient)]
    close = {"rtol": 1e-4, "atol": 1e-3}
    torch.testing.assert_close(y.detach(), rows[0] @ rows[1].T, **close)
    torch.testing.assert_close(x.grad, rows[2] @ down[1], **close)
    torch.testing.assert_close(w.grad, down[2].T @ down[0], **close)


def test_model() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    mt.quantize_(model, mt.Training(mt.mx("e3m2b16")))
    y = model(torch.randn(4, 64))
    y.sum().backward()
    assert y.shape == (4, 32)
