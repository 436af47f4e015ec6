# mxkern/gemm_operands.py: checks of what gemm multiplies: a BlockScaled, a PreparedOperand, or a
# plain array.
from __future__ import annotations

from typing import Any, NamedTuple

from mxkern import _core, errors
from mxkern.arrays import Adapter, View, adapter_of, collapsed
from mxkern.arrays.adapter import check_same_device
from mxkern.block_scaled import BlockScaled
from mxkern.operands import checked_shape, enter_part, no_block_scaled, operand_of
from mxkern.options import position
from mxkern.prepared_operand import PreparedOperand
from mxkern.scheme import Shape, scheme_of

PRECISIONS = {name: i for i, name in enumerate(_core.gemm_precision_names())}
FORM_NAMES = _core.prepared_form_names()
FORMS = {name: i for i, name in enumerate(FORM_NAMES)}
PREPARED_FORMS = {name: form for name, form in FORMS.items() if name != "source"}

PreparedView = tuple[int, View, object, int]


class GemmOperand(NamedTuple):
    """An operand as the library sees it."""

    adapter: Adapter
    view: Any  # a View, a PreparedView, or on the left a Buffer
    shape: Shape
    like: Any  # an array of it
    memory: tuple[Any, ...]  # what it lies in, and what the view points into


def right_operand(function: str, b: Any) -> GemmOperand:
    """b, which is quantized."""
    if isinstance(b, PreparedOperand):
        return _prepared(function, "b", b)
    if not isinstance(b, BlockScaled):
        if type(b) is tuple:
            raise no_block_scaled(function, "b", b)
        raise TypeError(
            f"{function}: b is {errors.described(b)}; expected a BlockScaled or a PreparedOperand; "
            "make one with mxkern.quantize or mxkern.prepare_operand"
        )
    return _quantized(function, "b", b)


def left_operand(function: str, a: Any, adapter: Adapter) -> GemmOperand:
    """a, in arrays of b's framework."""
    if isinstance(a, (BlockScaled, PreparedOperand)):
        left = (
            _prepared(function, "a", a)
            if isinstance(a, PreparedOperand)
            else (_quantized(function, "a", a))
        )
        if left.adapter is not adapter:
            raise TypeError(
                f"{function}: a holds {left.adapter.name} arrays, and b {adapter.name} arrays; "
                "expected one framework; quantize both from arrays of one"
            )
        return left
    plain = adapter.plain(function, "a", enter_part(function, "a", "", a, adapter))
    return GemmOperand(adapter, plain.buffer, plain.shape, plain.array, (plain.array, plain.memory))


def _quantized(function: str, argument: str, q: BlockScaled) -> GemmOperand:
    operand = operand_of(function, argument, q)
    memory = (*operand.parts, *operand.memory)
    return GemmOperand(operand.adapter, operand.view, operand.shape, operand.parts[0], memory)


def _prepared(function: str, argument: str, prepared: PreparedOperand) -> GemmOperand:
    """Form, data and source fit one another. What data holds cannot be checked."""
    form_name, data, source = prepared.form, prepared.data, prepared.source
    name, shape = prepared.scheme, prepared.shape
    form = position(function, f"{argument}.form", form_name, FORMS)
    scheme = scheme_of(function, name)
    shape = checked_shape(function, argument, shape)
    if source is not None:
        operand = operand_of(function, f"{argument}.source", source)
        if (operand.scheme, operand.shape) != (scheme, shape):
            raise ValueError(
                f"{function}: {argument} is {name} {shape} and its source {operand.scheme.name} "
                f"{operand.shape}; expected what prepare_operand returned"
            )
    if form_name == "source":
        if source is None:
            raise ValueError(f"{function}: {argument} has no source; expected a BlockScaled")
        return _quantized(function, f"{argument}.source", source)
    if data is None:
        raise TypeError(
            f"{function}: {argument}.data is None and {argument}.form {form_name!r}; expected the "
            f"bytes that prepare_operand makes; call mxkern.prepare_operand({argument}.source, "
            f"form={form_name!r})"
        )
    adapter = adapter_of(function, f"{argument}.data", data)
    if source is not None and operand.adapter is not adapter:
        raise TypeError(
            f"{function}: {argument}.source holds {operand.adapter.name} arrays, and "
            f"{argument}.data is one of {adapter.name}; expected one framework"
        )
    array = enter_part(function, argument, "data", data, adapter)
    if array.dtype != adapter.dtypes["uint8"] or not adapter.is_dense(array):
        raise TypeError(
            f"{function}: {argument}.data has dtype {adapter.dtype_name(array)}; expected dense "
            "uint8, as prepare_operand returned it"
        )
    extents = collapsed(shape)
    size = _core.prepared_bytes(form, scheme.id, *extents)
    if tuple(array.shape) != (size,):
        raise ValueError(
            f"{function}: {argument}.data has shape {tuple(array.shape)}; expected {(size,)}, as "
            "prepare_operand returned it"
        )
    if source is None:
        if scheme.has_tensor_scale:
            raise ValueError(
                f"{function}: {argument} has no source, which holds the tensor scale of {name}"
            )
        view: View = (scheme.id, 0, adapter.device(array), *extents, None, None, None)
        memory: tuple[Any, ...] = (array,)
    else:
        view, memory = operand.view, (array, *operand.parts, *operand.memory)
        check_same_device(function, f"{argument}.data", adapter, array, operand.parts[0])
    return GemmOperand(adapter, (form, view, adapter.address(array), size), shape, array, memory)


def usable_form(function: str, wanted: int, scheme: int, device: int) -> int:
    """The form, or `source` where the device's products do not read it. wanted: -1 for the best."""
    try:
        return _core.prepared_form(wanted, scheme, device)
    except ValueError as error:
        raise errors.renamed(error, "usable_prepared_form", function) from None


def as_though_prepared(function: str, source: GemmOperand, form: int) -> GemmOperand:
    """A quantized operand as prepare_operand would make it, without what it would write: for plans,
    which read nothing."""
    scheme, _, device, *extents = source.view[:6]
    usable_form(function, form, scheme, device)  # for its error, where the scheme has no such form
    size = _core.prepared_bytes(form, scheme, *extents)
    return source._replace(view=(form, source.view, 0, size))


def product_shape(function: str, a: Shape, b: Shape) -> Shape:
    """[..., M, N] of [..., M, K] and [..., N, K]."""
    if len(b) < 2:
        raise ValueError(
            f"{function}: b has shape {b}; expected [..., N, K]; quantize a matrix, "
            "x.reshape(1, -1) for one row"
        )
    if a[-1] != b[-1]:
        raise ValueError(
            f"{function}: a has shape {a} and b {b}; expected the same last axis K, which is "
            f"{a[-1]} and {b[-1]}; a . b^T contracts the last axes of both"
        )
    if len(b) > 2 and a[:-2] != b[:-2]:
        raise ValueError(
            f"{function}: a has shape {a} and b {b}; expected equal leading dimensions, or a b of "
            f"two dimensions; got {a[:-2]} and {b[:-2]}"
        )
    return (*a[:-1], b[-2])


def product_extents(a: Shape, product: Shape) -> tuple[int, int, int]:
    """Batch, rows and columns of the product."""
    if len(a) == 1:
        return (1, 1, product[-1])
    return collapsed(product)
