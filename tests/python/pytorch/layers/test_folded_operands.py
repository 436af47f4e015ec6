# tests/python/pytorch/layers/test_folded_operands.py: where all products of a layer are folded, its
# operands are made so in one call, and nothing else changes.
from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import assert_equal, composed, data, gradients  # noqa: E402

import mxkern  # noqa: E402
import mxkern.torch as mxt  # noqa: E402
from mxkern.ops.linear_forward import linear_forward  # noqa: E402
from mxkern.ops.prepare_both import PreparedBoth  # noqa: E402
from mxkern.torch.layers import linear_function, local_linear  # noqa: E402
from mxkern.torch.recipes import operand_calls  # noqa: E402

RECIPES = {
    "mxfp8": (mxt.mxfp8(), 3),
    "floor": (mxt.mxfp8(scale_rule="floor"), 3),
    "hybrid": (mxt.mxfp8("hybrid"), 2),
    "32x32": (mxt.mxfp8(weight_block="32x32"), 2),
    "save plain": (mxt.mxfp8(save="plain"), 2),
    "requantize": (mxt.mxfp8(save_weight="requantize"), 2),
    "exact": (mxt.mxfp8(precision="exact"), 0),
    "wgrad plain": (mxt.mxfp8(wgrad="plain"), 1),
    "mxfp4": (mxt.mx("mxfp4"), 0),
}
by_recipe = pytest.mark.parametrize("name", RECIPES)
on_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="there is no GPU whose products are folded",
)


def _step(recipe: Any, x: Any, w: Any, b: Any, g: Any) -> tuple[Any, ...]:
    y = mxt.linear(x, w, b, recipe)
    return y, *gradients(y, (x, w, b), g)


def _watched(monkeypatch: pytest.MonkeyPatch, prepare_both: Any) -> list[Any]:
    """The shapes of what prepare_both is called with, and of what a forward in one call folds."""
    seen: list[Any] = []

    def watched(x: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(tuple(x.shape))
        return prepare_both(x, *arguments, **options)

    def forward(x: Any, weight: Any, *others: Any) -> Any:
        folded = others[-2:]
        seen.extend(tuple(t.shape) for t, folds in zip((x, weight), folded, strict=True) if folds)
        return linear_forward(x, weight, *others)

    monkeypatch.setattr(mxkern.functions, "prepare_both", watched)
    monkeypatch.setattr(linear_function, "linear_forward", forward)
    return seen


def _packed(q: Any) -> Any:
    """Stands for a folded operand where no product is folded: codes and scales in one tensor."""
    parts = [part.reshape(-1).view(torch.uint8) for part in q.parts[:2]]
    return mxkern.PreparedOperand("folded", torch.cat(parts), None, q.scheme, q.shape)


def _unpacked(operand: Any) -> Any:
    if not isinstance(operand, mxkern.PreparedOperand):
        return operand
    rows, columns = operand.shape
    scheme, count = mxkern.schemes[operand.scheme], rows * columns
    codes = operand.data[:count].reshape(operand.shape)
    scales = operand.data[count:].reshape(rows, -1)
    return mxkern.BlockScaled(
        codes.view(getattr(torch, scheme.codes_dtype)),
        scales.view(getattr(torch, scheme.scales_dtype)),
        None,
        operand.scheme,
        operand.shape,
        "row_major",
    )


@by_recipe
def test_what_is_made_and_saved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU that folds, as it were."""
    recipe, calls = RECIPES[name]
    arguments = data(40, 64, 96)
    wanted = _step(recipe, *arguments)
    gemm, asked = mxkern.functions.gemm, operand_calls.prepares_both

    class OnHopper:
        def __init__(self, x: Any) -> None:
            self.device, self.dtype, self.numel = torch.device("cuda", 0), x.dtype, x.numel

    def both(x: Any, scheme: str, *, scale_rule: str) -> Any:
        return PreparedBoth(
            *map(_packed, mxkern.quantize_both(x, scheme, scale_rule=scale_rule)), None, None
        )

    def product(left: Any, right: Any, **options: Any) -> Any:
        assert recipe.precision != "exact" or isinstance(left, mxkern.BlockScaled)
        return gemm(_unpacked(left), _unpacked(right), **options)

    monkeypatch.setattr(operand_calls, "_device_folds", lambda index: True)
    monkeypatch.setattr(local_linear, "dispatch_modes", lambda: 1)  # not in one call
    monkeypatch.setattr(
        operand_calls, "prepares_both", lambda x, *others: asked(OnHopper(x), *others)
    )
    monkeypatch.setattr(mxkern.functions, "gemm", product)
    seen = _watched(monkeypatch, both)
    assert_equal(_step(recipe, *arguments), wanted)
    assert len(seen) == calls, seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_not_on_a_cpu(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _watched(monkeypatch, mxkern.functions.prepare_both)
    _step(mxt.mxfp8(), *data(40, 64, 96, dtype))
    assert not seen


def test_shards_are_quantized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their codes and scales are what other ranks get: operand_pair is not for them."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("operand_pair")

    class StoppedError(Exception):
        pass

    def stop(*_: Any) -> Any:
        raise StoppedError

    monkeypatch.setattr(linear_function, "operand_pair", refuse)
    monkeypatch.setattr(linear_function, "sent", stop)
    x, w, _, _ = data(32, 64, 96)
    facts = linear_function.Facts(mxt.mxfp8(), 0, 0, torch.bfloat16, shards=object())
    monkeypatch.setattr(linear_function, "_all_groups", lambda group, shards: None)
    with pytest.raises(StoppedError):
        linear_function.LinearFunction.apply(x, w, None, None, facts)


@on_hopper
@by_recipe
@pytest.mark.parametrize("shape", [(40, 64, 96), (256, 384, 512), (33, 50, 17)], ids=str)
def test_bytes_on_hopper(name: str, shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, calls = RECIPES[name]
    seen = _watched(monkeypatch, mxkern.functions.prepare_both)
    torch.set_default_device("cuda")
    try:
        x, w, b, g = data(*shape)
        assert_equal(_step(recipe, x, w, b, g), composed(x, w, b, g, recipe, 0, 0))
    finally:
        torch.set_default_device(None)
    assert len(seen) == calls, seen


@on_hopper
def test_saved_bytes_on_hopper() -> None:
    torch.set_default_device("cuda")
    try:
        x, w, _, _ = data(1024, 512, 512)
    finally:
        torch.set_default_device(None)
    saved: list[Any] = []

    def pack(tensor: Any) -> Any:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        mxt.linear(x, w, None, mxt.mxfp8())
    assert [part.dtype for part in saved] == [torch.uint8] * 2
    for part, of in zip(saved, (w, x), strict=True):
        assert part.numel() / of.numel() == pytest.approx(1, abs=0.011)  # 5 bytes a column beside
