# tests/python/jax_programs/test_more.py: on the CPU, maps over what takes no batches, ends that do
# not fit, and operands on two devices.
from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import mxkern
from support import available, refused

if not available("jax"):
    pytest.skip("jax is not installed", allow_module_level=True)

import jax
import jax.numpy as jnp

if jax.default_backend() != "cpu":
    pytest.skip("JAX runs on a GPU here", allow_module_level=True)

from jax_functions import EXPERTS, X, assert_same


@pytest.mark.parametrize("operation", [mxkern.quantize, mxkern.quantize_both])
def test_vmap_rounds_each_tensor_as_if_it_were_alone(operation: Any) -> None:
    """Random bits depend on where in a tensor an element is, and not on where that one is."""
    many = jnp.stack([X, X * 3])
    call = lambda x: operation(x, "mxfp4", rounding="stochastic", seed=5)  # noqa: E731
    got = jax.tree_util.tree_leaves(jax.vmap(call)(many))
    for i in range(2):
        want = jax.tree_util.tree_leaves(call(many[i]))
        assert_same([leaf[i] for leaf in got], want, f"element {i}")


def test_vmap_of_vectors_swizzles_the_scales_of_each() -> None:
    """A vector is a matrix of one row; many of them are not a matrix of many rows."""
    call = lambda x: mxkern.quantize(x, "mxfp4", scale_layout="swizzled")  # noqa: E731
    got = jax.vmap(call)(X[:3])
    for i in range(3):
        assert_same((got.codes[i], got.scales[i]), call(X[i]).parts[:2], f"element {i}")


@pytest.mark.parametrize(
    ("ends", "kind", "message"),
    [
        (jnp.asarray([7, 7]), ValueError, "ends has shape (2,); expected (3,)"),
        (jnp.asarray([[7, 7, 60]]), ValueError, "ends has shape (1, 3); expected (3,)"),
        (jnp.asarray([7.0, 7.0, 60.0]), TypeError, "ends has dtype float32"),
    ],
    ids=["length", "rank", "dtype"],
)
def test_ends_are_checked_while_tracing(ends: Any, kind: type[Exception], message: str) -> None:
    product = jax.jit(lambda x, ends: mxkern.grouped_gemm(x, EXPERTS, ends))
    refused(kind, lambda: product(X, ends), f"grouped_gemm: {message}")


@pytest.mark.slow
def test_operands_on_two_devices() -> None:
    """A product comes about wherever they are, and is right."""
    code = """if True:
        import jax, numpy as np, mxkern
        first, second = jax.devices()
        x = np.ones((4, 64), np.float32)
        w = mxkern.quantize(jax.device_put(x, second), "mxfp8")
        a = jax.device_put(x, first)
        for left in (a, mxkern.quantize(a, "mxfp8")):
            assert (np.asarray(mxkern.gemm(left, w)) == 64).all()
    """
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
