# mxkern/values/element_format.py: names of element formats, "e3m4" and "int4", and what they mean.
from __future__ import annotations

import re
from typing import Any, NamedTuple

from mxkern import _core
from mxkern.values import errors

SPECIALS = ("none", "nan", "ieee")  # in the library's order
_FLOAT = re.compile(r"(u?)e(\d{1,2})m(\d{1,2})(?:_?(none|nan|ieee|fn))?")
_INTEGER = re.compile(r"(u?)int(\d{1,2})")
_ALIASES = {
    "bfloat16": "e8m7",
    "bf16": "e8m7",
    "float16": "e5m10",
    "fp16": "e5m10",
    "half": "e5m10",
    "tf32": "e8m10",
    "float32": "e8m23",
    "fp32": "e8m23",
}
EXPECTED = (
    '"e3m4" (3 exponent and 4 mantissa bits), "ue4m3" without a sign, "int4" or "uint4", with '
    '"_none", "_nan" or "_ieee" for which codes are not finite'
)


class ElementFormat(NamedTuple):
    """An element format: its name and its fields."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    is_signed: bool
    is_integer: bool
    specials: str

    @property
    def core(self) -> _core.AnyFormat:
        return _core.AnyFormat(
            self.exponent_bits,
            self.mantissa_bits,
            self.is_signed,
            self.is_integer,
            SPECIALS.index(self.specials),
        )

    @property
    def width(self) -> int:
        return self.is_signed + self.exponent_bits + self.mantissa_bits


def default_specials(exponent_bits: int, mantissa_bits: int) -> str:
    """E4M3 has NaN and no Inf, as OCP has it; 5 exponent bits and more have IEEE's, E8M0 a NaN."""
    if (exponent_bits, mantissa_bits) in ((4, 3), (8, 0)):
        return "nan"
    return "ieee" if exponent_bits >= 5 and mantissa_bits > 0 else "none"


def element_format(function: str, argument: str, given: Any) -> ElementFormat:
    """The format of a name. TypeError and ValueError for what names none."""
    if isinstance(given, ElementFormat):
        return given
    if not isinstance(given, str):
        raise TypeError(
            f"{function}: {argument} is {errors.described(given)}; expected the name of an element "
            f"format: {EXPECTED}"
        )
    name = given.lower().removeprefix("float8_").removeprefix("float6_").removeprefix("float4_")
    name = _ALIASES.get(name, name)
    if found := _INTEGER.fullmatch(name):
        return _integer(function, argument, given, found[1] == "", int(found[2]))
    if found := _FLOAT.fullmatch(name):
        return _float(function, argument, given, found)
    raise ValueError(
        f"{function}: {argument} is {errors.described(given)}; expected an element format: "
        f"{EXPECTED}"
    )


def _integer(function: str, argument: str, given: str, is_signed: bool, bits: int) -> ElementFormat:
    if not 2 <= bits <= 16:
        raise ValueError(
            f"{function}: {argument} is {given!r}; expected integers of 2 to 16 bits, as 'int8'"
        )
    name = f"{'' if is_signed else 'u'}int{bits}"
    return ElementFormat(name, 0, bits - is_signed, is_signed, True, "none")


def _float(function: str, argument: str, given: str, found: re.Match[str]) -> ElementFormat:
    sign, exponent_bits, mantissa_bits = found[1], int(found[2]), int(found[3])
    default = default_specials(exponent_bits, mantissa_bits)
    specials = {"fn": "nan", None: default}.get(found[4], found[4])
    problem = _problem(exponent_bits, mantissa_bits, sign == "", specials)
    if problem:
        raise ValueError(f"{function}: {argument} is {given!r}; {problem}")
    suffix = "" if specials == default else f"_{specials}"
    name = f"{sign}e{exponent_bits}m{mantissa_bits}{suffix}"
    return ElementFormat(name, exponent_bits, mantissa_bits, sign == "", False, specials)


def _problem(exponent_bits: int, mantissa_bits: int, is_signed: bool, specials: str) -> str:
    """What is wrong with a format, and the way out; nothing where all is right."""
    if exponent_bits > 8 or mantissa_bits > 23:
        return "expected 0 to 8 exponent bits and 0 to 23 mantissa bits, which float32 has"
    if exponent_bits + mantissa_bits < 1 + (specials == "nan"):
        return "expected an exponent or mantissa bit, and two where NaN takes a code"
    if specials == "ieee" and mantissa_bits == 0:
        return "Inf would be NaN without a mantissa bit; expected _nan or _none"
    if specials == "ieee" and exponent_bits == 0:
        return "every code would be special without exponent bits; expected _nan or _none"
    if exponent_bits == 8 and specials != ("ieee" if mantissa_bits else "nan"):
        wanted = "_ieee" if mantissa_bits else "_nan"
        return f"its largest value would be 2^128, beyond float32; expected {wanted}"
    return ""
