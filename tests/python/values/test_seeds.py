# tests/python/values/test_seeds.py: what is no seed of stochastic rounding, and how it becomes one.
from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import mxkern
from support import assert_same, available, random_values, raw, refused

needs_jax = pytest.mark.skipif(not available("jax"), reason="jax is not installed")

X = random_values((4, 64), "float32")


def _draw(way_out: str, seed: Any) -> Any:
    """What a message says in place of a seed."""
    names: dict[str, Any] = {"seed": seed}
    if "torch" in way_out:
        names["torch"] = pytest.importorskip("torch", reason="torch is not installed")
    if "jax" in way_out:
        names["jax"] = pytest.importorskip("jax", reason="jax is not installed")
    return eval(way_out, names)


def _generators() -> dict[str, Any]:
    made: dict[str, Any] = {
        "Generator": np.random.default_rng(0),
        "RandomState": np.random.RandomState(0),
        "BitGenerator": np.random.PCG64(0),
        "SeedSequence": np.random.SeedSequence(0),
        "numpy.random": np.random,
        "random.Random": random.Random(0),
        "random": random,
    }
    if available("torch"):
        import torch

        made["torch"] = torch.Generator().manual_seed(0)
    if available("jax"):
        import jax

        made |= {"key": jax.random.key(0), "PRNGKey": jax.random.PRNGKey(0)}
        made["key of four words"] = jax.random.PRNGKey(0, impl="rbg")
    return made


@pytest.mark.parametrize("name", _generators())
def test_seeds_that_are_generators(name: str) -> None:
    seed = _generators()[name]

    def call(seed: Any) -> Any:
        return mxkern.quantize(X, "mxfp8", rounding="stochastic", seed=seed)

    with pytest.raises(TypeError, match=r"quantize: seed is a .*; expected an int; draw one") as e:
        call(seed)
    way_out = str(e.value).partition("draw one, as ")[2]
    assert call(_draw(way_out, seed)).shape == (4, 64)
    if available("torch"):
        import torch

        from mxkern.torch import operators

        x = torch.from_numpy(X)
        with pytest.raises(TypeError, match=r"seed is a .*draw one"):
            operators.quantize(x, "mxfp8", rounding="stochastic", seed=seed)


@needs_jax
@pytest.mark.parametrize("make", ["key", "PRNGKey"])
def test_keys_that_jax_traces(make: str) -> None:
    import jax

    key, x = getattr(jax.random, make)(0), jax.numpy.asarray(X)

    def call(key: Any, **options: Any) -> Any:
        return mxkern.quantize(x, "mxfp4", rounding="stochastic", **options)

    text = "expected an int; draw an offset, and pass a seed of 0 and offset=jax.random.bits(seed)"
    refused(TypeError, lambda: jax.jit(lambda seed: call(seed, seed=seed))(key), text)
    drawn = jax.jit(lambda seed: call(seed, seed=0, offset=jax.random.bits(seed)))(key)
    bits = int(jax.random.bits(key))
    assert_same(raw(drawn.codes), raw(call(key, seed=0, offset=bits).codes), "offset")


def test_seeds_that_are_other_arrays() -> None:
    for seed in (np.zeros(2, np.uint32), np.zeros((), np.float32), "0", [1, 2]):
        with pytest.raises(TypeError, match=r"seed is .*; expected an int$"):
            mxkern.quantize(X, "mxfp8", rounding="stochastic", seed=seed)


def test_seeds_that_jax_traces() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    x = jax.numpy.ones((4, 64))

    def call(seed: Any) -> Any:
        return mxkern.quantize(x, "mxfp4", rounding="stochastic", seed=seed)

    text = ("quantize: seed is a", "static_argnums", "count in offset")
    refused(TypeError, lambda: jax.jit(call)(3), *text)
    assert jax.jit(call, static_argnums=0)(3).shape == (4, 64)
