# mxkern/ops/quantize.py: quantize along the rows, the columns, or both, and the tensor amax.
from __future__ import annotations

from typing import Any, Unpack, overload

from mxkern import _core
from mxkern.ops.calls import calls
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.keywords import BothKeywords, QuantizeKeywords, Takes
from mxkern.values.names import SchemeName
from mxkern.values.options import hadamard_of
from mxkern.values.scheme import Scheme
from mxkern.values.value import Array, NumPyArray

_QUANTIZE = Takes("quantize", QuantizeKeywords)


@_QUANTIZE
def quantize(
    x: Array, scheme: SchemeName | Scheme, **keywords: Unpack[QuantizeKeywords]
) -> BlockScaled[Array]:
    """Quantizes x, with blocks along its last axis.

    x             [..., K], float32, float16 or bfloat16: NumPy, PyTorch or JAX; on CUDA devices
                  PyTorch, CuPy or JAX. A last block may be short: missing elements count as zero.
    scheme        "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8",
                  "nvfp4", or a record of mxkern.schemes; or your own, as
                  mxkern.Scheme("e3m4", block=64) or its name, "e3m4b64"
    scale_rule    of the MX schemes: "rceil" (nothing saturates, but a float32 next to the largest
                  value times a few powers of two, of mxint8 times each, and next to float32's
                  largest), "floor" (OCP v1.0), "ceil", "even"; and for every scheme "mse": of the
                  scale and its two neighbours the one with the smallest sum of squared errors
    rounding      "nearest" (ties to even), "stochastic", which needs a seed, "nearest_away",
                  "toward_zero", "up" or "down"
    seed, offset  0 to 2**64 - 1. The random bits of an element depend on seed, offset and its index
                  in x, and on nothing else. offset may be an array of one integer of 32 or 64
                  bits, read modulo 2**64 (-1 is 2**64 - 1): a step that is counted on the device,
                  or an argument under jax.jit. seed lies on the host.
    scale_layout  "row_major", or "swizzled": 128x4 tiles, as cuBLAS and CUTLASS read them
    block         "1x32" (nvfp4: "1x16"), or "32x32" ("16x16") for one scale a square tile
    hadamard      16, 32, 64 or 128: a random Hadamard transform of groups along K first, of which
                  K has to be a multiple; not with square tiles. The result does not remember it:
                  both operands of a product must have the same one, and
                  random_hadamard(dequantize(q), 16, inverse=True) is the way back
    sign_mask     of the transform: bit i set negates element i of a group
    four_over_six nvfp4: the better of two scales for each block, by the sum of squared errors (True
                  or "mse") or of absolute ones ("mae")
    amax          nvfp4: the largest magnitude of the tensor, if known; a float or a float32 array
    tensor_scale  nvfp4: the decode multiplier itself, instead of amax
    out           a BlockScaled to write to; it is returned
    stream        CUDA: a stream handle, instead of the framework's current stream
    random_bits   of stochastic rounding: 1 to 16 an element
    subnormals    False: elements that round to a subnormal become 0
    saturate      False: elements beyond the largest become Inf or NaN, where the format has them
    threshold     1 <= threshold < 2: "rceil" lets amax / max reach this many times a power of two
                  before the scale steps up
    scales        scales as q.scales has them, row_major, instead of scales that are found
    block_amax    the largest magnitudes of blocks, float32, in the shape of scales, instead

    The last six, and schemes and names that mxkern.schemes lacks, take code that knows a scheme at
    run time: on the CPU a few times as slow as that of mxkern.schemes.

    Returns a BlockScaled of x's framework. NaN or Inf in a block makes that block NaN and nothing
    else. Raises TypeError for dtypes and kinds, ValueError for values and shapes, RuntimeError for
    what the build or the machine lacks. Source: OCP Microscaling Formats (MX) v1.0; NVFP4 as
    Transformer Engine computes it.

    >>> import mxkern, numpy as np
    >>> q = mxkern.quantize(np.float32([[1, 2, 3, 448]]), "mxfp8_e4m3")
    >>> q.codes.astype(np.float32), q.scales.astype(np.float32)
    (array([[  1.,   2.,   3., 448.]], dtype=float32), array([[1.]], dtype=float32))
    """
    return _core.quantize(calls, _QUANTIZE.core, False, x, scheme, keywords)


_QUANTIZE_COLUMNS = Takes("quantize_columns", QuantizeKeywords)


@_QUANTIZE_COLUMNS
def quantize_columns(
    x: Array, scheme: SchemeName | Scheme, **keywords: Unpack[QuantizeKeywords]
) -> BlockScaled[Array]:
    """Quantizes the transpose of x [..., M, K]: the result has the shape [..., K, M], with blocks
    along M. Arguments, dtypes and errors as for quantize; random bits are those of x's elements.
    M has to be a multiple of hadamard.

    >>> import mxkern, numpy as np
    >>> x = np.random.default_rng(0).standard_normal((64, 32), np.float32)
    >>> q = mxkern.quantize_columns(x, "mxint8")
    >>> q.shape, bool((q.codes == mxkern.quantize(x.T, "mxint8").codes).all())
    ((32, 64), True)
    """
    return _core.quantize(calls, _QUANTIZE_COLUMNS.core, True, x, scheme, keywords)


_QUANTIZE_BOTH = Takes("quantize_both", BothKeywords)


@_QUANTIZE_BOTH
def quantize_both(
    x: Array, scheme: SchemeName | Scheme, **keywords: Unpack[BothKeywords]
) -> tuple[BlockScaled[Array], BlockScaled[Array]]:
    """quantize(x) and quantize_columns(x) of x [..., M, K] in one call.

    hadamard            transforms the columns' side only, as training recipes do, unless
                        hadamard_rows is True; M has to be a multiple of it, and K then too
    amax, tensor_scale  one for both sides, or a pair (rows, columns)
    out                 a pair (rows, columns)
    The other arguments, dtypes and errors as for quantize. Returns (rows, columns).

    >>> import mxkern, numpy as np
    >>> rows, columns = mxkern.quantize_both(np.ones((32, 64), np.float32), "mxfp4")
    >>> rows.shape, columns.shape
    ((32, 64), (64, 32))
    """
    return _core.quantize_both(calls, _QUANTIZE_BOTH.core, x, scheme, keywords)


@overload
def tensor_amax(
    x: NumPyArray,
    *,
    hadamard: int | None = ...,
    sign_mask: int | None = ...,
    columns: bool = ...,
    out: Any = ...,
    stream: int | None = ...,
) -> NumPyArray: ...
@overload
def tensor_amax(
    x: Array,
    *,
    hadamard: int | None = ...,
    sign_mask: int | None = ...,
    columns: bool = ...,
    out: Any = ...,
    stream: int | None = ...,
) -> Array: ...
def tensor_amax(
    x: Any,
    *,
    hadamard: int | None = None,
    sign_mask: int | None = None,
    columns: bool = False,
    out: Any = None,
    stream: int | None = None,
) -> Any:
    """The largest magnitude among the finite elements of x, 0 if there is none; with a Hadamard
    transform, that of the transformed x, which quantize finds with the same arguments.

    x          [..., K], float32, float16 or bfloat16
    hadamard   16, 32, 64 or 128: the transform, as in quantize
    sign_mask  of the transform, as in quantize
    columns    whether the transform is that of quantize_columns, along M of x [..., M, K]
    out        a 0-d float32 array to write to; it is returned
    stream     CUDA: a stream handle, instead of the framework's current stream

    Where a tensor lies on many devices, reduce their amaxes with a maximum, and pass the result to
    quantize as amax. Returns a 0-d float32 array of x's framework. Raises TypeError, ValueError,
    RuntimeError.

    >>> import mxkern, numpy as np
    >>> float(mxkern.tensor_amax(np.float32([[1, -3, np.inf]])))
    3.0
    >>> x = np.random.default_rng(0).standard_normal((64, 32), np.float32)
    >>> amax = mxkern.tensor_amax(x, hadamard=16, columns=True)
    >>> q = mxkern.quantize_columns(x, "nvfp4", hadamard=16)
    >>> bool(q.tensor_scale == mxkern.quantize(x, "nvfp4", amax=amax).tensor_scale)
    True
    """
    errors.flag("tensor_amax", "columns", columns)
    transform = hadamard_of("tensor_amax", "hadamard", hadamard, sign_mask)
    return _core.tensor_amax(calls, x, *transform, columns, out, stream)
