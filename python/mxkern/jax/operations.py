# mxkern/jax/operations.py: the operations on tracers of JAX's: what can be checked without
# values, and the call of the library. The order of the numbers is that of
# python/bindings/xla/operations.h. device: that of the program, as an Adapter counts them.
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from mxkern import _core, faults
from mxkern.arrays import adapter_of, collapsed
from mxkern.arrays.adapter import PLAIN_DTYPES
from mxkern.arrays.numpy import numpy_dtype
from mxkern.faults.shapes import each_way, grouped_shape, product_shape, transposed
from mxkern.jax.ffi import call
from mxkern.jax.offset_words import words_of
from mxkern.jax.promised import filled, promised_of, results_of
from mxkern.jax.workspaces import gemm_workspace, grouped_gemm_workspace
from mxkern.ops.calls import calls
from mxkern.ops.hadamard import random_hadamard as hadamard_of_array
from mxkern.ops.scales import swizzle_scales as swizzled
from mxkern.ops.scales import unswizzle_scales as unswizzled
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.options import FORMS, SCALE_LAYOUTS, usable_form
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.scheme import Scheme, schemes

_SCHEMES = tuple(schemes)
_LAYOUTS = tuple(SCALE_LAYOUTS)
_FORM_NAMES = tuple(FORMS)
_ROW_MAJOR = _LAYOUTS.index("row_major")
_PLAIN, _QUANTIZED, _PREPARED = range(3)  # kinds of operands
_AMAX, _TENSOR_SCALE = 1, 2  # what is given


def quantize(
    device: int,
    function: str,
    scheme: int,
    layout: int,
    options: _core.QuantizeOptions,
    columns: bool,
    x: Any,
    amax: Any,
    tensor_scale: Any,
    offset: Any,
) -> BlockScaled:
    record = _SCHEMES[scheme]
    _, shape = _shapes(function, x, columns, options)
    given, which = _given(function, record, x, amax, tensor_scale)
    words = words_of(offset)
    numbers = (columns, scheme, layout, *options.numbers, which, len(words))
    promised = promised_of(record, shape, _LAYOUTS[layout])
    results, arrays = results_of(promised, which), [x, *given, *words]
    batches = _takes_batches(record, x, options)
    return filled(promised, call("quantize", results, arrays, numbers, takes_batches=batches))


def quantize_both(
    device: int,
    scheme: int,
    layout: int,
    row_options: _core.QuantizeOptions,
    column_options: _core.QuantizeOptions,
    x: Any,
    amax: Any,
    tensor_scale: Any,
    offset: Any,
) -> tuple[BlockScaled, BlockScaled]:
    function = "quantize_both"
    record = _SCHEMES[scheme]
    arrays, numbers = [x], [scheme, layout]
    amaxes, scales = (
        each_way(function, name, value)
        for name, value in (("amax", amax), ("tensor_scale", tensor_scale))
    )
    promised, results = [], []
    for i, options in enumerate((row_options, column_options)):
        _, shape = _shapes(function, x, i == 1, options)
        given, which = _given(function, record, x, amaxes[i], scales[i])
        arrays += given
        numbers += [*options.numbers, which]
        promised.append(promised_of(record, shape, _LAYOUTS[layout]))
        results.append(results_of(promised[i], which))
    words = words_of(offset)
    numbers.append(len(words))
    count = len(results[0])
    batches = _takes_batches(record, x, row_options, column_options)
    all_results = [*results[0], *results[1]]
    made = call("quantize_both", all_results, [*arrays, *words], numbers, takes_batches=batches)
    return filled(promised[0], made[:count]), filled(promised[1], made[count:])


def fake_quantize(
    device: int,
    scheme: int,
    options: _core.QuantizeOptions,
    x: Any,
    amax: Any,
    tensor_scale: Any,
    offset: Any,
) -> Any:
    function = "fake_quantize"
    record = _SCHEMES[scheme]
    dtype = _shapes(function, x, False, options)[0][1]
    given, which = _given(function, record, x, amax, tensor_scale)
    if options.chooses_for_squares and device >= 0:  # the kernel for one pass lacks it
        arrays = (x, amax, tensor_scale, offset)
        return dequantize(
            device, dtype, quantize(device, function, scheme, _ROW_MAJOR, options, False, *arrays)
        )
    words = words_of(offset)
    numbers = (scheme, *options.numbers, which, len(words))
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype)]
    if record.has_tensor_scale and which == 0:
        results.append(jax.ShapeDtypeStruct((), np.dtype(np.float32)))
    batches = _takes_batches(record, x, options)
    return call(function, results, [x, *given, *words], numbers, takes_batches=batches)[0]


def tensor_amax(device: int, size: int, low: int, high: int, columns: bool, x: Any) -> Any:
    function = "tensor_amax"
    extent = _shapes(function, x, columns)[1][-1]
    if size and extent % size:
        faults.groups(function, extent, size)
    result = jax.ShapeDtypeStruct((), np.float32)
    return call(function, [result], [x], (size, low, high, columns))[0]


def dequantize(device: int, dtype: int, q: Any) -> Any:
    view = _core.quantized_view(calls, "dequantize", "q", _stand_in(q))[0]
    result = jax.ShapeDtypeStruct(q.shape, numpy_dtype(PLAIN_DTYPES[dtype]))
    batches = q.tensor_scale is None  # which belongs to one tensor
    arrays, numbers = _arrays_of(q), _numbers_of(view)
    return call("dequantize", [result], arrays, numbers, takes_batches=batches)[0]


def random_hadamard(device: int, size: int, low: int, high: int, inverse: bool, x: Any) -> Any:
    _shapes("random_hadamard", x)
    hadamard_of_array(_stand_in(x)[..., :0, :] if x.ndim > 1 else _stand_in(x), size)
    numbers, result = (size, low, high, inverse), jax.ShapeDtypeStruct(x.shape, x.dtype)
    return call("random_hadamard", [result], [x], numbers, takes_batches=True)[0]


def swizzle_scales(device: int, scales: Any) -> Any:
    moved = swizzled(_stand_in(scales))
    shape = collapsed(scales.shape)
    return _moved(scales, moved, (False, *shape))


def unswizzle_scales(device: int, rows: int, blocks: int, scales: Any) -> Any:
    moved = unswizzled(_stand_in(scales), rows, blocks)
    return _moved(scales, moved, (True, *collapsed((1, *moved.shape))))


def prepare_operand(
    device: int,
    scheme: int | None,
    form: int,
    options: _core.QuantizeOptions,
    keep_source: bool,
    x: Any,
) -> PreparedOperand:
    """Of a plain x, to scheme; or of one that is quantized. form: -1 for the best one."""
    function = "prepare_operand"
    folded = FORMS["folded"]
    if scheme is not None:
        if usable_form(function, form, scheme, device) == folded:
            return _quantize_prepared(scheme, folded, options, keep_source, x)
        x = quantize(device, function, scheme, _ROW_MAJOR, options, False, x, None, None, None)
    view = _core.quantized_view(calls, function, "x", _stand_in(x))[0]
    record = _SCHEMES[view[0]]
    form = usable_form(function, form, record.id, device)
    name = _FORM_NAMES[form]
    if name == "source":
        return PreparedOperand(name, None, x, record.name, x.shape)
    result = _bytes(_core.prepared_bytes(form, record.id, *collapsed(x.shape)))
    numbers = (form, *_numbers_of(view))
    data = call(function, [result], _arrays_of(x), numbers)[0]
    source = x if keep_source or record.has_tensor_scale else None
    return PreparedOperand(name, data, source, record.name, x.shape)


def gemm(device: int, dtype: int, alpha: float, precision: int, a: Any, b: Any, bias: Any) -> Any:
    function = "gemm"
    for argument, array in (("a", a), ("bias", bias)):
        _check_plain(function, argument, array)
    stand_ins = _stand_in((a, b, bias))
    left, right, a_shape, b_shape = _core.operand_views(calls, function, *stand_ins[:2])
    shape = product_shape(function, a_shape, b_shape)
    if bias is not None:
        got = _beside(function, "bias", stand_ins[2], stand_ins[1])
        if got != shape[-1:]:
            faults.bias(function, got, shape[-1:])
    size = gemm_workspace(device, left, right, dtype, collapsed(shape), precision)
    arrays = [*_arrays_of(a), *_arrays_of(b), *([] if bias is None else [bias])]
    numbers = (
        *_operand_numbers(a, left),
        *_operand_numbers(b, right),
        bias is not None,
        precision,
        _core.float32_bits(alpha),
        size > 0,
    )
    results = [jax.ShapeDtypeStruct(shape, numpy_dtype(PLAIN_DTYPES[dtype]))]
    if size > 0:
        results.append(_bytes(size + _core.xla_alignment()))
    return call(function, results, arrays, numbers)[0]


def grouped_gemm(
    device: int,
    dtype: int,
    alpha: float,
    precision: int,
    a: Any,
    b: Any,
    ends: Any,
    factors: Any,
    bias: Any,
) -> Any:
    function = "grouped_gemm"
    for argument, array in (("a", a), ("bias", bias)):
        _check_plain(function, argument, array)
    stand_ins = _stand_in((a, b, ends, factors, bias))
    views = _core.grouped_views(calls, function, *stand_ins[:4])
    left, right, a_shape, b_shape, _, groups = views
    shape = grouped_shape(function, a_shape, b_shape, groups)
    if bias is not None:
        got = _beside(function, "bias", stand_ins[4], stand_ins[1])
        if got != (groups, b_shape[-2]):
            faults.group_bias(function, "bias", got, (groups, b_shape[-2]))
    size = grouped_gemm_workspace(device, left, right, dtype, shape, precision, groups)
    given = [part for part in (factors, bias) if part is not None]
    numbers = (
        len(b_shape) == 2,
        *_operand_numbers(a, left),
        *_operand_numbers(b, right),
        groups,
        factors is not None,
        bias is not None,
        precision,
        _core.float32_bits(alpha),
        size > 0,
    )
    results = [jax.ShapeDtypeStruct(shape, numpy_dtype(PLAIN_DTYPES[dtype]))]
    if size > 0:
        results.append(_bytes(size + _core.xla_alignment()))
    return call(function, results, [*_arrays_of(a), *_arrays_of(b), ends, *given], numbers)[0]


def _quantize_prepared(
    scheme: int, folded: int, options: _core.QuantizeOptions, keep_source: bool, x: Any
) -> PreparedOperand:
    plain, shape = _shapes("prepare_operand", x, False, options)
    record = _SCHEMES[scheme]
    promised = promised_of(record, shape, "row_major")
    results = [_bytes(_core.prepared_bytes(folded, scheme, *plain[3:6]))]
    if keep_source:
        results += promised.codes, promised.scales
    numbers = (scheme, *options.numbers, keep_source)
    data, *parts = call("quantize_prepared", results, [x], numbers)
    source = filled(promised, parts) if keep_source else None
    return PreparedOperand("folded", data, source, record.name, shape)


def _moved(scales: Any, moved: np.ndarray, numbers: Sequence[int]) -> Any:
    result = jax.ShapeDtypeStruct(moved.shape, moved.dtype)
    return call("move_scales", [result], [scales], numbers)[0]


def _shapes(
    function: str, x: Any, columns: bool = False, options: _core.QuantizeOptions | None = None
) -> tuple[Any, tuple[int, ...]]:
    """x as the library sees it, and the shape of what is quantized."""
    _check_plain(function, "x", x)
    view, shape = _core.plain_view(calls, function, "x", _stand_in(x))
    if columns:
        shape = transposed(function, shape)
    if options is not None and options.hadamard_size and shape[-1] % options.hadamard_size:
        faults.groups(function, shape[-1], options.hadamard_size)
    return view, shape


def _beside(function: str, argument: str, array: Any, b: Any) -> tuple[int, ...]:
    """The shape of a plain array that goes with b."""
    parts = (b.data, b.source) if isinstance(b, PreparedOperand) else (None, b)
    like = parts[0] if parts[1] is None else parts[1].codes
    faults.enter(function, argument, array, adapter_of(function, "b", like))
    shape: tuple[int, ...] = _core.plain_view(calls, function, argument, array)[1]
    return shape


def _takes_batches(scheme: Scheme, x: Any, *options: _core.QuantizeOptions) -> bool:
    """Whether matrices are quantized alike alone and in a batch: they have neither a scale of the
    whole tensor nor random bits, which depend on where in it an element is."""
    return not scheme.has_tensor_scale and x.ndim > 1 and all(each.is_nearest for each in options)


def _check_plain(function: str, argument: str, array: Any) -> None:
    """In words for arrays of JAX's, where the check of a stand-in speaks of NumPy's."""
    if isinstance(array, jax.Array) and str(array.dtype) not in PLAIN_DTYPES:
        raise TypeError(
            f"{function}: {argument} has dtype {array.dtype}; expected "
            f"{errors.listed(PLAIN_DTYPES)}; convert with {argument}.astype(jax.numpy.float32)"
        )


def _given(
    function: str, scheme: Scheme, x: Any, amax: Any, tensor_scale: Any
) -> tuple[list[Any], int]:
    """What is given of amax and tensor_scale, as an array, and which it is."""
    stand_in = _stand_in(x)
    if amax is None and tensor_scale is None:
        return [], 0
    if not scheme.has_tensor_scale or (amax is not None and tensor_scale is not None):
        faults.scalars(function, scheme.id, amax, tensor_scale)
    which, name, scalar = (
        (_AMAX, "amax", amax)
        if tensor_scale is None
        else (_TENSOR_SCALE, "tensor_scale", tensor_scale)
    )
    adapter = adapter_of(function, "x", stand_in)
    array = faults.float32_scalar(function, name, _stand_in(scalar), adapter, stand_in)
    faults.factor(function, name, float(array.reshape(())))
    return [scalar if isinstance(scalar, (jax.Array, np.ndarray)) else array], which


def _arrays_of(operand: Any) -> list[Any]:
    """In the order in which the library reads them."""
    leaves: list[Any] = jax.tree_util.tree_leaves(operand)
    return leaves


def _operand_numbers(operand: Any, view: Any) -> tuple[int, ...]:
    if isinstance(operand, PreparedOperand) and operand.form != "source":
        form, source, _, _ = view
        return (_PREPARED, form, operand.source is not None, *_numbers_of(source))
    if isinstance(operand, (BlockScaled, PreparedOperand)):
        return (_QUANTIZED, *_numbers_of(view))
    return (_PLAIN,)


def _numbers_of(view: Any) -> tuple[int, ...]:
    """Scheme, layout and extents of a BlockScaled that the library sees."""
    scheme, layout, _, batch, rows, columns, *_ = view
    return (scheme, layout, batch, rows, columns)


def _stand_in(tree: Any) -> Any:
    """Arrays of the shapes and dtypes, for checks. What NumPy fills with zeros takes memory only
    where it is written to. Numbers stay, NumPy's too, and arrays of other frameworks, which the
    checks refuse."""

    def stand_in(array: Any) -> Any:
        if not isinstance(array, (jax.Array, np.ndarray)):
            return array
        return np.zeros(array.shape, array.dtype)

    return jax.tree_util.tree_map(stand_in, tree)


def _bytes(count: int) -> Any:
    return jax.ShapeDtypeStruct((count,), np.dtype(np.uint8))
