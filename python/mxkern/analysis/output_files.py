# mxkern/analysis/output_files.py: the picture and the table that a command writes.
from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from typing import Any

from mxkern.analysis.plot import check_plot_path, save_plot
from mxkern.values import errors


class OutputFiles:
    """The files that a command is asked for by --plot and --csv, None where it is not. Raises as
    check_plot_path does."""

    def __init__(self, command: str, plot: str | None, csv_file: str | None) -> None:
        if plot is not None:
            check_plot_path(plot)
        self._command, self._plot, self._csv = command, plot, csv_file

    def check(self, files: Sequence[str]) -> None:
        """ValueError for one that is a file that is read, by whatever name, or the other one;
        OSError for a table that cannot be written."""
        taken = {path: "a file that is read" for path in files}
        for option, path in (("--plot", self._plot), ("--csv", self._csv)):
            if path is None:
                continue
            for other, what in taken.items():
                if _is_same_file(path, other):
                    raise ValueError(
                        f"{self._command}: {option} {errors.printable(path)} is {what}; expected a "
                        "file of its own"
                    )
            taken[path] = f"what {option} writes"
        if self._csv is not None:
            _write_csv(self._csv, (), ())

    def write(
        self,
        result: Any,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        title: str | None = None,
    ) -> None:
        """Writes what was asked for, and prints so: the picture of a result, and a table."""
        if self._plot is not None:
            save_plot(result, self._plot, title)
            print(f"wrote {errors.printable(self._plot)}")
        if self._csv is not None:
            _write_csv(self._csv, columns, rows)
            print(f"wrote {errors.printable(self._csv)}")


def _is_same_file(a: str, b: str) -> bool:
    if os.path.exists(a) and os.path.exists(b):
        return os.path.samefile(a, b)
    return os.path.realpath(a) == os.path.realpath(b)


def _write_csv(path: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
