# mxkern/analysis/file_comparison.py: schemes compared on the tensors of a file, and the command
# that prints it.
from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import fields

from mxkern.analysis.advice import Threshold, advise
from mxkern.analysis.comparison import (
    Case,
    CompareRecord,
    Comparison,
    measure,
    select_cases,
)
from mxkern.analysis.model_comparison import ModelComparison
from mxkern.analysis.output_files import OutputFiles
from mxkern.files.progress import progress_bar
from mxkern.files.regular_file import named_errors
from mxkern.files.tensor_files import Selection, select_tensors
from mxkern.values import errors
from mxkern.values.names import ScaleRule, SchemeName
from mxkern.values.scheme import Scheme


def compare_tensors(
    path: str,
    pattern: str | None = None,
    schemes: SchemeName | Scheme | Iterable[SchemeName | Scheme] | None = None,
    rules: ScaleRule | Iterable[ScaleRule] | None = None,
) -> ModelComparison:
    """`compare` of each tensor of a file, which are read in parts.

    path            a .safetensors or .npy file, or the .safetensors.index.json of a model in
                    several files; float64 in it is rounded to float32
    pattern         a regular expression: only tensors whose name has a match, vectors too; without
                    it all matrices, and the array of a .npy file
    schemes, rules  as for `compare`

    Returns a ModelComparison: a mapping from names to Comparisons, with `total`, `records` and
    `advice(sqnr_db=...)`. Raises TypeError, ValueError and OSError.
    """
    cases = select_cases("compare_tensors", schemes, rules)
    return _measured(path, select_tensors(path, pattern), cases)


def compare_file(
    path: str,
    pattern: str | None = None,
    schemes: Sequence[SchemeName] | None = None,
    rules: Sequence[ScaleRule] | None = None,
    per_tensor: bool = False,
    plot: str | None = None,
    csv_file: str | None = None,
    threshold: str | None = None,
) -> Comparison:
    """Prints what was read and the table, writes the picture and the figures; returns the
    comparison of all tensors as if they were one. NVFP4 has a tensor scale for each. With a
    threshold, "25dB" or "0.05", also prints the narrowest scheme that each tensor bears."""
    cases = select_cases("compare", schemes, rules)
    wanted = None if threshold is None else Threshold.parsed(threshold)
    outputs = OutputFiles("compare", plot, csv_file)
    selection = select_tensors(path, pattern)
    outputs.check(selection.files)
    found = _measured(path, selection, cases)
    if per_tensor:
        for name, array in selection.tensors.items():
            shape = "x".join(map(str, array.shape))
            print(f"{errors.printable(name)} [{shape}] {array.dtype}\n{found[name]}\n")
    comparison, size = found.total, size_of(selection)
    print(f"{errors.printable(path)}: {size}{_left_out(selection)}")
    print(comparison)
    if wanted is not None:
        print(f"\n{advise(found, wanted)}")
    # Behind the name of each record's tensor; that of all tensors has none.
    columns = ["tensor", *(field.name for field in fields(CompareRecord))]
    named = {**(found if per_tensor else {}), "": comparison}
    rows = [[name, *record.values()] for name, own in named.items() for record in own.records]
    outputs.write(comparison, columns, rows, f"{errors.printable(os.path.basename(path))}: {size}")
    return comparison


def _measured(path: str, selection: Selection, cases: Sequence[Case]) -> ModelComparison:
    found = ModelComparison(cases)
    elements = sum(array.size for array in selection.tensors.values())
    with progress_bar("comparing", elements * len(cases)) as advance:
        for name, array in selection.tensors.items():
            with named_errors(path):
                found.add(name, measure(array, cases, advance))
    return found


def size_of(selection: Selection) -> str:
    """How much there is to compare, in words."""
    count = len(selection.tensors)
    elements = sum(array.size for array in selection.tensors.values())
    return f"{count} {'tensor' if count == 1 else 'tensors'}, {elements:,} elements"


def _left_out(selection: Selection) -> str:
    reasons = [f"{count} {what}" for what, count in selection.left_out.items() if count]
    return f"; left out: {', '.join(reasons)}" if reasons else ""
