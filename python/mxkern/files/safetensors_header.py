# mxkern/files/safetensors_header.py: the header of a safetensors file, and what may be wrong with
# one.
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, cast

import ml_dtypes
import numpy as np

from mxkern.files.json_object import json_object, shown

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
MAX_RANK = 32  # of a NumPy array, in every NumPy version
MAX_BYTES = 2**63 - 1


class ElementType(NamedTuple):
    bits: int
    dtype: np.dtype[Any]  # uint8 for packed elements of less than a byte


_ELEMENT_TYPES = {
    name: ElementType(bits, np.dtype(dtype))
    for name, bits, dtype in (
        ("BOOL", 8, np.bool_),
        ("U8", 8, np.uint8),
        ("I8", 8, np.int8),
        ("U16", 16, np.uint16),
        ("I16", 16, np.int16),
        ("U32", 32, np.uint32),
        ("I32", 32, np.int32),
        ("U64", 64, np.uint64),
        ("I64", 64, np.int64),
        ("F16", 16, np.float16),
        ("BF16", 16, ml_dtypes.bfloat16),
        ("F32", 32, np.float32),
        ("F64", 64, np.float64),
        ("C64", 64, np.complex64),
        ("F8_E4M3", 8, ml_dtypes.float8_e4m3fn),
        ("F8_E5M2", 8, ml_dtypes.float8_e5m2),
        ("F8_E8M0", 8, ml_dtypes.float8_e8m0fnu),
        ("F8_E4M3FNUZ", 8, ml_dtypes.float8_e4m3fnuz),
        ("F8_E5M2FNUZ", 8, ml_dtypes.float8_e5m2fnuz),
        ("F4", 4, np.uint8),
        ("F6_E2M3", 6, np.uint8),
        ("F6_E3M2", 6, np.uint8),
    )
}


def element_bits(dtype: str) -> int:
    """Of a dtype, by the format's name."""
    return _ELEMENT_TYPES[dtype].bits


class TensorEntry(NamedTuple):
    """What the header says of one tensor; bytes count from the end of the header."""

    dtype: str  # the format's name, such as "BF16"
    shape: tuple[int, ...]  # in elements, also where several share a byte
    begin: int
    end: int

    @property
    def array_dtype(self) -> np.dtype[Any]:
        """Of an array of it: uint8 for elements of less than a byte."""
        return _ELEMENT_TYPES[self.dtype].dtype

    @property
    def array_shape(self) -> tuple[int, ...]:
        """Of an array of it, whose last axis counts bytes where elements are smaller; flat where
        rows do not end on a byte."""
        bits = element_bits(self.dtype)
        row_bits = bits * (self.shape[-1] if self.shape else 1)
        if bits >= 8:
            return self.shape
        return (*self.shape[:-1], row_bits // 8) if row_bits % 8 == 0 else (self.end - self.begin,)


class Header(NamedTuple):
    """What a file says of its tensors."""

    data_begin: int  # in the file
    entries: dict[str, TensorEntry]
    metadata: dict[str, str]


def parse_header(read: Callable[[int, int], bytes | bytearray], size: int, source: str) -> Header:
    """The header of `size` bytes, of which read(begin, count) gives some. ValueError, naming source
    and tensor, where they are truncated or contradict themselves."""

    def fail(found: str, wanted: str) -> NoReturn:
        raise ValueError(
            f"{source}: {found}; expected {wanted}; the file is damaged or no safetensors file"
        )

    if size < 8:
        fail(f"file has {size} bytes", "at least 8, the length of the header")
    header_bytes = int.from_bytes(read(0, 8), "little")
    if header_bytes > MAX_HEADER_BYTES:
        fail(f"header length is {header_bytes}", f"at most {MAX_HEADER_BYTES}")
    if header_bytes > size - 8:
        fail(f"header length is {header_bytes}", f"at most the {size - 8} bytes that follow it")

    header = json_object(read(8, header_bytes), "header", "tensor entries", fail)
    metadata = header.pop("__metadata__", None)
    if metadata is None:  # MLX writes null
        metadata = {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        fail("__metadata__ is no object of strings", "an object of strings")

    data_bytes = size - 8 - header_bytes
    entries = {}
    for name, value in header.items():
        try:
            entries[name] = _entry(value, data_bytes)
        except _EntryError as error:
            fail(f"tensor {shown(name)}: {error.found}", error.wanted)
    position = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.begin != position:
            kind = "overlaps the one before it" if entry.begin < position else "leaves a hole"
            fail(
                f"tensor {shown(name)}: data_offsets begin at {entry.begin}, which {kind}",
                f"{position}, where the data before it end",
            )
        position = entry.end
    if position != data_bytes:
        fail(f"tensors end at byte {position} of the data", f"{data_bytes}, the end of the file")
    return Header(8 + header_bytes, entries, cast("dict[str, str]", metadata))


class _EntryError(Exception):
    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(found, wanted)
        self.found = found
        self.wanted = wanted


def _entry(value: object, data_bytes: int) -> TensorEntry:
    if not isinstance(value, dict):
        raise _EntryError(f"entry is {shown(value)}", "an object")
    missing = {"dtype", "shape", "data_offsets"} - value.keys()
    if missing:
        raise _EntryError(f"entry lacks {', '.join(sorted(missing))}", "dtype, shape, data_offsets")

    dtype = value["dtype"]
    if not isinstance(dtype, str) or dtype not in _ELEMENT_TYPES:
        raise _EntryError(f"dtype is {shown(dtype)}", f"one of {', '.join(_ELEMENT_TYPES)}")
    shape = value["shape"]
    if not isinstance(shape, list) or not all(_is_size(extent) for extent in shape):
        raise _EntryError(f"shape is {shown(shape)}", "a list of non-negative 63-bit integers")
    if len(shape) > MAX_RANK:
        raise _EntryError(f"shape has {len(shape)} dimensions", f"at most {MAX_RANK}")
    # NumPy multiplies the extents that are not zero even where the product is.
    bits = math.prod(extent for extent in shape if extent) * _ELEMENT_TYPES[dtype].bits
    if bits // 8 > MAX_BYTES:
        raise _EntryError(f"shape {shown(shape)} overflows", "less than 2^63 bytes")
    offsets = value["data_offsets"]
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise _EntryError(
            f"data_offsets is {shown(offsets)}", "[begin, end], two non-negative integers"
        )
    begin, end = offsets
    if begin > end:
        raise _EntryError(f"data_offsets is [{begin}, {end}]", "begin <= end")
    if end > data_bytes:
        raise _EntryError(
            f"data_offsets end at {end}", f"at most {data_bytes}, the bytes after the header"
        )
    if 0 in shape:
        bits = 0
    if bits != 8 * (end - begin):
        raise _EntryError(
            f"data_offsets [{begin}, {end}] hold {end - begin} bytes",
            f"{bits / 8:g} bytes for {dtype} of shape {shape}",
        )
    return TensorEntry(dtype, tuple(shape), begin, end)


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_BYTES  # a bool is an int to isinstance
