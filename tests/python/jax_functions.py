# tests/python/jax_functions.py: functions of x [64, 96] that JAX transforms, and comparisons.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mxkern
from support import array_of, random_values


def array(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    """On JAX's default device."""
    return array_of("jax", random_values(shape, dtype, seed))


X = array(64, 96)
W = mxkern.quantize(array(32, 96, seed=1), "mxfp4")
N = mxkern.quantize(array(32, 96, seed=2), "nvfp4")
BIAS = jnp.arange(32.0)
EXPERTS = mxkern.quantize(array(3, 8, 96, seed=3), "mxfp4")
ENDS = jnp.asarray([7, 7, 60], "int32")
COLUMN_ENDS = jnp.asarray([0, 32, 96, 96], "int32")
BIASES = jnp.arange(24.0).reshape(3, 8)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "swizzled": lambda x: mxkern.quantize(x, "mxfp8", scale_rule="floor", scale_layout="swizzled"),
    "computed x": lambda x: mxkern.quantize(x[:, ::2] * 2, "mxfp6"),
    "amax": lambda x: mxkern.quantize(x, "nvfp4", amax=6.5),
    "amax of NumPy": lambda x: mxkern.quantize(x, "nvfp4", amax=np.float64(6.5)),
    "traced amax": lambda x: mxkern.quantize_nvfp4(x, amax=jnp.abs(x).max(), four_over_six="mae"),
    "stochastic": lambda x: mxkern.quantize_mxfp4(x, rounding="stochastic", seed=2**64 - 1),
    "columns": lambda x: mxkern.quantize_columns(x, "mxint8", block="32x32"),
    "square, transposed": lambda x: mxkern.transpose_square_blocks(
        mxkern.quantize(x, "nvfp4", block="16x16", scale_layout="swizzled")
    ),
    "both": lambda x: mxkern.quantize_both(x, "nvfp4", hadamard=16, amax=(3.0, None)),
    "dequantize": lambda x: mxkern.dequantize(mxkern.quantize(x, "nvfp4"), dtype="bfloat16"),
    "fake_quantize": lambda x: mxkern.fake_quantize(x.astype("bfloat16"), "mxfp6") + 1,
    "gemm": lambda x: mxkern.gemm(mxkern.quantize(x, "mxfp8"), W, bias=BIAS, dtype="float16"),
    "gemm of plain x": lambda x: mxkern.gemm(x, N, alpha=0.5, bias=x[0, :32]),
    "grouped": lambda x: mxkern.grouped_gemm(
        mxkern.quantize(x, "mxfp8"), EXPERTS, ENDS, dtype="bfloat16", bias=BIASES
    ),
    "grouped, of plain x": lambda x: mxkern.grouped_gemm(
        x, EXPERTS, ENDS, factors=x[0, :3], alpha=0.5
    ),
    "grouped columns": lambda x: mxkern.grouped_gemm(
        mxkern.quantize(x, "mxfp8"), mxkern.quantize(x[:5], "mxfp4"), COLUMN_ENDS, dtype="bfloat16"
    ),
    "amax of x": lambda x: mxkern.quantize(x, "nvfp4", amax=mxkern.tensor_amax(x)),
    "transformed": lambda x: mxkern.random_hadamard(x, 32, sign_mask=0x1234),
    "and back": lambda x: mxkern.random_hadamard(x.astype("bfloat16")[0], 16, inverse=True),
    "swizzled scales": lambda x: mxkern.swizzle_scales(mxkern.quantize(x, "nvfp4").scales),
    "scales in rows": lambda x: mxkern.unswizzle_scales(
        mxkern.quantize(x, "mxfp4", scale_layout="swizzled").scales, 64, 3
    ),
    "prepared": lambda x: mxkern.gemm(x, mxkern.prepare_operand(W)),
}


def assert_same(got: Any, want: Any, what: str) -> None:
    """Equal trees of arrays, bit for bit."""
    leaves, structure = jax.tree_util.tree_flatten(got)
    expected, wanted = jax.tree_util.tree_flatten(want)
    assert structure == wanted, what
    for a, b in zip(leaves, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), what
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), what
