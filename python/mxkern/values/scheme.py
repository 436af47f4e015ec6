# mxkern/values/scheme.py: the schemes as records, their table, and the names they go by.
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
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


class Above:
    """What Scheme calls, and values/custom_scheme.py puts here: schemes of the user's own are made
    of parts that lie above."""

    made: Callable[..., Any]
    found: Callable[..., Any]
    any_scheme_of: Callable[..., Any]
    scheme_of: Callable[..., Any]


above = Above()


class Scheme:
    """An element format with its block scales. Read-only. Those of mxkern.schemes are compiled;
    others are made of parameters, or of a name such as "e3m4b64", and go wherever a name goes.

    element       "e3m4" (3 exponent and 4 mantissa bits), "ue4m3" without a sign, "int4" or
                  "uint4"; "_none", "_nan" or "_ieee" behind it says which codes are not finite
    block         elements that share a scale: columns, (rows, columns), "row" or "tensor"; 32
    scale         "e8m0" or another power of two, "ue4m3", "ue5m3", ..., "float32"; "e8m0"
    tensor_scale  a float32 beside ue4m3 and its like: "tensor" for one, "row" for one each row

    Equal parameters make one record, which is the compiled one where there is one.

    name             "mxfp8_e4m3", ..., or what mxkern.Scheme makes the record of again
    format           of an element: "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "int8", ...
    bits             of an element in memory
    block            elements of a row that share a scale; 0: all of them
    block_rows       rows that do; 0: all of them
    scale_format     "e8m0" (a power of two), "ue4m3", ...
    has_tensor_scale whether a float32 for the whole tensor, or each row, goes with the scales
    max_value        the largest element, before its scale
    min_subnormal    the smallest positive element, before its scale
    bits_per_element bits of an element and its share of the block's scale

    >>> import mxkern
    >>> mxkern.Scheme("e3m4", block=64).name, mxkern.Scheme("e4m3", block=32).name
    ('e3m4b64', 'mxfp8_e4m3')
    """

    name: SchemeName
    format: str
    bits: int
    block: int
    block_rows: int
    block_bytes: int
    scale_format: str
    scale_bits: int
    has_tensor_scale: bool
    tensor_scale_of: str | None
    max_value: float
    min_subnormal: float
    nan_scale: int
    bits_per_element: float
    id: int
    codes_dtype: str
    scales_dtype: str
    core: Any

    __slots__ = tuple(__annotations__)

    def __new__(
        cls, element: Any, block: Any = None, scale: Any = None, tensor_scale: Any = None
    ) -> Scheme:
        made: Scheme = above.made(element, block, scale, tensor_scale)
        return made

    @classmethod
    def _compiled(cls, position: int, facts: dict[str, Any]) -> Scheme:
        values = facts | {
            "id": position,
            "block_rows": 1,
            "scale_bits": 8,
            "tensor_scale_of": "tensor" if facts["has_tensor_scale"] else None,
            "bits_per_element": facts["bits"] + 8 / facts["block"],
            "codes_dtype": _DTYPES.get(facts["format"], "uint8") if facts["bits"] == 8 else "uint8",
            "scales_dtype": _DTYPES[facts["scale_format"]],
            "core": None,
        }
        return cls._of(values)

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Scheme:
        record = object.__new__(cls)
        for name in cls.__slots__:
            object.__setattr__(record, name, values[name])
        return record

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Scheme: {name} is read-only")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Scheme: {name} is read-only")

    def __reduce__(self) -> tuple[Any, ...]:
        return _record_of, (self.name,)

    def __repr__(self) -> str:
        return (
            f"Scheme({self.name}: {self.bits}-bit {self.format}, one {self.scale_format} scale "
            f"for {self.block_text}, {self.bits_per_element:g} bits per element)"
        )

    @property
    def block_text(self) -> str:
        """What shares a scale, in words."""
        if self.block == 0:
            return "each row" if self.block_rows else "the whole tensor"
        return f"{f'{self.block_rows}x' if self.block_rows != 1 else ''}{self.block} elements"

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
        if self.bits >= 8:
            return shape
        if self.core is not None:
            return (*shape[:-1], self.core.code_row_bytes(shape[-1]))
        return (*shape[:-1], -(-shape[-1] // self.block) * self.block_bytes)

    def scales_shape(self, shape: Shape, scale_layout: str) -> Shape:
        """The shape of the block scales of a tensor in a layout."""
        if self.block_rows == 0:
            return (1,) * len(shape)
        blocks = -(-shape[-1] // self.block) if self.block else 1
        if scale_layout == "row_major":
            if self.block_rows == 1 or len(shape) == 1:
                return (*shape[:-1], blocks)
            return (*shape[:-2], -(-shape[-2] // self.block_rows), blocks)
        rows = shape[-2] if len(shape) > 1 else 1
        return (*shape[:-2], swizzled_size(rows, blocks))

    def tensor_scale_shape(self, shape: Shape) -> Shape | None:
        """The shape of the tensor scales of a tensor; None where it has none."""
        if self.tensor_scale_of == "row":
            return (*shape[:-1], 1)
        return () if self.has_tensor_scale else None

    def nbytes(self, shape: Shape, scale_layout: str) -> int:
        """Bytes of codes and scales, padding included."""
        codes = math.prod(self.codes_shape(shape)) * max(self.bits // 8, 1)
        return codes + math.prod(self.scales_shape(shape, scale_layout)) * (self.scale_bits // 8)


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
        records = [Scheme._compiled(i, facts) for i, facts in enumerate(_core.scheme_facts())]
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
            found: Scheme = above.any_scheme_of("schemes", name)
            return found
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
    return RECORDS[name] if name in RECORDS else above.made(name, None, None, None)


def scheme_of(function: str, scheme: Any, argument: str = "scheme") -> Scheme:
    """The record of a name, an alias or a record, which an argument of the function is."""
    try:
        return RECORDS[scheme]
    except (KeyError, TypeError, ValueError):  # ValueError: some that have no hash
        own: Scheme | None = above.found(function, scheme)
        if own is not None:
            if own.core is None:  # a compiled one under a name that is made of its parameters
                return own
            raise own_refused(function, own, argument) from None
        raise unknown_scheme(function, scheme, argument) from None


above.scheme_of = scheme_of


def own_refused(function: str, scheme: Scheme, argument: str = "scheme") -> ValueError:
    """The error where a scheme of the user's own is not taken."""
    return ValueError(
        f"{function}: {argument} is {scheme.name!r}, a scheme of your own; expected "
        f"{errors.listed(schemes.names)}; mxkern.quantize, dequantize, fake_quantize, gemm and "
        "compare take yours"
    )


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
    error = errors.unknown_name(function, argument, scheme, schemes.names, _ALIASES, meant)
    if argument != "scheme" or not isinstance(scheme, str):
        return error
    return type(error)(f"{error} Or make your own, as mxkern.Scheme('e3m4b64')")
