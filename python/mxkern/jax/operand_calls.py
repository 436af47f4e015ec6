# mxkern/jax/operand_calls.py: the operands of a layer's products, quantized in one call each, and
# the products.
from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mxkern import _core
from mxkern.arrays.jax_cuda import device_index
from mxkern.jax.offset_words import number_of
from mxkern.ops.gemm import gemm
from mxkern.ops.quantize import quantize, quantize_both, quantize_columns
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.operand_options import options_of_operand, transform_of
from mxkern.values.options import FORMS
from mxkern.values.recipe import Operand
from mxkern.values.scheme import schemes


def quantized(
    x: Any, operand: Operand, name: str, seed: int, words: Any, *, rows: bool, columns: bool
) -> tuple[Any, Any]:
    """x [M, K] as an operand of a recipe: (rows, columns), None for what is not wanted.

    name   "input", "weight" or "gradient"
    words  the step as the halves of 64 bits, the lower one first; None where nothing is rounded
           stochastically
    """
    if not rows and not columns:
        return None, None
    offset = number_of(words, x) if operand.rounding == "stochastic" else 0
    options = options_of_operand(operand, name, seed, offset)
    missing = 0 if operand.hadamard is None else -x.shape[0] % operand.hadamard
    transform = transform_of(operand)
    if rows and columns and missing == 0:
        return quantize_both(x, operand.scheme, **transform, **options)
    row_side = quantize(x, operand.scheme, **options) if rows else None
    if not columns:
        return row_side, None
    filled = jax.numpy.pad(x, ((0, missing), (0, 0))) if missing else x
    return row_side, quantize_columns(filled, operand.scheme, **transform, **options)


def product(
    left: BlockScaled, right: BlockScaled, dtype: Any, precision: Any, bias: Any = None
) -> Any:
    """left [M, K] . right [N, K]^T in dtype, with the precision of a recipe."""
    if precision == "fast":
        precision = "folded" if _folds(left) and _folds(right) else "exact"
    return gemm(left, right, dtype=dtype, precision=precision, bias=bias)


def plain_product(a: Any, b: Any, axes: tuple[int, int], dtype: Any, bias: Any = None) -> Any:
    """The sum over an axis of a and one of b, of elements of a's dtype, in float32."""
    dimensions = (((axes[0],), (axes[1],)), ((), ()))
    wide = np.dtype(np.float32)
    out = jax.lax.dot_general(a, b.astype(a.dtype), dimensions, preferred_element_type=wide)
    return (out if bias is None else out + bias.astype(wide)).astype(dtype)


def _folds(q: BlockScaled) -> bool:
    """Whether products of the device read the scheme folded: Hopper's do, of some schemes."""
    codes = q.codes
    if isinstance(codes, jax.core.Tracer):
        device = -1 if jax.default_backend() == "cpu" else 0
    else:
        device = device_index(next(iter(codes.devices())))
    best: int = _core.prepared_form(-1, schemes[q.scheme].id, device)
    return best == FORMS["folded"]
