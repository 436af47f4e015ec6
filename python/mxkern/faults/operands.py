# mxkern/faults/operands.py: the errors of quantized tensors, and of operands of products.
from __future__ import annotations

import math
import numbers
import re
from typing import Any, NoReturn

from mxkern.arrays import Adapter
from mxkern.arrays.adapter import CPU
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.names import GroupedPrecision
from mxkern.values.options import FORMS, PREPARED_FORMS, SCALE_LAYOUTS, position
from mxkern.values.scheme import Scheme, Shape, schemes

LARGEST_EXTENT = 2**48
# Nobody looks at what rows allow, as gemm does for "auto".
GROUPED_PRECISIONS: tuple[GroupedPrecision, ...] = ("exact", "folded")
_SCHEMES = tuple(schemes)


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


def no_fields(function: str, argument: str, q: Any) -> NoReturn:
    """For what should be a BlockScaled with all of its fields."""
    if not isinstance(q, BlockScaled):
        raise no_block_scaled(function, argument, q)
    fields_of(function, argument, q)
    raise TypeError(
        f"{function}: {argument} is a {type(q).__qualname__}, a subclass of BlockScaled; expected "
        "a BlockScaled"
    )


def no_right_operand(function: str, argument: str, b: Any) -> NoReturn:
    if isinstance(b, BlockScaled) or type(b) is tuple:
        no_fields(function, argument, b)
    raise TypeError(
        f"{function}: {argument} is {errors.described(b)}; expected a BlockScaled or a "
        "PreparedOperand; make one with mxkern.quantize or mxkern.prepare_operand"
    )


def part_dtype(
    function: str, argument: str, part: str, array: Any, adapter: Adapter, scheme: int
) -> NoReturn:
    whole = argument[: -len(part) - 1]
    raise wrong_dtype(function, whole, part, array, adapter, _SCHEMES[scheme])


def part_shape(
    function: str, argument: str, part: str, got: Shape, scheme: int, shape: Shape, layout: str
) -> NoReturn:
    record = _SCHEMES[scheme]
    if part == "scales":
        raise wrong_scales(function, argument[:-7], got, record, shape, layout)
    raise ValueError(
        f"{function}: {argument} has shape {got}; expected {record.codes_shape(shape)} for "
        f"{record.name} and the tensor shape {shape}"
    )


def no_tensor_scale(function: str, argument: str, scheme: int) -> NoReturn:
    raise ValueError(
        f"{function}: {argument} is given, but {_SCHEMES[scheme].name} has none; expected None"
    )


def beta_needs_out(function: str, beta: float) -> NoReturn:
    raise ValueError(
        f"{function}: beta is {float(beta)}, but there is no out to add; pass out=, or leave beta "
        "out"
    )


def product_shape(function: str, a: Shape, b: Shape) -> NoReturn:
    """For operands that do not fit: [..., M, K] and [..., N, K]."""
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
    raise ValueError(
        f"{function}: a has shape {a} and b {b}; expected equal leading dimensions, or a b of "
        f"two dimensions; got {a[:-2]} and {b[:-2]}"
    )


def bias(function: str, got: Shape, wanted: Shape) -> NoReturn:
    raise ValueError(f"{function}: bias has shape {got}; expected {wanted}, one for each row of b")


def no_source(function: str, argument: str) -> NoReturn:
    raise ValueError(f"{function}: {argument} has no source; expected a BlockScaled")


def other_source(
    function: str, argument: str, scheme: int, shape: Shape, other: int, other_shape: Shape
) -> NoReturn:
    raise ValueError(
        f"{function}: {argument} is {_SCHEMES[scheme].name} {shape} and its source "
        f"{_SCHEMES[other].name} {other_shape}; expected what prepare_operand returned"
    )


def no_data(function: str, argument: str, form: str) -> NoReturn:
    raise TypeError(
        f"{function}: {argument}.data is None and {argument}.form {form!r}; expected the "
        f"bytes that prepare_operand makes; call mxkern.prepare_operand({argument}.source, "
        f"form={form!r})"
    )


def data_dtype(function: str, argument: str, array: Any, adapter: Adapter) -> NoReturn:
    raise TypeError(
        f"{function}: {argument} has dtype {adapter.dtype_name(array)}; expected dense uint8, as "
        "prepare_operand returned it"
    )


def data_shape(function: str, argument: str, got: Shape, wanted: Shape) -> NoReturn:
    raise ValueError(
        f"{function}: {argument} has shape {got}; expected {wanted}, as prepare_operand returned it"
    )


def no_tensor_scale_kept(function: str, argument: str, scheme: int) -> NoReturn:
    raise ValueError(
        f"{function}: {argument} has no source, which holds the tensor scale of "
        f"{_SCHEMES[scheme].name}"
    )


def stored_dtypes(dtype: str) -> tuple[str, ...]:
    """What may hold codes or scales of a dtype: it, or bytes."""
    return ("uint8",) if dtype == "uint8" else (dtype, "uint8")


def part_of(argument: str, field: str) -> str:
    """The name of a part; those of an argument without a name are arguments themselves."""
    return f"{argument}.{field}" if argument else field


def _is_extent(n: Any) -> bool:
    if isinstance(n, bool) or not isinstance(n, numbers.Integral):
        return False
    return 0 <= int(n) <= LARGEST_EXTENT


def shape(function: str, argument: str, shape: Any) -> Shape:
    """The shape as a tuple of ints; torch.Size and NumPy's integers will do, and a list, which
    JSON and PyTorch's DataLoader make of a tuple."""
    if type(shape) is tuple and shape:
        for n in shape:
            if type(n) is not int or not 0 <= n <= LARGEST_EXTENT:
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


def wrong_dtype(
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


def wrong_scales(
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


def grouped_shapes(function: str, a: Shape, b: Shape) -> NoReturn:
    """[M, K] goes with [G, N, K] and with [N, K]."""
    if len(b) not in (2, 3):
        raise ValueError(
            f"{function}: b has shape {b}; expected [G, N, K], a matrix for each group of rows, or "
            "[N, K], whose columns belong to groups; quantize torch.stack or numpy.stack of the "
            "matrices"
        )
    if len(a) != 2:
        sorted_by_group = "rows" if len(b) == 3 else "columns"
        raise ValueError(
            f"{function}: a has shape {a}; expected [M, K], {sorted_by_group} sorted by group; "
            "reshape it"
        )
    raise ValueError(
        f"{function}: a has shape {a} and b {b}; expected the same last axis K, which is "
        f"{a[-1]} and {b[-1]}"
    )


def group_shape(function: str, argument: str, got: Shape, count: int) -> NoReturn:
    """Of a number for each group; count: -1 where it may have any length."""
    elements = math.prod(got)
    alike = elements == (max(got, default=1) if count < 0 else count)
    way_out = f"; reshape it with {argument}.reshape(-1)" if alike else ""
    if count < 0:
        raise ValueError(
            f"{function}: {argument} has shape {got}; expected (G,), one for each group of "
            f"columns, as b is one matrix{way_out}"
        )
    raise ValueError(
        f"{function}: {argument} has shape {got}; expected {(count,)}, one for each group{way_out}"
    )


def group_bias(function: str, argument: str, got: Shape, wanted: Shape) -> NoReturn:
    raise ValueError(
        f"{function}: {argument} has shape {got}; expected {wanted}, a row for each group"
    )


def grouped_precision(function: str, name: Any) -> NoReturn:
    raise errors.unknown_name(function, "precision", name, GROUPED_PRECISIONS)


def no_prepared_operand(function: str, argument: str, p: Any) -> NoReturn:
    """For one that lacks fields, as PreparedOperand.__new__ makes."""
    raise TypeError(
        f"{function}: {argument} is {errors.described(p)} without all of its fields; expected what "
        "mxkern.prepare_operand returned"
    )


def no_array(function: str, argument: str, b: Any) -> NoReturn:
    """For a PreparedOperand with neither data nor source."""
    position(function, f"{argument}.form", b.form, FORMS)
    shape(function, argument, b.shape)
    if b.form == "source":
        no_source(function, argument)
    no_data(function, argument, b.form)


def planned(
    function: str, device: Any, form: Any, on: int, is_prepared: bool
) -> tuple[str, int | None]:
    """What a plan is for: the device in the library's words, and the position of the form that b
    is planned in, None for b as it is. on: the device that b is on."""
    kind = _kind_of_device(function, device, on)
    if form is None:
        return kind, None
    number = position(function, "form", form, PREPARED_FORMS)
    if is_prepared:
        raise ValueError(f"{function}: form is given, but b is prepared already; leave form out")
    if form != "panels" and (kind == "cpu" or (not kind and on == CPU)):
        raise ValueError(
            f"{function}: form is {errors.described(form)} and the device is the CPU, whose "
            "products read panels, or codes and scales as they lie; expected a GPU; pass its kind, "
            "as device='sm_90', or form='panels', or leave form out"
        )
    return kind, number


def _kind_of_device(function: str, device: Any, on: int) -> str:
    """A device as the library takes it; empty for the one that the operands are on."""
    if device is None:
        return ""
    if not isinstance(device, str) or not device:
        raise TypeError(
            f"{function}: device is {errors.described(device)}; expected 'cpu', 'cuda:0' or "
            "another one that a and b are on, or a kind of GPU, as 'sm_90'"
        )
    if re.fullmatch(r"cuda(:\d+)?", device):
        if on != CPU and device in ("cuda", f"cuda:{on}"):
            return ""
        where = "the CPU" if on == CPU else f"cuda:{on}"
        raise ValueError(
            f"{function}: device is {device!r}, and b is on {where}; expected a device that a and "
            "b are on, or a kind of GPU; pass its kind, as device='sm_90'"
        )
    # nvcc's suffixes a and f are for code of one architecture or family, and name no other GPU.
    return re.sub(r"(?<=^sm_)(\d+)[af]$", r"\1", device)
