# tests/python/jax_programs/test_dot.py: mxkern.jax.dot beside the composition of the same products,
# how good it is, and what it refuses.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mxkern
from support import available, mostly_slow, refused

if not available("jax"):
    pytest.skip("jax is not installed", allow_module_level=True)

import jax
import jax.numpy as jnp

if jax.default_backend() != "cpu":
    pytest.skip("JAX runs on a GPU here", allow_module_level=True)

from jax_composition import RECIPES, SEED, STEP, Case, check, composed, differentiated

import mxkern.jax
from mxkern.jax import Operand, Recipe, dot, mx, mxfp4, mxfp8, nvfp4

# x's dtype, w's, leading dimensions, K. 17 rows fill no transform; 40 fill no block.
SHAPES = {
    "ragged": ("bfloat16", "float32", (17,), 40),
    "batch": ("float16", "float16", (2, 16), 64),
    "token": ("float32", "bfloat16", (), 33),
    "none": ("bfloat16", "bfloat16", (0,), 40),
    "one row each": ("float32", "float32", (3, 1), 16),
}


@pytest.mark.parametrize("shape", mostly_slow(SHAPES, "ragged"))
@pytest.mark.parametrize("name", mostly_slow(RECIPES, "mxfp8", "nvfp4", "dequantized"))
def test_equals_the_composition(name: str, shape: str) -> None:
    dtype, weight_dtype, leading, features = SHAPES[shape]
    case = Case(*leading, features=features, dtype=dtype, weight_dtype=weight_dtype)
    got = jax.jit(lambda *arrays: differentiated(RECIPES[name], *arrays))(*case.arrays)
    check(got, composed(case, RECIPES[name]), f"{name}, {shape}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nvfp4", "mxfp4", "mxfp8"])
def test_every_count_of_rows(name: str) -> None:
    for rows in range(34):
        case = Case(rows, seed=rows)
        got = jax.jit(lambda *arrays: differentiated(RECIPES[name], *arrays))(*case.arrays)
        check(got, composed(case, RECIPES[name]), f"{name}, {rows} rows")


def test_without_a_program_and_without_a_bias() -> None:
    case = Case(20)
    for name in ("nvfp4", "all plain"):
        recipe = RECIPES[name]
        check(differentiated(recipe, *case.arrays), composed(case, recipe), name)
        bare = dot(case.x, case.w, recipe, seed=SEED, step=STEP)  # of NumPy's arrays
        want = dot(jnp.asarray(case.x), case.w, recipe, bias=jnp.zeros(24))
        assert isinstance(bare, jax.Array) and (bare == want).all(), name
        static = jax.jit(dot, static_argnames=("recipe", "seed"))
        assert (static(case.x, case.w, recipe=recipe, seed=2) == want).all(), name


# y, dx and dw in dB, of normal bfloat16 elements.
BARS = {
    "mxfp8": (27, 27, 27),
    "hybrid": (27, 24, 24),
    "nvfp4": (15, 14, 14),
    "mxfp4": (15, 13.5, 13.5),
    "mxfp6_e2m3": (27, 27, 27),
    "mxfp6_e3m2": (22, 22, 22),
    "mxint8": (38, 38, 38),
    "no wgrad": (15, 14, 34),
    "no dgrad": (15, 34, 14),
    "no forward": (34, 14, 14),
}


@pytest.mark.parametrize("name", mostly_slow(BARS, "nvfp4"))
def test_how_near_it_is(name: str) -> None:
    case = Case(128, outputs=256, features=192, dtype="bfloat16", octaves=0)
    x, w, b, g = (np.asarray(each).astype(np.float64) for each in case.arrays)
    got = differentiated(RECIPES[name], *case.arrays)
    wanted = {"y": x @ w.T + b, "dx": g @ w, "dw": g.T @ x, "db": g.sum(0)}
    for key, bar in zip(wanted, (*BARS[name], 40), strict=True):
        error = np.linalg.norm(np.asarray(got[key]).astype(np.float64) - wanted[key])
        decibels = 20 * np.log10(np.linalg.norm(wanted[key]) / error)
        assert decibels >= bar, f"{name}: {key} has {decibels:.1f} dB"


def _kept(recipe: Recipe, case: Case, *names: str) -> list[tuple[Any, Any]]:
    """Dtypes and shapes of the arrays that wait for the backward pass."""
    given = dict(zip(("x", "w", "bias"), case.arrays, strict=False))

    def function(changing: dict[str, Any]) -> Any:
        arrays = {**given, **changing}
        return dot(arrays["x"], arrays["w"], recipe, bias=arrays["bias"], seed=1)

    _, back = jax.vjp(function, {name: given[name] for name in names})
    return sorted((str(leaf.dtype), leaf.shape) for leaf in jax.tree_util.tree_leaves(back))


def test_what_is_kept() -> None:
    case = Case(64, outputs=32, features=128, dtype="bfloat16")
    of_x = [("float8_e4m3fn", (128, 64)), ("float8_e8m0fnu", (128, 2))]
    of_w = [("float8_e4m3fn", (128, 32)), ("float8_e8m0fnu", (128, 1))]
    rows_of_w = [("float8_e4m3fn", (32, 128)), ("float8_e8m0fnu", (32, 4))]
    rows_of_x = [("float8_e4m3fn", (64, 128)), ("float8_e8m0fnu", (64, 4))]
    x, w = [("bfloat16", (64, 128))], [("bfloat16", (32, 128))]
    for recipe, of_both in {
        mxfp8(): (of_x, of_w),
        mxfp8(save="plain"): (x, of_w),
        mxfp8(save_weight="requantize"): (of_x, w),
        mxfp8(wgrad="plain"): (x, of_w),
        mxfp8(dgrad="plain"): (of_x, w),
        mxfp8(backward="plain"): (x, w),
        mxfp8(backward="dequantized"): (rows_of_x, rows_of_w),
    }.items():
        for_w, for_x = of_both
        assert _kept(recipe, case, "x", "w", "bias") == sorted(for_w + for_x), recipe
        assert _kept(recipe, case, "x") == for_x, recipe
        assert _kept(recipe, case, "w") == for_w, recipe
        assert _kept(recipe, case, "bias") == [], recipe
    packed = [("float32", ()), ("float8_e4m3fn", (128, 4)), ("uint32", (2,)), ("uint8", (128, 32))]
    assert _kept(nvfp4(), case, "w") == packed


def test_what_is_called() -> None:
    """One read of each array; nothing for what is not differentiated."""
    case = Case(64, outputs=32, features=64, dtype="bfloat16")
    x, w, b, g = case.arrays

    def calls(function: Callable[..., Any], *arrays: Any) -> list[str]:
        lines = str(jax.make_jaxpr(function)(*arrays)).split("target_name=mxkern_")[1:]
        return sorted(line.split()[0] for line in lines)

    assert calls(lambda x, w: dot(x, w, nvfp4()), x, w) == ["gemm", "quantize", "quantize"]
    of_x = jax.grad(lambda x: dot(x, w, nvfp4(), bias=b).astype("float32").sum())
    assert calls(of_x, x) == ["gemm", "gemm", "quantize", "quantize", "quantize_both"]
    both = calls(lambda *arrays: differentiated(nvfp4(), *arrays), x, w, b, g)
    assert both == ["gemm"] * 3 + ["quantize_both"] * 3
    plain = calls(lambda *arrays: differentiated(RECIPES["all plain"], *arrays), x, w, b, g)
    assert plain == []


def test_recipes_are_here() -> None:
    assert set(mxkern.jax.__all__) <= set(dir(mxkern.jax))
    assert mx("mxfp8_e4m3") == mxfp8() and isinstance(mxfp4().input, Operand)
    with pytest.raises(AttributeError, match="has no attribute 'linea'"):
        mxkern.jax.linea  # noqa: B018


X, W = jnp.ones((4, 64)), jnp.ones((8, 64))
FOLDED = mxfp8(precision="folded")
REFUSED: list[tuple[type[Exception], Callable[[], Any], str]] = [
    (TypeError, lambda: dot(X, W, "mxfp8"), "dot: recipe is 'mxfp8'; expected a Recipe"),
    (
        TypeError,
        lambda: dot(X, W, None),
        "recipe is None; expected a Recipe, as mxkern",
    ),
    (TypeError, lambda: dot([1.0], W, mxfp8()), "dot: x is a list; expected a JAX or NumPy array"),
    (
        TypeError,
        lambda: dot(X, mxkern.quantize(W, "mxfp8"), mxfp8()),
        "w is BlockScaled mxfp8",
    ),
    (TypeError, lambda: dot(X.astype(int), W, mxfp8()), "x has dtype int32; expected float32"),
    (TypeError, lambda: dot(np.ones((4, 64)), W, mxfp8()), "x has dtype float64; expected"),
    (TypeError, lambda: dot(X, W, mxfp8(), bias=np.ones(8)), "bias has dtype float64; expected"),
    (ValueError, lambda: dot(X, W.T, mxfp8()), "x has shape (4, 64) and w (64, 8); expected"),
    (ValueError, lambda: dot(W.T, W, mxfp8()), "expected [..., K] and [N, K]; pass w.T"),
    (ValueError, lambda: dot(X[0, 0], W, mxfp8()), "x has shape () and w (8, 64); expected"),
    (ValueError, lambda: dot(X, W[None], mxfp8()), "x has shape (4, 64) and w (1, 8, 64)"),
    (ValueError, lambda: dot(X, W, mxfp8(), bias=X[0]), "bias has shape (64,); expected (8,)"),
    (ValueError, lambda: dot(X, W, mxfp8(), seed=-1), "dot: seed is -1; expected 0 <= seed"),
    (TypeError, lambda: dot(X, W, mxfp8(), seed=jax.random.key(0)), "or a key, as step"),
    (TypeError, lambda: jax.jit(lambda s: dot(X, W, mxfp8(), seed=s))(1), "dot: seed is a jax"),
    (TypeError, lambda: dot(X, W, nvfp4(), step=1.0), "dot: step is 1.0; expected an int"),
    (ValueError, lambda: dot(X, W, nvfp4(), step=-1), "dot: step is -1; expected 0 <= step"),
    (TypeError, lambda: dot(X, W, nvfp4(), step=X), "step is an array of float32 of shape (4, 64)"),
    (TypeError, lambda: dot(X, W, mxfp8(), step=X[0]), "an array of one element of int64, uint64"),
    (RuntimeError, lambda: dot(X, W, FOLDED), "precision is folded, and the CPU's products are"),
]


@pytest.mark.parametrize(("kind", "call", "message"), REFUSED)
def test_errors(kind: type[Exception], call: Callable[[], Any], message: str) -> None:
    refused(kind, call, message)
