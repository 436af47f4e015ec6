# mxkern/checkpoints/source_folder.py: a folder from somewhere else, out of which no link leads.
from __future__ import annotations

import os

from mxkern.files.regular_file import READ_FLAGS, RegularFile, check_regular


class SourceFolder:
    """The regular files of a folder. Links are followed to files in it; and those of the Hub's
    cache, from models--NAME/snapshots/REVISION, to files in models--NAME/blobs."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._real = os.path.realpath(path)
        self._roots = [self._real]
        cache, revisions = os.path.split(os.path.dirname(self._real))
        if revisions == "snapshots":
            self._roots.append(os.path.join(cache, "blobs"))

    def file(self, name: str) -> RegularFile:
        """A file by its name in the folder. Raises ValueError for one that is no regular file or
        lies elsewhere, OSError for one that cannot be opened."""
        path = os.path.join(self.path, name)
        return RegularFile(path, lambda: self._open(path, name))

    def has(self, name: str) -> bool:
        return os.path.lexists(os.path.join(self.path, name))

    def names(self) -> tuple[list[str], list[str]]:
        """What is in the folder: folders, and links to some, and all the rest."""
        folders: list[str] = []
        others: list[str] = []
        for name in sorted(os.listdir(self.path)):
            is_folder = os.path.isdir(os.path.join(self.path, name))
            (folders if is_folder else others).append(name)
        return folders, others

    def files_below(self, folder: str) -> list[str]:
        """The files of a folder in it, and of those in that. Links to folders are not followed."""
        real = os.path.realpath(os.path.join(self._real, folder))
        if os.path.commonpath([self._real, real]) != self._real:
            raise _leads_out(os.path.join(self.path, folder), real)
        found: list[str] = []
        folders = [folder]
        while folders:
            inner = folders.pop()
            with os.scandir(os.path.join(self._real, inner)) as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    (folders if is_folder else found).append(os.path.join(inner, entry.name))
        return sorted(found)

    def _open(self, path: str, name: str) -> int:
        try:
            real = os.path.realpath(os.path.join(self._real, name), strict=True)
            for root in self._roots:
                if os.path.commonpath([root, real]) == root:
                    return _open_beneath(path, root, os.path.relpath(real, root).split(os.sep))
        except OSError as error:
            error.filename = path  # not what a link leads to
            raise
        raise _leads_out(path, real)


def _leads_out(path: str, real: str) -> ValueError:
    return ValueError(
        f"{path}: it is a link to {real}, which is not in the folder; expected what is in it; copy "
        "that there"
    )


def _open_beneath(path: str, root: str, names: list[str]) -> int:
    """A descriptor of a regular file by the way from a folder, on which there is no link, whatever
    is put there meanwhile."""
    folder = os.open(root, READ_FLAGS | os.O_DIRECTORY)
    try:
        for name in names[:-1]:
            inner = os.open(name, READ_FLAGS | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        check_regular(path, os.stat(names[-1], dir_fd=folder, follow_symlinks=False))
        return os.open(names[-1], READ_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
