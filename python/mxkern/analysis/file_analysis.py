# mxkern/analysis/file_analysis.py: the commands that analyze a tensor of a file, and that print the
# codes of a format.
from __future__ import annotations

from mxkern.analysis.output_files import OutputFiles
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
    outputs = OutputFiles("analyze", plot, csv_file)
    selection = select_tensors(path, tensor, exact_first=True)
    if len(selection.tensors) != 1:
        names = [errors.printable(name) for name in selection.tensors]
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise ValueError(
            f"{path}: --tensor {'is not given' if tensor is None else repr(tensor)}; expected the "
            f"name of one of {len(names)} tensors: {some}"
        )
    outputs.check(selection.files)
    [(name, array)] = selection.tensors.items()
    with progress_bar("analyzing", array.size) as advance, named_errors(path):
        found = analyzed(array, record, scale_rule, csv_file is not None, advance)
    print(f"{errors.printable(path)}: {errors.printable(name)}")
    print(found)
    columns, rows = found.records.dtype.names or (), found.records.tolist()
    outputs.write(found, columns, rows, f"{errors.printable(name)} in {found.scheme}")
    return found


def print_table(format: str, plot: str | None = None, csv_file: str | None = None) -> CodeTable:
    """Prints the codes of an element format with their values; writes the picture and the table."""
    outputs = OutputFiles("table", plot, csv_file)
    codes = table(format)
    outputs.check(())
    print(codes)
    outputs.write(codes, ("code", "bits", "value"), codes)
    return codes
