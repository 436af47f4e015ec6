# mxkern/checkpoints/target_files.py: files of a folder that others may write to as well.
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator

NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def entries_of(path: str) -> dict[str, int]:
    """The names of all that is in a folder and in folders of it, which end in a slash, and their
    bytes."""
    found: dict[str, int] = {}
    folders = [""] if os.path.lexists(path) else []
    while folders:
        inner = folders.pop()
        with os.scandir(os.path.join(path, inner)) as found_there:
            for entry in found_there:
                name = os.path.join(inner, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    name += "/"
                    folders.append(name)
                found[name] = entry.stat(follow_symlinks=False).st_size
    return found


def folders_of(names: Iterable[str]) -> set[str]:
    """The folders that files are in, as entries_of names them."""
    found = set()
    for name in names:
        parts = name.split("/")
        found |= {"/".join(parts[:count]) + "/" for count in range(1, len(parts))}
    return found


def taken(path: str) -> OSError:
    return FileExistsError(errno.EEXIST, "somebody else has put it there", path)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Holds a folder against other conversions, where its file system has locks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{path}: another conversion writes to it; expected a folder of its own; wait for "
                "that one, or stop it"
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


def rename_new(path: str, new: str) -> None:
    """Gives a file a name that no other file has."""
    try:
        os.link(path, new)
    except FileExistsError:
        raise taken(new) from None
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if os.path.lexists(new):
            raise taken(new) from None
        os.rename(path, new)
    else:
        os.remove(path)
