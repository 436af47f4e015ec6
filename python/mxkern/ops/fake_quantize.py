# mxkern/ops/fake_quantize.py: quantize and dequantize in one call.
from __future__ import annotations

from typing import Any

from mxkern import _core
from mxkern.arrays import adapter_of
from mxkern.arrays.adapter import PLAIN_DTYPES
from mxkern.ops.dequantize import dequantize
from mxkern.ops.run_quantize import quantized
from mxkern.options import options_of
from mxkern.scheme import Scheme, scheme_of


def fake_quantize(
    x: Any,
    scheme: str | Scheme,
    *,
    scale_rule: str = "rceil",
    rounding: str = "nearest",
    seed: int | None = None,
    offset: Any = 0,
    block: str | tuple[int, int] | None = None,
    four_over_six: bool | str = False,
    amax: Any = None,
    tensor_scale: Any = None,
    stream: int | None = None,
) -> Any:
    """dequantize(quantize(x, scheme, ...), dtype=x.dtype): x as a scheme would give it back.

    x  [..., K], float32, float16 or bfloat16
    The other arguments and errors as for mxkern.quantize.

    A value beyond the range of x's dtype becomes Inf: 65504 in float16 under the MX schemes, whose
    nearest value is 65536.
    Returns an array of x's shape, dtype and framework. In transformations of JAX its derivative is
    that of the identity ("straight through"). For PyTorch it has none here; the function of this
    name in mxkern.torch_ops has that one.

    >>> import mxkern, numpy as np
    >>> mxkern.fake_quantize(np.float32([1, 2.1, 3, 4.4, 6]), "mxfp4")
    array([1., 2., 3., 4., 6.], dtype=float32)
    """
    function = "fake_quantize"
    record = scheme_of(function, scheme)
    fixed = {
        "scale_rule": scale_rule,
        "rounding": rounding,
        "seed": seed,
        "block": block,
        "four_over_six": four_over_six,
    }

    def decoded(x: Any, amax: Any, tensor_scale: Any, offset: Any) -> Any:
        options = options_of(function, record, **fixed, offset=offset)
        return _decoded(function, record, options, x, (amax, tensor_scale), stream)

    calls = adapter_of(function, "x", x).traced_calls
    if calls is None or stream is not None:
        return decoded(x, amax, tensor_scale, offset)
    scalars = {"amax": amax, "tensor_scale": tensor_scale, "offset": offset}
    return calls.straight_through(function, decoded, x, scalars)


def _decoded(
    function: str,
    record: Scheme,
    options: _core.QuantizeOptions,
    x: Any,
    scalars: tuple[Any, Any],
    stream: int | None,
) -> Any:
    layout = "row_major"
    q = quantized(function, _core.quantize, record, options, x, layout, *scalars, None, stream)
    adapter = adapter_of(function, "x", x)
    dtype = adapter.plain_dtypes.get(x.dtype) if hasattr(x, "dtype") else None
    if dtype is None:  # of another byte order, or a framework that is read as another one
        dtype = adapter.plain(function, "x", adapter.enter(function, "x", x)).buffer[1]
    return dequantize(q, dtype=PLAIN_DTYPES[dtype], stream=stream)
