# mxkern/files/regular_file.py: regular files that are read in parts, and stay the same while they
# are.
from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# A pipe would wait for a writer, and a terminal become the process's own.
READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

KINDS = {
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFLNK: "link",
}


class RegularFile:
    """A regular file whose parts are read into memory. It is opened for each use, so a thousand of
    them take no descriptors, and each time it must be what it was at first. It is never mapped: one
    that shrinks meanwhile is a ValueError, not a signal.

    Raises ValueError, which names the file, for a folder, a pipe or a device, and for a file that
    has changed; OSError for one that cannot be opened.
    """

    def __init__(self, path: str, opened: Callable[[], int] | None = None) -> None:
        """opened: opens the file for reading, where that is not by its path."""
        self.path = path
        self._open = opened or self._open_path
        with named_errors(path):
            descriptor = self._open()
            try:
                found = os.fstat(descriptor)
            finally:
                os.close(descriptor)
        check_regular(path, found)
        self.size, self.modified = found.st_size, found.st_mtime_ns
        self._identity = _identity(found)

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of the file."""
        with named_errors(self.path):
            descriptor = self._open()
        try:
            if _identity(os.fstat(descriptor)) != self._identity:
                raise self._changed()
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, begin: int, count: int) -> bytearray:
        with named_errors(self.path):
            data = bytearray(count)
        with self.opened() as descriptor:
            self.read_into(descriptor, begin, memoryview(data))
        return data

    def read_into(self, descriptor: int, begin: int, out: memoryview) -> None:
        """Fills `out` with the bytes that begin there."""
        while len(out):
            with named_errors(self.path):
                count = os.preadv(descriptor, [out], begin)
            if count == 0:
                raise self._changed()
            out, begin = out[count:], begin + count

    def _open_path(self) -> int:
        check_regular(self.path, os.stat(self.path))  # some devices act on being opened
        return os.open(self.path, READ_FLAGS)

    def _changed(self) -> ValueError:
        return ValueError(
            f"{self.path}: it has changed while it was read; expected a file that stays as it is"
        )


def read_regular(file: RegularFile, most_bytes: int) -> bytearray:
    """All of a file that is to be parsed."""
    if file.size > most_bytes:
        raise ValueError(f"{file.path}: it has {file.size} bytes; expected at most {most_bytes}")
    return file.read(0, file.size)


def check_regular(path: str, found: os.stat_result) -> None:
    """ValueError for a folder, a device or a pipe, of which there is no end, or nothing yet."""
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "device")
        way_out = "pass a file in it" if kind == "folder" else "copy what it gives to one"
        raise ValueError(f"{path}: it is a {kind}; expected a regular file; {way_out}")


class FileMemoryError(MemoryError):
    """There is too little memory for a file, which the message names."""


@contextmanager
def named_errors(path: str) -> Iterator[None]:
    """Errors of the system name the file that they are about, if they do not yet."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = path
        raise
    except FileMemoryError:
        raise
    except MemoryError:
        raise FileMemoryError(f"{path}: there is not enough memory for it") from None


def _identity(found: os.stat_result) -> tuple[Any, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, stat.S_IFMT(found.st_mode)
