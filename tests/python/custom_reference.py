# tests/python/custom_reference.py: schemes of the user's own once more, in plain NumPy, from the
# description of formats and rules: tables of values, searches, float32 where the rules say so.
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

F32 = np.float32
FLT_MAX = np.finfo(np.float32).max


def magnitudes(exponent_bits: int, mantissa_bits: int, specials: str) -> np.ndarray:
    """The values of the codes without a sign, from 0 to the largest, in float64."""
    bias = 2 ** (exponent_bits - 1) - 1 if exponent_bits else 0
    count = 2 ** (exponent_bits + mantissa_bits)
    count -= {"none": 0, "nan": 1, "ieee": 2**mantissa_bits}[specials]
    code = np.arange(count)
    exponent, mantissa = code >> mantissa_bits, code % 2**mantissa_bits
    significand = mantissa / 2.0**mantissa_bits + (exponent > 0)
    return significand * 2.0 ** (np.maximum(exponent, 1) - bias)


def rounded_codes(
    table: np.ndarray, x: np.ndarray, has_mantissa: bool, rounding: str
) -> np.ndarray:
    """The codes that values of either sign have, saturating; x is float64, and no NaN."""
    size = np.abs(x)
    low = np.clip(np.searchsorted(table, size, side="right") - 1, 0, len(table) - 1)
    high = np.minimum(low + 1, len(table) - 1)
    below, above = size - table[low], table[high] - size
    away = {"up": x > 0, "down": x < 0}.get(rounding)
    if rounding == "toward_zero":
        up = np.zeros(x.shape, bool)
    elif away is not None:
        up = away & (below > 0)
    else:
        tie = below == above
        if rounding == "nearest":
            odd = low % 2 == 1 if has_mantissa else low > 0
            up = (below > above) | (tie & odd)
        else:
            up = below >= above
    return np.where(up, high, low)


@dataclass
class Element:
    table: np.ndarray
    has_mantissa: bool
    is_signed: bool
    mantissa_after_leading: int

    @classmethod
    def of(cls, fields: Any) -> Element:
        table = magnitudes(fields.exponent_bits, fields.mantissa_bits, fields.specials)
        leading = len(table) - 1 < 2**fields.mantissa_bits
        return cls(
            table, fields.mantissa_bits > 0, fields.is_signed, fields.mantissa_bits - leading
        )

    @property
    def largest(self) -> np.float32:
        return F32(self.table[-1])

    def quantized(self, x: np.ndarray, rounding: str) -> np.ndarray:
        """The value of each element's code."""
        code = rounded_codes(self.table, x.astype(np.float64), self.has_mantissa, rounding)
        value = self.table[code]
        return np.where(x < 0, -value if self.is_signed else 0, value)


def field(x: np.float32) -> tuple[int, int]:
    """The exponent and the mantissa field of a float32."""
    bits = int(F32(x).view(np.uint32))
    return bits >> 23 & 255, bits & 0x7FFFFF


def power_scale(amax: np.float32, element: Element, rule: str, threshold: float, bits: int) -> int:
    """The code of a power of two in so many bits."""
    emax = int(np.floor(np.log2(element.table[-1])))
    exponent, mantissa = field(amax)
    if rule == "rceil":
        limit = F32(element.largest * F32(threshold or 1.0))
        v = F32(amax * F32(F32(1) / limit))
        exponent, mantissa = field(v)
        byte = exponent + (mantissa > 0x400000 if exponent == 0 else mantissa != 0)
    elif rule == "floor":
        byte = max(exponent - emax, 0)
    elif rule == "ceil":
        byte = max(exponent + (mantissa != 0) - emax, 0)
    else:
        carried = int(F32(amax).view(np.uint32)) + (1 << (22 - element.mantissa_after_leading))
        byte = max((carried >> 23) - emax, 0)
    byte = min(byte, 254)
    return min(max(byte - 127 + 2 ** (bits - 1) - 1, 0), 2**bits - 2)


def capped(numerator: np.float32, denominator: np.float32) -> np.float32:
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return F32(min(F32(numerator) / F32(denominator), FLT_MAX))


class Scales:
    """Scale format: (kind, exponent bits, mantissa bits)."""

    def __init__(self, kind: str, exponent_bits: int, mantissa_bits: int) -> None:
        self.kind, self.bits = kind, exponent_bits
        if kind == "magnitude":
            specials = "ieee" if exponent_bits == 8 else "nan"
            self.table = magnitudes(exponent_bits, mantissa_bits, specials)

    @property
    def largest(self) -> np.float32:
        return F32(self.table[-1])

    def of(
        self, amax: np.float32, element: Element, rule: str, threshold: float, factor: Any
    ) -> Any:
        """The scale and the multiplier of a block. factor: (S_enc, S_dec) or None."""
        if not np.isfinite(amax):
            return F32(np.nan), F32(np.nan)
        if self.kind == "power":
            code = power_scale(amax, element, rule, threshold, self.bits)
            exponent = code - (2 ** (self.bits - 1) - 1)
            return F32(np.ldexp(1.0, exponent)), F32(np.ldexp(1.0, -exponent))
        with np.errstate(over="ignore"):
            k = F32(F32(1) / element.largest)
            if factor is not None:
                k = F32(factor[0] * k)
            ratio = F32(min(F32(amax * k), FLT_MAX))
        if self.kind == "single":
            return ratio, capped(F32(1), ratio)
        code = rounded_codes(self.table, np.array([ratio], np.float64), True, "nearest")[0]
        scale = F32(self.table[code])
        return scale, capped(F32(1), F32(scale * factor[1]) if factor is not None else scale)


def fake_quantize(
    x: np.ndarray,
    element: Element,
    scales: Scales,
    block: tuple[int, int],
    tensor_scale: str | None = None,
    rule: str = "rceil",
    threshold: float = 0.0,
    rounding: str = "nearest",
) -> np.ndarray:
    """x [rows, columns] in float32, quantized and decoded."""
    rows, columns = x.shape
    height, width = block[0] or rows, block[1] or columns
    out = np.empty_like(x)
    finite = np.where(np.isfinite(x), np.abs(x), 0)
    with np.errstate(all="ignore"):
        for r in range(0, rows, height):
            factor, stored = None, F32(1)
            if tensor_scale:
                part = finite[r : r + 1] if tensor_scale == "row" else finite
                amax = F32(part.max(initial=0))
                largest = F32(element.largest * scales.largest)
                if amax == 0:
                    factor = (F32(1), F32(1))
                else:
                    encode = capped(largest, amax)
                    factor, stored = (encode, F32(F32(1) / encode)), F32(amax / largest)
            for c in range(0, columns, width):
                part = x[r : r + height, c : c + width]
                found = np.abs(part).max(initial=0)
                amax = F32(found if np.isfinite(part).all() else np.inf)
                scale, multiplier = scales.of(amax, element, rule, threshold, factor)
                value = element.quantized((part * multiplier).astype(F32), rounding).astype(F32)
                value = value * scale
                out[r : r + height, c : c + width] = value * stored if tensor_scale else value
                if np.isnan(scale):
                    out[r : r + height, c : c + width] = np.nan
    return out
