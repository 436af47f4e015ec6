# mxkern/values/code_table.py: every code of an element format, its bits and its value.
from __future__ import annotations

import math
from typing import Any, NamedTuple

from mxkern.values import errors
from mxkern.values.element_format import EXPECTED, ElementFormat, element_format
from mxkern.values.scheme import NAMES, Scheme, schemes
from mxkern.values.table import format_table

LARGEST_WIDTH = 16  # a table of more codes is no table that anybody reads
_POWERS_OF_TWO = ElementFormat("e8m0", 8, 0, False, False, "nan")


class Code(NamedTuple):
    """One code: its number, its bits as "sign exponent mantissa", and the value that it stands for.
    The value is exact."""

    code: int
    bits: str
    value: float


class CodeTable(tuple[Code, ...]):
    """The codes of a format from 0 on, in their order; prints as a table.

    `format` is the name of the format, `values` are the values alone, and `records` are plain
    dicts, for a data frame.
    """

    format: str

    @property
    def values(self) -> tuple[float, ...]:
        """The value of each code."""
        return tuple(code.value for code in self)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The codes as plain dicts: for a data frame."""
        return [code._asdict() for code in self]

    def __repr__(self) -> str:
        headers = ("code", "bits", "value")
        rows = [(str(code), bits, _text(value)) for code, bits, value in self]
        return format_table(headers, rows, left=("bits",))


def table(format: str | Scheme) -> CodeTable:
    """Every code of an element format with its bits and its value.

    format  a name: "e4m3", "e5m2", "e3m2", "e2m3", "e2m1" and "int8", which the schemes have; any
            other "eXmY" of X exponent and Y mantissa bits, such as "e3m4", without a sign "ue4m3";
            "int4", "uint4"; "bfloat16", "float16". "_none", "_nan" or "_ieee" after an "eXmY" says
            which codes are not finite. "e8m0" is the block scale of the MX schemes: powers of two
            without a sign. A scheme, "mxfp4" or mxkern.schemes["mxfp4"], stands for its elements

    Returns a CodeTable: a tuple of (code, bits, value). Values are those of the elements alone,
    before block scales. Raises TypeError and ValueError for what names no format, and ValueError
    for one of more than 16 bits.

    >>> import mxkern
    >>> print(mxkern.table("e1m1"))
    code  bits   value
    ----  -----  -----
       0  0 0 0      0
       1  0 0 1      1
       2  0 1 0      2
       3  0 1 1      3
       4  1 0 0     -0
       5  1 0 1     -1
       6  1 1 0     -2
       7  1 1 1     -3
    >>> max(mxkern.table("mxfp4").values)
    6.0
    """
    found = _format_of(format)
    if found.width > LARGEST_WIDTH:
        raise ValueError(
            f"table: format is {found.name}, which has 2**{found.width} codes; expected a format "
            f"of at most {LARGEST_WIDTH} bits"
        )
    codes = range(1 << found.width)
    made = CodeTable(Code(code, bits_of(found, code), value_of(found, code)) for code in codes)
    made.format = found.name
    return made


def _format_of(format: Any) -> ElementFormat:
    if isinstance(format, Scheme):
        format = format.format
    elif isinstance(format, str) and format in NAMES:
        format = schemes[format].format
    if isinstance(format, str) and format.lower() == _POWERS_OF_TWO.name:
        return _POWERS_OF_TWO
    if not isinstance(format, (str, ElementFormat)):
        raise TypeError(
            f"table: format is {errors.described(format)}; expected the name of an element format: "
            f"{EXPECTED}, or a scheme"
        )
    return element_format("table", "format", format)


def bits_of(format: ElementFormat, code: int) -> str:
    """The bits of a code, its fields apart: "0 010 11"; an integer is one field."""
    digits = f"{code:0{format.width}b}"
    if format.is_integer:
        return digits
    ends = (int(format.is_signed), int(format.is_signed) + format.exponent_bits, format.width)
    fields = (digits[start:end] for start, end in zip((0, *ends), ends, strict=False))
    return " ".join(field for field in fields if field)


def value_of(format: ElementFormat, code: int) -> float:
    """The value of a code, exactly: a double holds those of all formats of 16 bits."""
    if format is _POWERS_OF_TWO:
        return math.nan if code == 255 else math.ldexp(1.0, code - 127)
    value = format.core.decode(code)
    return math.nan if math.isnan(value) else value  # one object, which equals itself in a tuple


def _text(value: float) -> str:
    """The shortest digits that mean this number and no other."""
    return repr(value).removesuffix(".0")
