# tests/python/cuda/test_cuda_jax_jit.py: mxkern's functions in programs that JAX compiles for a
# GPU.
from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import mxkern
from support import DTYPES, SCHEMES, available

if not mxkern.info().devices:
    pytest.skip(f"no CUDA device can be used: {mxkern.info().cuda}", allow_module_level=True)
if not available("jax"):
    pytest.skip("jax is not installed", allow_module_level=True)

import jax
import jax.numpy as jnp

if jax.default_backend() != "gpu":
    pytest.skip("JAX runs on the CPU here", allow_module_level=True)

import itertools

from jax_functions import FUNCTIONS, N, W, X, array, assert_same
from mxkern.jax import programs


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jit(name: str) -> None:
    assert_same(jax.jit(FUNCTIONS[name])(X), FUNCTIONS[name](X), name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme(scheme: str, dtype: str) -> None:
    x = array(3, 5, 50, dtype=dtype)
    rows, columns = jax.jit(lambda x: mxkern.quantize_both(x, scheme))(x)
    host = mxkern.quantize_both(np.asarray(x), scheme)
    assert_same(rows.parts, host[0].parts, f"{scheme} rows")
    assert_same(columns.parts, host[1].parts, f"{scheme} columns")
    decoded = jax.jit(lambda q: mxkern.dequantize(q, dtype=dtype))(rows)
    assert_same(decoded, mxkern.dequantize(rows, dtype=dtype), scheme)
    a, b = mxkern.quantize(x, scheme), mxkern.quantize(x[:, :4], scheme)
    assert_same(jax.jit(mxkern.gemm)(a, b), mxkern.gemm(a, b), scheme)


@pytest.mark.parametrize("form", ["folded", "expanded", "few_tokens"])
def test_prepared_operands_are_arguments(form: str) -> None:
    x = X.astype("bfloat16")
    w = mxkern.prepare_operand(W, form=form)
    assert_same(jax.jit(mxkern.gemm)(x, w), mxkern.gemm(x, w), form)


def test_grouped_products() -> None:
    """Experts that are prepared, or not, and ends that the program finds."""
    q = mxkern.quantize(array(5, 200, 416, seed=1), "mxfp4")
    x, expert = array(40, 416, dtype="bfloat16"), jnp.arange(40) * 7 % 5

    def layer(x: Any, w: Any, expert: Any) -> Any:
        order = jnp.argsort(expert, stable=True)
        ends = jnp.cumsum(jnp.bincount(expert, length=5)).astype("int32")
        return mxkern.grouped_gemm(x[order], w, ends)[jnp.argsort(order)]

    want = np.einsum(
        "mk,mnk->mn",
        np.asarray(x, np.float64),
        np.asarray(mxkern.dequantize(q), np.float64)[expert],
    )
    for w in (q, *(mxkern.prepare_operand(q, form=form) for form in ("few_tokens", "expanded"))):
        for rows in (x, x.astype("float32"), mxkern.quantize(x, "mxfp8")):
            if isinstance(rows, mxkern.BlockScaled):
                got = mxkern.grouped_gemm(rows, w, jnp.asarray([40] * 5, "int32"))
                assert np.isfinite(got).all()
                continue
            got = np.asarray(jax.jit(layer)(rows, w, expert), np.float64)
            assert np.linalg.norm(got - want) <= 2e-5 * np.linalg.norm(want)
    wrong = mxkern.grouped_gemm(x, q, jnp.asarray([3, 2, 4, 5, 6], "int32"))
    assert np.isnan(wrong).all()


def test_folded_grouped_products() -> None:
    if mxkern.explain_gemm(W, W).device != "sm_90":
        pytest.skip("folded products are Hopper's")
    a = mxkern.quantize(array(40, 416), "mxfp8")
    q = mxkern.quantize(array(5, 200, 416, seed=1), "mxfp4")
    ends = jnp.asarray([3, 3, 20, 21, 38], "int32")
    want = mxkern.grouped_gemm(a, q, ends)
    for w in (q, mxkern.prepare_operand(q, form="folded", keep_source=False)):
        layer = partial(mxkern.grouped_gemm, precision="folded")
        got = jax.jit(layer)(a, w, ends)
        assert_same(got, layer(a, w, ends), "in a program")
        assert np.linalg.norm(got - want) <= 5e-4 * np.linalg.norm(want)


def test_groups_of_columns() -> None:
    a = mxkern.quantize_columns(array(416, 150), "mxfp8")
    b = mxkern.quantize_columns(array(416, 200, seed=1), "mxfp4")
    ends = jnp.asarray([32, 32, 288, 416], "int32")
    got = jax.jit(mxkern.grouped_gemm)(a, b, ends)
    assert got.shape == (4, 150, 200)
    assert_same(got, mxkern.grouped_gemm(a, b, ends), "in a program")
    left, right = (np.asarray(mxkern.dequantize(q), np.float64) for q in (a, b))
    bounds = [0, 32, 32, 288, 416]
    pairs = itertools.pairwise(bounds)
    want = np.stack([left[:, i:j] @ right[:, i:j].T for i, j in pairs])
    assert np.linalg.norm(got - want) <= 2e-5 * np.linalg.norm(want)
    assert np.isnan(mxkern.grouped_gemm(a, b, jnp.asarray([32, 33], "int32"))).all()


def test_layers_that_are_copied_right_ahead() -> None:
    """In a scan JAX copies the weights of a layer, and its product starts early."""
    weights = [mxkern.quantize(array(4096, 4096, seed=seed), "nvfp4") for seed in range(4)]
    layers = [mxkern.prepare_operand(w, form="few_tokens") for w in weights]
    stacked = jax.tree_util.tree_map(lambda *parts: jnp.stack(parts), *layers)
    x = array(8, 4096, dtype="bfloat16")

    @jax.jit
    def all_layers(x: Any, stacked: Any) -> Any:
        return jax.lax.scan(lambda x, w: (x, mxkern.gemm(x, w, dtype="bfloat16")), x, stacked)[1]

    want = jnp.stack([mxkern.gemm(x, w, dtype="bfloat16") for w in layers])
    for _ in range(5):
        assert_same(all_layers(x, stacked), want, "four layers")


def test_vmap_gives_each_tensor_its_scale() -> None:
    both = jnp.stack([X, X * 100])
    q = jax.vmap(lambda x: mxkern.quantize(x, "nvfp4"))(both)
    assert q.tensor_scale.shape == (2,)
    for i in range(2):
        one = mxkern.quantize(both[i], "nvfp4")
        assert_same((q.codes[i], q.scales[i], q.tensor_scale[i]), one.parts, f"element {i}")


def test_what_is_ahead_and_behind_in_the_program() -> None:
    """Kernels of JAX's own that take long are ordered with mxkern's."""
    x = array(4096, 4096) / 64

    @jax.jit
    def program(x: Any) -> Any:
        q = mxkern.quantize(x @ x @ x, "mxfp8")
        y = mxkern.dequantize(q) @ x
        return mxkern.quantize(y, "nvfp4"), y

    q, y = program(x)
    ahead = jax.jit(lambda x: x @ x @ x)(x)
    want = jax.jit(lambda y, x: y @ x)(mxkern.dequantize(mxkern.quantize(ahead, "mxfp8")), x)
    assert float(jnp.abs(y - want).max()) <= 1e-3 * float(jnp.abs(want).max())
    assert_same(q, mxkern.quantize(y, "nvfp4"), "behind")


def test_programs_that_are_recorded() -> None:
    """XLA puts long rows of calls into CUDA graphs, which run with other arrays than before."""
    layers = [mxkern.quantize(array(256, 256, seed=seed), "mxfp8") for seed in range(4)]
    few = [mxkern.prepare_operand(w, form="few_tokens") for w in layers]

    def program(x: Any, offset: Any) -> Any:
        for w, prepared in zip(layers, few, strict=True):
            q = mxkern.quantize(x, "nvfp4")
            x = mxkern.gemm(q, w, dtype="bfloat16") / 16
            x = mxkern.gemm(x, prepared, dtype="bfloat16") / 16
            x = x + mxkern.gemm(mxkern.quantize(x, "mxfp8"), w, dtype="bfloat16") / 16
        rounded = mxkern.quantize(x, "mxfp4", rounding="stochastic", seed=1, offset=offset)
        return mxkern.tensor_amax(x), mxkern.dequantize(rounded), x

    recorded = jax.jit(program)
    for step in range(6):
        x, offset = array(32, 256, dtype="bfloat16", seed=step), jnp.int32(step)
        assert_same(recorded(x, offset), program(x, offset), f"step {step}")


def test_threads_at_once() -> None:
    function = jax.jit(lambda x: mxkern.gemm(mxkern.quantize(x, "mxfp8"), W))
    want, wrong = np.asarray(function(X)), []

    def work() -> None:
        wrong.extend(i for i in range(25) if not np.array_equal(np.asarray(function(X)), want))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert wrong == []


def test_programs_for_the_cpu() -> None:
    try:
        cpu = jax.devices("cpu")[0]
    except RuntimeError:
        pytest.skip("JAX has no CPU here")
    x = jax.device_put(X, cpu)
    got = jax.jit(lambda x: mxkern.quantize(x * 2, "mxfp8"))(x)
    assert got.codes.devices() == {cpu}
    assert_same(got, mxkern.quantize(x * 2, "mxfp8"), "on the CPU")


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"gemm: a has shape \(64, 5\)"):
        jax.jit(lambda x: mxkern.gemm(x[:, :5], W))(X)
    with pytest.raises(Exception, match="precision is folded, but b is nvfp4"):
        jax.jit(lambda x: mxkern.gemm(mxkern.quantize(x, "mxfp8"), N, precision="folded"))(
            X
        ).block_until_ready()


@pytest.mark.parametrize("form", ["auto", "folded", "expanded", "few_tokens"])
@pytest.mark.parametrize("keep_source", [True, False])
def test_preparing(form: str, keep_source: bool) -> None:
    """In a program, and alone."""
    options = {"form": form, "keep_source": keep_source}
    for x, scheme in ((W, None), (X, "mxfp8")):
        alone = mxkern.prepare_operand(x, scheme, **options)
        traced = jax.jit(lambda x, s=scheme: mxkern.prepare_operand(x, s, **options))(x)
        assert alone.form == ("folded" if form == "auto" else form)
        assert (alone.source is None) is not keep_source
        assert_same(traced.source, alone.source, form)
        # Of data some bytes hold nothing.
        left = X.astype("bfloat16") if form == "few_tokens" else mxkern.quantize(X, "mxfp8")
        precision = "folded" if alone.form == "folded" and not keep_source else "auto"
        product = mxkern.gemm(left, alone, precision=precision)
        assert_same(mxkern.gemm(left, traced, precision=precision), product, form)
        q = x if scheme is None else mxkern.quantize(x, scheme)
        assert_same(product, mxkern.gemm(left, q, precision=precision), form)


def test_without_pytorch() -> None:
    code = """if True:
        import sys
        sys.modules["torch"] = None  # an import of it fails
        import jax, jax.numpy as jnp, mxkern
        x = jnp.ones((64, 96))
        w = mxkern.prepare_operand(mxkern.quantize(x, "nvfp4"), form="few_tokens")
        y = mxkern.gemm(x.astype("bfloat16"), w)
        assert y.devices() == x.devices()
        print(float(y.sum()), float(jax.jit(mxkern.gemm)(x.astype("bfloat16"), w).sum()))
    """
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(64.0 * 64 * 96)] * 2


def test_numbers_that_change_need_no_other_program() -> None:
    programs._program.cache_clear()  # of tests that ran before
    mxkern.quantize(X, "nvfp4", amax=1.5)
    before = programs._program.cache_info().misses
    for amax in (2.5, 3, np.float32(1e-45), 0.0):
        q = mxkern.quantize(X, "nvfp4", amax=amax)
        assert_same(q, mxkern.quantize(X, "nvfp4", amax=jnp.float32(amax)), f"{amax}")
    both = mxkern.quantize_both(X, "nvfp4", amax=(2.5, 3.5))
    assert_same(both[1], mxkern.quantize_columns(X, "nvfp4", amax=3.5), "a pair")
    assert programs._program.cache_info().misses - before == 2
    with pytest.raises(ValueError, match=r"quantize: amax is -1.0; expected a finite float32"):
        mxkern.quantize(X, "nvfp4", amax=-1)
