# mxkern/analysis/model_comparison.py: the comparisons of many tensors, by name, and of all of them.
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mxkern.analysis.advice import Advice, Threshold, advise
from mxkern.analysis.comparison import Case, Comparison, comparison_of
from mxkern.analysis.error_sums import ErrorSums


class ModelComparison(Mapping[str, Comparison]):
    """The Comparison of each tensor by its name, and `total`, of all as if they were one tensor,
    each with a tensor scale of its own. Prints as the table of `total`.

    `records` are plain dicts, for a data frame: those of `compare`, with the name as "tensor".
    """

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = tuple(cases)
        self._sums: dict[str, list[ErrorSums]] = {}

    def add(self, name: str, sums: Sequence[ErrorSums]) -> None:
        """Adds what `measure` found; to what is there already, where the name is known."""
        known = self._sums.setdefault(name, [ErrorSums() for _ in self.cases])
        for total, found in zip(known, sums, strict=True):
            total.merge(found)

    def __getitem__(self, name: str) -> Comparison:
        return comparison_of(self.cases, self._sums[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._sums)

    def __len__(self) -> int:
        return len(self._sums)

    @property
    def total(self) -> Comparison:
        """Of all tensors as if they were one."""
        totals = [ErrorSums() for _ in self.cases]
        for sums in self._sums.values():
            for total, found in zip(totals, sums, strict=True):
                total.merge(found)
        return comparison_of(self.cases, totals)

    @property
    def records(self) -> list[dict[str, Any]]:
        """A plain dict for each tensor, scheme and rule."""
        return [{"tensor": name, **record} for name in self for record in self[name].to_dicts()]

    def advice(self, *, sqnr_db: float | None = None, relative_rmse: float | None = None) -> Advice:
        """The narrowest scheme and rule that each tensor bears: of those whose SQNR is at least
        sqnr_db, or whose relative RMSE is at most relative_rmse, the one of the fewest bits per
        element, and of those the one with the least error. A tensor with a NaN or Inf bears none.

        Returns a tuple of AdviceRecords that prints as a table. Raises TypeError and ValueError
        unless one of both is given.
        """
        return advise(self, Threshold.of("advice", sqnr_db, relative_rmse))

    def __repr__(self) -> str:
        tensors = f"{len(self)} {'tensor' if len(self) == 1 else 'tensors'}"
        elements = next((record.elements for record in self.total), 0)
        return f"{tensors}, {elements:,} elements\n{self.total}"
