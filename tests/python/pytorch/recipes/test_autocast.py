# tests/python/pytorch/recipes/test_autocast.py: which recipe counts, and recomputation with it.
from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import RECIPES, assert_equal, data, gradients  # noqa: E402
from torch.utils.checkpoint import (  # noqa: E402
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import mxkern.torch as mxt  # noqa: E402


def test_the_innermost_counts() -> None:
    x, w, b, _ = data(32, 32, 64)
    layer = mxt.linear
    fp8, fp4 = (layer(x, w, b, RECIPES[name]) for name in ("mxfp8", "mxfp4"))
    plain = layer(x, w, b)
    assert not torch.equal(fp8, fp4)
    assert mxt.current_recipe() is None
    with mxt.autocast(mxt.mxfp8()):
        assert mxt.current_recipe() == mxt.mxfp8()
        assert torch.equal(layer(x, w, b), fp8)
        assert torch.equal(layer(x, w, b, mxt.mxfp4()), fp8)
        with mxt.autocast(mxt.mxfp4()):
            assert torch.equal(layer(x, w, b), fp4)
        with mxt.autocast(enabled=False):
            assert mxt.current_recipe() is None
            assert torch.equal(layer(x, w, b, mxt.mxfp8()), plain)
        assert torch.equal(layer(x, w, b), fp8)
    assert torch.equal(layer(x, w, b), plain)
    with mxt.autocast():
        assert mxt.current_recipe() == mxt.mxfp8()


def test_exceptions_and_reuse() -> None:
    context = mxt.autocast(mxt.mxfp8())
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), context:
            raise ZeroDivisionError
        assert mxt.current_recipe() is None
    with context:
        with pytest.raises(RuntimeError, match=r"active already.*make another"), context:
            pass
        assert mxt.current_recipe() == mxt.mxfp8()
    assert mxt.current_recipe() is None


def test_refusals() -> None:
    with pytest.raises(TypeError, match=r"recipe is 'nvfp4'; expected a Recipe.*nvfp4\(\)"):
        mxt.autocast("nvfp4")  # type: ignore[arg-type]
    if not torch.cuda.is_available():
        with (
            pytest.raises(RuntimeError, match=r"does not run here: .*Hopper"),
            mxt.autocast(mxt.mxfp8(precision="folded")),
        ):
            pass


def test_other_threads_do_not_see_it() -> None:
    seen: list[Any] = []
    with mxt.autocast(mxt.mxfp8()):
        thread = threading.Thread(target=lambda: seen.append(mxt.current_recipe()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_availability() -> None:
    for question in (mxt.is_mxfp8_available, mxt.is_nvfp4_available, mxt.is_mxfp4_available):
        assert question(device="cpu") is True
        assert question(return_reason=True, device="cpu") == (True, "")
    folded = mxt.mxfp8(precision="folded")
    answer, reason = mxt.is_available(folded, return_reason=True, device="cpu")
    assert answer is False and "Hopper" in reason and "fast" in reason
    answer, reason = mxt.is_available(mxt.mxfp8(), return_reason=True, device="xpu")
    assert answer is False and "xpu" in reason


def policy(ctx: Any, op: Any, *arguments: Any, **options: Any) -> Any:
    products = op in (torch.ops.mxkern.gemm.default,)
    seen.append(op)
    return CheckpointPolicy.MUST_SAVE if products else CheckpointPolicy.PREFER_RECOMPUTE


seen: list[Any] = []
WAYS = {
    "reentrant": {"use_reentrant": True},
    "without": {"use_reentrant": False},
    "contexts": {"use_reentrant": False, "context_fn": mxt.checkpoint_contexts},
    "selective": {
        "use_reentrant": False,
        "context_fn": lambda: create_selective_checkpoint_contexts(policy),
    },
    "products": {
        "use_reentrant": False,
        "context_fn": lambda: create_selective_checkpoint_contexts(mxt.keep_products),
    },
}


def test_what_keep_products_keeps() -> None:
    aten, own = torch.ops.aten, torch.ops.mxkern
    kept = [own.gemm.default, own.grouped_gemm.default, aten.mm.default, aten._scaled_mm.default]
    kept += [aten._scaled_dot_product_flash_attention.default, aten.addmm.default]
    again = [own.quantize_both.default, own.quantize.default, aten.gelu.default, aten.mul.Tensor]
    for op in kept:
        assert mxt.keep_products(None, op) == CheckpointPolicy.MUST_SAVE, op
    for op in again:
        assert mxt.keep_products(None, op) == CheckpointPolicy.PREFER_RECOMPUTE, op


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_recomputation(name: str, way: str) -> None:
    seen.clear()
    x, w, b, g = data(48, 32, 64)
    own = None if way == "contexts" else RECIPES[name]
    layer = mxt.Linear(64, 32, dtype=torch.bfloat16, recipe=own)
    layer.weight, layer.bias = torch.nn.Parameter(w.detach()), torch.nn.Parameter(b.detach())
    of = (x, layer.weight, layer.bias)
    with mxt.autocast(RECIPES[name]):
        y = layer(x)
        wanted = gradients(y, of, g)
        out = checkpoint(layer, x, **WAYS[way])
    assert torch.equal(out, y)
    if way == "reentrant":
        out.backward(g)
        got = tuple(t.grad for t in of)
    else:
        got = gradients(out, of, g)
    assert_equal(got, wanted)
    if way == "selective":
        assert torch.ops.mxkern.gemm.default in seen
