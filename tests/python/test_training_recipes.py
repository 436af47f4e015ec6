# tests/python/test_training_recipes.py: the autograd functions that docs/migrating.md shows leave
# what they save to PyTorch: to checkpointing, to hooks on saved tensors and to offloading.
from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import mxkern
from support import classes, mostly_slow

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.checkpoint import checkpoint  # noqa: E402

SHOWN = classes("docs/migrating.md")
RECIPES: dict[str, Callable[[Any, Any], Any]] = {
    "mxfp8_e4m3": lambda x, w: SHOWN["Product"].apply(x, w, "mxfp8_e4m3"),
    "mxfp4": lambda x, w: SHOWN["Product"].apply(x, w, "mxfp4"),
    "nvfp4": lambda x, w: SHOWN["Product"].apply(x, w, "nvfp4"),
    "NVFP4Product": lambda x, w: SHOWN["NVFP4Product"].apply(x, w, None, 3, 0),
}
recipes = pytest.mark.parametrize("name", mostly_slow(RECIPES, "NVFP4Product"))


@pytest.fixture
def operands() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return torch.randn(64, 256, requires_grad=True), torch.randn(128, 256, requires_grad=True)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many of the tensors that quantize_both gave are alive."""
    given: list[Any] = []
    quantize_both = mxkern.quantize_both

    def watched(*arguments: Any, **options: Any) -> Any:
        both = quantize_both(*arguments, **options)
        given.extend(weakref.ref(part) for q in both for part in q.parts if part is not None)
        return both

    monkeypatch.setattr(mxkern, "quantize_both", watched)

    def count() -> int:
        gc.collect()
        assert given
        return sum(reference() is not None for reference in given)

    return count


def gradients(out: Any, operands: tuple[Any, Any]) -> tuple[Any, ...]:
    upstream = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
    return torch.autograd.grad(out, operands, upstream)


@recipes
def test_checkpointing_frees_what_is_quantized(
    name: str, operands: tuple[Any, Any], alive: Callable[[], int]
) -> None:
    product = RECIPES[name]
    plain = product(*operands)
    saved = alive()
    assert saved >= 4
    out = checkpoint(product, *operands, use_reentrant=False)
    assert alive() == saved, "the checkpoint holds quantized tensors"
    assert out.equal(plain)
    wanted, got = gradients(plain, operands), gradients(out, operands)
    assert all(ours.equal(theirs) for ours, theirs in zip(got, wanted, strict=True))
    del plain, out
    assert alive() == 0


@recipes
def test_hooks_see_what_is_saved(name: str, operands: tuple[Any, Any]) -> None:
    seen: list[Any] = []

    def pack(part: Any) -> tuple[Any, Any]:
        seen.append(part)
        return part.dtype, part.reshape(-1).view(torch.uint8).numpy().copy(), part.shape

    def unpack(packed: tuple[Any, Any, Any]) -> Any:
        dtype, data, shape = packed
        return torch.from_numpy(data).view(dtype).reshape(shape)

    product = RECIPES[name]
    plain = product(*operands)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        out = product(*operands)
    scaled = "nvfp4" in name.lower()
    assert len(seen) == (6 if scaled else 4)
    assert [part.dtype for part in seen if part.dim() == 0] == [torch.float32] * (2 * scaled)
    wanted, got = gradients(plain, operands), gradients(out, operands)
    assert all(ours.equal(theirs) for ours, theirs in zip(got, wanted, strict=True))


@recipes
def test_compiled_and_checkpointed(name: str, operands: tuple[Any, Any]) -> None:
    torch._dynamo.reset()
    product = RECIPES[name]
    wanted = gradients(product(*operands), operands)
    compiled = torch.compile(product, fullgraph=True, backend="aot_eager")
    # First alone: the compiler starts a GPU that is there, which checkpointing refuses inside.
    alone = compiled(*operands)
    for out in (alone, checkpoint(compiled, *operands, use_reentrant=False)):
        got = gradients(out, operands)
        assert all(ours.equal(theirs) for ours, theirs in zip(got, wanted, strict=True))


@pytest.mark.parametrize(
    ("scheme", "shared", "own"), [("mxfp4", 0.120, 0.061), ("nvfp4", 0.097, 0.051)]
)
def test_ranks_with_seeds_of_their_own(scheme: str, shared: float, own: float) -> None:
    """What docs/numerics.md says of the mean of 8 ranks' gradients."""
    torch.manual_seed(0)
    common = torch.randn(256, 1024)
    ranks = [common + 0.3 * torch.randn(256, 1024) for _ in range(8)]
    mean = sum(ranks) / 8

    def error(seeds: list[int]) -> float:
        rounded = [
            mxkern.fake_quantize(x, scheme, rounding="stochastic", seed=seed)
            for x, seed in zip(ranks, seeds, strict=True)
        ]
        return float((sum(rounded) / 8 - mean).norm() / mean.norm())

    assert error([5] * 8) == pytest.approx(shared, rel=0.02)
    assert error(list(range(8))) == pytest.approx(own, rel=0.02)
