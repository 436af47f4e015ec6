# mxkern/checkpoints/target.py: the folder that a conversion writes, and what is left where it
# fails.
from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Sequence
from typing import BinaryIO, NamedTuple

from mxkern.checkpoints.journal import JOURNAL, UNFINISHED, Journal, read_journal
from mxkern.checkpoints.target_files import entries_of, folders_of, locked, rename_new, taken
from mxkern.files.regular_file import RegularFile, named_errors


class Output(NamedTuple):
    """A file to write."""

    name: str  # in the folder, which may be that of a file in a folder of it
    size: int  # in bytes
    head: bytes  # what it begins with, as far as that is known
    write: Callable[[BinaryIO], dict[str, int]]  # returns the blocks that are NaN now, by weight


class TargetFolder:
    """Writes files of one conversion, and never touches what somebody else put there."""

    def __init__(
        self, path: str, journal: Journal, outputs: Sequence[Output], *, resume: bool, force: bool
    ) -> None:
        self.path = path.rstrip("/") or "/"
        self.journal, self.outputs = journal, outputs
        self._resume, self._force = resume, force
        self._made: list[str] = []  # folders
        self._unfinished: str | None = None  # the path of what is being written

    def check(self) -> list[str]:
        """The files of an earlier conversion that are to go. Takes over those that are finished,
        and writes nothing. Raises ValueError, and OSError where there is not enough room."""
        found = entries_of(self.path)
        earlier = read_journal(self.path)
        if earlier is None:
            if found:
                raise ValueError(
                    f"{self.path}: it is not empty; expected a folder to make, or an empty one"
                )
            self._check_room(0)
            return []
        if not self._resume and not self._force:
            state = "a finished" if earlier.finished else "an unfinished"
            raise ValueError(
                f"{self.path}: it is not empty; expected a folder to make, or an empty one; there "
                f"is {state} conversion in it, which --resume (resume=True) continues and --force "
                "(force=True) replaces"
            )
        gone = {earlier.writing + UNFINISHED} if earlier.writing is not None else set()
        if self._force:
            gone |= earlier.files.keys()
            others = found.keys() - gone - {JOURNAL, JOURNAL + UNFINISHED} - folders_of(gone)
        else:
            self.journal.check_continues(earlier, os.path.join(self.path, JOURNAL))
            self.journal.files = earlier.files
            self._check_finished(found)
            others = found.keys() & {output.name for output in self.outputs}
            others -= earlier.files.keys()
        if others:
            raise ValueError(
                f"{os.path.join(self.path, min(others))}: {JOURNAL} does not list it; expected "
                "what a conversion wrote, and nothing else; move it elsewhere"
            )
        gone &= found.keys()
        self._check_room(sum(found[name] for name in gone))
        return sorted(gone)

    def _check_finished(self, found: dict[str, int]) -> None:
        """ValueError where files that are finished are no longer what was written."""
        for output in self.outputs:
            entry = self.journal.files.get(output.name)
            if entry is None:
                continue
            if output.name not in found:
                del self.journal.files[output.name]  # it is written again
                continue
            path = os.path.join(self.path, output.name)
            file = RegularFile(path)
            if file.size != output.size or file.read(0, len(output.head)) != output.head:
                raise ValueError(
                    f"{path}: it is not what was written; expected {output.size} bytes; remove "
                    "it, and it is written again"
                )

    def _check_room(self, freed: int) -> None:
        needed = sum(output.size for output in self._missing())
        folder = os.path.abspath(self.path)
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        free = shutil.disk_usage(folder).free + freed
        if needed > free:
            raise OSError(
                errno.ENOSPC,
                f"{needed / 1e6:,.1f} MB are needed and {free / 1e6:,.1f} MB are free",
                self.path,
            )

    def _missing(self) -> list[Output]:
        return [output for output in self.outputs if output.name not in self.journal.files]

    def write(self) -> None:
        """Writes the files that are missing. Where that fails those that are finished stay, and the
        error has a note of how to go on; nothing stays where none is."""
        try:
            self._make_folder(self.path)
            with locked(self.path):
                gone = self.check()
                for name in gone:
                    os.remove(os.path.join(self.path, name))
                for folder in sorted(folders_of(gone), reverse=True):
                    with contextlib.suppress(OSError):
                        os.rmdir(os.path.join(self.path, folder))
                self._write_files()
        except BaseException:
            for folder in reversed(self._made):
                with contextlib.suppress(OSError):  # it stays where there is something in it
                    os.rmdir(folder)
            raise

    def _write_files(self) -> None:
        try:
            for output in self._missing():
                self._write_file(output)
            self.journal.finished = True
            self.journal.save(self.path)
        except BaseException as error:
            if self._unfinished is not None:
                with contextlib.suppress(OSError):
                    os.remove(self._unfinished)
            self.journal.writing = None
            with contextlib.suppress(OSError):
                if self.journal.files:
                    self.journal.save(self.path)
                else:
                    self.journal.remove(self.path)
            if self.journal.files:
                error.add_note(
                    f"{len(self.journal.files)} of {len(self.outputs)} files are finished; "
                    "--resume (resume=True) continues"
                )
            raise

    def _write_file(self, output: Output) -> None:
        path = os.path.join(self.path, output.name)
        unfinished = path + UNFINISHED
        self._make_folder(os.path.dirname(path))
        for place in (path, unfinished):
            if os.path.lexists(place):
                raise taken(place)
        self.journal.writing = output.name
        self.journal.save(self.path)
        with named_errors(path):
            self._unfinished = unfinished
            try:
                file = open(unfinished, "xb")  # noqa: SIM115
            except FileExistsError:
                self._unfinished = None
                raise taken(unfinished) from None
            with file:
                poisoned = output.write(file)
            if os.path.getsize(unfinished) != output.size:
                raise ValueError(f"{path}: it has another size than {output.size} bytes")
            rename_new(unfinished, path)
        self.journal.files[output.name] = {"bytes": output.size, "poisoned": poisoned}
        self._unfinished = self.journal.writing = None

    def _make_folder(self, path: str) -> None:
        """Makes a folder and those that it is in, as needed."""
        if path and not os.path.isdir(path):
            self._make_folder(os.path.dirname(path))
            os.mkdir(path)
            self._made.append(path)
