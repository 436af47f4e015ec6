# mxkern/values/custom_scheme.py: schemes of the user's own: from parameters or a name to a record.
from __future__ import annotations

import re
from typing import Any, NamedTuple

from mxkern import _core
from mxkern.values import errors
from mxkern.values.dtypes import DTYPES
from mxkern.values.element_format import ElementFormat, element_format
from mxkern.values.scheme import RECORDS, Scheme, above, schemes

_NAME = re.compile(
    r"(?P<element>u?(?:e\d{1,2}m\d{1,2}|int\d{1,2})(?:_?(?:none|nan|ieee|fn))?)"
    r"_?(?:b(?P<block>\d+(?:x\d+)?)|(?P<whole>row|tensor))"
    r"(?::(?P<scale>[a-z0-9]+))?(?:\+(?P<tensor>tensor|row))?"
)
_SCALE = re.compile(r"u?e(\d{1,2})m(\d{1,2})")
_SCALE_KINDS = ("power", "magnitude", "single")  # in the library's order
_TENSOR_SCALES = (None, "tensor", "row")
_WHOLE = {"row": (1, 0), "tensor": (0, 0)}
LARGEST_BLOCK = 2**31
# Schemes that go by a name of their own, and what they are.
NAMED = {
    "mxfp8_16": "e4m3b16",
    "mxfp4_16": "e2m1b16",
    "mxint4": "int4b32",
    "nvfp4_32": "e2m1b32:ue4m3+tensor",
    "nvfp4_ue5m3": "e2m1b16:ue5m3",
    "fp8_block128": "e4m3b128x128:float32",
    "fp8_block128_rows": "e4m3b128:float32",
}
EXPECTED = (
    'an element format, "b" and a block, and where they are not E8M0 a colon and the scales, as '
    '"e3m4b64", "int4b16:ue4m3", "e4m3b128x128:float32", "e4m3_row:float32" or '
    '"e2m1b16:ue4m3+tensor"'
)


class ScaleFormat(NamedTuple):
    """A scale format: its name and its fields."""

    name: str
    kind: str
    exponent_bits: int
    mantissa_bits: int


# What is known of a scheme, without its name.
_Key = tuple[ElementFormat, tuple[int, int], ScaleFormat, str | None]
_records: dict[Any, Scheme] = {}  # by key and by canonical name: equal ones are one
_names: dict[_Key, str] = {}  # of NAMED


def scale_format(function: str, given: Any) -> ScaleFormat:
    """The scale format of a name: "e8m0", "ue4m3", "e5m0", "float32"."""
    if not isinstance(given, str):
        raise TypeError(
            f"{function}: scale is {errors.described(given)}; expected the name of a scale format, "
            'as "e8m0", "ue4m3", "ue5m3" or "float32"'
        )
    name = given.lower()
    if name in ("float32", "fp32"):
        return ScaleFormat("float32", "single", 8, 23)
    if name in ("bfloat16", "bf16"):
        name = "ue8m7"
    elif name in ("float16", "fp16"):
        name = "ue5m10"
    found = _SCALE.fullmatch(name)
    exponent_bits, mantissa_bits = (int(found[1]), int(found[2])) if found else (0, 0)
    smallest = 2 if mantissa_bits == 0 else 1
    if not found or not smallest <= exponent_bits <= 8 or mantissa_bits > 10:
        raise ValueError(
            f"{function}: scale is {given!r}; expected float32, a power of two with 2 to 8 "
            'exponent bits, as "e8m0", or a float without a sign with 1 to 8 exponent and 1 to 10 '
            'mantissa bits, as "ue4m3"'
        )
    if mantissa_bits == 0:
        return ScaleFormat(f"e{exponent_bits}m0", "power", exponent_bits, 0)
    return ScaleFormat(
        f"ue{exponent_bits}m{mantissa_bits}", "magnitude", exponent_bits, mantissa_bits
    )


def _block(function: str, given: Any) -> tuple[int, int]:
    """(rows, columns); (1, 0) for whole rows and (0, 0) for the whole tensor."""
    if isinstance(given, str) and given in _WHOLE:
        return _WHOLE[given]
    pair: Any = given
    if isinstance(given, str) and re.fullmatch(r"\d{1,12}(x\d{1,12})?", given):
        pair = tuple(int(part) for part in given.split("x"))
    elif isinstance(given, int) and not isinstance(given, bool):
        pair = (given,)
    if not isinstance(pair, (tuple, list)) or not 1 <= len(pair) <= 2:
        raise TypeError(
            f"{function}: block is {errors.described(given)}; expected a number of columns, a pair "
            "(rows, columns), 'row' or 'tensor'"
        )
    sizes = [errors.integer(function, "block", n, 1, LARGEST_BLOCK) for n in pair]
    return (1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


def _key(function: str, element: Any, block: Any, scale: Any, tensor_scale: Any) -> _Key:
    own = element_format(function, "element", element)
    scales = scale_format(function, scale)
    rows, columns = _block(function, block)
    if own.exponent_bits > 5:
        raise ValueError(
            f"{function}: element is {own.name}; expected at most 5 exponent bits under block "
            "scales, as 1 / its largest value would be subnormal and scales times codes beyond "
            f'float32; round without blocks with mxkern.round_to(x, "{own.name}")'
        )
    if own.mantissa_bits > 10 and not own.is_integer:
        raise ValueError(
            f"{function}: element is {own.name}; expected at most 10 mantissa bits under block "
            f'scales; round without blocks with mxkern.round_to(x, "{own.name}")'
        )
    if tensor_scale is True:
        tensor_scale = "tensor"
    elif tensor_scale is False:
        tensor_scale = None
    if tensor_scale is not None and (
        not isinstance(tensor_scale, str) or tensor_scale not in _TENSOR_SCALES
    ):
        raise ValueError(
            f"{function}: tensor_scale is {errors.described(tensor_scale)}; expected None, "
            "'tensor' for a float32 for the whole tensor, or 'row' for one for each row"
        )
    if tensor_scale and (scales.kind != "magnitude" or scales.exponent_bits > 6):
        raise ValueError(
            f"{function}: tensor_scale is {tensor_scale!r} and scale {scales.name}, which reaches "
            "as far as float32 without it; leave tensor_scale out, or take ue4m3 scales"
        )
    if tensor_scale == "row" and rows != 1:
        raise ValueError(
            f"{function}: tensor_scale is 'row' and blocks have "
            f"{rows or 'all'} rows; expected blocks of one row; pass tensor_scale='tensor'"
        )
    return own, (rows, columns), scales, tensor_scale


def _name_of(key: _Key) -> str:
    if key in _names:
        return _names[key]
    element, (rows, columns), scale, tensor_scale = key
    name = element.name
    if columns == 0:
        name += "_row" if rows else "_tensor"
    else:
        name += f"{'_' if '_' in name else ''}b{f'{rows}x' if rows != 1 else ''}{columns}"
    if scale.name != "e8m0":
        name += f":{scale.name}"
    return name + (f"+{tensor_scale}" if tensor_scale else "")


_ONE_BYTE = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "int8": "int8"}
_SCALE_DTYPES = {"e8m0": "float8_e8m0fnu", "ue4m3": "float8_e4m3fn", "float32": "float32"}


def core_of(record: Scheme) -> _core.CustomScheme:
    """The library's run-time twin of any scheme, a compiled one too."""
    if record.core is not None:
        own: _core.CustomScheme = record.core
        return own
    key = _compiled_keys[record.name]
    return _core_of(key, record.name, record.codes_dtype, record.scales_dtype)


def _core_of(key: _Key, name: str, codes_dtype: str, scales_dtype: str) -> _core.CustomScheme:
    element, (rows, columns), scale, tensor_scale = key
    return _core.CustomScheme(
        element.core,
        _SCALE_KINDS.index(scale.kind),
        scale.exponent_bits,
        scale.mantissa_bits,
        rows,
        columns,
        _TENSOR_SCALES.index(tensor_scale),
        name,
        DTYPES.index(codes_dtype),
        DTYPES.index(scales_dtype),
    )


def _made(key: _Key) -> Scheme:
    if key in _records:
        return _records[key]
    element, (rows, columns), scale, tensor_scale = key
    name, format = _name_of(key), element.core
    bits = format.stored_bits
    codes_dtype = "uint16" if bits == 16 else _ONE_BYTE.get(element.name, "uint8")
    scale_bits = 32 if scale.kind == "single" else 8
    if scale.kind != "single" and scale.exponent_bits + scale.mantissa_bits > 8:
        scale_bits = 16
    scales_dtype = _SCALE_DTYPES.get(scale.name, "uint8" if scale_bits == 8 else "uint16")
    core = _core_of(key, name, codes_dtype, scales_dtype)
    record = Scheme._of(
        {
            "name": name,
            "format": element.name,
            "bits": bits,
            "block": columns,
            "block_rows": rows,
            "block_bytes": columns * bits // 8,
            "scale_format": scale.name,
            "scale_bits": scale_bits,
            "has_tensor_scale": tensor_scale is not None,
            "tensor_scale_of": tensor_scale,
            "max_value": format.max_value,
            "min_subnormal": format.min_subnormal,
            "nan_scale": core.nan_scale,
            "bits_per_element": bits + (scale_bits / (rows * columns) if rows * columns else 0),
            "id": -1,
            "codes_dtype": codes_dtype,
            "scales_dtype": scales_dtype,
            "core": core,
        }
    )
    return _records.setdefault(name, _records.setdefault(key, record))


def scheme_of_parameters(element: Any, block: Any, scale: Any, tensor_scale: Any) -> Scheme:
    """mxkern.Scheme(...)"""
    is_alone = block is None and scale is None and tensor_scale is None
    if isinstance(element, Scheme) and is_alone:
        return element
    if isinstance(element, str) and is_alone:
        if element in RECORDS:
            return RECORDS[element]
        found = parsed(element)
        if found is not None:
            return found
    key = _key(
        "Scheme",
        element,
        32 if block is None else block,
        "e8m0" if scale is None else scale,
        tensor_scale,
    )
    return _made(key)


def parsed(name: str, function: str = "Scheme") -> Scheme | None:
    """The scheme of a name such as "e3m4b64"; None for what does not look like one. ValueError for
    one whose parameters are none."""
    if name in _records:
        return _records[name]
    key = _key_of_name(name, function)
    return None if key is None else _made(key)


def _key_of_name(name: str, function: str) -> _Key | None:
    found = _NAME.fullmatch(name.lower())
    if not found:
        return None
    block = found["block"] or found["whole"]
    return _key(function, found["element"], block, found["scale"] or "e8m0", found["tensor"])


def found(function: str, scheme: Any) -> Scheme | None:
    """The record of a scheme that has one, or of a name that is made of parameters."""
    if isinstance(scheme, Scheme):
        return scheme
    return parsed(scheme, function) if isinstance(scheme, str) else None


def custom_of(function: str, scheme: Any) -> Scheme | None:
    """The record of a scheme of the user's own, by itself or by its name; None for all else."""
    if isinstance(scheme, str) and scheme in RECORDS:
        return None
    record = found(function, scheme)
    return record if record is not None and record.core is not None else None


def any_scheme_of(function: str, scheme: Any, argument: str = "scheme") -> Scheme:
    """The record of any scheme: compiled, or the user's own."""
    try:
        return RECORDS[scheme]
    except (KeyError, TypeError, ValueError):
        record = found(function, scheme)
        if record is None:
            return above.scheme_of(function, scheme, argument)  # type: ignore[no-any-return]
        return record


_compiled_keys: dict[str, _Key] = {}
for _record in schemes:
    _scale, _tensor_scale = _record.scale_format, _record.tensor_scale_of
    _found = _key("Scheme", _record.format, _record.block, _scale, _tensor_scale)
    _compiled_keys[_record.name] = _found
    _records[_found] = _record  # a made-up scheme that is a compiled one
    _records[_name_of(_found)] = _record

for _name, _spelled in NAMED.items():
    _meant = _key_of_name(_spelled, "Scheme")
    assert _meant is not None
    _names[_meant] = _name
    _made(_meant)

above.made, above.found, above.any_scheme_of = scheme_of_parameters, found, any_scheme_of
