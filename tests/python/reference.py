# tests/python/reference.py: the numerics once more, in plain NumPy, as an oracle for every byte.
# Written from the description of the formats and rules, without looking at the library: slow,
# vectorized over whole tensors, float32 where the rules say so and float64 or integers elsewhere.
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

FLT_MAX = np.finfo(np.float32).max
F32 = np.float32


@dataclass(frozen=True)
class Format:
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_code: int  # the code of the largest finite magnitude
    nan_code: int  # what a poisoned block holds

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    def magnitudes(self) -> np.ndarray:
        """The values of the codes 0 to max_code, in float64."""
        code = np.arange(self.max_code + 1)
        exponent = code >> self.mantissa_bits
        mantissa = code & ((1 << self.mantissa_bits) - 1)
        normal = exponent > 0
        significand = mantissa / 2.0**self.mantissa_bits + normal
        return significand * 2.0 ** (np.maximum(exponent, 1) - self.bias)

    def values(self) -> np.ndarray:
        """The value of every code, as float32."""
        code = np.arange(1 << self.bits)
        sign = np.where(code >> (self.bits - 1), -1.0, 1.0)
        magnitude = code & ((1 << (self.bits - 1)) - 1)
        table = np.full(1 << (self.bits - 1), np.nan)
        table[: self.max_code + 1] = self.magnitudes()
        if self == FORMATS["e5m2"]:
            table[self.max_code + 1] = np.inf
        return (sign * table[magnitude]).astype(F32)

    def signed(self, magnitude_code: np.ndarray, value: np.ndarray) -> np.ndarray:
        sign = np.signbit(value).astype(np.uint8) << (self.bits - 1)
        return magnitude_code.astype(np.uint8) | sign

    def last_place(self, magnitude: np.ndarray) -> np.ndarray:
        """The spacing of the format's numbers at a magnitude, in float64."""
        exponent = np.frexp(magnitude)[1] - 1
        exponent = np.maximum(exponent, 1 - self.bias)
        return np.ldexp(1.0, exponent - self.mantissa_bits)


class Integer(Format):
    """Two's complement with six fraction bits."""

    def magnitudes(self) -> np.ndarray:
        return np.arange(128) / 64.0

    def values(self) -> np.ndarray:
        return (np.arange(256).astype(np.uint8).view(np.int8) / 64.0).astype(F32)

    def signed(self, magnitude_code: np.ndarray, value: np.ndarray) -> np.ndarray:
        code = magnitude_code.astype(np.int16)
        return np.where(np.signbit(value), -code, code).astype(np.int8).view(np.uint8)

    def last_place(self, magnitude: np.ndarray) -> np.ndarray:
        return np.full_like(magnitude, 1 / 64.0)


FORMATS = {
    "e4m3": Format(4, 3, 7, 0x7E, 0x7F),
    "e5m2": Format(5, 2, 15, 0x7B, 0x7F),
    "e3m2": Format(3, 2, 3, 0x1F, 0),
    "e2m3": Format(2, 3, 1, 0x1F, 0),
    "e2m1": Format(2, 1, 1, 0x07, 0),
    "int8": Integer(0, 7, 0, 127, 0),
}

# Exponent of the largest power of two, largest value, mantissa bits that the `even` rule keeps.
LIMITS = {
    "e4m3": (8, 448.0, 3),
    "e5m2": (15, 57344.0, 2),
    "e3m2": (4, 28.0, 2),
    "e2m3": (2, 7.5, 3),
    "e2m1": (2, 6.0, 1),
    "int8": (0, 127 / 64, 6),
}

SCHEMES = {  # name: (format, block, two levels)
    "mxfp8_e4m3": ("e4m3", 32, False),
    "mxfp8_e5m2": ("e5m2", 32, False),
    "mxfp6_e3m2": ("e3m2", 32, False),
    "mxfp6_e2m3": ("e2m3", 32, False),
    "mxfp4": ("e2m1", 32, False),
    "mxint8": ("int8", 32, False),
    "nvfp4": ("e2m1", 16, True),
}

RULES = ("rceil", "floor", "ceil", "even")


def encode(format: Format, value: np.ndarray) -> np.ndarray:
    """To nearest, ties to the even code, saturating. value is not NaN."""
    table = format.magnitudes()
    midpoints = (table[1:] + table[:-1]) / 2
    magnitude = np.abs(value.astype(np.float64))
    code = np.searchsorted(midpoints, magnitude, side="left")
    tie = (code < len(midpoints)) & (midpoints[np.minimum(code, len(midpoints) - 1)] == magnitude)
    code = np.where(tie & (code % 2 == 1), code + 1, code)
    return format.signed(code, value)


def encode_stochastic(format: Format, value: np.ndarray, word: np.ndarray) -> np.ndarray:
    """The magnitude rounds up where its fraction of a last place, as 32 bits, and the word of 16
    random bits above 2^15 reach one."""
    table = format.magnitudes()
    magnitude = np.minimum(np.abs(value.astype(np.float64)), table[-1])
    places = magnitude / format.last_place(magnitude)
    whole = np.floor(places)
    fraction = np.floor((places - whole) * 2.0**32).astype(np.uint64)
    random = word.astype(np.uint64) * np.uint64(2**16) + np.uint64(2**15)
    carry = (fraction + random) >> np.uint64(32)
    rounded = (whole + carry) * format.last_place(magnitude)
    code = np.searchsorted(table, rounded)
    assert (table[code] == rounded).all()
    return format.signed(code, value)


def philox(rounds: int, seed: int, offset: int, number: np.ndarray) -> list[np.ndarray]:
    """Philox4x32: the four 32-bit words of each counter (number, offset). Key: the seed."""
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    counter = [
        number & low,
        number >> shift,
        np.full(number.shape, offset & 0xFFFFFFFF, np.uint64),
        np.full(number.shape, offset >> 32, np.uint64),
    ]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(rounds):
        first = counter[0] * np.uint64(0xD2511F53)
        second = counter[2] * np.uint64(0xCD9E8D57)
        counter = [
            (second >> shift) ^ counter[1] ^ np.uint64(key[0]),
            second & low,
            (first >> shift) ^ counter[3] ^ np.uint64(key[1]),
            first & low,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def random_words(seed: int, offset: int, index: np.ndarray) -> np.ndarray:
    """The 16 random bits of each index: half of a word of Philox4x32-7, whose eight halves serve
    eight elements."""
    words = philox(7, seed, offset, index.astype(np.uint64) // np.uint64(8))
    place = index % 8
    word = np.choose(place // 2, words).astype(np.uint64)
    return (word >> (16 * (place % 2)).astype(np.uint64)) & np.uint64(0xFFFF)


def hadamard(x: np.ndarray, size: int, sign_mask: int) -> np.ndarray:
    """(x * sign) H / sqrt(size) for groups along the last axis, in float32, rounded to x's dtype.
    The sums are butterflies: neighbours first, then pairs of pairs."""
    groups = x.astype(F32).reshape(*x.shape[:-1], -1, size)
    sign = np.array([-1.0 if sign_mask >> i & 1 else 1.0 for i in range(size)], F32)
    y = groups * sign
    stride = 1
    while stride < size:
        halves = y.reshape(*y.shape[:-1], size // (2 * stride), 2, stride)
        first, second = halves[..., 0, :], halves[..., 1, :]
        y = np.stack([first + second, first - second], axis=-2).reshape(y.shape)
        stride *= 2
    y = y * F32(1 / np.sqrt(size))
    return y.reshape(x.shape).astype(x.dtype)


def default_mask(size: int) -> int:
    return sum(0xD7E8 << shift for shift in range(0, size, 16))


def e8m0(format: str, amax: np.ndarray, rule: str) -> np.ndarray:
    """The scale byte of blocks whose largest magnitudes are amax, which are finite."""
    emax, largest, mantissa_bits = LIMITS[format]
    bits = amax.astype(F32).view(np.uint32).astype(np.int64)
    if rule == "rceil":
        ratio = (amax.astype(F32) * F32(1 / largest)).view(np.uint32).astype(np.int64)
        exponent, mantissa = ratio >> 23, ratio & 0x7FFFFF
        up = np.where(exponent == 0, mantissa > 0x400000, mantissa != 0)
        byte = exponent + up
    elif rule == "floor":
        byte = (bits >> 23) - emax
    elif rule == "ceil":
        byte = (bits >> 23) + ((bits & 0x7FFFFF) != 0) - emax
    else:
        rounded = (bits + (1 << (22 - mantissa_bits))) & 0xFF800000
        byte = (rounded >> 23) - emax  # beyond float32 the exponent is 255
    return np.clip(byte, 0, 254).astype(np.uint8)


class Levels(NamedTuple):
    """The scales of a tensor of two levels."""

    encode: np.float32
    decode: np.float32
    stored: np.float32


def levels(amax: np.float32 | None, tensor_scale: np.float32 | None) -> Levels:
    if tensor_scale is not None:
        encode = np.minimum(F32(1) / F32(tensor_scale), FLT_MAX)
        return Levels(encode, F32(1) / encode, F32(tensor_scale))
    if amax == 0:
        return Levels(F32(1), F32(1), F32(1))
    encode = np.minimum(F32(2688) / F32(amax), FLT_MAX)
    return Levels(encode, F32(1) / encode, F32(amax) / F32(2688))


def e4m3_values(byte: np.ndarray) -> np.ndarray:
    return FORMATS["e4m3"].values()[byte & 0x7F]


def multiplier(byte: np.ndarray, two: Levels) -> np.ndarray:
    return np.minimum(F32(1) / (e4m3_values(byte) * two.decode), FLT_MAX)


class Quantized(NamedTuple):
    """Unpacked codes [..., blocks, block], row-major scale bytes, and, for 4over6, the blocks whose
    two errors are too close to call together with the codes and scales of the other choice."""

    codes: np.ndarray
    scales: np.ndarray
    tensor_scale: np.float32 | None
    close: np.ndarray | None = None
    other_codes: np.ndarray | None = None
    other_scales: np.ndarray | None = None


@np.errstate(all="ignore")
def quantize(
    x: np.ndarray,
    scheme: str,
    *,
    scale_rule: str = "rceil",
    seed: int | None = None,
    offset: int = 0,
    square: bool = False,
    hadamard_size: int | None = None,
    sign_mask: int | None = None,
    four_over_six: bool | str = False,
    amax: float | None = None,
    tensor_scale: float | None = None,
    columns: bool = False,
) -> Quantized:
    """seed: of stochastic rounding; without it to nearest."""
    name, block, two_levels = SCHEMES[scheme]
    format = FORMATS[name]
    index = np.arange(x.size).reshape(x.shape)
    if columns:
        x, index = np.swapaxes(x, -1, -2), np.swapaxes(index, -1, -2)
    if hadamard_size:
        mask = default_mask(hadamard_size) if sign_mask is None else sign_mask
        x = hadamard(np.ascontiguousarray(x), hadamard_size, mask)
    values = _in_blocks(x.astype(F32), block)
    finite = np.isfinite(values)
    magnitude = np.where(finite, np.abs(values), F32(0))
    block_amax, poisoned = magnitude.max(-1), ~finite.all(-1)
    if square:
        block_amax = _over_tiles(block_amax, block)
        poisoned = _over_tiles(poisoned, block)
    words = None if seed is None else random_words(seed, offset, _in_blocks(index, block))

    def codes_of(factor: np.ndarray) -> np.ndarray:
        scaled = np.where(poisoned[..., None], F32(0), values * factor[..., None])
        if words is None:
            codes = encode(format, scaled)
        else:
            codes = encode_stochastic(format, scaled, words)
        return np.where(poisoned[..., None], np.uint8(format.nan_code), codes)

    if not two_levels:
        scales = e8m0(name, block_amax, scale_rule)
        factor = np.ldexp(F32(1), 127 - scales.astype(np.int32))
        return Quantized(codes_of(factor), np.where(poisoned, np.uint8(255), scales), None)

    if amax is None:
        amax = magnitude.max(initial=F32(0))
    two = levels(F32(amax), None if tensor_scale is None else F32(tensor_scale))
    e4m3 = FORMATS["e4m3"]

    def finished(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return codes_of(multiplier(scales, two)), np.where(poisoned, np.uint8(0x7F), scales)

    if not four_over_six:
        ratio = block_amax * (two.encode * F32(1 / 6))
        codes, scales = finished(encode(e4m3, np.minimum(ratio, FLT_MAX)))
        return Quantized(codes, scales, two.stored)

    base = np.minimum(block_amax / F32(6) * two.encode, F32(448))
    candidates = [encode(e4m3, base), encode(e4m3, F32(1.5) * base)]
    errors = []
    for scales in candidates:
        nearest = encode(format, np.nan_to_num(values) * multiplier(scales, two)[..., None])
        decoded = format.values()[nearest].astype(np.float64) * e4m3_values(scales)[..., None]
        wanted = np.where(finite, values, 0).astype(np.float64) * np.float64(two.encode)
        difference = wanted - decoded
        error = (np.abs(difference) if four_over_six == "mae" else difference**2).sum(-1)
        errors.append(_over_tiles(error, block, np.add) if square else error)
    six, four = errors
    take_four = four < six
    close = np.abs(four - six) <= (1e-5 if square else 1e-6) * np.maximum(four, six)
    close &= six != 0  # both are exact then, whatever the arithmetic
    chosen = finished(np.where(take_four, candidates[1], candidates[0]))
    other = finished(np.where(take_four, candidates[0], candidates[1]))
    return Quantized(*chosen, two.stored, close, *other)


def pack(codes: np.ndarray, scheme: str, columns: int) -> np.ndarray:
    """[..., blocks, block] codes as stored; packed codes in whole blocks."""
    bits = FORMATS[SCHEMES[scheme][0]].bits
    flat = codes.reshape(*codes.shape[:-2], -1)
    if bits == 8:
        return flat[..., :columns]
    if bits == 4:
        return flat[..., 0::2] | flat[..., 1::2] << 4
    word = sum(flat[..., i::4].astype(np.uint32) << (6 * i) for i in range(4))
    three = np.stack([word, word >> 8, word >> 16], axis=-1).astype(np.uint8)
    return three.reshape(*flat.shape[:-1], -1)


def unpack(codes: np.ndarray, scheme: str) -> np.ndarray:
    bits = FORMATS[SCHEMES[scheme][0]].bits
    if bits == 8:
        return codes
    if bits == 4:
        return np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], -1)
    three = codes.reshape(*codes.shape[:-1], -1, 3).astype(np.uint32)
    word = three[..., 0] | three[..., 1] << 8 | three[..., 2] << 16
    four = np.stack([word >> (6 * i) & 63 for i in range(4)], axis=-1).astype(np.uint8)
    return four.reshape(*codes.shape[:-1], -1)


def swizzle(scales: np.ndarray) -> np.ndarray:
    """[*batch, rows, blocks] scale bytes in tiles of 128 x 4, flat for each matrix."""
    *batch, rows, blocks = scales.shape if scales.ndim > 1 else (1, *scales.shape)
    tall, wide = -(-rows // 128) * 128, -(-blocks // 4) * 4
    out = np.zeros((int(np.prod(batch, initial=1)), tall * wide), np.uint8)
    r, b = np.meshgrid(np.arange(rows), np.arange(blocks), indexing="ij")
    offset = ((r // 128) * -(-blocks // 4) + b // 4) * 512
    offset = offset + (r % 32) * 16 + ((r % 128) // 32) * 4 + b % 4
    out[:, offset.ravel()] = scales.reshape(out.shape[0], rows * blocks)
    return out.reshape(*batch, tall * wide)


@np.errstate(all="ignore")
def dequantize(
    codes: np.ndarray,
    scales: np.ndarray,
    scheme: str,
    columns: int,
    tensor_scale: np.float32 | None = None,
) -> np.ndarray:
    """Stored code bytes and row-major scale bytes to float32."""
    name, block, two_levels = SCHEMES[scheme]
    values = FORMATS[name].values()[unpack(codes, scheme)][..., :columns]
    if two_levels:
        factor = np.where(scales & 0x7F == 0x7F, F32(np.nan), e4m3_values(scales))
    else:
        factor = np.where(scales == 255, F32(np.nan), np.ldexp(F32(1), scales.astype(int) - 127))
    spread = np.repeat(factor, block, axis=-1)[..., :columns]
    product = values * spread
    return product * F32(tensor_scale) if two_levels else product


def _in_blocks(x: np.ndarray, block: int) -> np.ndarray:
    """[..., K] with zeros up to whole blocks: [..., blocks, block]."""
    missing = -x.shape[-1] % block
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])
    return padded.reshape(*x.shape[:-1], -1, block)


def _over_tiles(per_row: np.ndarray, block: int, reduce: np.ufunc = np.maximum) -> np.ndarray:
    """[..., rows, blocks] reduced over `block` rows, and written for each of them."""
    flat = per_row[None] if per_row.ndim == 1 else per_row
    starts = np.arange(0, flat.shape[-2], block)
    if len(starts) == 0 or flat.size == 0:
        return per_row
    tiles = reduce.reduceat(flat, starts, axis=-2)
    spread = np.repeat(tiles, block, axis=-2)[..., : flat.shape[-2], :]
    return spread[0] if per_row.ndim == 1 else spread
