# mxkern/analysis/output_files.py: files that a command writes are none of those that it reads.
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mxkern.values import errors


def check_outputs(command: str, files: Sequence[str], outputs: Mapping[str, str | None]) -> None:
    """ValueError for an output, by its option, that is a file that is read, by whatever name, or
    another output."""
    taken = {path: "a file that is read" for path in files}
    for option, path in outputs.items():
        if path is None:
            continue
        for other, what in taken.items():
            if _is_same_file(path, other):
                raise ValueError(
                    f"{command}: {option} {errors.printable(path)} is {what}; expected a file of "
                    "its own"
                )
        taken[path] = f"what {option} writes"


def _is_same_file(a: str, b: str) -> bool:
    if os.path.exists(a) and os.path.exists(b):
        return os.path.samefile(a, b)
    return os.path.realpath(a) == os.path.realpath(b)
