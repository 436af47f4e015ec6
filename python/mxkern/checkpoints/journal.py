# mxkern/checkpoints/journal.py: what a conversion has written, in a file beside it.
from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from mxkern import _core
from mxkern.files.json_object import shown
from mxkern.files.regular_file import RegularFile, read_regular

JOURNAL = "mxkern-convert.json"
UNFINISHED = ".unfinished"
MOST_BYTES = 100_000_000


@dataclass
class Journal:
    """What is being converted, and the files that are written. A finished one knows no times, so
    that the same model gives the same file."""

    options: dict[str, Any]
    source: dict[str, list[int]]  # files that are read: bytes, and when they were changed
    version: str = _core.version()
    files: dict[str, dict[str, Any]] = field(default_factory=dict)  # bytes, and poisoned blocks
    writing: str | None = None
    finished: bool = False

    def save(self, folder: str) -> None:
        """Writes it at once: what is there is whole."""
        path = os.path.join(folder, JOURNAL)
        said = asdict(self)
        if self.finished:
            said["source"] = {name: facts[:1] for name, facts in self.source.items()}
        with open(path + UNFINISHED, "w", encoding="utf-8", opener=_open_no_link) as file:
            json.dump(said, file, indent=1)
            file.write("\n")
        os.replace(path + UNFINISHED, path)

    def remove(self, folder: str) -> None:
        """Removes it, and what a saving that failed has left."""
        for name in (JOURNAL + UNFINISHED, JOURNAL):
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(folder, name))

    def check_continues(self, earlier: Journal, path: str) -> None:
        """ValueError where an earlier one is of another conversion."""
        for what, mine, other in (
            ("mxkern", self.version, earlier.version),
            *((name, self.options[name], earlier.options.get(name)) for name in self.options),
        ):
            if mine != other:
                raise ValueError(
                    f"{path}: it is of a conversion whose {what} is {shown(other)}; expected "
                    f"{shown(mine)} to continue it; convert with that, or replace it by --force "
                    "(force=True)"
                )
        for name in sorted(self.source.keys() | earlier.source.keys()):
            facts, before = self.source.get(name), earlier.source.get(name)
            if facts is None or before is None or facts[: len(before)] != before:
                raise ValueError(
                    f"{path}: it is of a conversion whose source had another {shown(name)}; "
                    "expected the same source to continue it; replace it by --force (force=True)"
                )


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def read_journal(folder: str) -> Journal | None:
    """That of a folder, if there is one. ValueError for what is none."""
    path = os.path.join(folder, JOURNAL)
    if not os.path.lexists(path):
        return None

    def fail(found: str, wanted: str) -> NoReturn:
        raise ValueError(f"{path}: {found}; expected {wanted}; it is no journal of mxkern convert")

    if os.path.islink(path):
        fail("it is a link", "a file")
    try:
        # Names of files may be no UTF-8, and stand for that as JSON here.
        found = Journal(**json.loads(read_regular(RegularFile(path), MOST_BYTES)))
        is_valid = (
            isinstance(found.options, dict)
            and isinstance(found.source, dict)
            and all(isinstance(facts, list) and facts for facts in found.source.values())
            and isinstance(found.files, dict)
            and all(map(_is_entry, found.files.values()))
            and all(map(_is_inside, [*found.files, found.writing or "none"]))
        )
    except (TypeError, ValueError, RecursionError):  # of no JSON, or of other names
        is_valid = False
    if not is_valid:
        fail("it has other entries", "options, source, version, files, writing and finished")
    return found


def _is_entry(value: object) -> bool:
    if not isinstance(value, dict) or value.keys() != {"bytes", "poisoned"}:
        return False
    poisoned = value["poisoned"]
    counts = poisoned.values() if isinstance(poisoned, dict) else ["none"]
    return all(type(number) is int and number >= 0 for number in (value["bytes"], *counts))


def _is_inside(name: object) -> bool:
    """Whether it is a path in the folder, and of no journal."""
    if not isinstance(name, str) or "\0" in name or name.startswith(JOURNAL):
        return False
    return all(part not in ("", ".", "..") for part in name.split("/"))
