# tests/python/pytorch/layers/test_needs.py: a layer quantizes and saves what its gradients need,
# and no more.
from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import data, gradients, saved_by  # noqa: E402

import mxkern  # noqa: E402
import mxkern.torch as mxt  # noqa: E402
from mxkern.ops.linear_forward import linear_forward  # noqa: E402
from mxkern.torch.layers import linear_function  # noqa: E402
from mxkern.torch.recipes import operand_calls  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

M, N, K = 64, 96, 128


@pytest.fixture(autouse=True)
def as_codes_and_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Hopper too: test_folded_operands.py has what is made and saved otherwise."""
    monkeypatch.setattr(operand_calls, "prepares_both", lambda *_: False)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...]]]:
    """Which functions quantize, and the shapes of what they are given."""
    calls: list[tuple[str, tuple[int, ...]]] = []

    def watch(name: str, own: Any) -> None:
        def watched(x: Any, *rest: Any, **options: Any) -> Any:
            calls.append((name, tuple(x.shape)))
            return own(x, *rest, **options)

        monkeypatch.setattr(mxkern.functions, name, watched)

    def forward(x: Any, weight: Any, bias: Any, *rest: Any) -> Any:
        x_kept, weight_kept = rest[3:5]
        for operand, kept in ((x, x_kept), (weight, weight_kept)):
            name = "quantize_both" if kept == "columns" else "quantize"
            if isinstance(operand, torch.Tensor):
                calls.append((name, tuple(operand.shape)))
        return linear_forward(x, weight, bias, *rest)

    for name in ("quantize", "quantize_columns", "quantize_both"):
        watch(name, getattr(mxkern, name))
    monkeypatch.setattr(linear_function, "linear_forward", forward)
    return calls


def bytes_of(tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def test_all(called: list[Any]) -> None:
    x, w, b, g = data(M, N, K)
    y, saved = saved_by(lambda: mxt.linear(x, w, b, mxt.mxfp8()))
    assert called == [("quantize_both", (M, K)), ("quantize_both", (N, K))]
    assert {t.dtype for t in saved} == {torch.float8_e4m3fn, torch.float8_e8m0fnu}
    assert [tuple(t.shape) for t in saved] == [(K, N), (K, N // 32), (K, M), (K, M // 32)]
    gradients(y, (x, w, b), g)
    assert called[2:] == [("quantize_both", (M, N))]


def test_no_grad(called: list[Any]) -> None:
    x, w, b, _ = data(M, N, K)
    with torch.no_grad():
        mxt.linear(x, w, b, mxt.nvfp4())
    assert called == [("quantize", (M, K)), ("quantize", (N, K))]


def test_a_frozen_weight(called: list[Any]) -> None:
    x, w, b, g = data(M, N, K)
    w.requires_grad_(False)
    y, saved = saved_by(lambda: mxt.linear(x, w, b, mxt.mxfp8()))
    assert [tuple(t.shape) for t in saved] == [(K, N), (K, N // 32)], "nothing of x"
    gradients(y, (x, b), g)
    assert called == [("quantize", (M, K)), ("quantize_both", (N, K)), ("quantize", (M, N))]


def test_no_gradient_of_x(called: list[Any]) -> None:
    x, w, b, g = data(M, N, K)
    x.requires_grad_(False)
    y, saved = saved_by(lambda: mxt.linear(x, w, b, mxt.mxfp8()))
    assert [tuple(t.shape) for t in saved] == [(K, M), (K, M // 32)], "nothing of the weight"
    gradients(y, (w, b), g)
    assert called == [("quantize_both", (M, K)), ("quantize", (N, K)), ("quantize_columns", (M, N))]


def test_only_the_bias(called: list[Any]) -> None:
    x, w, b, g = data(M, N, K)
    x.requires_grad_(False)
    w.requires_grad_(False)
    y, saved = saved_by(lambda: mxt.linear(x, w, b, mxt.nvfp4()))
    assert saved == []
    gradients(y, b, g)
    assert called == [("quantize", (M, K)), ("quantize", (N, K))]


def test_plain_wgrad_keeps_x(called: list[Any]) -> None:
    x, w, b, _ = data(M, N, K)
    _, saved = saved_by(lambda: mxt.linear(x, w, b, mxt.mxfp8(wgrad="plain")))
    assert called == [("quantize", (M, K)), ("quantize_both", (N, K))]
    assert saved[-1].data_ptr() == x.data_ptr()


def test_requantized_weights_are_not_kept(called: list[Any]) -> None:
    x, w, b, g = data(M, N, K)
    y, saved = saved_by(lambda: mxt.linear(x, w, b, mxt.mxfp8(save_weight="requantize")))
    assert saved[0].data_ptr() == w.data_ptr() and len(saved) == 3
    gradients(y, (x, w, b), g)
    assert called[2:] == [("quantize_both", (M, N)), ("quantize_columns", (N, K))]


@pytest.mark.parametrize(
    ("recipe", "wanted"),
    [(mxt.mxfp8(), 1 + 1 / 32), (mxt.nvfp4(), 0.5625), (mxt.mxfp4(), 0.5 + 1 / 32)],
)
def test_bytes_of_an_element(recipe: Any, wanted: float) -> None:
    x, w, _, _ = data(1024, 32, 512)
    _, saved = saved_by(lambda: mxt.linear(x, w, None, recipe))
    of_x = saved[-2:] if "mx" in recipe.input.scheme else saved[3:6]
    assert of_x[0].shape[0] == 512, "columns of x"
    assert bytes_of(of_x) / x.numel() == pytest.approx(wanted, rel=2e-4)
