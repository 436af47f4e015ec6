# mxkern/values/scheme.py: the schemes as records, their table, and the names they go by.
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mxkern import _core
from mxkern.values import errors
from mxkern.values.names import SchemeName
from mxkern.values.table import format_table

# What frameworks call the formats whose codes or scales are one byte each. Packed codes of 4 and 6
# bits are uint8 in every framework.
_DTYPES = {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "int8": "int8",
    "e8m0": "float8_e8m0fnu",
    "ue4m3": "float8_e4m3fn",
}

_ALIASES: dict[SchemeName, SchemeName] = {
    "mxfp8": "mxfp8_e4m3",
    "mxfp6": "mxfp6_e2m3",
    "mxfp4_e2m1": "mxfp4",
    "nvfp4_e2m1": "nvfp4",
}

_LAYOUT_TILE_ROWS = 128
_LAYOUT_TILE_BLOCKS = 4

Shape = tuple[int, ...]


class Scheme:
    """An element format with its block scales. Read-only.

    name             "mxfp8_e4m3", ...
    format           of an element: "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "int8"
    bits             of an element
    block            elements that share a scale
    scale_format     "e8m0" (a power of two) or "ue4m3"
    has_tensor_scale whether a float32 for the whole tensor goes with the scales
    max_value        the largest element, before its scale
    min_subnormal    the smallest positive element, before its scale
    bits_per_element bits of an element and its share of the block's scale
    """

    name: SchemeName
    format: str
    bits: int
    block: int
    block_bytes: int
    scale_format: str
    has_tensor_scale: bool
    max_value: float
    min_subnormal: float
    nan_scale: int
    bits_per_element: float
    id: int
    codes_dtype: str
    scales_dtype: str

    __slots__ = tuple(__annotations__)

    def __init__(self, position: int, facts: dict[str, Any]) -> None:
        values = facts | {
            "id": position,
            "bits_per_element": facts["bits"] + 8 / facts["block"],
            "codes_dtype": _DTYPES.get(facts["format"], "uint8") if facts["bits"] == 8 else "uint8",
            "scales_dtype": _DTYPES[facts["scale_format"]],
        }
        for name in self.__slots__:
            object.__setattr__(self, name, values[name])

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Scheme: {name} is read-only")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Scheme: {name} is read-only")

    def __reduce__(self) -> tuple[Any, ...]:
        return _record_of, (self.name,)

    def __repr__(self) -> str:
        return (
            f"Scheme({self.name}: {self.bits}-bit {self.format}, one {self.scale_format} scale "
            f"for {self.block} elements, {self.bits_per_element:g} bits per element)"
        )

    @property
    def compression_float32(self) -> float:
        """How many times smaller than float32."""
        return 32 / self.bits_per_element

    @property
    def compression_float16(self) -> float:
        """How many times smaller than float16 or bfloat16."""
        return 16 / self.bits_per_element

    def codes_shape(self, shape: Shape) -> Shape:
        """The shape of the codes of a tensor: packed codes are padded to whole blocks."""
        if self.bits == 8:
            return shape
        return (*shape[:-1], -(-shape[-1] // self.block) * self.block_bytes)

    def scales_shape(self, shape: Shape, scale_layout: str) -> Shape:
        """The shape of the block scales of a tensor in a layout."""
        blocks = -(-shape[-1] // self.block)
        if scale_layout == "row_major":
            return (*shape[:-1], blocks)
        rows = shape[-2] if len(shape) > 1 else 1
        return (*shape[:-2], swizzled_size(rows, blocks))


def swizzled_size(rows: int, blocks: int) -> int:
    """Bytes of the swizzled scales of one matrix, padding included."""
    padded_rows = -(-rows // _LAYOUT_TILE_ROWS) * _LAYOUT_TILE_ROWS
    return padded_rows * -(-blocks // _LAYOUT_TILE_BLOCKS) * _LAYOUT_TILE_BLOCKS


class SchemeTable:
    """All schemes: iterate over the records, index by name, print as a table.

    >>> import mxkern
    >>> mxkern.schemes["mxfp4"].bits_per_element
    4.25
    >>> [scheme.name for scheme in mxkern.schemes if scheme.bits == 6]
    ['mxfp6_e3m2', 'mxfp6_e2m3']
    """

    def __init__(self) -> None:
        records = [Scheme(i, facts) for i, facts in enumerate(_core.scheme_facts())]
        self._records = {record.name: record for record in records}

    def __iter__(self) -> Iterator[Scheme]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, scheme: object) -> bool:
        if isinstance(scheme, Scheme):
            return self._records.get(scheme.name) is scheme
        return isinstance(scheme, str) and (scheme in self._records or scheme in _ALIASES)

    def __getitem__(self, name: str) -> Scheme:
        try:
            return scheme_of("schemes", name)
        except ValueError as error:
            raise KeyError(str(error)) from None

    @property
    def names(self) -> tuple[SchemeName, ...]:
        """The names, without aliases."""
        return tuple(self._records)

    def __repr__(self) -> str:
        headers = (
            "scheme",
            "bits",
            "block",
            "scale",
            "bits/element",
            "largest",
            "vs f32",
            "vs f16",
        )
        rows = [
            (
                record.name,
                str(record.bits),
                str(record.block),
                record.scale_format + (" + float32" if record.has_tensor_scale else ""),
                f"{record.bits_per_element:g}",
                f"{record.max_value:g}",
                f"{record.compression_float32:.2f}x",
                f"{record.compression_float16:.2f}x",
            )
            for record in self
        ]
        return format_table(headers, rows, left=("scheme", "scale"))


schemes = SchemeTable()
SCALES_DTYPES = tuple(dict.fromkeys([*(scheme.scales_dtype for scheme in schemes), "uint8"]))

# Every accepted name, and every record itself: one lookup on the way of each call.
RECORDS: dict[Any, Scheme] = {record.name: record for record in schemes}
RECORDS |= {alias: RECORDS[name] for alias, name in _ALIASES.items()}
NAMES = {name: record.name for name, record in RECORDS.items()}  # with aliases
RECORDS |= {record: record for record in schemes}


def _record_of(name: str) -> Scheme:
    return RECORDS[name]


def scheme_of(function: str, scheme: Any, argument: str = "scheme") -> Scheme:
    """The record of a name, an alias or a record, which an argument of the function is."""
    try:
        return RECORDS[scheme]
    except (KeyError, TypeError, ValueError):  # ValueError: some that have no hash
        raise unknown_scheme(function, scheme, argument) from None


def unknown_scheme(function: str, scheme: Any, argument: str = "scheme") -> Exception:
    """The error for what names no scheme. A dtype may be that of a scheme's elements."""
    named = getattr(scheme, "__name__", scheme)
    dtype = "" if isinstance(named, int) else str(named).removeprefix("torch.")
    element = dtype.removesuffix("_x2").removesuffix("fn")
    meant = [
        record.name
        for record in schemes
        if element in (record.format, f"float{record.bits}_{record.format}")
    ]
    return errors.unknown_name(function, argument, scheme, schemes.names, _ALIASES, meant)
