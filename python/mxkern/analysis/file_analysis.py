# mxkern/analysis/file_analysis.py: the commands that analyze a tensor of a file, and that print the
# codes of a format.
from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any

from mxkern.analysis.output_files import check_outputs
from mxkern.analysis.plot import check_plot_path, save_plot
from mxkern.analysis.tensor_analysis import Analysis, analyzed, rule_of
from mxkern.files.progress import progress_bar
from mxkern.files.regular_file import named_errors
from mxkern.files.tensor_files import select_tensors
from mxkern.values import errors
from mxkern.values.code_table import CodeTable, table
from mxkern.values.custom_scheme import any_scheme_of
from mxkern.values.names import ScaleRule, SchemeName


def analyze_file(
    path: str,
    tensor: str | None = None,
    scheme: SchemeName = "mxfp4",
    rule: ScaleRule | None = None,
    plot: str | None = None,
    csv_file: str | None = None,
) -> Analysis:
    """Prints the figures of one tensor, by its name or a regular expression that only its name has
    a match for; writes the picture, and the figures of each block. Returns the analysis, without
    records unless they are written."""
    record = any_scheme_of("analyze", scheme)
    scale_rule = rule_of(record, rule)
    if plot is not None:
        check_plot_path(plot)
    selection = select_tensors(path, tensor, exact_first=True)
    if len(selection.tensors) != 1:
        names = [errors.printable(name) for name in selection.tensors]
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise ValueError(
            f"{path}: --tensor {'is not given' if tensor is None else repr(tensor)}; expected the "
            f"name of one of {len(names)} tensors: {some}"
        )
    check_outputs("analyze", selection.files, {"--plot": plot, "--csv": csv_file})
    if csv_file is not None:
        _write_csv(csv_file, (), ())
    [(name, array)] = selection.tensors.items()
    with progress_bar("analyzing", array.size) as advance, named_errors(path):
        found = analyzed(array, record, scale_rule, csv_file is not None, advance)
    print(f"{errors.printable(path)}: {errors.printable(name)}")
    print(found)
    if plot is not None:
        save_plot(found, plot, f"{errors.printable(name)} in {found.scheme}")
        print(f"wrote {errors.printable(plot)}")
    if csv_file is not None:
        _write_csv(csv_file, found.records.dtype.names or (), found.records.tolist())
        print(f"wrote {errors.printable(csv_file)}")
    return found


def print_table(format: str, plot: str | None = None, csv_file: str | None = None) -> CodeTable:
    """Prints the codes of an element format with their values; writes the picture and the table."""
    if plot is not None:
        check_plot_path(plot)
    codes = table(format)
    check_outputs("table", (), {"--plot": plot, "--csv": csv_file})
    print(codes)
    if plot is not None:
        save_plot(codes, plot)
        print(f"wrote {errors.printable(plot)}")
    if csv_file is not None:
        _write_csv(csv_file, ("code", "bits", "value"), codes)
        print(f"wrote {errors.printable(csv_file)}")
    return codes


def _write_csv(path: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
