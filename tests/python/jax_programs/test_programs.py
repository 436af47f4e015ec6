# tests/python/jax_programs/test_programs.py: calls of arrays of JAX on the CPU that are programs of
# their own, and where results are.
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mxkern
from support import available, refused

if not available("jax"):
    pytest.skip("jax is not installed", allow_module_level=True)

import jax
import jax.export
import jax.numpy as jnp

if jax.default_backend() != "cpu":
    pytest.skip("JAX runs on a GPU here", allow_module_level=True)

from jax_functions import ENDS, EXPERTS, FUNCTIONS, W, X, assert_same
from mxkern.jax import ffi, programs

# An amax that is checked, a seed, an alpha and what was prepared are for no program on the CPU.
WITHOUT_PROGRAM = {
    "amax",
    "amax of NumPy",
    "traced amax",
    "stochastic",
    "both",
    "gemm of plain x",
    "grouped, of plain x",
    "prepared",
}


@pytest.fixture
def registered_anew() -> Iterator[None]:
    """What XLA was told of is asked for again, then and afterwards."""
    ffi._not_registered.cache_clear()
    yield
    ffi._not_registered.cache_clear()


@pytest.mark.usefixtures("registered_anew")
@pytest.mark.parametrize(
    "version, lack",
    [
        (None, "an mxkern built where jaxlib's headers are"),
        ((0, 99), "a JAX whose XLA has version"),
    ],
)
def test_what_is_missing(version: Any, lack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mxkern._core.xla_version", lambda: version)
    call = jax.jit(lambda x: mxkern.quantize(x, "mxfp8"))
    refused(
        TypeError, lambda: call(X), f"quantize: an argument is a JAX tracer, which takes {lack}"
    )


def programs_used(function: Callable[[], Any]) -> tuple[int, int]:
    """How many programs a call asked for the first time, and how many again."""
    programs._program.cache_clear()
    function()
    info = programs._program.cache_info()
    return info.misses, info.hits


@pytest.mark.parametrize(
    "call",
    [
        lambda: mxkern.quantize(X, "mxfp8"),
        lambda: mxkern.quantize_both(X, "mxfp4"),
        lambda: mxkern.dequantize(W),
        lambda: mxkern.gemm(W, W),
        lambda: mxkern.tensor_amax(X),
        lambda: mxkern.random_hadamard(X),
    ],
    ids=["quantize", "quantize_both", "dequantize", "gemm", "tensor_amax", "random_hadamard"],
)
def test_a_call_is_one_program(call: Callable[[], Any]) -> None:
    assert programs_used(call) == (1, 0)
    assert programs_used(lambda: (call(), call())) == (1, 1)


@pytest.mark.usefixtures("registered_anew")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_calls_that_are_programs_of_their_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of jax.jit, where XLA can be told of them, and where it cannot."""
    results: list[Any] = []
    used, _ = programs_used(lambda: results.append(FUNCTIONS[name](X)))
    assert (used == 0) == (name in WITHOUT_PROGRAM)
    monkeypatch.setattr("mxkern._core.xla_version", lambda: None)
    ffi._not_registered.cache_clear()
    assert programs_used(lambda: results.append(FUNCTIONS[name](X))) == (0, 0)
    assert_same(*results, name)


def test_seeds_make_no_programs() -> None:
    def calls() -> None:
        mxkern.quantize(X, "mxfp8")
        for seed in range(3):
            mxkern.quantize(X, "mxfp8", rounding="stochastic", seed=seed)
            mxkern.quantize(X, "mxfp8")
        call = lambda: mxkern.quantize(X, "nvfp4", amax=jnp.float32(-1))  # noqa: E731
        refused(ValueError, call, "amax is -1.0")

    assert programs_used(calls) == (1, 3)


@pytest.mark.slow
def test_results_are_where_the_arguments_are() -> None:
    """As programs and otherwise, and of what is on two devices."""
    code = """if True:
        import jax, numpy as np, mxkern
        first, second = jax.devices()
        x = jax.device_put(np.ones((4, 64), np.float32), second)
        results = (
            mxkern.quantize(x, "mxfp8"),
            mxkern.quantize(x, "mxfp8", rounding="stochastic", seed=1),
            mxkern.quantize(x, "nvfp4", amax=1.0),
            mxkern.dequantize(mxkern.quantize(x, "mxfp8")),
        )
        assert all(leaf.devices() == {second} for leaf in jax.tree_util.tree_leaves(results))
        mesh = jax.sharding.Mesh(np.array([first, second]), "rows")
        spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
        q = mxkern.quantize(jax.device_put(x, spread), "mxfp8")
        assert all(len(leaf.devices()) == 1 for leaf in jax.tree_util.tree_leaves(q))
        assert (np.asarray(mxkern.dequantize(q)) == 1).all()
    """
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


SYMBOLIC: dict[str, Callable[[Any], Any]] = {
    "quantize": lambda x: mxkern.quantize(x, "nvfp4").codes,
    "quantize_both": lambda x: mxkern.quantize_both(x, "mxfp8")[1].codes,
    "fake_quantize": lambda x: mxkern.fake_quantize(x, "mxfp8"),
    "gemm": lambda x: mxkern.gemm(x, W),
    "grouped_gemm": lambda x: mxkern.grouped_gemm(x, EXPERTS, ENDS),
    "prepare_operand": lambda x: mxkern.prepare_operand(x, "mxfp8").source.codes,
    "random_hadamard": lambda x: mxkern.random_hadamard(x, 16),
    "tensor_amax": mxkern.tensor_amax,
}


@pytest.mark.parametrize("function", SYMBOLIC)
def test_symbolic_shapes_are_refused(function: str) -> None:
    (rows,) = jax.export.symbolic_shape("rows")
    x = jax.ShapeDtypeStruct((rows, 96), jnp.float32)
    export = jax.export.export(jax.jit(SYMBOLIC[function]))
    parts = (f"{function}: an argument has the symbolic shape (rows, 96)", "export once for each")
    refused(ValueError, lambda: export(x), *parts)
