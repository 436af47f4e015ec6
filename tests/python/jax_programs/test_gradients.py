# tests/python/jax_programs/test_gradients.py: the derivative of fake_quantize under transformations
# of JAX, which is that of the identity; what has none says so.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mxkern
from support import DTYPES, SCHEMES, array_of, available, mostly_slow, random_values, refused

if not available("jax"):
    pytest.skip("jax is not installed", allow_module_level=True)

import jax
import jax.numpy as jnp

if jax.default_backend() != "cpu":
    pytest.skip("JAX runs on a GPU here", allow_module_level=True)

X = jnp.asarray(random_values((4, 64), "float32"))
C = jnp.arange(64, dtype=jnp.float32)


def squared(x: Any, scheme: str = "mxfp4", **options: Any) -> Any:
    return (mxkern.fake_quantize(x, scheme, **options).astype(jnp.float32) ** 2).sum()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", mostly_slow(SCHEMES, "nvfp4"))
def test_of_the_identity(scheme: str, dtype: str) -> None:
    x = array_of("jax", random_values((4, 64), dtype))
    value = mxkern.fake_quantize(x, scheme)
    want = (2 * value.astype(jnp.float32)).astype(x.dtype)
    for transform in (lambda f: f, jax.jit):
        got = transform(jax.grad(lambda x: squared(x, scheme)))(x)
        assert got.dtype == x.dtype and (got == want).all()
        out, tangent = transform(
            lambda x: jax.jvp(lambda x: mxkern.fake_quantize(x, scheme), (x,), (2 * x,))
        )(x)
        assert (out == value).all() and (tangent == 2 * x).all()


@pytest.mark.slow
def test_other_transformations() -> None:
    many = jnp.stack([X, 3 * X])
    want = jnp.stack([2 * mxkern.fake_quantize(x, "nvfp4") for x in many])
    assert (jax.vmap(jax.grad(lambda x: squared(x, "nvfp4")))(many) == want).all()
    kept = jax.checkpoint(squared)
    assert (jax.grad(kept)(X) == 2 * mxkern.fake_quantize(X, "mxfp4")).all()
    assert (jax.hessian(squared)(X[0, :4]) == 2 * jnp.eye(4)).all()

    def steps(x: Any) -> Any:
        half = lambda x, _: (0.5 * mxkern.fake_quantize(x, "mxfp8"), None)  # noqa: E731
        return jax.lax.scan(half, x, None, length=3)[0].sum()

    assert (jax.jit(jax.grad(steps))(X) == 0.125).all()


def test_of_an_array_of_numpy() -> None:
    got = jax.grad(squared)(np.asarray(X))
    assert (got == 2 * mxkern.fake_quantize(X, "mxfp4")).all()


def test_scalars() -> None:
    """Numbers and arrays, traced or not; nothing is differentiated of them."""
    options: dict[str, Any] = {"rounding": "stochastic", "seed": 3}
    for amax in (3.0, jnp.float32(3), np.float32(3)):
        want = 2 * mxkern.fake_quantize(X, "nvfp4", amax=amax)
        assert (jax.grad(lambda x, a=amax: squared(x, "nvfp4", amax=a))(X) == want).all()
        traced = jax.jit(jax.grad(lambda x, a: squared(x, "nvfp4", amax=a)))
        assert (traced(X, amax) == want).all()
    for offset in (5, jnp.int32(5)):
        want = 2 * mxkern.fake_quantize(X, "mxfp4", offset=offset, **options)
        step = jax.jit(jax.grad(lambda x, o: squared(x, offset=o, **options)))
        assert (step(X, jnp.asarray(offset)) == want).all()
    for name in ("amax", "tensor_scale"):
        call: Callable[[Any], Any] = lambda a, n=name: squared(X * a, "nvfp4", **{n: a})  # noqa: E731
        for transform in (lambda f: f, jax.jit):
            message = f"fake_quantize: {name} is differentiated"
            way_out = f"pass jax.lax.stop_gradient({name})"
            grad = transform(jax.grad(call))
            refused(ValueError, lambda g=grad: g(3.0), message, way_out)
    stopped = jax.grad(lambda a: squared(X * a, "nvfp4", amax=jax.lax.stop_gradient(a)))
    assert np.isfinite(stopped(3.0))


def test_blocks_that_are_not_finite() -> None:
    x = X.at[0, 0].set(jnp.nan)
    got = jax.grad(lambda x: (mxkern.fake_quantize(x, "mxfp4") * C).sum())(x)
    assert (got == jnp.broadcast_to(C, (4, 64))).all()


def test_errors_keep_their_words() -> None:
    grad = lambda **options: jax.grad(lambda x: squared(x, **options))(X)  # noqa: E731
    refused(ValueError, lambda: grad(scale_rule="x"), "fake_quantize: scale_rule is 'x'")
    refused(TypeError, lambda: grad(stream=3), "fake_quantize: x is a JAX tracer")


def test_what_has_none() -> None:
    with pytest.raises(ValueError, match="mxkern_quantize` cannot be differentiated"):
        jax.grad(lambda x: mxkern.dequantize(mxkern.quantize(x, "mxfp8")).sum())(X)
