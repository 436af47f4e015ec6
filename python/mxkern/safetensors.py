# mxkern/safetensors.py: tensors of a safetensors file as NumPy views of the mapped file.
from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

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


class SafetensorsFile(Mapping[str, npt.NDArray[Any]]):
    """A checked safetensors file: a mapping from tensor name to a read-only NumPy array.

    Arrays are views of the mapped file and keep it mapped while they live; one that does not start
    at a multiple of its item size is a copy. BF16 and F8_* have ml_dtypes dtypes. F4 and F6_* are
    packed bytes, uint8: the last axis counts bytes, and the array is flat if rows do not end on a
    byte. `entries` and `metadata` hold what the header says.
    """

    def __init__(self, buffer: Any, source: str) -> None:
        self._buffer = buffer
        self._start, self.entries, self.metadata = _parse(buffer, source)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        entry = self.entries[name]
        element = _ELEMENT_TYPES[entry.dtype]
        shape = entry.shape
        if element.bits < 8:
            row_bits = element.bits * (shape[-1] if shape else 1)
            shape = (
                (*shape[:-1], row_bits // 8) if row_bits % 8 == 0 else (entry.end - entry.begin,)
            )
        if entry.begin == entry.end:
            empty = np.empty(shape, element.dtype)
            empty.flags.writeable = False
            return empty
        array = np.ndarray(shape, element.dtype, self._buffer, self._start + entry.begin)
        if not array.flags.aligned:
            array = array.copy()
        array.flags.writeable = False
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def read_safetensors(path: str | os.PathLike[str]) -> SafetensorsFile:
    """Maps the safetensors file at `path` and checks its whole header.

    Returns a mapping from tensor name to read-only NumPy array; no tensor is read until used.
    Raises ValueError, naming file and tensor, for a file that is truncated or contradicts itself,
    and OSError for one that cannot be opened. The file must not shrink while arrays of it live.

    >>> read_safetensors("model.safetensors")["embeddings.weight"].shape  # doctest: +SKIP
    (30522, 384)
    """
    source = os.fsdecode(path)
    check_mappable(source)
    if source.endswith(".index.json"):
        raise ValueError(
            f"{source}: an index, of tensors in several files; read them with "
            "mxkern.safetensors_index.read_safetensors_index"
        )
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < 8:  # an empty file cannot be mapped
            return parse_safetensors(file.read(8), source)
        return SafetensorsFile(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), source)


def check_mappable(path: str) -> None:
    """ValueError for a device or a pipe, of which there is no end, or nothing yet."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise ValueError(f"{path}: no file that can be mapped; copy what it gives to one")


def parse_safetensors(data: bytes, source: str = "<bytes>") -> SafetensorsFile:
    """The same for the bytes of a file; `source` names them in errors."""
    return SafetensorsFile(data, source)


def _parse(buffer: Any, source: str) -> tuple[int, dict[str, TensorEntry], dict[str, str]]:
    def fail(found: str, wanted: str) -> NoReturn:
        raise ValueError(
            f"{source}: {found}; expected {wanted}; the file is damaged or no safetensors file"
        )

    size = len(buffer)
    if size < 8:
        fail(f"file has {size} bytes", "at least 8, the length of the header")
    header_bytes = int.from_bytes(buffer[:8], "little")
    if header_bytes > MAX_HEADER_BYTES:
        fail(f"header length is {header_bytes}", f"at most {MAX_HEADER_BYTES}")
    if header_bytes > size - 8:
        fail(f"header length is {header_bytes}", f"at most the {size - 8} bytes that follow it")

    header = json_object(bytes(buffer[8 : 8 + header_bytes]), "header", "tensor entries", fail)
    metadata = header.pop("__metadata__", {})
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
    return 8 + header_bytes, entries, cast("dict[str, str]", metadata)


def json_object(
    data: bytes,
    name: str,
    content: str,
    fail: Callable[[str, str], NoReturn],
    *,
    has_constants: bool = False,
) -> dict[str, Any]:
    """The object of `content` that UTF-8 JSON spells; fail(found, wanted) where it spells none.
    has_constants: NaN and Infinity count as numbers, which Python writes and JSON has not."""
    constant = None if has_constants else _no_constant
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=constant)
    except RecursionError:
        fail(f"{name} is JSON nested too deeply", f"one object of {content}")
    except ValueError as error:  # of the decoder, the parser, or the two hooks
        fail(f"{name} is no valid JSON ({error})", f"one UTF-8 JSON object of {content}")
    if not isinstance(value, dict):
        fail(f"{name} is a JSON {type(value).__name__}", f"a JSON object of {content}")
    return value


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


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"duplicate key {shown(key)}")
            seen.add(key)
    for key in unique:
        key.encode("utf-8")  # JSON escapes can spell lone surrogates, which are no text
    return unique


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def shown(value: object) -> str:
    """What a header holds, for an error."""
    try:
        text = repr(value)
    except RecursionError:  # nesting that the parser could just follow
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
