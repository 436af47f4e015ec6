# tests/python/jax_programs/test_dot_transforms.py: mxkern.jax.dot in loops, under vmap and
# recomputation, and the random bits that it takes.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support import NUMPY_DTYPES, array_of, available, mostly_slow, raw

if not available("jax"):
    pytest.skip("jax is not installed", allow_module_level=True)

import jax
import jax.numpy as jnp

if jax.default_backend() != "cpu":
    pytest.skip("JAX runs on a GPU here", allow_module_level=True)

from jax_composition import RECIPES, SEED, STEP, Case, check, composed, differentiated

from jax_functions import assert_same
from mxkern.jax import dot, nvfp4

recipes = pytest.mark.parametrize(
    "name", mostly_slow(["mxfp8", "nvfp4", "mxfp4", "dequantized", "saved plain"], "nvfp4")
)


def stacked(*cases: Case) -> list[Any]:
    return [jnp.stack(each) for each in zip(*(case.arrays for case in cases), strict=True)]


def element(arrays: list[Any], i: int) -> list[Any]:
    return [array[i] for array in arrays]


@recipes
def test_vmap_is_a_loop(name: str) -> None:
    recipe, steps = RECIPES[name], jnp.arange(3)
    many = stacked(*(Case(2, 9, dtype="bfloat16", seed=10 * i) for i in range(3)))

    def one(x: Any, w: Any, bias: Any, g: Any, step: Any) -> Any:
        return differentiated(recipe, x, w, bias, g, step)

    got = jax.jit(jax.vmap(one))(*many, steps)
    for i in range(3):
        want = one(*element(many, i), steps[i])
        assert_same({key: array[i] for key, array in got.items()}, want, f"{name}: {i}")


@pytest.mark.slow
def test_vmap_of_x_alone() -> None:
    """w is quantized once, and its gradient is the sum."""
    cases = [Case(16, seed=10 * i) for i in range(2)]
    x, _, _, g = stacked(*cases)
    w, b = cases[0].arrays[1:3]

    def one(x: Any, w: Any) -> Any:
        return dot(x, w, nvfp4(), bias=b, seed=SEED)

    y, back = jax.vjp(lambda x, w: jax.vmap(one, (0, None))(x, w), x, w)
    dx, dw = back(g)
    parts = [jax.vjp(one, x[i], w) for i in range(2)]
    for i, (y_one, back_one) in enumerate(parts):
        assert_same((y[i], dx[i]), (y_one, back_one(g[i])[0]), f"{i}")
    want = sum(back_one(g[i])[1] for i, (_, back_one) in enumerate(parts))
    np.testing.assert_allclose(dw, want, rtol=1e-6, atol=1e-6)


def layer(x: Any, weights: Any, step: Any, name: str) -> Any:
    """Halved, so that no sum depends on how XLA rounds it."""
    w, bias = weights
    return 0.5 * dot(x, w, RECIPES[name], bias=bias, seed=SEED, step=step)


@recipes
@pytest.mark.parametrize("recomputed", mostly_slow([False, True], "True"))
def test_scan_is_a_loop(name: str, recomputed: bool) -> None:
    cases = [Case(24, outputs=40, dtype="bfloat16", seed=10 * i, octaves=1) for i in range(3)]
    (x, *_), (_, w, bias, g) = cases[0].arrays, stacked(*cases)
    steps = jnp.arange(3) + 7
    one = jax.checkpoint(layer, static_argnums=3) if recomputed else layer

    def scanned(x: Any, weights: Any) -> Any:
        body = lambda x, each: (one(x, *each, name), None)  # noqa: E731
        return jax.lax.scan(body, x, (weights, steps))[0]

    def unrolled(x: Any, weights: Any) -> Any:
        for i in range(3):
            x = layer(x, (weights[0][i], weights[1][i]), steps[i], name)
        return x

    def run(function: Any) -> Any:
        y, back = jax.vjp(function, x, (w, bias))
        return y, back(g[0])

    got, want = jax.jit(lambda: run(scanned))(), run(unrolled)
    assert_same(got, want, name)


@pytest.mark.slow
@recipes
def test_recomputation_gives_the_same_bytes(name: str) -> None:
    recipe, case = RECIPES[name], Case(17, dtype="bfloat16")
    *arrays, g = case.arrays
    kept = differentiated(recipe, *case.arrays)

    def function(x: Any, w: Any, bias: Any) -> Any:
        return dot(x, w, recipe, bias=bias, seed=SEED, step=STEP)

    for policy in (None, jax.checkpoint_policies.dots_saveable):
        y, back = jax.vjp(jax.checkpoint(function, policy=policy), *arrays)
        dx, dw, db = back(g)
        assert_same({"y": y, "dx": dx, "dw": dw, "db": db}, kept, f"{name}, {policy}")


def test_frozen_arguments_have_no_gradient() -> None:
    x, w, b, g = Case(24, outputs=40, dtype="bfloat16").arrays
    whole = differentiated(nvfp4(), x, w, b, g)
    fixed = {"seed": SEED, "step": STEP}
    for name, function, argument in (
        ("dx", lambda x: dot(x, w, nvfp4(), bias=b, **fixed), x),
        ("dw", lambda w: dot(x, w, nvfp4(), bias=b, **fixed), w),
        ("db", lambda b: dot(x, w, nvfp4(), bias=b, **fixed), b),
    ):
        for transform in (lambda f: f, jax.jit):
            (got,) = jax.vjp(transform(function), argument)[1](g)
            assert_same(got, whole[name], name)


def gradients(step: Any, seed: int = 3, name: str = "nvfp4") -> bytes:
    x, w, b, g = Case(16, dtype="bfloat16").arrays

    def function(x: Any, w: Any) -> Any:
        return dot(x, w, RECIPES[name], bias=b, seed=seed, step=step)

    return b"".join(np.asarray(each).tobytes() for each in jax.vjp(function, x, w)[1](g))


def test_steps() -> None:
    """One number in all of its forms; others, and other seeds, give other bytes."""
    words = np.array([7, 5], np.uint32)
    key = jax.random.wrap_key_data(jnp.asarray(words))
    number = 7 + 5 * 2**32
    for same in (key, jnp.asarray(words), words, np.int64(number).reshape(1), np.array(number)):
        assert gradients(same) == gradients(number), repr(same)
    rbg = jax.random.wrap_key_data(jnp.asarray([7, 5, 3, 1], "uint32"), impl="rbg")
    assert gradients(rbg) == gradients(number)
    assert gradients(None) == gradients(0) == gradients(jnp.int32(0))
    assert gradients(jnp.int32(-1)) == gradients(2**64 - 1)
    made = [gradients(step, seed) for step in (0, 1, 7, number) for seed in (3, 4)]
    assert len(set(made)) == 8
    assert gradients(0, name="mxfp8") == gradients(1, name="mxfp8")


def test_a_traced_step_is_compiled_once() -> None:
    x, w, b, g = Case(16, dtype="bfloat16").arrays
    traces = []

    @jax.jit
    def run(step: Any) -> Any:
        traces.append(step)
        return jax.vjp(lambda x, w: dot(x, w, nvfp4(), bias=b, seed=3, step=step), x, w)[1](g)

    for step in range(3):
        got = b"".join(np.asarray(each).tobytes() for each in run(step))
        assert got == gradients(step), step
    assert len(traces) == 1
    with_key = jax.jit(lambda key: jax.vjp(lambda x: dot(x, w, nvfp4(), step=key), x)[1](g)[0])
    first, second = (np.asarray(with_key(jax.random.key(n))).tobytes() for n in (1, 2))
    assert first != second


@pytest.mark.skipif(not available("torch"), reason="torch is not installed")
@pytest.mark.parametrize("name", mostly_slow(RECIPES, "nvfp4"))
def test_equals_the_layer_of_pytorch(name: str) -> None:
    """To the bit where products are quantized. Plain ones are rounded to x's dtype there first."""
    import torch

    from mxkern.torch import linear

    recipe, case = RECIPES[name], Case(17, dtype="bfloat16", weight_dtype="float32", seed=5)
    x, w, b, g = (array_of("torch", each) for each in (case.x, case.w, case.bias, case.g))
    given = [each.requires_grad_() for each in (x, w, b)]
    step = torch.tensor(STEP)
    y = linear(*given, recipe, seed=SEED, step=step)
    of_torch = dict(zip(("dx", "dw", "db"), torch.autograd.grad(y, given, g), strict=True))
    of_jax = differentiated(recipe, *case.arrays)
    want = {name: exactly for name, (_, exactly) in composed(case, recipe).items()}
    as_numpy = {name: (numpy_of(each), want[name]) for name, each in {"y": y, **of_torch}.items()}
    check(of_jax, as_numpy, name, rounded_to="bfloat16")


def numpy_of(tensor: Any) -> np.ndarray:
    name = str(tensor.dtype).removeprefix("torch.")
    return raw(tensor).reshape(-1).view(NUMPY_DTYPES[name]).reshape(tensor.shape)
