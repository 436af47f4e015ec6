# tests/python/jax_programs/jax_shard_map_cases.py: mxkern's functions on each of four devices,
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

import mxkern
from jax_functions import assert_same
from support import random_values

MESH = Mesh(np.array(jax.devices()), ("d",))
GRID = Mesh(np.array(jax.devices()).reshape(2, 2), ("d", "e"))
X = random_values((128, 64), "float32", 1)
W = random_values((32, 64), "float32", 2)
AMAX = np.float32([1, 2, 3, 4])
SHARDS = [X[32 * i : 32 * i + 32] for i in range(4)]


def mapped(
    function: Callable[..., Any], in_specs: Any, out_specs: Any, mesh: Mesh = MESH
) -> Callable[..., Any]:
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs))


def faked(x: Any, **options: Any) -> Any:
    return mxkern.fake_quantize(x, "mxfp8", **options)


def squared(x: Any, w: Any) -> Any:
    return ((x @ w.T) ** 2).sum()


def assert_near(got: Any, want: Any, what: str) -> None:
    """Equal but for the order of sums."""
    error = np.abs(np.asarray(got) - np.asarray(want)).max() / np.abs(np.asarray(want)).max()
    assert error < 1e-5, f"{what}: relative error {error}"


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "quantized x": lambda w, x: squared(faked(x), w),
    "quantized w": lambda w, x: squared(x, faked(w)),
    "both": lambda w, x: squared(faked(x), faked(w)),
    "random bits": lambda w, x: squared(x, faked(w, rounding="stochastic", seed=1)),
    "along columns": lambda w, x: squared(faked(x.T).T, faked(w.T).T),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name: str) -> None:
    """Of what every device has a copy of: the sum over devices, which JAX adds; and of parts."""
    loss = LOSSES[name]
    of_w = mapped(jax.grad(loss), (P(), P("d")), P())
    assert_near(of_w(W, X), sum(jax.grad(loss)(W, x) for x in SHARDS), f"{name}, of w")
    of_x = mapped(jax.grad(loss, argnums=1), (P(), P("d")), P("d"))
    want = np.concatenate([jax.grad(loss, argnums=1)(W, x) for x in SHARDS])
    assert_near(of_x(W, X), want, f"{name}, of x")


def test_gradients_on_two_axes() -> None:
    """Parts of x along one axis and of w along the other: both gradients are sums over an axis."""
    loss = LOSSES["both"]
    function = mapped(jax.grad(loss, (0, 1)), (P("e"), P("d")), (P("e"), P("d")), GRID)
    for got, want, name in zip(function(W, X), jax.grad(loss, (0, 1))(W, X), "wx", strict=True):
        assert_near(got, want, f"of {name}")


def test_gradient_where_only_the_scale_differs() -> None:
    def loss(x: Any, amax: Any) -> Any:
        return (mxkern.fake_quantize(x, "nvfp4", amax=amax[0]) ** 2).sum()

    got = mapped(jax.grad(loss), (P(), P("d")), P())(X, AMAX)
    want = sum(np.asarray(jax.grad(loss)(X, AMAX[i : i + 1])) for i in range(4))
    assert_near(got, want, "of x")


def test_tangents() -> None:
    """That of x, and the zeros of what is not differentiated."""
    both = mapped(lambda x: jax.jvp(faked, (x,), (2 * x,)), P("d"), P("d"))(X)
    assert_same(both, (faked(jnp.asarray(X)), jnp.asarray(2 * X)), "of x")
    none = mapped(
        lambda w, x: jax.jvp(lambda w: w.sum() + faked(x), (w,), (w,)), (P(), P("d")), P("d")
    )(W, X)
    assert_near(none[1], np.full_like(X, W.sum()), "of w")


def test_a_layer_of_ones_own() -> None:
    """Its backward pass owes the gradient of w a sum over the devices, as w is on each of them."""

    @jax.custom_vjp
    def layer(x: Any, w: Any) -> Any:
        return forward(x, w)[0]

    def forward(x: Any, w: Any) -> Any:
        (x_rows, x_columns), (w_rows, w_columns) = (
            mxkern.quantize_both(each, "mxfp8") for each in (x, w)
        )
        return mxkern.gemm(x_rows, w_rows), (x_columns, w_columns)

    def backward(kept: Any, g: Any) -> Any:
        x_columns, w_columns = kept
        g_rows, g_columns = mxkern.quantize_both(g, "mxfp8")
        of_w = mxkern.gemm(g_columns, x_columns)
        return mxkern.gemm(g_rows, w_columns), summed(of_w)

    layer.defvjp(forward, backward)

    def loss(w: Any, x: Any) -> Any:
        return (layer(x, w) ** 2).sum()

    summed: Callable[[Any], Any] = lambda of_w: jax.lax.psum(of_w, "d")  # noqa: E731
    of_w, of_x = mapped(jax.grad(loss, (0, 1)), (P(), P("d")), (P(), P("d")))(W, X)
    summed = lambda of_w: of_w  # noqa: E731
    parts = [jax.grad(loss, (0, 1))(jnp.asarray(W), jnp.asarray(x)) for x in SHARDS]
    assert_near(of_w, sum(part[0] for part in parts), "of w")
    assert_near(of_x, np.concatenate([part[1] for part in parts]), "of x")


PARTS: dict[str, Callable[[Any], Any]] = {
    "codes": lambda x: mxkern.quantize(x, "mxfp8").codes,
    "both": lambda x: mxkern.quantize_both(x, "mxfp4")[1].codes,
    "tensor scale": lambda x: mxkern.quantize(x, "nvfp4").tensor_scale,
    "tensor_amax": mxkern.tensor_amax,
    "fake_quantize": faked,
    "product": lambda x: mxkern.gemm(x, mxkern.quantize(jnp.asarray(W), "mxfp4")),
    "transformed": mxkern.random_hadamard,
    "prepared": lambda x: mxkern.prepare_operand(x, "mxfp8").source.codes,
}


@pytest.mark.parametrize("name", PARTS)
def test_what_differs_is_not_taken_for_a_copy(name: str) -> None:
    with pytest.raises(ValueError, match="out_specs which require replication"):
        mapped(PARTS[name], P("d"), P())(X)
    # What every device makes of a copy is one.
    assert_same(mapped(PARTS[name], P(), P())(X), jax.jit(PARTS[name])(X), name)


def test_each_device_has_a_tensor_scale() -> None:
    """Unless they agree on the largest element."""

    def alone(x: Any) -> Any:
        q = mxkern.quantize(x, "nvfp4")
        return q.codes, q.scales, q.tensor_scale[None]

    def together(x: Any) -> Any:
        amax = jax.lax.pmax(mxkern.tensor_amax(x), "d")
        q = mxkern.quantize(x, "nvfp4", amax=amax)
        return q.codes, q.scales, jax.lax.pmax(q.tensor_scale, "d")

    each = [mxkern.quantize(jnp.asarray(x), "nvfp4") for x in SHARDS]
    want = [jnp.concatenate([q.parts[i] for q in each]) for i in range(2)]
    scales = jnp.stack([q.tensor_scale for q in each])
    assert_same(mapped(alone, P("d"), P("d"))(X), (*want, scales), "alone")
    specs = (P("d"), P("d"), P())
    whole = mxkern.quantize(jnp.asarray(X), "nvfp4")
    assert_same(mapped(together, P("d"), specs)(X), whole.parts, "together")


def test_a_block_scaled_goes_in_and_out() -> None:
    """With the shape of what a device has of it, along rows and along whole blocks."""
    shapes = []

    def turned(q: Any) -> Any:
        shapes.append(q.shape)
        gathered = jax.tree_util.tree_map(
            lambda part: jax.lax.all_gather(part, "d", axis=0, tiled=True), q
        )
        shapes.append(gathered.shape)
        return q, mxkern.dequantize(gathered)[:1]

    q = mxkern.quantize(jnp.asarray(np.concatenate([X, X], 1)), "mxfp4")
    same, _ = mapped(turned, P("d"), P("d"))(q)
    assert shapes == [(32, 128), (128, 128)]
    assert same.shape == q.shape
    assert_same(same, q, "rows")
    spec = q.map(lambda _: P(None, "d"))
    columns, _ = mapped(turned, (spec,), (spec, P("d")))(q)
    assert shapes[2:] == [(128, 32), (512, 32)]
    assert columns.shape == q.shape
    assert_same(columns, q, "columns")


def test_scan() -> None:
    def steps(x: Any, w: Any) -> Any:
        def step(x: Any, w: Any) -> Any:
            return mxkern.gemm(mxkern.quantize(x, "mxfp8"), mxkern.quantize(w, "mxfp4")), x[0, 0]

        return jax.lax.scan(step, x, w)[0]

    w = random_values((3, 64, 64), "float32", 3)
    got = mapped(steps, (P("d"), P()), P("d"))(X, w)
    assert_same(got, jax.jit(steps)(X, w), "scan")


def test_cond() -> None:
    def either(x: Any) -> Any:
        return jax.lax.cond(x[0, 0] > 0, lambda x: faked(x), lambda x: -x, x)

    got = mapped(either, P("d"), P("d"))(X)
    want = np.concatenate([faked(x) if x[0, 0] > 0 else -x for x in SHARDS])
    assert_near(got, want, "cond")
    assert len({bool(x[0, 0] > 0) for x in SHARDS}) == 2


@pytest.mark.parametrize("scheme", ["mxfp8", "nvfp4"])
def test_vmap(scheme: str) -> None:
    """One call for all, and one for each, inside and around."""

    def function(x: Any) -> Any:
        q = mxkern.quantize(x, scheme)
        return mxkern.dequantize(q), q.codes, q.scales

    many = np.stack([X, -2 * X])
    inside = mapped(jax.vmap(function), P(None, "d"), P(None, "d"))(many)
    around = jax.vmap(jax.shard_map(function, mesh=MESH, in_specs=P("d"), out_specs=P("d")))(many)
    assert_same(around, inside, "both ways")
    for i in range(2):
        parts = [function(jnp.asarray(x)) for x in np.split(many[i], 4)]
        want = [jnp.concatenate([part[k] for part in parts]) for k in range(3)]
        assert_same([part[i] for part in inside], want, f"{scheme}: {i}")


def test_random_bits_of_each_device() -> None:
    def rounded(x: Any, step: Any = None) -> Any:
        offset = 0 if step is None else step * 4 + jax.lax.axis_index("d")
        return mxkern.quantize(x, "mxfp4", rounding="stochastic", seed=1, offset=offset).codes

    same = np.full((4, 64), 1.1, np.float32)
    rows = np.asarray(mapped(rounded, P("d"), P("d"))(same))
    assert len({row.tobytes() for row in rows}) == 1
    apart = mapped(rounded, (P("d"), P()), P("d"))
    rows = np.concatenate([apart(same, np.int32(step)) for step in range(2)])
    assert len({row.tobytes() for row in rows}) == 8
    for i, row in enumerate(rows):
        want = mxkern.quantize(same[:1], "mxfp4", rounding="stochastic", seed=1, offset=i).codes
        assert row.tobytes() == want.tobytes(), i


def test_without_the_types() -> None:
    function = jax.shard_map(
        lambda x: mxkern.quantize(x, "mxfp8").codes,
        mesh=MESH,
        in_specs=P("d"),
        out_specs=P("d"),
        check_vma=False,
    )
    want = mxkern.quantize(jnp.asarray(X), "mxfp8").codes
    assert_same(jax.jit(function)(X), want, "check_vma=False")
