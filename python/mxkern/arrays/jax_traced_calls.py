# mxkern/arrays/jax_traced_calls.py: operations inside of jax.jit, as calls back to here.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mxkern import _core, errors
from mxkern.arrays import adapter_of
from mxkern.arrays.adapter import PLAIN_DTYPES
from mxkern.arrays.jax_callbacks import call_back, missing
from mxkern.arrays.numpy_arrays import numpy_dtype
from mxkern.block_scaled import BlockScaled
from mxkern.options import SCALE_LAYOUTS
from mxkern.scheme import Scheme, schemes

_SCHEMES = tuple(schemes)
_LAYOUTS = tuple(SCALE_LAYOUTS)


class JaxTracedCalls:
    """Takes arguments with tracers in them, and leaves all others, by None, to the usual way. What
    can be checked without values is checked while tracing."""

    def quantize(
        self,
        x: Any,
        scheme: int,
        layout: int,
        options: _core.QuantizeOptions,
        columns: bool,
        amax: Any,
        tensor_scale: Any,
        out: Any,
    ) -> Any:
        function = "quantize_columns" if columns else "quantize"
        if not _is_traced(function, x, amax, tensor_scale):
            return None
        from mxkern.ops.run_quantize import check_groups, quantized, scalars_of, transposed

        _refuse_out(function, out)
        operation = _core.quantize_columns if columns else _core.quantize
        record, name = _SCHEMES[scheme], _LAYOUTS[layout]
        stand_in = _stand_in(x)
        adapter = adapter_of(function, "x", stand_in)
        plain = adapter.plain(function, "x", stand_in)
        shape = transposed(function, plain.shape) if columns else plain.shape
        check_groups(function, options, shape[-1])
        checked = [_stand_in(scalar) for scalar in (amax, tensor_scale)]
        numbers = scalars_of(function, record, adapter, plain, *checked)
        amax, tensor_scale = (
            scalar if hasattr(scalar, "dtype") else number
            for scalar, number in zip((amax, tensor_scale), numbers, strict=True)
        )

        def call(out: Any, x: Any, amax: Any, tensor_scale: Any) -> BlockScaled:
            scalars = (amax, tensor_scale)
            return quantized(function, operation, record, options, x, name, *scalars, out, None)

        return call_back(call, _promised(record, shape, name), x, amax, tensor_scale)

    def quantize_both(
        self,
        x: Any,
        scheme: int,
        layout: int,
        row_options: _core.QuantizeOptions,
        column_options: _core.QuantizeOptions,
        amax: Any,
        tensor_scale: Any,
    ) -> Any:
        """One pass over x for each direction."""
        if not _is_traced("quantize_both", x, amax, tensor_scale):
            return None
        from mxkern.ops.run_quantize import each_way

        row_amax, column_amax = each_way("quantize_both", "amax", amax)
        row_scale, column_scale = each_way("quantize_both", "tensor_scale", tensor_scale)
        rows = self.quantize(x, scheme, layout, row_options, False, row_amax, row_scale, None)
        return rows, self.quantize(
            x, scheme, layout, column_options, True, column_amax, column_scale, None
        )

    def of_one(
        self,
        function: str,
        operation: Callable[..., Any],
        array: Any,
        out: Any,
        shape: tuple[int, ...] | None = None,
    ) -> Any:
        """operation(array, out=...) with a result of this shape, which does not depend on how many
        rows there are, or else of that which a stand-in gives."""
        if not _is_traced(function, array):
            return None
        _refuse_out(function, out)
        stand_in = _stand_in(array)
        sample = operation(stand_in if shape is None or array.ndim < 2 else stand_in[..., :0, :])
        result = jax.ShapeDtypeStruct(sample.shape if shape is None else shape, sample.dtype)
        return call_back(lambda out, array: operation(array, out=out), result, array)

    def dequantize(self, q: Any, dtype: int, out: Any) -> Any:
        if not _is_traced("dequantize", q):
            return None
        _refuse_out("dequantize", out)
        from mxkern.operands import operand_of
        from mxkern.ops.dequantize import dequantize

        operand_of("dequantize", "q", jax.tree_util.tree_map(_stand_in, q))
        name = PLAIN_DTYPES[dtype]
        result = jax.ShapeDtypeStruct(q.shape, numpy_dtype(name))
        return call_back(lambda out, q: dequantize(q, dtype=name, out=out), result, q)

    def gemm(
        self,
        a: Any,
        b: Any,
        dtype: int,
        alpha: float,
        beta: float,
        bias: Any,
        precision: int,
        out: Any,
    ) -> Any:
        function = "gemm"
        if not _is_traced(function, a, b, bias):
            return None
        _refuse_out(function, out)
        from mxkern.gemm_operands import PRECISIONS, left_operand, product_shape, right_operand
        from mxkern.ops.gemm import bias_of, gemm

        stand_ins = jax.tree_util.tree_map(_stand_in, (a, b, bias))
        right = right_operand(function, stand_ins[1])
        left = left_operand(function, stand_ins[0], right.adapter)
        shape = product_shape(function, left.shape, right.shape)
        if bias is not None:
            bias_of(function, stand_ins[2], right.adapter, shape)
        name = PLAIN_DTYPES[dtype]
        how = next(word for word, i in PRECISIONS.items() if i == precision)

        def call(out: Any, a: Any, b: Any, bias: Any) -> Any:
            return gemm(a, b, dtype=name, out=out, alpha=alpha, bias=bias, precision=how)

        return call_back(call, jax.ShapeDtypeStruct(shape, numpy_dtype(name)), a, b, bias)


def _is_traced(function: str, *arguments: Any) -> bool:
    leaves = jax.tree_util.tree_leaves(arguments)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return False
    lack = missing()
    if lack is not None:
        raise TypeError(
            f"{function}: an argument is a JAX tracer, which takes {lack}; call outside of "
            f"jax.jit and jax.vmap, or through jax.pure_callback"
        )
    return True


def _refuse_out(function: str, out: Any) -> None:
    if out is not None:
        raise errors.not_writable(function, "out", "JAX")


def _stand_in(array: Any) -> Any:
    """An array of the shape and dtype, for checks. What NumPy fills with zeros takes memory only
    where it is written to."""
    if not isinstance(array, (jax.Array, np.ndarray, np.generic)):
        return array  # a number, or an array of another framework, which the checks refuse
    return np.zeros(array.shape, array.dtype)


def _promised(scheme: Scheme, shape: tuple[int, ...], scale_layout: str) -> BlockScaled:
    """The shapes and dtypes of what is quantized."""
    scales_shape = scheme.scales_shape(shape, scale_layout)
    return BlockScaled(
        jax.ShapeDtypeStruct(scheme.codes_shape(shape), numpy_dtype(scheme.codes_dtype)),
        jax.ShapeDtypeStruct(scales_shape, numpy_dtype(scheme.scales_dtype)),
        jax.ShapeDtypeStruct((), np.dtype(np.float32)) if scheme.has_tensor_scale else None,
        scheme.name,
        shape,
        scale_layout,
    )
