# mxkern/faults/__init__.py: what the extension module asks when an argument is out of the ordinary:
# most of these functions raise the error for it, in words; the others return what it is to go on
# with.
from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any, NoReturn

from mxkern import _core
from mxkern.arrays import Adapter
from mxkern.arrays.adapter import PLAIN_DTYPES
from mxkern.faults.arrays import *  # noqa: F403
from mxkern.faults.arrays import FLOAT32_END
from mxkern.faults.experts import *  # noqa: F403
from mxkern.faults.offset import placed, placed_both  # noqa: F401
from mxkern.faults.operands import *  # noqa: F403
from mxkern.faults.operands import fields_of
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.custom_scheme import custom_of
from mxkern.values.options import check_hadamard_groups, dtype_position, options_of
from mxkern.values.scheme import (
    NAMES,
    SCALES_DTYPES,
    Scheme,
    Shape,
    own_refused,
    scheme_of,
    schemes,
)

_SCHEMES = tuple(schemes)


def scheme(function: str, name: Any) -> int:
    return scheme_of(function, name).id


def is_custom(function: str, name: Any) -> bool:
    return custom_of(function, name) is not None


def custom_refusal(function: str, name: Any) -> str:
    own = custom_of(function, name)
    assert own is not None
    return str(own_refused(function, own))


def custom_shape(function: str, argument: str, got: Shape, wanted: Shape) -> NoReturn:
    raise ValueError(f"{function}: {argument} has shape {got}; expected {wanted}")


def custom_part(function: str, argument: str, part: Any, wanted: bool, scheme: str) -> NoReturn:
    expected = "a float32 array" if wanted else "None"
    raise ValueError(
        f"{function}: {argument} is {errors.described(part)}; expected {expected} for {scheme}"
    )


def unknown_name(function: str, argument: str, name: Any, names: Sequence[str]) -> NoReturn:
    raise errors.unknown_name(function, argument, name, names)


def dtype(function: str, dtype: Any) -> int:
    return dtype_position(function, dtype)


def number(function: str, argument: str, value: Any) -> float:
    """A number that float32 holds, or is infinite in."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise errors.no_number(function, argument, value)
    found = errors.real(function, argument, value)
    if FLOAT32_END <= abs(found) < math.inf:
        raise ValueError(f"{function}: {argument} is {found}; expected a number that float32 holds")
    return found


def options(function: str, scheme: int, keywords: dict[str, Any]) -> _core.QuantizeOptions:
    return options_of(function, _SCHEMES[scheme], **keywords)


def hadamard_rows(function: str, value: Any, hadamard: Any) -> bool:
    if errors.flag(function, "hadamard_rows", value) and hadamard is None:
        raise ValueError(
            f"{function}: hadamard_rows is True and hadamard is None; pass hadamard=16, or leave "
            "hadamard_rows out"
        )
    return bool(value)


def no_columns(function: str, shape: Shape) -> NoReturn:
    raise ValueError(
        f"{function}: x has shape {shape}; expected two dimensions or more, [..., M, K]; "
        "reshape with x.reshape(1, -1), or call mxkern.quantize"
    )


def groups(function: str, extent: int, size: int) -> None:
    """A transform works on whole groups along the block axis."""
    check_hadamard_groups(function, "blocks run along an axis of", extent, "x", "hadamard", size)


def pair(function: str, argument: str, value: Any) -> tuple[Any, Any]:
    """(rows, columns), as quantize_both takes and returns them."""
    if type(value) not in (tuple, list) or len(value) != 2:
        raise TypeError(
            f"{function}: {argument} is {errors.described(value)}; expected a pair (rows, columns)"
        )
    return value[0], value[1]


def scalars(function: str, scheme: int, amax: Any, tensor_scale: Any) -> None:
    """For nvfp4, which takes one of them."""
    name, record = "tensor_scale" if amax is None else "amax", _SCHEMES[scheme]
    if not record.has_tensor_scale:
        raise ValueError(
            f"{function}: {name} is for nvfp4, but the scheme is {record.name}; leave it out"
        )
    raise ValueError(
        f"{function}: amax and tensor_scale are both given, and each implies the other; "
        "pass one of them"
    )


def out_fields(
    function: str, argument: str, out: Any, scheme: int, shape: Shape, layout: str
) -> None:
    """A BlockScaled that says of itself what the result will be."""
    record = _SCHEMES[scheme]
    if not isinstance(out, BlockScaled):
        raise TypeError(
            f"{function}: {argument} is {errors.described(out)}; expected a BlockScaled, as an "
            "earlier call returned it"
        )
    fields_of(function, argument, out)
    for field, wanted in (("scheme", record.name), ("shape", shape), ("scale_layout", layout)):
        got = getattr(out, field)
        own = got.name if isinstance(got, Scheme) else got  # a record goes where its name does
        if own != wanted and not (field == "scheme" and NAMES.get(str(own)) == wanted):
            raise ValueError(
                f"{function}: {argument}.{field} is {errors.described(got)}; expected {wanted!r}"
            )
    if (out.tensor_scale is None) == record.has_tensor_scale:
        expected = "a float32 array" if record.has_tensor_scale else "None"
        raise ValueError(
            f"{function}: {argument}.tensor_scale is {errors.described(out.tensor_scale)}; "
            f"expected {expected} for {record.name}"
        )


def other_dtype(function: str, dtype: int, own: int) -> NoReturn:
    raise errors.other_dtype(function, PLAIN_DTYPES[dtype], PLAIN_DTYPES[own])


def transform_groups(function: str, extent: int, size: int) -> None:
    check_hadamard_groups(function, "x has a last axis of", extent, "it", "size", size)


def whole_tensor(function: str) -> NoReturn:
    raise TypeError(
        f"{function}: scales is a BlockScaled; expected its scales; pass q.scales, and put the "
        "result into q.replace(scales=..., scale_layout=...)"
    )


def scales_dtype(function: str, array: Any, adapter: Adapter) -> NoReturn:
    raise TypeError(
        f"{function}: scales has dtype {adapter.dtype_name(array)}; expected "
        f"{errors.listed(SCALES_DTYPES)}; reinterpret bytes with {adapter.as_bytes('scales')}"
    )


def scales_without_axes(function: str) -> NoReturn:
    raise ValueError(f"{function}: scales is 0-d; expected one dimension or more")


def swizzled_shape(function: str, shape: Shape, size: int, rows: int, blocks: int) -> NoReturn:
    raise ValueError(
        f"{function}: scales has shape {shape}; expected a last axis of {size} for rows={rows} and "
        f"blocks={blocks}, flat for each matrix; flatten the tiles with scales.reshape(*batch, -1)"
    )
