# tests/python/jax_programs/jax_dot_shard_map_cases.py: mxkern.jax.dot on each of four devices,
# inside of jax.shard_map. test_jax_shard_map.py runs it in a process that has four.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jax_composition import RECIPES, SEED, Case, differentiated
from jax_shard_map_cases import GRID, MESH, assert_near

from jax_functions import assert_same
from mxkern.jax import dot, nvfp4

CASE = Case(4, 24, outputs=32, features=64)
X, W, B, G = CASE.arrays
recipes = pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "mxfp4", "dequantized", "all plain"])


def mapped(
    function: Callable[..., Any], in_specs: Any, out_specs: Any, mesh: Mesh = MESH, **options: Any
) -> Callable[..., Any]:
    whole = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)
    return jax.jit(whole)


def parts_of(name: str, step: Callable[[int], int] = lambda i: 0) -> list[dict[str, Any]]:
    """What each device computes of its tokens."""
    return [differentiated(RECIPES[name], X[i], W, B, G[i], step(i)) for i in range(4)]


def check(got: tuple[Any, Any, Any, Any], parts: list[dict[str, Any]], name: str) -> None:
    """y and dx of each device's tokens, to the bit; dw and db are sums over the devices."""
    y, dx, dw, db = got
    same = assert_near if name in ("dequantized", "all plain") else assert_same
    same(y, jnp.stack([part["y"] for part in parts]), f"{name}: y")
    same(dx, jnp.stack([part["dx"] for part in parts]), f"{name}: dx")
    assert_near(dw, sum(part["dw"] for part in parts), f"{name}: dw")
    assert_near(db, sum(part["db"] for part in parts), f"{name}: db")


@recipes
def test_tokens_on_each_device(name: str) -> None:
    """JAX sums the gradients of w and bias, which are copies; inside of the map, and around it."""

    def layer(x: Any, w: Any, b: Any) -> Any:
        return dot(x, w, RECIPES[name], bias=b, seed=SEED)

    def inside(x: Any, w: Any, b: Any, g: Any) -> Any:
        y, back = jax.vjp(layer, x, w, b)
        return (y, *back(g))

    specs = (P("d"), P(), P())
    got = mapped(inside, (*specs, P("d")), (P("d"), *specs))(X, W, B, G)
    check(got, parts_of(name), name)
    y, back = jax.vjp(mapped(layer, specs, P("d")), X, W, B)
    check((y, *back(G)), parts_of(name), f"{name}, around")


@recipes
def test_outputs_on_each_device(name: str) -> None:
    """Rows of w along one axis, tokens along the other: both gradients are sums over one axis."""

    def layer(x: Any, w: Any, b: Any) -> Any:
        return dot(x, w, RECIPES[name], bias=b, seed=SEED)

    specs = (P("d"), P("e"), P("e"))
    y, back = jax.vjp(mapped(layer, specs, P("d", None, "e"), GRID), X, W, B)
    dx, dw, db = back(G)
    for d in range(2):
        x, g = X[2 * d : 2 * d + 2], G[2 * d : 2 * d + 2]
        halves = [
            differentiated(RECIPES[name], x, W[k : k + 16], B[k : k + 16], g[..., k : k + 16], 0)
            for k in (0, 16)
        ]
        whole = jnp.concatenate([half["y"] for half in halves], -1)
        assert_near(y[2 * d : 2 * d + 2], whole, f"{name}: y, {d}")
        assert_near(dx[2 * d : 2 * d + 2], halves[0]["dx"] + halves[1]["dx"], f"{name}: dx, {d}")
    for k in (0, 16):
        both = [
            differentiated(RECIPES[name], X[i : i + 2], W[k : k + 16], B[k : k + 16], g, 0)
            for i, g in ((0, G[:2, :, k : k + 16]), (2, G[2:, :, k : k + 16]))
        ]
        assert_near(dw[k : k + 16], both[0]["dw"] + both[1]["dw"], f"{name}: dw, {k}")
        assert_near(db[k : k + 16], both[0]["db"] + both[1]["db"], f"{name}: db, {k}")


@pytest.mark.parametrize("argument", [0, 1, 2])
def test_what_is_frozen(argument: int) -> None:
    specs = (P("d"), P(), P())

    def loss(x: Any, w: Any, b: Any, g: Any) -> Any:
        return (dot(x, w, nvfp4(), bias=b, seed=SEED) * g).sum()

    got = mapped(jax.grad(loss, argument), (*specs, P("d")), specs[argument])(X, W, B, G)
    key = ("dx", "dw", "db")[argument]
    parts = [part[key] for part in parts_of("nvfp4")]
    assert_near(got, jnp.stack(parts) if argument == 0 else sum(parts), key)


def test_random_bits_of_each_device() -> None:
    def run(x: Any, g: Any, step: Any) -> Any:
        offset = step * 4 + jax.lax.axis_index("d")
        y, back = jax.vjp(lambda x, w, b: layer(x, w, b, offset), x, W, B)
        return (y, *back(g))

    def layer(x: Any, w: Any, b: Any, offset: Any) -> Any:
        return dot(x, w, nvfp4(), bias=b, seed=SEED, step=offset)

    got = mapped(run, (P("d"), P("d"), P()), (P("d"), P("d"), P(), P()))(X, G, jnp.int32(2))
    check(got, parts_of("nvfp4", lambda i: 8 + i), "nvfp4")
    assert (np.asarray(parts_of("nvfp4")[1]["dx"]) != np.asarray(got[1][1])).any()


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_recomputed_layers_of_a_loop(name: str) -> None:
    weights, steps = jnp.stack([W, -W]), jnp.arange(2)

    @jax.checkpoint
    def layer(x: Any, each: Any) -> Any:
        w, step = each
        return dot(dot(x, w, RECIPES[name], seed=1, step=step), w.T, RECIPES[name], seed=2)

    def model(x: Any, weights: Any) -> Any:
        return jax.lax.scan(lambda x, each: (layer(x, each), None), x, (weights, steps))[0]

    specs = (P("d"), P())
    y, back = jax.vjp(mapped(model, specs, P("d")), X, weights)
    dx, dw = back(X)
    parts = [jax.vjp(jax.jit(model), X[i], weights) for i in range(4)]
    assert_same(y, jnp.stack([part[0] for part in parts]), "y")
    gradients = [back_one(X[i]) for i, (_, back_one) in enumerate(parts)]
    assert_same(dx, jnp.stack([of_x for of_x, _ in gradients]), "dx")
    assert_near(dw, sum(of_w for _, of_w in gradients), "dw")


def test_without_the_types() -> None:
    def layer(x: Any, w: Any, b: Any) -> Any:
        return dot(x, w, nvfp4(), bias=b, seed=SEED)

    y, back = jax.vjp(mapped(layer, (P("d"), P(), P()), P("d"), check_vma=False), X, W, B)
    check((y, *back(G)), parts_of("nvfp4"), "nvfp4")


def test_arrays_of_another_device() -> None:
    """Without a program: the step is an int, and lies on no device."""
    device = jax.devices()[2]
    arrays = [jax.device_put(each, device) for each in (X[0], W, B, G[0])]
    got = differentiated(nvfp4(), *arrays, 5)
    assert got["dx"].devices() == {device}
    assert_same(got, differentiated(nvfp4(), X[0], W, B, G[0], 5), "values")
