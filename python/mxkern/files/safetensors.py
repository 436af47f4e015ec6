# mxkern/files/safetensors.py: tensors of a safetensors file as NumPy views of the mapped file.
from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mxkern.files.file_tensor import FileTensor
from mxkern.files.regular_file import RegularFile, named_errors
from mxkern.files.safetensors_header import Header, parse_header

# Or a mapping keeps a descriptor, of which a process has a thousand.
MAP_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


class SafetensorsFile(Mapping[str, npt.NDArray[Any]]):
    """A checked safetensors file: a mapping from tensor name to a read-only NumPy array.

    Arrays are views of the mapped file and keep it mapped while they live; one that does not start
    at a multiple of its item size is a copy. BF16 and F8_* have ml_dtypes dtypes. F4 and F6_* are
    packed bytes, uint8: the last axis counts bytes, and the array is flat if rows do not end on a
    byte. `entries` and `metadata` hold what the header says.
    """

    def __init__(self, header: Header, file: RegularFile | None, buffer: Any = None) -> None:
        self._begin, self.entries, self.metadata = header
        self._file = file
        self._kept = buffer  # all bytes; otherwise the file is mapped while there are arrays of it
        self._mapped: Callable[[], mmap.mmap | None] = _nothing

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        entry = self.entries[name]
        shape, dtype = entry.array_shape, entry.array_dtype
        if entry.begin == entry.end:
            empty = np.empty(shape, dtype)
            empty.flags.writeable = False
            return empty
        array = np.ndarray(shape, dtype, self._buffer(), self._begin + entry.begin)
        if not array.flags.aligned:
            array = array.copy()
        array.flags.writeable = False
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def on_file(self, name: str) -> FileTensor:
        """A tensor that is read in parts, and not mapped, of a file that was opened."""
        entry = self.entries[name]
        begin = self._begin + entry.begin
        return FileTensor(self.file, entry.array_dtype, entry.array_shape, begin)

    @property
    def file(self) -> RegularFile:
        if self._file is None:
            raise ValueError("the tensors are bytes in memory; expected those of a file")
        return self._file

    def _buffer(self) -> Any:
        if self._kept is not None:
            return self._kept
        found = self._mapped()
        if found is None:
            with self.file.opened() as descriptor, named_errors(self.file.path):
                found = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ, **MAP_OPTIONS)
            self._mapped = weakref.ref(found)
        return found


def read_safetensors(path: str | os.PathLike[str]) -> SafetensorsFile:
    """Maps the safetensors file at `path` and checks its whole header.

    Returns a mapping from tensor name to read-only NumPy array; no tensor is read until used.
    Raises ValueError, naming file and tensor, for a file that is truncated or contradicts itself,
    and for what is no regular file; OSError for one that cannot be opened. The file must not shrink
    while arrays of it live.

    >>> read_safetensors("model.safetensors")["embeddings.weight"].shape  # doctest: +SKIP
    (30522, 384)
    """
    source = os.fsdecode(path)
    if source.endswith(".index.json"):
        raise ValueError(
            f"{source}: an index, of tensors in several files; read them with "
            "mxkern.checkpoints.read_safetensors_index"
        )
    opened = open_safetensors(RegularFile(source))
    opened._kept = opened._buffer()  # what was read is there also if the file gets another name
    return opened


def open_safetensors(file: RegularFile) -> SafetensorsFile:
    """A checked file that is mapped only while there are arrays of it, and must be unchanged when
    it is mapped again."""
    with named_errors(file.path):
        return SafetensorsFile(parse_header(file.read, file.size, file.path), file)


def parse_safetensors(data: bytes, source: str = "<bytes>") -> SafetensorsFile:
    """The same for the bytes of a file; `source` names them in errors."""
    header = parse_header(lambda begin, count: data[begin : begin + count], len(data), source)
    return SafetensorsFile(header, None, data)


def _nothing() -> None:
    return None
