# tests/python/pytorch/layers/test_grouped_linear.py: the layers of experts against a loop of
# linear.
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from grouped_cases import (  # noqa: E402
    ENDS,
    LOOPED,
    SWITCHES,
    K,
    N,
    ends_of,
    grouped_data,
    looped,
    rounded_to_nearest,
)
from layer_cases import assert_equal, decibels, gradients, normal  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import mxkern  # noqa: E402
import mxkern.torch as mxt  # noqa: E402
from support import mostly_slow, refused  # noqa: E402


def check_loop(
    recipe: Any, ends: Any, tokens: int, dtype: Any, weight_dtype: Any, turned: bool
) -> None:
    x, w, b, g = grouped_data(ends, tokens, dtype, weight_dtype)
    lies = w.detach().mT.contiguous().mT.requires_grad_() if turned else w
    y = mxt.grouped_linear(x, lies, ends_of(*ends), recipe, b)
    wanted = looped(x, w, ends, recipe, b)
    dx, dw, db = gradients(y, (x, lies, b), g)
    wanted_dx, wanted_dw, wanted_db = gradients(wanted, (x, w, b), g)
    assert dw.is_contiguous() != turned, "as the weight lies"
    assert_equal([db], [wanted_db])
    if turned and dtype == torch.float32:  # where BLAS adds in another order
        for got, want in ((y, wanted), (dx, wanted_dx), (dw, wanted_dw)):
            torch.testing.assert_close(got, want)
    else:
        assert_equal((y, dx, dw), (wanted, wanted_dx, wanted_dw))
    assert not y[ends[-1] :].any() and not dx[ends[-1] :].any()


@pytest.mark.parametrize("name", LOOPED)
def test_a_loop_of_linear(name: str) -> None:
    for turned in (False, True):
        check_loop(LOOPED[name], ENDS, 77, torch.bfloat16, None, turned)


@pytest.mark.parametrize("switch", mostly_slow(SWITCHES, "dequantized", "requantize"))
@pytest.mark.parametrize("name", mostly_slow(LOOPED, "nvfp4"))
def test_switches(name: str, switch: str) -> None:
    recipe = LOOPED[name].with_(**SWITCHES[switch])
    for turned in (False, True):
        check_loop(recipe, ENDS, 77, torch.bfloat16, None, turned)
        check_loop(recipe, ENDS, 77, torch.float32, torch.bfloat16, turned)
    check_loop(recipe, ENDS, 77, torch.float16, torch.float32, False)


@pytest.mark.parametrize(
    "ends",
    [(77,), (0,), (1, 2, 3, 4, 5), (0, 0, 77), (32, 64, 64, 77), (31, 64, 65, 76), (0, 0, 0), ()],
)
def test_ends_anywhere(ends: tuple[int, ...]) -> None:
    if not ends:
        with pytest.raises(ValueError, match=r"weight has shape \(0, 2, 3\); expected \[G, N, K\]"):
            mxt.grouped_linear(torch.ones(4, 3), torch.ones(0, 2, 3), ends_of())
        return
    for recipe in (LOOPED["nvfp4"], LOOPED["mxfp4 hadamard 128"], None):
        check_loop(recipe, ends, 77, torch.bfloat16, None, False)


@pytest.mark.parametrize("tokens", [0, 1, 5, 33])
def test_few_tokens(tokens: int) -> None:
    for recipe in (LOOPED["mxfp8"], LOOPED["nvfp4"], None):
        check_loop(recipe, (0, tokens // 2, tokens), tokens, torch.bfloat16, None, False)


BARS = {
    "mxfp8": (mxt.mxfp8(), (27, 27, 27, 40)),
    "hybrid": (mxt.mxfp8("hybrid"), (27, 24, 24, 40)),
    "nvfp4": (mxt.nvfp4(), (15, 14, 14, 40)),
    "mxfp4": (mxt.mxfp4(), (15, 13.5, 13.5, 40)),
}


@pytest.mark.parametrize("name", mostly_slow(BARS, "mxfp8", "nvfp4"))
def test_error(name: str) -> None:
    recipe, bars = BARS[name]
    ends = (100, 100, 300, 511)
    x, w, b = normal(512, 256, seed=1), normal(4, 192, 256, seed=2), normal(4, 192, seed=3)
    g = normal(512, 192, seed=4, grad=False)
    exact = [t.detach().double().requires_grad_() for t in (x, w, b)]
    y = mxt.grouped_linear(x, w, ends_of(*ends), recipe, b, seed=7)
    wanted = exact_loop(*exact, ends)
    got = (y, *gradients(y, (x, w, b), g))
    want = (wanted, *gradients(wanted, exact, g.double()))
    for bar, ours, theirs in zip(bars, got, want, strict=True):
        assert decibels(theirs, ours) >= bar, (name, decibels(theirs, ours), bar)


def exact_loop(x: Any, w: Any, b: Any, ends: Any) -> Any:
    parts, begin = [], 0
    for group, end in enumerate(ends):
        parts.append(x[begin:end] @ w[group].t() + b[group])
        begin = end
    return torch.cat([*parts, x.new_zeros(len(x) - begin, w.shape[1])])


def test_tensor_scales_of_nvfp4() -> None:
    """One for each expert's weight, one for all tokens that have an expert, and for the columns of
    these after the transform."""
    recipe = rounded_to_nearest(mxt.nvfp4())
    ends, tokens = (40, 64), 70
    x, g = normal(tokens, K, grad=False), normal(tokens, N, seed=3, grad=False)
    x[64:], g[64:] = 1e4, -1e4
    w = (normal(2, N, K, seed=1, grad=False) * torch.tensor([1.0, 100.0])[:, None, None]).bfloat16()
    ours = x.clone().requires_grad_(), w.clone().requires_grad_()
    y = mxt.grouped_linear(ours[0], ours[1], ends_of(*ends), recipe)
    dx, dw = gradients(y, ours, g)

    def filled(values: Any) -> Any:
        zeros = values.new_zeros(24, values.shape[1])
        return torch.cat([values[:40], zeros, values[40:64], zeros[:8]])

    transform = {"hadamard": 16, "scheme": "nvfp4"}
    sides = [mxkern.quantize_columns(filled(v), **transform) for v in (g, x)]
    for group, (begin, end) in enumerate(((0, 40), (40, 64))):
        x_rows, g_rows = (
            mxkern.quantize(v[begin:end], "nvfp4", amax=mxkern.tensor_amax(v[:64])) for v in (x, g)
        )
        w_rows, w_columns = mxkern.quantize_both(w[group], "nvfp4", block="16x16")
        assert torch.equal(y[begin:end], mxkern.gemm(x_rows, w_rows, dtype="bfloat16"))
        assert torch.equal(dx[begin:end], mxkern.gemm(g_rows, w_columns, dtype="bfloat16"))
    wanted = mxkern.grouped_gemm(*sides, ends_of(64, 96), dtype="bfloat16")
    assert torch.equal(dw, wanted)
    assert not y[64:].any() and not dx[64:].any()


@pytest.mark.parametrize("recipe", [mxt.mxfp8(), mxt.nvfp4(), None], ids=["mxfp8", "nvfp4", "none"])
def test_what_lies_behind_is_not_read(recipe: Any) -> None:
    x, w, b, g = grouped_data(ENDS)
    ends, got = ends_of(*ENDS), []
    for rest in (0.0, float("nan")):
        xs, gs = x.detach().clone(), g.clone()
        xs[ENDS[-1] :], gs[ENDS[-1] :] = rest, rest
        xs.requires_grad_()
        y = mxt.grouped_linear(xs, w, ends, recipe, b)
        got.append((y, *gradients(y, (xs, w, b), gs)))
    assert_equal(*got)
    assert all(bool(t.isfinite().all()) for t in got[0])


def test_random_bits() -> None:
    x, w, b, g = grouped_data(ENDS)

    def drawn(seed: int, step: Any) -> Any:
        y = mxt.grouped_linear(x, w, ends_of(*ENDS), mxt.mxfp4(), b, seed=seed, step=step)
        return gradients(y, (x, w), g)

    first = drawn(1, 2)
    assert_equal(drawn(1, torch.tensor(2)), first)
    for other in (drawn(1, 3), drawn(2, 2)):
        assert all(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...]]]:
    """Which functions quantize, and the shapes of what they are given."""
    calls: list[tuple[str, tuple[int, ...]]] = []

    def watch(name: str, own: Any) -> None:
        def watched(x: Any, *rest: Any, **options: Any) -> Any:
            calls.append((name, tuple(x.shape)))
            return own(x, *rest, **options)

        monkeypatch.setattr(mxkern.functions, name, watched)

    for name in ("quantize", "quantize_columns", "quantize_both"):
        watch(name, getattr(mxkern, name))
    return calls


def test_what_is_quantized(called: list[Any]) -> None:
    x, w, b, g = grouped_data(ENDS)
    ends, recipe = ends_of(*ENDS), mxt.mxfp8()
    filled, weight = ("quantize_columns", (192, K)), ("quantize_both", (4, N, K))
    gradients(mxt.grouped_linear(x, w, ends, recipe, b), (x, w, b), g)
    rows = [("quantize", (77, K)), ("quantize", (77, N))]
    assert called == [rows[0], weight, filled, rows[1], ("quantize_columns", (192, N))]
    called.clear()
    gradients(mxt.grouped_linear(x.detach(), w, ends, recipe, b), (w,), g)
    assert called == [rows[0], ("quantize", (4, N, K)), filled, ("quantize_columns", (192, N))]
    called.clear()
    gradients(mxt.grouped_linear(x, w.detach(), ends, recipe, b), (x,), g)
    assert called == [rows[0], weight, rows[1]]
    called.clear()
    with torch.no_grad():
        mxt.grouped_linear(x, w, ends, recipe, b)
    assert called == [rows[0], ("quantize", (4, N, K))]


def test_what_is_saved() -> None:
    x, w, b, _ = grouped_data(ENDS)
    saved: list[Any] = []

    def pack(tensor: Any) -> Any:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        mxt.grouped_linear(x, w, ends_of(*ENDS), mxt.mxfp8(), b)
    shapes = [(4, K, N), (4, K, 1), (K, 192), (K, 6), (4,)]
    assert [tuple(t.shape) for t in saved] == shapes
    assert {t.dtype for t in saved[:-1]} == {torch.float8_e4m3fn, torch.float8_e8m0fnu}


def test_flops() -> None:
    x, w, b, g = grouped_data(ENDS)
    for recipe in (mxt.mxfp8(), None):
        with FlopCounterMode(display=False) as counter:
            gradients(mxt.grouped_linear(x, w, ends_of(*ENDS), recipe, b), (x, w, b), g)
        dw = 192 if recipe else 77
        assert counter.get_total_flops() == 2 * N * K * (77 + 77 + dw)


def test_amax_of_several_ranks(tmp_path: Path) -> None:
    """Alone in its group a rank has the amax that it has without."""
    x, w, b, g = grouped_data(ENDS)
    recipe = rounded_to_nearest(mxt.nvfp4())

    def run() -> tuple[Any, ...]:
        y = mxt.grouped_linear(x, w, ends_of(*ENDS), recipe, b)
        return (y, *gradients(y, (x, w, b), g))

    wanted = run()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1
    )
    try:
        with mxt.autocast(recipe, amax_group=torch.distributed.group.WORLD):
            assert_equal(run(), wanted)
    finally:
        torch.distributed.destroy_process_group()


def test_main_grad() -> None:
    x, w, b, g = grouped_data(ENDS)
    for recipe in (mxt.mxfp8(), mxt.mxfp8(wgrad="plain"), None):
        (dw,) = gradients(mxt.grouped_linear(x, w.float(), ends_of(*ENDS), recipe, b), (w,), g)
        weight = w.detach().float().requires_grad_()
        weight.main_grad = torch.ones_like(weight)
        y = mxt.grouped_linear(x, weight, ends_of(*ENDS), recipe, b)
        y.backward(g)
        assert weight.grad is None
        torch.testing.assert_close(weight.main_grad - 1, dw.float(), rtol=0.01, atol=0.01)


def test_autocast() -> None:
    x, w, b, _ = grouped_data(ENDS)
    ends = ends_of(*ENDS)
    quantized = mxt.grouped_linear(x, w, ends, mxt.mxfp8(), b)
    with mxt.autocast(mxt.mxfp8()):
        assert torch.equal(mxt.grouped_linear(x, w, ends, mxt.mxfp4(), b), quantized)
    with mxt.autocast(enabled=False):
        plain = mxt.grouped_linear(x, w, ends, mxt.mxfp8(), b)
    assert torch.equal(plain, mxt.grouped_linear(x, w, ends, None, b))
    with torch.autocast("cpu", torch.bfloat16):
        assert mxt.grouped_linear(x.float(), w, ends, mxt.mxfp8()).dtype == torch.bfloat16


COMPILED = {
    "mxfp8": mxt.mxfp8(),
    "nvfp4": mxt.nvfp4(),
    "dequantized": mxt.nvfp4(backward="dequantized"),
    "kept plain": mxt.mxfp4(save="plain", save_weight="requantize"),
    "plain": None,
}


@pytest.mark.parametrize("backend", mostly_slow(["eager", "aot_eager", "inductor"], "eager"))
@pytest.mark.parametrize("name", mostly_slow(COMPILED, "mxfp8"))
def test_compiled(name: str, backend: str) -> None:
    """Other ends never compile again, other numbers of tokens once."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    step = torch.tensor(3)

    def layer(x: Any, w: Any, ends: Any, b: Any) -> Any:
        return mxt.grouped_linear(x, w, ends, COMPILED[name], b, seed=5, step=step)

    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    compilations = []
    for tokens, ends in ((77, ENDS), (77, (0, 40, 41, 77)), (90, ENDS), (101, (0, 101, 101, 101))):
        x, w, b, g = grouped_data(ends, tokens)
        eager, fast = layer(x, w, ends_of(*ends), b), compiled(x, w, ends_of(*ends), b)
        assert_equal(
            (fast, *gradients(fast, (x, w, b), g)), (eager, *gradients(eager, (x, w, b), g))
        )
        compilations.append(counter.frame_count)
    assert compilations == [1, 1, 2, 2]


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed(reentrant: bool) -> None:
    x, _, _, g = grouped_data(ENDS)
    module = mxt.GroupedLinear(4, K, N, dtype=torch.bfloat16, recipe=mxt.nvfp4())
    module.step.set(4)
    of = (x, *module.parameters())
    direct = module(x, ends_of(*ENDS))
    again = checkpoint(module, x, ends_of(*ENDS), use_reentrant=reentrant)
    if reentrant:
        wanted = gradients(direct, of, g)
        again.backward(g)
        assert_equal([t.grad for t in of], wanted)
    else:
        assert_equal((again, *gradients(again, of, g)), (direct, *gradients(direct, of, g)))


def test_module() -> None:
    module = mxt.GroupedLinear(4, K, N, recipe=mxt.mxfp8())
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
    assert shapes == {"weight": (4, N, K), "bias": (4, N)}
    assert all(0 < p.detach().abs().max() <= K**-0.5 for p in module.parameters())
    assert "groups=4, in_features=72, out_features=24, bias=True" in repr(module)
    x = normal(77, K, dtype=torch.float32)
    wanted = mxt.grouped_linear(x, module.weight, ends_of(*ENDS), mxt.mxfp8(), module.bias)
    assert torch.equal(module(x, ends_of(*ENDS)), wanted)
    bare = mxt.GroupedLinear(4, K, N, bias=False)
    assert bare.bias is None and bare(x, ends_of(*ENDS)).shape == (77, N)
    with pytest.raises(TypeError, match=r"GroupedLinear: recipe is 'mxfp8'"):
        mxt.GroupedLinear(4, K, N, recipe="mxfp8")  # type: ignore[arg-type]


X, W, B = torch.ones(8, 4), torch.ones(3, 5, 4), torch.ones(3, 5)
SQUARE = mxt.mxfp8().with_(input=mxt.Operand("mxfp8", block="32x32"))
BAD: list[tuple[dict[str, Any], type[Exception], list[str]]] = [
    ({"x": [1.0]}, TypeError, ["x is a list; expected a tensor"]),
    ({"x": X.int()}, TypeError, ["x has dtype int32; expected float32"]),
    ({"x": X[None]}, ValueError, ["x has shape (1, 8, 4); expected [T, 4]"]),
    ({"x": X[:, :3]}, ValueError, ["x has shape (8, 3); expected [T, 4]"]),
    ({"weight": W[0]}, ValueError, ["weight has shape (5, 4); expected [G, N, K]"]),
    ({"weight": W.to("meta")}, ValueError, ["weight is on meta and x on cpu", "weight.to("]),
    ({"bias": B[0]}, ValueError, ["bias has shape (5,); expected (3, 5)"]),
    ({"ends": [1, 2, 3]}, TypeError, ["ends is a list; expected an int32 tensor", "torch.tensor"]),
    ({"ends": ends_of(1, 2, 3).long()}, TypeError, ["ends has dtype int64", "to(torch.int32)"]),
    ({"ends": ends_of(1, 2)}, ValueError, ["ends has shape (2,); expected (3,)"]),
    ({"ends": ends_of(1, 2, 3).to("meta")}, ValueError, ["ends is on meta and x on cpu"]),
    ({"recipe": "mxfp8"}, TypeError, ["recipe is 'mxfp8'; expected a Recipe", "mxfp8()"]),
    ({"recipe": SQUARE}, ValueError, ["recipe.input.block is '32x32'", "tokens of two experts"]),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[2][0])
def test_bad_arguments(case: tuple[dict[str, Any], type[Exception], list[str]]) -> None:
    changes, kind, parts = case
    given = {"x": X, "weight": W, "ends": ends_of(1, 2, 8), "recipe": mxt.mxfp8()} | changes
    refused(kind, lambda: mxt.grouped_linear(**given), "grouped_linear: ", *parts)


@pytest.mark.parametrize("recipe", [mxt.mxfp8(), None], ids=["mxfp8", "none"])
@pytest.mark.parametrize("ends", [(1, 9, 9), (3, 2, 8), (-1, 2, 8)])
def test_ends_outside(ends: tuple[int, ...], recipe: Any) -> None:
    with pytest.raises(ValueError, match=r"ends\[\d\] is"):
        mxt.grouped_linear(X, W, ends_of(*ends), recipe)
