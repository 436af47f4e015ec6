# tests/python/jax_programs/test_jit.py: mxkern's functions under transformations of JAX, on the
# CPU.
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mxkern
from support import DTYPES, SCHEMES, array_of, available, mostly_slow, refused

if not available("jax"):
    pytest.skip("jax is not installed", allow_module_level=True)

import jax
import jax.numpy as jnp

if jax.default_backend() != "cpu":
    pytest.skip("JAX runs on a GPU here", allow_module_level=True)

from jax_functions import FUNCTIONS, W, X, array, assert_same
from mxkern import _core
from mxkern.jax import ffi


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jit(name: str) -> None:
    assert_same(jax.jit(FUNCTIONS[name])(X), FUNCTIONS[name](X), name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", mostly_slow(SCHEMES, "mxfp8_e4m3", "nvfp4"))
def test_every_scheme(scheme: str, dtype: str) -> None:
    x = array(3, 5, 50, dtype=dtype)
    rows, columns = jax.jit(lambda x: mxkern.quantize_both(x, scheme))(x)
    assert_same(rows, mxkern.quantize(x, scheme), scheme)
    assert_same(columns, mxkern.quantize_columns(x, scheme), scheme)
    decoded = jax.jit(lambda q: mxkern.dequantize(q, dtype=dtype))(rows)
    assert_same(decoded, mxkern.dequantize(rows, dtype=dtype), scheme)
    a, b = mxkern.quantize(x, scheme), mxkern.quantize(x[:, :4], scheme)
    assert_same(jax.jit(mxkern.gemm)(a, b), mxkern.gemm(a, b), scheme)


def test_prepared_operands_are_arguments() -> None:
    ready = mxkern.prepare_operand(W)
    assert len(jax.tree_util.tree_leaves(ready)) == (2 if ready.data is None else 3)
    assert_same(jax.jit(mxkern.gemm)(X, ready), mxkern.gemm(X, ready), "prepared for this CPU")
    w = mxkern.prepare_operand(W, form="expanded")
    assert len(jax.tree_util.tree_leaves(w)) == 2
    assert_same(jax.jit(mxkern.gemm)(X, w), mxkern.gemm(X, w), "prepared")
    stacked = jax.tree_util.tree_map(lambda part: jnp.stack([part, part[::-1]]), w)
    _, products = jax.lax.scan(lambda x, w: (x, mxkern.gemm(x, w)), X, stacked)
    assert_same(products[0], mxkern.gemm(X, w), "the first matrix")
    assert_same(products[1], products[0][:, ::-1], "the second one")


def test_preparing_is_a_part_of_a_program() -> None:
    for options in ({}, {"form": "expanded"}, {"keep_source": False}):
        prepared = jax.jit(lambda q, options=options: mxkern.prepare_operand(q, **options))(W)
        assert_same(prepared, mxkern.prepare_operand(W, **options), "of a BlockScaled")
    plain = jax.jit(lambda x: mxkern.prepare_operand(x, "mxfp6", scale_rule="floor"))(X)
    assert_same(plain, mxkern.prepare_operand(X, "mxfp6", scale_rule="floor"), "of plain x")


def test_vmap_gives_each_tensor_its_scale() -> None:
    both = jnp.stack([X, X * 100])
    q = jax.vmap(lambda x: mxkern.quantize(x, "nvfp4"))(both)
    assert q.tensor_scale.shape == (2,)
    for i in range(2):
        one = mxkern.quantize(both[i], "nvfp4")
        assert_same((q.codes[i], q.scales[i], q.tensor_scale[i]), one.parts, f"element {i}")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: mxkern.quantize(x, "mxfp4", scale_layout="swizzled", block="32x32"),
        lambda x: mxkern.quantize_columns(x, "mxfp8", scale_rule="floor", hadamard=32),
        lambda x: mxkern.quantize_both(x, "mxint8"),
        lambda x: mxkern.random_hadamard(x[0], 32),
        lambda x: mxkern.fake_quantize(x, "mxfp6"),
        lambda x: mxkern.dequantize(mxkern.quantize(x, "mxfp4", scale_layout="swizzled")),
        lambda x: mxkern.dequantize(mxkern.quantize(x, "mxint8"), dtype="bfloat16"),
    ],
)
def test_vmap_of_what_takes_batches(function: Callable[[Any], Any]) -> None:
    """One call for all elements, and the bytes of a call for each."""
    many = jnp.stack([jnp.stack([X, X * 3, X[::-1]]), jnp.stack([X / 7, -X, X * 1e-3])])
    for axes in (0, 1):
        twice = jax.vmap(jax.vmap(function, in_axes=axes))
        turned = many if axes == 0 else many.transpose(0, 2, 1, 3)
        got = jax.tree_util.tree_leaves(jax.jit(twice)(turned))
        for i in range(2):
            for k in range(3):
                want = jax.tree_util.tree_leaves(function(many[i, k]))
                assert_same([leaf[i, k] for leaf in got], want, f"{axes}: {i}, {k}")
    program = str(jax.make_jaxpr(jax.vmap(function))(many[0]))
    assert "scan" not in program and "while" not in program


@pytest.mark.slow
def test_numbers_that_are_traced() -> None:
    """As numbers are taken outside of programs, ints too; arrays of other dtypes are not."""
    code = """if True:
        import jax, jax.numpy as jnp, numpy as np, mxkern
        x = jnp.ones((4, 64), jnp.float32) * 1.3
        def same(got, want):
            leaves = [jax.tree_util.tree_leaves(each) for each in (got, want)]
            return all(a.dtype == b.dtype and (a == b).all() for a, b in zip(*leaves, strict=True))
        for name in ("amax", "tensor_scale"):
            for number in (3.0, 3):
                one = lambda x, a: mxkern.quantize(x, "nvfp4", **{name: a})
                assert same(jax.jit(one)(x, number), one(x, number)), (name, number)
                both = lambda x, a: mxkern.quantize_both(x, "nvfp4", **{name: (a, None)})
                assert same(jax.jit(both)(x, number), both(x, number)), (name, number)
                fake = lambda x, a: mxkern.fake_quantize(x, "nvfp4", **{name: a})
                assert same(jax.jit(fake)(x, number), fake(x, number)), (name, number)
                grad = jax.grad(lambda x, a: fake(x, a).sum())
                assert (jax.jit(grad)(x, number) == 1).all()
        for wrong in (np.float16(3), jnp.ones((), "bfloat16"), np.int32(3), True):
            try:
                jax.jit(one)(x, wrong)
                raise SystemExit(f"{wrong!r} was taken")
            except TypeError as error:
                assert "expected float32" in str(error), error
    """
    for wide in ("0", "1"):
        environment = {**os.environ, "JAX_ENABLE_X64": wide}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr


def test_large_arrays() -> None:
    """JAX's own threads call, and mxkern's work."""
    x = jnp.ones((2048, 2048))
    w = mxkern.quantize(x, "mxfp8")
    product = jax.jit(lambda x: mxkern.gemm(mxkern.quantize(x * 2, "mxfp8"), w))(x)
    assert (product == 4096).all()


@pytest.mark.slow
def test_two_threads_at_once() -> None:
    """Results are right, and no thread waits for another one without end."""
    code = """if True:
        import threading, jax, jax.numpy as jnp, mxkern
        w = mxkern.quantize(jnp.ones((256, 256)), "mxfp8")
        function = jax.jit(lambda x: mxkern.gemm(mxkern.quantize(x, "mxfp8"), w).sum())
        x = jnp.ones((256, 256))
        function(x).block_until_ready()
        sums = []
        def work():
            for _ in range(50):
                sums.append(float(function(x)))
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(set(sums), len(sums))
    """
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{{{256.0**3}}} 200\n"


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_an_offset_is_an_argument(dtype: str) -> None:
    """One program for all steps."""
    options = {"rounding": "stochastic", "seed": 3}
    traces = []

    @jax.jit
    def step(x: Any, offset: Any) -> Any:
        traces.append(offset)
        q = mxkern.quantize(x, "mxfp4", offset=offset, **options)
        both = mxkern.quantize_both(x, "nvfp4", offset=offset + 1, **options)
        return q, both, mxkern.fake_quantize(x, "mxfp6", offset=offset, **options)

    for offset in (0, 1, 2**31 - 1):
        q, both, fake = step(X, jnp.asarray(offset, dtype)[None])
        plus_one = (offset + 1 + 2**31) % 2**32 - 2**31 if dtype == "int32" else offset + 1
        assert_same(q, mxkern.quantize(X, "mxfp4", offset=offset, **options), f"{offset}")
        want = mxkern.quantize_both(X, "nvfp4", offset=plus_one % 2**64, **options)
        assert_same(both, want, f"{offset}, both")
        assert_same(fake, mxkern.fake_quantize(X, "mxfp6", offset=offset, **options), "fake")
    assert len(traces) == 1
    for number in (np.array(3), np.array(-1), np.uint64(2**40 + 7)):  # which JAX would cut
        fixed = jax.jit(
            lambda x, n=number: mxkern.quantize(x, "mxfp4", offset=np.asarray(n), **options)
        )
        want = mxkern.quantize(X, "mxfp4", offset=int(number) % 2**64, **options)
        assert_same(fixed(X), want, f"{number!r}")
    refused(ValueError, lambda: step(X, jnp.zeros(2, dtype)), "offset has shape (2,); expected an")


PREPARING = {"prepare_operand", "quantize_prepared"}  # there is nothing to prepare on the CPU
NUMBERS = (0, 0, 0, *[0] * 9, 0, 0)


@pytest.mark.parametrize(
    "operation, arrays, numbers, results",
    [
        ("quantize", [X], NUMBERS[:-1], [((64, 96), "float8_e4m3fn"), ((64, 3), "float8_e8m0fnu")]),
        ("quantize", [X], (*NUMBERS, 0), [((64, 96), "uint8"), ((64, 3), "uint8")]),
        ("quantize", [X], (0, 7, *NUMBERS[2:]), [((64, 96), "uint8"), ((64, 3), "uint8")]),
        ("quantize", [X], (0, -1, *NUMBERS[2:]), [((64, 96), "uint8"), ((64, 3), "uint8")]),
        ("quantize", [X], NUMBERS, [((64, 95), "uint8"), ((64, 3), "uint8")]),
        ("quantize", [X], NUMBERS, [((64, 96), "uint8")]),
        ("quantize", [], NUMBERS, [((64, 96), "uint8"), ((64, 3), "uint8")]),
        ("quantize", [X.astype("int32")], NUMBERS, [((64, 96), "uint8"), ((64, 3), "uint8")]),
        ("dequantize", [X], (0, 0, 1, -64, 96), [((64, 96), "float32")]),
        ("gemm", [X, X], (0, 0, False, 0, 0), [((64, 64), "float32")]),
        ("gemm", [X, X], (9, 0, False, 0, 0), [((64, 64), "float32")]),
    ],
)
def test_calls_that_do_not_fit(
    operation: str, arrays: list[Any], numbers: Any, results: list[tuple[Any, str]]
) -> None:
    """As a program from another version might make them: errors, and nothing is written."""
    assert ffi.missing("cpu") is None
    right = [jax.ShapeDtypeStruct((64, 96), "uint8"), jax.ShapeDtypeStruct((64, 3), "uint8")]
    codes, _ = ffi.call("quantize", right, [X], NUMBERS)
    assert (codes == mxkern.quantize(X, "mxfp8").codes.view("uint8")).all()
    promised = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]
    with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: mxkern: a compiled"):
        jax.block_until_ready(ffi.call(operation, promised, arrays, numbers))


@pytest.mark.slow
def test_calls_with_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a program says of its arrays, they are read and written within their bounds."""
    calls, call = [], ffi.call

    def record(operation: str, results: Any, arrays: Any, numbers: Any, **options: Any) -> Any:
        calls.append((operation, list(results), list(arrays), list(numbers)))
        return call(operation, results, arrays, numbers, **options)

    monkeypatch.setattr("mxkern.jax.operations.call", record)
    stochastic = {"rounding": "stochastic", "seed": 1}
    jax.make_jaxpr(lambda x: mxkern.quantize(x, "nvfp4", offset=jnp.int32(1), **stochastic))(X)
    jax.make_jaxpr(lambda x: mxkern.fake_quantize(x, "nvfp4", amax=jnp.float32(2)))(X)
    # Functions of their own, as JAX keeps what it has traced.
    for name in ("columns", "both", "amax of x", "dequantize", "gemm", "transformed", "and back"):
        jax.make_jaxpr(lambda x, name=name: FUNCTIONS[name](x))(X)
    for name in ("swizzled scales", "scales in rows", "grouped", "grouped, of plain x"):
        jax.make_jaxpr(lambda x, name=name: FUNCTIONS[name](x))(X)
    assert {name for name, *_ in calls} >= set(_core.xla_handlers()) - PREPARING
    random, refusals = np.random.default_rng(5), 0
    likely = [0, 1, 2, 3, 6, 16, 31, 33, 64, 97, 2**16, 2**32, 2**32 + 16, 2**47, -1, 2**63]
    for i in range(300):
        operation, results, arrays, numbers = calls[i % len(calls)]
        results = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in results]
        arrays = [jnp.ones(each.shape, each.dtype) for each in arrays]
        numbers = [int(each) for each in numbers]
        where = random.integers(6)
        if where == 0:
            arrays.pop(random.integers(len(arrays)))
        elif where == 1:
            array = arrays[random.integers(len(arrays))]
            arrays[random.integers(len(arrays))] = array.reshape(-1)[: array.size // 2]
        elif where == 2:
            result = results[random.integers(len(results))]
            shape = tuple(n // 2 for n in result.shape)
            results[random.integers(len(results))] = jax.ShapeDtypeStruct(shape, result.dtype)
        elif numbers:
            numbers[random.integers(len(numbers))] = likely[random.integers(len(likely))]
        try:
            jax.block_until_ready(ffi.call(operation, results, arrays, numbers))
        except jax.errors.JaxRuntimeError:
            refusals += 1
    assert 100 < refusals < 300


def test_what_the_library_refuses() -> None:
    """Errors of its own come through."""
    with pytest.raises(jax.errors.JaxRuntimeError, match="prepare_operand: form is few_tokens"):
        w = jax.jit(lambda x: mxkern.quantize(x, "mxfp8"))(X)
        numbers = (3, 0, 0, 1, 64, 96)
        result = [jax.ShapeDtypeStruct((2**16,), "uint8")]
        jax.block_until_ready(ffi.call("prepare_operand", result, [*w.parts[:2]], numbers))


def test_errors_come_while_tracing() -> None:
    def traced(function: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: jax.make_jaxpr(function)(X)

    refused(
        ValueError,
        traced(lambda x: mxkern.gemm(x[:, :5], W)),
        "gemm: a has shape (64, 5) and b (32, 96)",
    )
    refused(
        ValueError, traced(lambda x: mxkern.gemm(x, W, bias=x[0])), "gemm: bias has shape (96,)"
    )
    refused(ValueError, traced(lambda x: mxkern.gemm(x, W, beta=2.0)), "gemm: beta is 2.0")
    refused(
        TypeError,
        traced(lambda x: mxkern.quantize_both(x, "nvfp4", amax=(1.0, 2.0, 3.0))),
        "quantize_both: amax is (1.0, 2.0, 3.0); expected a pair",
    )
    refused(
        ValueError, traced(lambda x: mxkern.quantize(x, "mxfp8", amax=1.0)), "amax is for nvfp4"
    )
    refused(
        ValueError, traced(lambda x: mxkern.quantize(x[:, :40], "mxfp8", hadamard=16)), "hadamard"
    )
    refused(ValueError, traced(lambda x: mxkern.quantize_columns(x[0], "mxfp8")), "two dimensions")
    for name, call in {
        "quantize": lambda x: mxkern.quantize(x, "mxfp4", out=W),
        "dequantize": lambda x: mxkern.dequantize(mxkern.quantize(x, "mxfp4"), out=X),
        "gemm": lambda x: mxkern.gemm(x, W, out=X),
    }.items():
        refused(TypeError, traced(call), f"{name}: out is given, but JAX arrays cannot be written")
    if available("torch"):
        other = array_of("torch", np.ones(1, np.float32))
        wrong = traced(lambda x: mxkern.quantize(x, "nvfp4", amax=other))
        refused(TypeError, wrong, "quantize: amax is a PyTorch array beside", "one framework")
    short = W.replace(codes=W.codes[:, 1:])
    refused(
        ValueError,
        traced(lambda x: mxkern.dequantize(short.replace(scales=W.scales + x[0, 0].astype("u1")))),
        "dequantize: q",
    )


def test_the_others_name_the_way_out() -> None:
    explain = jax.jit(lambda q: mxkern.explain_gemm(q, q).workspace_bytes)
    refused(TypeError, lambda: explain(W), "explain_gemm: b.codes is a JAX tracer")
    out = jax.jit(lambda x: mxkern.random_hadamard(x, out=X))
    refused(TypeError, lambda: out(X), "random_hadamard: out is given, but JAX arrays cannot be")
    short = jax.jit(lambda x: mxkern.random_hadamard(x[:, :17]))
    refused(ValueError, lambda: short(X), "random_hadamard: x has a last axis of 17")
    wrong = jax.jit(lambda x: mxkern.unswizzle_scales(x[0].astype("uint8"), 64, 3))
    refused(ValueError, lambda: wrong(X), "unswizzle_scales: scales has shape (96,); expected")
    tracer = jax.jit(lambda x: mxkern.tensor_amax(x, stream=1))
    refused(TypeError, lambda: tracer(X), "tensor_amax: x is a JAX tracer", "leave stream out")
    refused(TypeError, lambda: tracer(X), "jax.pure_callback")
    mixed = jax.jit(lambda x: mxkern.quantize(np.ones((4, 64), "f"), "nvfp4", amax=x[0, 0]))
    refused(TypeError, lambda: mixed(X), "quantize: amax is a JAX array", "convert the others to J")


def test_compare_names_the_way_out() -> None:
    def largest_error(x: Any) -> Any:
        return np.float32(mxkern.compare(x, "mxfp8", "rceil")[0].max_error)

    refused(
        TypeError,
        lambda: jax.jit(largest_error)(X),
        "compare: x is a JAX tracer",
        "jax.pure_callback",
    )
    result = jax.ShapeDtypeStruct((), np.float32)
    on_host = jax.jit(
        lambda x: jax.pure_callback(lambda x: largest_error(np.asarray(x)), result, x)
    )
    assert_same(on_host(X), largest_error(X), "the way out")


@pytest.mark.slow
def test_programs_find_the_operations_before_it_meets_an_array() -> None:
    """As one does that was compiled or exported elsewhere."""
    code = """if True:
        import jax, numpy as np, mxkern
        call = jax.ffi.ffi_call("mxkern_tensor_amax", jax.ShapeDtypeStruct((), np.float32))
        numbers = np.zeros(0, np.int64)
        print(float(jax.jit(lambda x: call(x, numbers=numbers))(np.float32([[1, -3]]))))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == 3.0


@pytest.mark.slow
def test_sees_into_a_block_scaled_before_it_meets_an_array() -> None:
    code = """if True:
        import jax, mxkern, numpy as np
        q = mxkern.quantize(np.ones((8, 64), np.float32), "mxfp4")
        assert len(jax.tree_util.tree_leaves(q)) == 2
        print(jax.jit(mxkern.dequantize)(q).sum())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == 512.0
