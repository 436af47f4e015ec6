# tests/python/arrays/test_jax_trees.py: BlockScaled and PreparedOperand as trees of JAX: their
# paths, the shape that follows from their arrays, and what jax.export writes of them.
from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxkern
from support import SCHEMES, available, mostly_slow, refused

if not available("jax"):
    pytest.skip("jax is not installed", allow_module_level=True)

import jax
import jax.export
import jax.numpy as jnp

if jax.default_backend() != "cpu":
    pytest.skip("JAX runs on a GPU here", allow_module_level=True)

from jax_functions import X, array, assert_same
from mxkern.arrays import jax_trees

MANY = array(3, 64, 100)
MX = [scheme for scheme in SCHEMES if scheme != "nvfp4"]


def same_tree(a: Any, b: Any) -> bool:
    return bool(jax.tree_util.tree_structure(a) == jax.tree_util.tree_structure(b))


def test_paths() -> None:
    w = mxkern.prepare_operand(mxkern.quantize(X, "nvfp4"))
    tree = {"w": mxkern.quantize(X, "mxfp8"), "n": w}
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    source = [f"['n'].source.{part}" for part in ("codes", "scales", "tensor_scale")]
    data = [] if w.data is None else ["['n'].data"]
    assert paths == [*data, *source, "['w'].codes", "['w'].scales"]


@pytest.mark.parametrize("scale_layout", ["row_major", "swizzled"])
@pytest.mark.parametrize("scheme", mostly_slow(MX, "mxfp4"))
def test_stacks(scheme: str, scale_layout: str) -> None:
    """One of many, many of one, and what a transformation makes of each."""
    quantize = lambda x: mxkern.quantize(x, scheme, scale_layout=scale_layout)  # noqa: E731
    each = [quantize(x) for x in MANY]
    stack = jax.tree_util.tree_map(lambda *parts: jnp.stack(parts), *each)
    assert stack.shape == MANY.shape and same_tree(stack, each[0])
    assert_same(stack, quantize(MANY), "stacked")
    for function in (jax.vmap(quantize), jax.jit(jax.vmap(quantize))):
        q = function(MANY)
        assert q.shape == MANY.shape
        assert_same(q, stack, "vmap")
    _, q = jax.lax.scan(lambda _, x: (None, quantize(x)), None, MANY)
    assert q.shape == MANY.shape
    assert_same(q, stack, "what scan returns")
    one = jax.tree_util.tree_map(lambda part: part[1], q)
    assert one.shape == MANY.shape[1:]
    assert_same(mxkern.dequantize(one), mxkern.dequantize(each[1]), "one of them")

    def decoded(q: Any) -> Any:
        assert q.shape == MANY.shape[1:]
        return mxkern.dequantize(q)

    want = mxkern.dequantize(quantize(MANY))
    assert_same(jax.vmap(decoded)(q), want, "vmap over a stack")
    assert_same(jax.lax.map(decoded, q), want, "scan over a stack")


def test_each_matrix_has_a_tensor_scale() -> None:
    q = jax.vmap(lambda x: mxkern.quantize(x, "nvfp4"))(MANY)
    assert q.shape == MANY.shape and q.tensor_scale.shape == (3,)
    for i in range(3):
        one = jax.tree_util.tree_map(lambda part, i=i: part[i], q)
        assert one.shape == MANY.shape[1:]
        assert_same(one, mxkern.quantize(MANY[i], "nvfp4"), str(i))


def test_last_extent() -> None:
    """It stays where the last block is filled in part, and follows from whole blocks else."""
    for scheme, block in (("mxfp4", 32), ("mxfp6", 32), ("nvfp4", 16), ("mxfp8", 32)):
        q = mxkern.quantize(X[:, : 2 * block - 5], scheme)
        size = mxkern.schemes[scheme].block_bytes
        shape = jax.tree_util.tree_map(lambda part: part, q).shape
        assert shape == (64, 2 * block - 5), scheme
        half = jax.tree_util.tree_map(lambda part: part, q)
        assert half.shape == (64, 2 * block - 5)
        first = [q.codes[:, :size], q.scales[:, :1], *([] if q.tensor_scale is None else [1.0])]
        structure = jax.tree_util.tree_structure(q)
        assert jax.tree_util.tree_unflatten(structure, first).shape == (64, block), scheme
    odd = [q.codes[:, :7], q.scales[:, :1]]
    structure = jax.tree_util.tree_structure(q)
    assert jax.tree_util.tree_unflatten(structure, odd).shape == (64, 7)  # 8-bit codes are elements
    packed = mxkern.quantize(X, "mxfp4")
    structure = jax.tree_util.tree_structure(packed)
    odd = [packed.codes[:, :7], packed.scales]  # no whole block
    assert jax.tree_util.tree_unflatten(structure, odd).shape == (64, 96)


@pytest.mark.parametrize(
    "leaf", [None, 3, object(), jax.sharding.PartitionSpec("d"), np.float32(1), (4,), "codes"]
)
def test_leaves_that_are_no_arrays(leaf: Any) -> None:
    q = mxkern.quantize(X, "mxfp4")
    structure = jax.tree_util.tree_structure(q)
    made = jax.tree_util.tree_unflatten(structure, [leaf, leaf])
    assert made.parts == (leaf, leaf, None) and made.facts == q.facts
    if leaf is not None and not isinstance(leaf, tuple):
        assert same_tree(made, q)


def test_carries_and_conditions() -> None:
    q = mxkern.quantize(X, "mxfp4")

    def again(q: Any, _: Any = None) -> Any:
        return mxkern.quantize(mxkern.dequantize(q), "mxfp4"), q.codes[0, 0]

    last, first_codes = jax.jit(lambda q: jax.lax.scan(again, q, None, length=3))(q)
    want = [q]
    for _ in range(3):
        want.append(again(want[-1])[0])
    assert_same(last, want[-1], "carry")
    assert first_codes.tolist() == [int(each.codes[0, 0]) for each in want[:3]]
    got = jax.jit(lambda n, q: jax.lax.cond(n > 0, lambda q: again(q)[0], lambda q: q, q))(1, q)
    assert_same(got, want[1], "cond")
    got = jax.lax.fori_loop(0, 2, lambda _, q: again(q)[0], q)
    assert_same(got, want[2], "fori_loop")


def test_programs_are_compiled_once_for_each_shape() -> None:
    shapes = []

    @jax.jit
    def decoded(q: Any) -> Any:
        shapes.append(q.shape)
        return q, mxkern.dequantize(q)

    for rows in (64, 32, 64, 32):
        q, values = decoded(mxkern.quantize(X[:rows], "mxfp4"))
        assert q.shape == values.shape == (rows, 96)
    assert shapes == [(64, 96), (32, 96)]
    # As much of the last block as there is differs, and the arrays' shapes do not.
    for columns in (96, 90):
        q, values = decoded(mxkern.quantize(X[:, :columns], "mxfp4"))
        assert q.shape == values.shape == (64, columns)
    assert shapes[2:] == [(64, 90)]
    # And where both differ.
    for columns in (58, 90, 64, 58):
        q, values = decoded(mxkern.quantize(X[:, :columns], "mxfp4"))
        assert q.shape == values.shape == (64, columns)
    assert shapes[3:] == [(64, 58), (64, 64)]


def test_residuals() -> None:
    @jax.custom_vjp
    def product(x: Any, w: Any) -> Any:
        return forward(x, w)[0]

    def forward(x: Any, w: Any) -> Any:
        rows, columns = mxkern.quantize_both(x, "mxfp8")
        return mxkern.gemm(rows, mxkern.quantize(w, "mxfp8")), columns

    def backward(columns: Any, g: Any) -> Any:
        assert columns.shape == (96, 64)
        of_w = mxkern.gemm(mxkern.quantize_columns(g, "mxfp8"), columns)
        return jnp.zeros((64, 96)), of_w

    product.defvjp(forward, backward)
    of_w = jax.grad(lambda w, x: product(x, w).sum())
    w, many = array(32, 96, seed=1), jnp.stack([X, X[::-1] * 3])
    each = jnp.stack([of_w(w, x) for x in many])
    assert_same(jax.jit(jax.vmap(of_w, in_axes=(None, 0)))(w, many), each, "vmap")


def test_a_shape_that_does_not_fit_stays_refused() -> None:
    q = mxkern.quantize(MANY, "mxfp8")
    mxkern.dequantize(q)  # compiled
    for shape in ((3, 64, 64), (64, 100), (192, 100), (4, 64, 100)):
        wrong = q.replace(shape=shape)
        assert jax.tree_util.tree_map(lambda part: part, wrong).shape == shape
        assert not same_tree(wrong, q)
        refused(ValueError, lambda wrong=wrong: mxkern.dequantize(wrong), "dequantize: q")
        refused(ValueError, lambda wrong=wrong: jax.jit(mxkern.dequantize)(wrong), "dequantize: q")
    for shape in ([3, 64, None], (3.0, 64.0, 100.0), (3, 64, None), ()):
        with pytest.raises((TypeError, ValueError), match=r"dequantize: q\.shape is"):
            mxkern.dequantize(q.replace(shape=shape))
    assert_same(mxkern.dequantize(q.replace(shape=[*q.shape])), mxkern.dequantize(q), "a list")
    assert_same(jax.tree_util.tree_map(lambda part: part, q), q, "what is kept of shapes")
    # A shape of one matrix beside a stack, as a hand might write it.
    stacked = q.replace(shape=q.shape[1:])
    assert_same(jax.vmap(mxkern.dequantize)(stacked), mxkern.dequantize(q), "one matrix's shape")


def test_stacked_prepared_operands() -> None:
    w = mxkern.prepare_operand(mxkern.quantize(MANY[0], "mxfp4"))
    stack = jax.tree_util.tree_map(lambda part: jnp.stack([part, part]), w)
    assert stack.shape == stack.source.shape == (2, 64, 100)
    assert same_tree(stack, w)
    one = jax.tree_util.tree_map(lambda part: part[0], stack)
    assert_same(mxkern.gemm(MANY[1], one), mxkern.gemm(MANY[1], w), "one of them")


def test_what_is_written_of_a_tree() -> None:
    """Without the arrays, which jax.export describes."""
    q = mxkern.quantize(X, "nvfp4", scale_layout="swizzled")
    for tree in (q, q.replace(shape=(3, 96)), mxkern.prepare_operand(q)):
        static = jax.tree_util.tree_structure(tree).node_data()[1]
        again = jax_trees._read(bytearray(jax_trees._written(static)))
        assert again == static and hash(again) == hash(static)
        assert (again.shape, again.follows) == (static.shape, tree.shape == (64, 96))


@pytest.mark.slow
def test_export(tmp_path: Path) -> None:
    """The program, its arguments' tree and its result's, in this process and in another one."""
    pytest.importorskip("flatbuffers", reason="jax.export writes with flatbuffers")
    q = mxkern.quantize(X, "nvfp4", scale_layout="swizzled")
    w = mxkern.prepare_operand(mxkern.quantize(X, "mxfp8"))

    def function(q: Any, w: Any) -> Any:
        return mxkern.quantize(mxkern.dequantize(q), "mxfp6"), mxkern.gemm(q, w)

    allowed = [
        jax.export.DisabledSafetyCheck.custom_call(f"mxkern_{name}")
        for name in ("quantize", "dequantize", "gemm")
    ]
    exported = jax.export.export(jax.jit(function), disabled_checks=allowed)(q, w)
    text = bytes(exported.serialize())
    again = jax.export.deserialize(bytearray(text))
    assert again.in_tree == exported.in_tree and again.out_tree == exported.out_tree
    want = function(q, w)
    assert_same(again.call(q, w), want, "exported")
    assert again.call(q, w)[0].shape == X.shape
    (tmp_path / "program").write_bytes(text)
    np.save(tmp_path / "x.npy", np.asarray(X))
    code = f"""if True:
        import jax, jax.export, mxkern, numpy as np
        x = jax.numpy.asarray(np.load({str(tmp_path / "x.npy")!r}))
        text = open({str(tmp_path / "program")!r}, "rb").read()
        program = jax.export.deserialize(bytearray(text))
        q = mxkern.quantize(x, "nvfp4", scale_layout="swizzled")
        w = mxkern.prepare_operand(mxkern.quantize(x, "mxfp8"))
        made, product = program.call(q, w)
        print(made.scheme, made.shape, float(product.sum()))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == f"mxfp6_e2m3 (64, 96) {float(want[1].sum())}"
