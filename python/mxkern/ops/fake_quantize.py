# mxkern/ops/fake_quantize.py: quantize and dequantize in one call.
from __future__ import annotations

from typing import Any

from mxkern import _core, errors
from mxkern.arrays import Adapter, adapter_of
from mxkern.arrays.adapter import CPU, PLAIN_DTYPES
from mxkern.offset_array import placed
from mxkern.ops.dequantize import dequantize
from mxkern.ops.run_quantize import addresses_of, amax_memory, quantized, scalars_of
from mxkern.options import options_of
from mxkern.outputs import checked_out, extents_of, on_stream, out_buffer
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
    out: Any = None,
    stream: int | None = None,
) -> Any:
    """dequantize(quantize(x, scheme, ...), dtype=x.dtype): x as a scheme would give it back, in one
    pass, without codes and scales in memory.

    x    [..., K], float32, float16 or bfloat16
    out  an array of x's shape and dtype to write to, or x itself; it is returned. There may be gaps
         between its rows
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

    def options_at(offset: Any) -> _core.QuantizeOptions:
        return options_of(
            function,
            record,
            scale_rule=scale_rule,
            rounding=rounding,
            seed=seed,
            offset=offset,
            block=block,
            four_over_six=four_over_six,
        )

    adapter = adapter_of(function, "x", x)
    calls = adapter.traced_calls
    if calls is None or stream is not None:
        options = options_at(offset)
        if stream is None:
            options = placed(function, options, adapter, x)
            y = _short_way(adapter, record, options, x, amax, tensor_scale, out)
            if y is not None:
                return y
        return _rounded(function, record, options, x, (amax, tensor_scale), out, stream)
    if out is not None:
        raise errors.not_writable(function, "out", adapter.name)

    def rounded(x: Any, amax: Any, tensor_scale: Any, offset: Any) -> Any:
        options = options_at(offset)
        y = _short_way(adapter, record, options, x, amax, tensor_scale, None)
        if y is not None:
            return y
        return _rounded(function, record, options, x, (amax, tensor_scale), None, None)

    scalars = {"amax": amax, "tensor_scale": tensor_scale, "offset": offset}
    return calls.straight_through(function, rounded, x, scalars)


def _short_way(
    adapter: Adapter,
    record: Scheme,
    options: _core.QuantizeOptions,
    x: Any,
    amax: Any,
    tensor_scale: Any,
    out: Any,
) -> Any:
    """Of ordinary arguments, and in a program of JAX; None for others."""
    if adapter.short_way is None:
        return None
    y = adapter.short_way.fake_quantize(x, record.id, options, amax, tensor_scale, out)
    if y is not None and out is not None:
        adapter.mark_written(out)
    return y


def _rounded(
    function: str,
    record: Scheme,
    options: _core.QuantizeOptions,
    x: Any,
    scalars: tuple[Any, Any],
    out: Any,
    stream: int | None,
) -> Any:
    """In one pass, without codes and scales in memory, where there is a kernel for that."""
    adapter = adapter_of(function, "x", x)
    with on_stream(function, stream, adapter, x):
        entered = adapter.enter(function, "x", x)
        # The transpose of an array is quantized as it lies, and would be copied to be read in rows.
        in_two_calls = options.is_symmetric and not adapter.converts
        turned = adapter.turned(entered) if in_two_calls else None
        plain = adapter.plain(function, "x", entered if turned is None else turned)
        dtype, device = plain.buffer[1:3]
        name, like, shape = PLAIN_DTYPES[dtype], plain.array, tuple(entered.shape)
        given = scalars_of(function, record, adapter, plain, *scalars)
        if out is None:
            array = adapter.empty(function, shape, name, like)
        else:
            # In place is fine; a shifted overlap is not.
            in_place = out is x and plain.memory is like
            taken = extents_of(adapter, *given, *([] if in_place else [like]))
            array = checked_out(
                function, "out", out, adapter, shape, (name,), like, taken, rows_apart=True
            )
        if turned is not None or (options.chooses_for_squares and device != CPU):
            q = quantized(
                function, _core.quantize, record, options, x, "row_major", *scalars, None, None
            )
            y = dequantize(q, out=array)
            return y if out is None else out
        found_amax = amax_memory(function, adapter, record, device, given, like)
        _core.fake_quantize(
            plain.buffer,
            record.id,
            out_buffer(adapter, array, dtype, device),
            placed(function, options, adapter, x),
            *addresses_of(adapter, given),
            None if found_amax is None else adapter.address(found_amax),
            adapter.stream(like),
        )
        return adapter.leave(array, x) if out is None else out
