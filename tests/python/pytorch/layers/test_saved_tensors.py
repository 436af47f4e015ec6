# tests/python/pytorch/layers/test_saved_tensors.py: what layers save is PyTorch's to free, to move
# and to recompute.
from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import EVERY, RECIPES, assert_equal, data, gradients  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import mxkern  # noqa: E402
import mxkern.torch as mxt  # noqa: E402
from mxkern.ops.linear_forward import linear_forward  # noqa: E402
from mxkern.torch.layers import linear_function  # noqa: E402
from mxkern.torch.recipes.operand_calls import parts_of, prepares_both  # noqa: E402
from support import mostly_slow  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

recipes = pytest.mark.parametrize("name", mostly_slow(RECIPES, "mxfp8", "nvfp4"))


def layer(name: str) -> Callable[[Any, Any, Any], Any]:
    return lambda x, w, b: mxt.linear(x, w, b, EVERY[name], seed=3, step=2)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many of the tensors that quantize_both, prepare_both and a forward in one call gave are
    alive."""
    given: list[Any] = []

    def watched(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            both = function(*arguments, **options)
            given.extend(weakref.ref(part) for operand in both[:2] for part in parts_of(operand))
            return both

        return call

    def forward(*arguments: Any) -> Any:
        y, of_weight, of_x = linear_forward(*arguments)
        given.extend(weakref.ref(part) for part in of_weight + of_x)
        return y, of_weight, of_x

    monkeypatch.setattr(linear_function, "linear_forward", forward)
    monkeypatch.setattr(mxkern.functions, "quantize_both", watched(mxkern.quantize_both))
    monkeypatch.setattr(mxkern.functions, "prepare_both", watched(mxkern.prepare_both))

    def count() -> int:
        gc.collect()
        assert given
        return sum(reference() is not None for reference in given)

    return count


@recipes
def test_checkpointing_frees_what_is_quantized(name: str, alive: Callable[[], int]) -> None:
    x, w, b, g = data(64, 32, 64)  # whole blocks of the transform, so that one call makes both
    plain = layer(name)(x, w, b)
    saved = alive()
    is_folded = prepares_both(x, EVERY[name], EVERY[name].input)  # without scales of their own
    assert saved >= (2 if is_folded else 4)
    out = checkpoint(layer(name), x, w, b, use_reentrant=False)
    assert alive() == saved, "the checkpoint holds quantized tensors"
    assert torch.equal(out, plain)
    assert_equal(gradients(out, (x, w, b), g), gradients(plain, (x, w, b), g))
    del plain, out
    assert alive() == 0


@pytest.mark.parametrize("name", mostly_slow(EVERY, "nvfp4", "backward dequantized", "save plain"))
def test_what_is_saved_goes_through_memory_elsewhere(name: str) -> None:
    """As offloading does it: backward sees copies, of which nothing is shared with forward."""
    x, w, b, g = data(40, 32, 96)

    def pack(part: Any) -> tuple[Any, Any, Any]:
        flat = part.detach().reshape(-1).view(torch.uint8)
        return part.dtype, flat.cpu().numpy().copy(), part.shape

    def unpack(packed: tuple[Any, Any, Any]) -> Any:
        dtype, flat, shape = packed
        return torch.from_numpy(flat).to(x.device).view(dtype).reshape(shape)

    plain = layer(name)(x, w, b)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        out = layer(name)(x, w, b)
    assert_equal(gradients(out, (x, w, b), g), gradients(plain, (x, w, b), g))


@recipes
def test_compiled_and_recomputed(name: str) -> None:
    torch._dynamo.reset()
    x, w, b, g = data(48, 32, 64)
    wanted = gradients(layer(name)(x, w, b), (x, w, b), g)
    compiled = torch.compile(layer(name), fullgraph=True, backend="aot_eager")
    # First alone: the compiler starts a GPU that is there, which checkpointing refuses inside.
    alone = compiled(x, w, b)
    for out in (alone, checkpoint(compiled, x, w, b, use_reentrant=False)):
        assert_equal(gradients(out, (x, w, b), g), wanted)
