# mxkern/operands.py: checks of a BlockScaled that is given to an operation, or made of parts.
from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

from mxkern import _core, errors
from mxkern.arrays import Adapter, View, adapter_of, collapsed
from mxkern.arrays.adapter import check_same_device
from mxkern.block_scaled import BlockScaled, above
from mxkern.options import SCALE_LAYOUTS, position
from mxkern.scheme import Scheme, Shape, scheme_of, schemes

FLOAT32_END = 2.0**128 - 2.0**103  # what is below rounds to a finite float32
FLOAT32_NOTHING = 2.0**-150  # this and what is below rounds to 0
_LARGEST_EXTENT = 2**48

_new = tuple.__new__  # half the time of a NamedTuple's own constructor


class Operand(NamedTuple):
    """A BlockScaled as the library sees it."""

    adapter: Adapter
    view: View
    scheme: Scheme
    shape: Shape
    parts: tuple[Any, Any, Any]  # as they came
    memory: tuple[Any, Any, Any]  # what the view points into: the parts, or dense copies


def operand_of(function: str, argument: str, q: Any) -> Operand:
    """Checks every part of a BlockScaled against its scheme, shape and layout."""
    if not isinstance(q, BlockScaled):
        raise no_block_scaled(function, argument, q)
    codes, scales, tensor_scale, name, shape, scale_layout = fields_of(function, argument, q)
    scheme = scheme_of(function, name)
    layout = position(function, part_of(argument, "scale_layout"), scale_layout, SCALE_LAYOUTS)
    shape = checked_shape(function, argument, shape)
    adapter = adapter_of(function, part_of(argument, "codes"), codes)

    codes = enter_part(function, argument, "codes", codes, adapter)
    if scheme.format == "e2m1":
        codes = adapter.packed_e2m1_bytes(codes)
    if codes.dtype not in adapter.byte_dtypes[scheme.codes_dtype]:
        raise _wrong_dtype(function, argument, "codes", codes, adapter, scheme)
    if codes.shape != scheme.codes_shape(shape):
        raise ValueError(
            f"{function}: {part_of(argument, 'codes')} has shape {tuple(codes.shape)}; expected "
            f"{scheme.codes_shape(shape)} for {scheme.name} and the tensor shape {shape}"
        )
    scales = enter_part(function, argument, "scales", scales, adapter)
    if scales.dtype not in adapter.byte_dtypes[scheme.scales_dtype]:
        raise _wrong_dtype(function, argument, "scales", scales, adapter, scheme)
    if scales.shape != scheme.scales_shape(shape, scale_layout):
        raise _wrong_scales(function, argument, tuple(scales.shape), scheme, shape, scale_layout)
    if scheme.has_tensor_scale:
        tensor_scale = float32_scalar(
            function, part_of(argument, "tensor_scale"), tensor_scale, adapter, codes
        )
    elif tensor_scale is not None:
        raise ValueError(
            f"{function}: {part_of(argument, 'tensor_scale')} is given, but {scheme.name} has "
            "none; expected None"
        )
    device = adapter.device(codes)
    check_same_device(function, part_of(argument, "scales"), adapter, scales, codes)

    parts = memory = (codes, scales, tensor_scale)
    if not (adapter.is_dense(codes) and adapter.is_dense(scales)):
        memory = (adapter.dense(codes), adapter.dense(scales), tensor_scale)
    address = adapter.address
    view = (
        scheme.id,
        layout,
        device,
        *collapsed(shape),
        address(memory[0]),
        address(memory[1]),
        None if tensor_scale is None else address(tensor_scale),
    )
    return _new(Operand, (adapter, view, scheme, shape, parts, memory))


def no_block_scaled(function: str, argument: str, q: Any) -> TypeError:
    """The error for what is no BlockScaled, the plain tuple of its fields for example."""
    got, way_out = errors.described(q), "mxkern.quantize or mxkern.BlockScaled.from_parts"
    if type(q) is tuple:
        got = "a tuple"
        if len(q) == len(BlockScaled.__slots__):
            way_out = f"mxkern.BlockScaled(*{argument})"
    return TypeError(
        f"{function}: {argument} is {got}; expected a BlockScaled; make one with {way_out}"
    )


def fields_of(function: str, argument: str, q: BlockScaled) -> tuple[Any, ...]:
    """All six. TypeError for one that lacks some, as BlockScaled.__new__ makes."""
    try:
        return q.codes, q.scales, q.tensor_scale, q.scheme, q.shape, q.scale_layout
    except AttributeError:
        missing = [name for name in BlockScaled.__slots__ if not hasattr(q, name)]
        raise TypeError(
            f"{function}: {argument or 'BlockScaled'} has no {missing[0]}; expected the "
            f"{len(BlockScaled.__slots__)} fields of a BlockScaled; make one with mxkern.quantize "
            "or mxkern.BlockScaled.from_parts"
        ) from None


def stored_dtypes(dtype: str) -> tuple[str, ...]:
    """What may hold codes or scales of a dtype: it, or bytes."""
    return ("uint8",) if dtype == "uint8" else (dtype, "uint8")


def part_of(argument: str, field: str) -> str:
    """The name of a part; those of an argument without a name are arguments themselves."""
    return f"{argument}.{field}" if argument else field


def enter_part(function: str, argument: str, part: str, array: Any, adapter: Adapter) -> Any:
    """An array that goes with others of the adapter's framework."""
    name = part_of(argument, part) if part else argument
    own = adapter_of(function, name, array)
    if not (own.goes_with(adapter) or adapter.goes_with(own)):
        way_out = f"convert it to {adapter.name}{adapter.conversion_of_other(name)}"
        if errors.is_traced(array):
            way_out = f"convert the others to {own.name}, as a traced array has no values yet"
        raise TypeError(
            f"{function}: {name} is a {own.name} array beside {adapter.name} arrays; expected "
            f"one framework; {way_out}"
        )
    return own.enter(function, name, array)


def float32_scalar(function: str, argument: str, value: Any, adapter: Adapter, like: Any) -> Any:
    """A float32 array of one element for a number or such an array."""
    if not isinstance(value, bool) and isinstance(value, numbers.Real):
        number = errors.real(function, argument, value)
        check_factor(function, argument, number)
        return adapter.scalar(_core.float32_bits(number + 0.0), like)  # -0 is 0
    if value is None:
        raise ValueError(
            f"{function}: {argument} is None; expected the float32 that nvfp4 values are "
            "multiplied with"
        )
    if isinstance(value, (bool, str, list, tuple)):
        raise TypeError(
            f"{function}: {argument} is {errors.described(value)}; expected a number, or a float32 "
            "array of one element"
        )
    array = enter_part(function, argument, "", value, adapter)
    if array.dtype != adapter.dtypes["float32"]:
        adapter.refuse_dtype(function, argument, array, ("float32",))
    if math.prod(array.shape) != 1:
        raise ValueError(
            f"{function}: {argument} has shape {tuple(array.shape)}; expected one element. "
            "Matrices with one each are the work of a loop, or of grouped_gemm with factors"
        )
    check_same_device(function, argument, adapter, array, like)
    return array if adapter.is_dense(array) else adapter.dense(array)


def check_factor(function: str, argument: str, number: float) -> None:
    """An amax or a tensor scale that something is to be quantized with."""
    if not 0.0 <= number < FLOAT32_END:
        raise ValueError(
            f"{function}: {argument} is {number}; expected a finite float32, 0 or larger"
        )
    if 0.0 < number <= FLOAT32_NOTHING:
        raise ValueError(
            f"{function}: {argument} is {number}, which is 0 as a float32; expected 0, or 2^-149 "
            "or larger"
        )


def made_from_parts(
    codes: Any, scales: Any, scheme: Any, tensor_scale: Any, shape: Any, scale_layout: Any
) -> BlockScaled:
    """BlockScaled.from_parts."""
    function = "BlockScaled.from_parts"
    record = scheme_of(function, scheme)
    adapter = adapter_of(function, "codes", codes)
    if shape is None:
        if not hasattr(codes, "shape"):
            raise ValueError(
                f"{function}: shape is None, and a {adapter.name} array does not say its own; "
                "expected a tuple; pass shape="
            )
        if not codes.shape:
            raise ValueError(f"{function}: codes is 0-d; expected one dimension or more")
        *leading, last = codes.shape
        shape = (*leading, last * 8 // record.bits)
    if isinstance(tensor_scale, numbers.Real):
        entered = adapter.enter(function, "codes", codes)
        scalar = float32_scalar(function, "tensor_scale", tensor_scale, adapter, entered)
        tensor_scale = adapter.leave(scalar, codes)
    elif _is_one_element_with_axes(tensor_scale):
        tensor_scale = tensor_scale.reshape(())  # as quantize gives it, and takes it in out
    if isinstance(shape, (tuple, list)):
        shape = tuple(errors.integer(function, "shape", n, 0, _LARGEST_EXTENT) for n in shape)
    q = BlockScaled(codes, scales, tensor_scale, record.name, shape, scale_layout)
    try:
        operand_of(function, "", q)
    except ValueError as error:
        if _have_an_axis_of_blocks(codes, scales, record):
            raise ValueError(
                f"{error}; where a row's blocks have an axis of their own, join them: pass "
                "codes.reshape(*codes.shape[:-2], -1)"
            ) from None
        if not _lie_one_a_byte(codes, scales, record, shape, scale_layout):
            raise
        raise ValueError(
            f"{error}; if codes lie one a byte, pack them with mxkern.pack_codes(codes, "
            f"{record.name!r})"
        ) from None
    return q


above.made_from_parts = made_from_parts


def _is_one_element_with_axes(array: Any) -> bool:
    """Whether it is an array such as [1] or [1, 1], as files have scalars."""
    shape = errors.shape_of(array)
    return len(shape) > 0 and math.prod(shape) == 1 and hasattr(array, "reshape")


def _have_an_axis_of_blocks(codes: Any, scales: Any, scheme: Scheme) -> bool:
    """Whether codes look like [..., K / block, bytes of a block], as in some files."""
    given = errors.shape_of(codes)
    if not given or len(given) < 3 or given[-1] * 8 != scheme.block * scheme.bits:
        return False
    return errors.shape_of(scales) == given[:-1]


def _lie_one_a_byte(codes: Any, scales: Any, scheme: Scheme, shape: Any, scale_layout: str) -> bool:
    """Whether codes that should be packed look as though they were not."""
    given = errors.shape_of(codes)
    if scheme.bits == 8 or not given or not isinstance(shape, tuple):
        return False
    expected = scheme.scales_shape(given, scale_layout)
    return given == shape or errors.shape_of(scales) == expected


def _is_extent(n: Any) -> bool:
    if isinstance(n, bool) or not isinstance(n, numbers.Integral):
        return False
    return 0 <= int(n) <= _LARGEST_EXTENT


def checked_shape(function: str, argument: str, shape: Any) -> Shape:
    """The shape as a tuple of ints; torch.Size and NumPy's integers will do, and a list, which
    JSON and PyTorch's DataLoader make of a tuple."""
    if type(shape) is tuple and shape:
        for n in shape:
            if type(n) is not int or not 0 <= n <= _LARGEST_EXTENT:
                break
        else:
            return shape
    name = part_of(argument, "shape")
    if not isinstance(shape, (tuple, list)) or not shape:
        raise TypeError(
            f"{function}: {name} is {errors.described(shape)}; expected a tuple of one int or more"
        )
    if all(_is_extent(n) for n in shape):
        return tuple(map(int, shape))
    raise ValueError(
        f"{function}: {name} is {errors.described(shape)}; expected ints from 0 to 2**48"
    )


def _wrong_dtype(
    function: str, argument: str, part: str, array: Any, adapter: Adapter, scheme: Scheme
) -> TypeError:
    def dtype_of(one: Scheme) -> str:
        return one.codes_dtype if part == "codes" else one.scales_dtype

    place, name = part_of(argument, part), adapter.dtype_name(array)
    owners = [one.name for one in schemes if dtype_of(one) == name]
    if "float8" in name and owners:
        way_out = f"they are {part} of {errors.listed(owners)}: name that scheme"
    elif "float8" in name:
        way_out = (
            f"the same bits mean other values as {name}: convert {place} by value, and quantize "
            "that again"
        )
    elif name.endswith(("8", "V1")):  # V1: as NumPy reads a file of them
        way_out = f"reinterpret them with {adapter.as_bytes(place)}"
    elif name == "float4_e2m1fn" and scheme.format == "e2m1":
        way_out = f"its elements lie apart: pack them with mxkern.pack_codes({place}, 'mxfp4')"
    else:
        way_out = "pass stored bytes"
    wanted = errors.listed(stored_dtypes(dtype_of(scheme)))
    return TypeError(
        f"{function}: {place} has dtype {name}; expected {wanted} for {scheme.name}; {way_out}"
    )


def _wrong_scales(
    function: str, argument: str, got: Shape, scheme: Scheme, shape: Shape, layout: str
) -> ValueError:
    name = part_of(argument, "scales")
    wanted = scheme.scales_shape(shape, layout)
    for other in SCALE_LAYOUTS:
        if other != layout and got == scheme.scales_shape(shape, other):
            way_out = "unswizzle_scales" if other == "swizzled" else "swizzle_scales"
            return ValueError(
                f"{function}: {name} has shape {got}, that of {other} scales, but "
                f"scale_layout is {layout!r} ({wanted}); pass scale_layout={other!r}, or convert "
                f"them with mxkern.{way_out}"
            )
    return ValueError(
        f"{function}: {name} has shape {got}; expected {wanted} for {scheme.name}, the "
        f"tensor shape {shape} and scale_layout {layout!r}"
        f"{_way_to_swizzled(name, got, wanted, scheme.scales_shape(shape, 'swizzled'))}"
    )


def _way_to_swizzled(name: str, got: Shape, wanted: Shape, flat: Shape) -> str:
    """As messages end: what to do with as many scales as swizzled ones are, in another shape."""
    if math.prod(got) != math.prod(flat) or (
        wanted != flat and math.prod(got) == math.prod(wanted)
    ):
        return ""
    reshaped = f"{name}.reshape({-1 if len(flat) == 1 else flat})"
    if wanted == flat:
        return f"; pass {reshaped}"
    way_out = f"; if they are swizzled, pass {reshaped} and scale_layout='swizzled'"
    if len(got) == len(wanted) and got[:-2] == wanted[:-2]:  # Transformer Engine pads rows so
        ranges = ", ".join(f":{n}" for n in wanted[-2:])
        way_out += f"; if they are padded rows, pass {name}[..., {ranges}]"
    return way_out
