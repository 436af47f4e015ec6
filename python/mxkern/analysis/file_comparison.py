# mxkern/analysis/file_comparison.py: the command that compares schemes on the tensors of a file.
from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import fields

from mxkern.analysis.comparison import (
    CompareRecord,
    Comparison,
    comparison_of,
    measure,
    select_cases,
)
from mxkern.analysis.error_sums import ErrorSums
from mxkern.analysis.plot import check_plot_path, save_plot
from mxkern.files.progress import progress_bar
from mxkern.files.regular_file import named_errors
from mxkern.files.tensor_files import select_tensors
from mxkern.values import errors
from mxkern.values.names import ScaleRule, SchemeName


def compare_file(
    path: str,
    pattern: str | None = None,
    schemes: Sequence[SchemeName] | None = None,
    rules: Sequence[ScaleRule] | None = None,
    per_tensor: bool = False,
    plot: str | None = None,
    csv_file: str | None = None,
) -> Comparison:
    """Prints what was read and the table, writes the picture and the figures; returns the
    comparison of all tensors as if they were one. NVFP4 has a tensor scale for each."""
    cases = select_cases("compare", schemes, rules)
    if plot is not None:
        check_plot_path(plot)
    selection = select_tensors(path, pattern)
    _check_outputs(selection.files, {"--plot": plot, "--csv": csv_file})
    if csv_file is not None:
        _write_csv(csv_file, {})  # or it is known now that it cannot be written
    tensors = selection.tensors
    elements = sum(array.size for array in tensors.values())
    totals = [ErrorSums() for _ in cases]
    tables, comparisons = [], {}
    with progress_bar("comparing", elements * len(cases)) as advance:
        for name, array in tensors.items():
            with named_errors(path):
                sums = measure(array, cases, advance)
            for total, found in zip(totals, sums, strict=True):
                total.merge(found)
            if per_tensor:
                shape = "x".join(map(str, array.shape))
                title = f"{errors.printable(name)} [{shape}] {array.dtype}"
                comparisons[name] = comparison_of(cases, sums)
                tables.append(f"{title}\n{comparisons[name]}\n")
    comparison = comparison_of(cases, totals)
    for table in tables:
        print(table)
    size = f"{len(tensors)} {'tensor' if len(tensors) == 1 else 'tensors'}, {elements:,} elements"
    left_out = [f"{count} {what}" for what, count in selection.left_out.items() if count]
    print(
        f"{errors.printable(path)}: {size}"
        + (f"; left out: {', '.join(left_out)}" if left_out else "")
    )
    print(comparison)
    if plot is not None:
        save_plot(comparison, plot, f"{errors.printable(os.path.basename(path))}: {size}")
        print(f"wrote {errors.printable(plot)}")
    if csv_file is not None:
        _write_csv(csv_file, {**comparisons, "": comparison})
        print(f"wrote {errors.printable(csv_file)}")
    return comparison


def _check_outputs(files: Sequence[str], outputs: dict[str, str | None]) -> None:
    """ValueError for one that is a file that is read, by whatever name, or another output."""
    taken = {path: "a file that is read" for path in files}
    for option, path in outputs.items():
        if path is None:
            continue
        for other, what in taken.items():
            if _is_same_file(path, other):
                raise ValueError(
                    f"compare: {option} {errors.printable(path)} is {what}; expected a file of its "
                    "own"
                )
        taken[path] = f"what {option} writes"


def _is_same_file(a: str, b: str) -> bool:
    if os.path.exists(a) and os.path.exists(b):
        return os.path.samefile(a, b)
    return os.path.realpath(a) == os.path.realpath(b)


def _write_csv(path: str, comparisons: dict[str, Comparison]) -> None:
    """A row for each record, behind the name of its tensor; that of all tensors has none."""
    columns = ["tensor", *(field.name for field in fields(CompareRecord))]
    with open(path, "w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for name, comparison in comparisons.items():
            writer.writerows({"tensor": name, **record} for record in comparison.to_dicts())
