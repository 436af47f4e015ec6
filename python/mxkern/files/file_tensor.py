# mxkern/files/file_tensor.py: tensors of a file that are read a part at a time.
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mxkern.files.regular_file import RegularFile, named_errors

Tensor = npt.NDArray[Any]
PART_BYTES = 1 << 22  # of what is worked on at a time: work for all cores, and little memory


class FileTensor:
    """A tensor in C order that lies in a file. Reading a part of it takes the memory of that part,
    and of nothing else: pages of a mapped file would stay with the process."""

    def __init__(
        self, file: RegularFile, dtype: np.dtype[Any], shape: tuple[int, ...], begin: int
    ) -> None:
        self.file, self.dtype, self.shape, self._begin = file, dtype, shape, begin
        self.ndim, self.size = len(shape), math.prod(shape)
        self.nbytes = self.size * dtype.itemsize

    def bytes(self) -> FileTensor:
        """The same memory."""
        return FileTensor(self.file, np.dtype(np.uint8), (self.nbytes,), self._begin)

    def parts(self, elements: int, within: int | None = None) -> Iterator[npt.NDArray[Any]]:
        """All of it, flat, in parts of so many elements, or of what is left before a multiple of
        `within`. A part is there until the next one, which takes its memory."""
        if self.size == 0:
            return
        end_at = within or self.size
        with named_errors(self.file.path):
            memory = np.empty(min(elements, end_at), self.dtype)
        data = memoryview(memory.view(np.uint8))  # type: ignore[arg-type]
        item = self.dtype.itemsize
        with self.file.opened() as descriptor:
            for start in range(0, self.size, end_at):
                for begin in range(start, start + end_at, elements):
                    count = min(elements, start + end_at - begin)
                    self.file.read_into(
                        descriptor, self._begin + begin * item, data[: count * item]
                    )
                    yield memory[:count]

    def slices(self) -> Iterator[npt.NDArray[Any]]:
        """All of it in parts along the first axis, of PART_BYTES or one of its members."""
        members = self.shape[1:]
        elements = math.prod(members)
        count = max(PART_BYTES // max(elements * self.dtype.itemsize, 1), 1)
        return (part.reshape(-1, *members) for part in self.parts(count * elements))

    def read(self) -> npt.NDArray[Any]:
        """All of it at once."""
        if self.size == 0:
            return np.empty(self.shape, self.dtype)
        (whole,) = self.parts(self.size)
        return whole.reshape(self.shape)


def bytes_of(file: RegularFile) -> FileTensor:
    """All of a file."""
    return FileTensor(file, np.dtype(np.uint8), (file.size,), 0)
