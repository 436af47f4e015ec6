# mxkern/ops/quantize.py: quantize along the rows, the columns, or both, and the tensor amax.
from __future__ import annotations

from functools import partial
from typing import Any

from mxkern import _core, errors
from mxkern.arrays import adapter_of
from mxkern.block_scaled import BlockScaled
from mxkern.ops.run_quantize import quantized, quantized_both
from mxkern.options import options_of
from mxkern.outputs import checked_out, extents_of, on_stream
from mxkern.scheme import Scheme, scheme_of


def quantize(
    x: Any,
    scheme: str | Scheme,
    *,
    scale_rule: str = "rceil",
    rounding: str = "nearest",
    seed: int | None = None,
    offset: Any = 0,
    scale_layout: str = "row_major",
    block: str | tuple[int, int] | None = None,
    hadamard: int | None = None,
    sign_mask: int | None = None,
    four_over_six: bool | str = False,
    amax: Any = None,
    tensor_scale: Any = None,
    out: BlockScaled | None = None,
    stream: int | None = None,
) -> BlockScaled:
    """Quantizes x, with blocks along its last axis.

    x             [..., K], float32, float16 or bfloat16: NumPy, PyTorch or JAX; on CUDA devices
                  PyTorch, CuPy or JAX. A last block may be short: missing elements count as zero.
    scheme        "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8",
                  "nvfp4", or a record of mxkern.schemes
    scale_rule    of the MX schemes: "rceil" (nothing saturates, but a float32 next to the largest
                  value times a few powers of two, of mxint8 times each, and next to float32's
                  largest), "floor" (OCP v1.0), "ceil", "even"
    rounding      "nearest" (ties to even), or "stochastic", which needs a seed
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

    Returns a BlockScaled of x's framework. NaN or Inf in a block makes that block NaN and nothing
    else. Raises TypeError for dtypes and kinds, ValueError for values and shapes, RuntimeError for
    what the build or the machine lacks. Source: OCP Microscaling Formats (MX) v1.0; NVFP4 as
    Transformer Engine computes it.

    >>> import mxkern, numpy as np
    >>> q = mxkern.quantize(np.float32([[1, 2, 3, 448]]), "mxfp8_e4m3")
    >>> q.codes.astype(np.float32), q.scales.astype(np.float32)
    (array([[  1.,   2.,   3., 448.]], dtype=float32), array([[1.]], dtype=float32))
    """
    record = scheme_of("quantize", scheme)
    options = options_of(
        "quantize",
        record,
        scale_rule=scale_rule,
        rounding=rounding,
        seed=seed,
        offset=offset,
        block=block,
        hadamard=hadamard,
        sign_mask=sign_mask,
        four_over_six=four_over_six,
    )
    return quantized(
        "quantize",
        _core.quantize,
        record,
        options,
        x,
        scale_layout,
        amax,
        tensor_scale,
        out,
        stream,
    )


def quantize_columns(
    x: Any,
    scheme: str | Scheme,
    *,
    scale_rule: str = "rceil",
    rounding: str = "nearest",
    seed: int | None = None,
    offset: Any = 0,
    scale_layout: str = "row_major",
    block: str | tuple[int, int] | None = None,
    hadamard: int | None = None,
    sign_mask: int | None = None,
    four_over_six: bool | str = False,
    amax: Any = None,
    tensor_scale: Any = None,
    out: BlockScaled | None = None,
    stream: int | None = None,
) -> BlockScaled:
    """Quantizes the transpose of x [..., M, K]: the result has the shape [..., K, M], with blocks
    along M. Arguments, dtypes and errors as for quantize; random bits are those of x's elements.
    M has to be a multiple of hadamard.

    >>> import mxkern, numpy as np
    >>> x = np.random.default_rng(0).standard_normal((64, 32), np.float32)
    >>> q = mxkern.quantize_columns(x, "mxint8")
    >>> q.shape, bool((q.codes == mxkern.quantize(x.T, "mxint8").codes).all())
    ((32, 64), True)
    """
    function = "quantize_columns"
    record = scheme_of(function, scheme)
    options = options_of(
        function,
        record,
        scale_rule=scale_rule,
        rounding=rounding,
        seed=seed,
        offset=offset,
        block=block,
        hadamard=hadamard,
        sign_mask=sign_mask,
        four_over_six=four_over_six,
    )
    return quantized(
        function,
        _core.quantize_columns,
        record,
        options,
        x,
        scale_layout,
        amax,
        tensor_scale,
        out,
        stream,
    )


def quantize_both(
    x: Any,
    scheme: str | Scheme,
    *,
    scale_rule: str = "rceil",
    rounding: str = "nearest",
    seed: int | None = None,
    offset: Any = 0,
    scale_layout: str = "row_major",
    block: str | tuple[int, int] | None = None,
    hadamard: int | None = None,
    sign_mask: int | None = None,
    hadamard_rows: bool = False,
    four_over_six: bool | str = False,
    amax: Any = None,
    tensor_scale: Any = None,
    out: tuple[BlockScaled, BlockScaled] | None = None,
    stream: int | None = None,
) -> tuple[BlockScaled, BlockScaled]:
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
    function = "quantize_both"
    record = scheme_of(function, scheme)
    without_transform = partial(
        options_of,
        function,
        record,
        scale_rule=scale_rule,
        rounding=rounding,
        seed=seed,
        offset=offset,
        block=block,
        four_over_six=four_over_six,
    )
    column_options = without_transform(hadamard=hadamard, sign_mask=sign_mask)
    row_options = column_options
    if not errors.flag(function, "hadamard_rows", hadamard_rows):
        row_options = without_transform()
    elif hadamard is None:
        raise ValueError(
            f"{function}: hadamard_rows is True and hadamard is None; pass hadamard=16, or leave "
            "hadamard_rows out"
        )
    return quantized_both(
        function,
        record,
        row_options,
        column_options,
        x,
        scale_layout,
        amax,
        tensor_scale,
        out,
        stream,
    )


def tensor_amax(x: Any, *, out: Any = None, stream: int | None = None) -> Any:
    """The largest magnitude among the finite elements of x, 0 if there is none.

    x       [..., K], float32, float16 or bfloat16
    out     a 0-d float32 array to write to; it is returned
    stream  CUDA: a stream handle, instead of the framework's current stream

    Returns a 0-d float32 array of x's framework. Raises TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> float(mxkern.tensor_amax(np.float32([[1, -3, np.inf]])))
    3.0
    """
    function = "tensor_amax"
    adapter = adapter_of(function, "x", x)
    if adapter.traced_calls is not None and stream is None:
        found = adapter.traced_calls.tensor_amax(x, out)
        if found is not None:
            return found
    with on_stream(function, stream, adapter, x):
        plain = adapter.plain(function, "x", adapter.enter(function, "x", x))
        if out is None:
            amax = adapter.empty(function, (), "float32", plain.array)
        else:
            taken = extents_of(adapter, plain.array)
            amax = checked_out(function, "out", out, adapter, (), ("float32",), plain.array, taken)
        _core.tensor_amax(plain.buffer, adapter.address(amax), adapter.stream(plain.array))
    return adapter.leave(amax, x) if out is None else out
