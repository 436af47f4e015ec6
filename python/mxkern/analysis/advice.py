# mxkern/analysis/advice.py: the narrowest scheme under which a tensor's error stays in bounds.
from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mxkern.analysis.comparison import CompareRecord, Comparison
from mxkern.values import errors
from mxkern.values.names import ScaleRule
from mxkern.values.table import format_table

_THRESHOLD = re.compile(r"([-+.\w]*?)\s*(db|%)?", re.IGNORECASE)


@dataclass(frozen=True)
class Threshold:
    """The largest relative RMSE that is borne; an SQNR of s dB is one of 10^(-s / 20)."""

    relative_rmse: float
    text: str

    @classmethod
    def of(
        cls, function: str, sqnr_db: float | None = None, relative_rmse: float | None = None
    ) -> Threshold:
        """From one of both. TypeError and ValueError for anything else."""
        if (sqnr_db is None) == (relative_rmse is None):
            given = "neither" if sqnr_db is None else "both"
            raise ValueError(
                f"{function}: {given} of sqnr_db and relative_rmse is given; expected one of them"
            )
        argument = "relative_rmse" if sqnr_db is None else "sqnr_db"
        value = relative_rmse if sqnr_db is None else sqnr_db
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise errors.no_number(function, argument, value)
        if sqnr_db is None:
            if not 0 < value < 1:
                raise ValueError(
                    f"{function}: relative_rmse is {value}; expected more than 0 and less than 1, "
                    "as 0.05; an SQNR in dB goes to sqnr_db"
                )
            return cls(float(value), f"relative RMSE at most {value:g}")
        if not math.isfinite(value) or not 0 < value < 300:
            raise ValueError(f"{function}: sqnr_db is {value}; expected more than 0, less than 300")
        return cls(10 ** (-value / 20), f"SQNR at least {value:g} dB")

    @classmethod
    def parsed(cls, text: str) -> Threshold:
        """From "25dB", "0.05" or "5%", as the command line takes it. Raises ValueError."""
        found = _THRESHOLD.fullmatch(text.strip())
        try:
            number, unit = float(found[1] if found else ""), str(found and found[2]).lower()
        except ValueError:
            raise ValueError(
                f"--threshold {text!r}: expected an SQNR, as 25dB, or a relative error, as 0.05 or "
                "5%"
            ) from None
        if unit == "db":
            return cls.of("--threshold", sqnr_db=number)
        return cls.of("--threshold", relative_rmse=number / 100 if unit == "%" else number)

    def is_met(self, record: CompareRecord) -> bool:
        """Whether a record's error is small enough, and nothing of the tensor is poisoned."""
        return record.poisoned == 0 and record.relative_rmse <= self.relative_rmse


@dataclass(frozen=True)
class AdviceRecord:
    """The narrowest scheme that a tensor bears, with its error. Where it bears none of those that
    were compared, scheme is None and the figures are those of the scheme with the least error."""

    tensor: str
    scheme: str | None
    scale_rule: ScaleRule | None
    bits_per_element: float
    sqnr_db: float
    relative_rmse: float
    elements: int


class Advice(tuple[AdviceRecord, ...]):
    """A record for each tensor; prints as a table. `threshold` says what was asked for."""

    threshold: Threshold

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records as plain dicts: for a data frame."""
        return [asdict(record) for record in self]

    @property
    def bits_per_element(self) -> float:
        """Of all tensors in their schemes; those that bear none count 16. NaN where there is no
        element."""
        elements = sum(record.elements for record in self)
        bits = [
            record.elements * (record.bits_per_element if record.scheme else 16.0)
            for record in self
            if record.elements
        ]
        return sum(bits) / elements if elements else math.nan

    def __repr__(self) -> str:
        headers = ("tensor", "scheme", "scale rule", "bits/element", "SQNR dB", "rel. RMSE")
        rows = [
            (
                errors.printable(record.tensor),
                record.scheme or "none",
                record.scale_rule or "-",
                f"{record.bits_per_element:.2f}" if record.scheme else "-",
                f"{record.sqnr_db:.2f}",
                f"{record.relative_rmse:.3e}",
            )
            for record in self
        ]
        text = format_table(headers, rows, left=headers[:3])
        return f"{text}\n{self.threshold.text}: {self._summary()}"

    def _summary(self) -> str:
        counts: dict[str, int] = {}
        for record in self:
            name = record.scheme or "none"
            counts[name] = counts.get(name, 0) + 1
        found = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        rest = ", none as 16 bits" if "none" in counts else ""
        return f"{found or 'no tensors'}; {self.bits_per_element:.2f} bits per element{rest}"


def advise(comparisons: Mapping[str, Comparison], threshold: Threshold) -> Advice:
    """For each tensor the narrowest scheme and rule that meets the threshold: the one of the fewest
    bits per element, and among those the one with the least error."""
    advice = Advice(_advised(name, records, threshold) for name, records in comparisons.items())
    advice.threshold = threshold
    return advice


def _advised(name: str, records: Comparison, threshold: Threshold) -> AdviceRecord:
    met = [record for record in records if threshold.is_met(record)]
    best = min(met or records, key=_narrowness if met else _error)
    return AdviceRecord(
        tensor=name,
        scheme=best.scheme if met else None,
        scale_rule=best.scale_rule if met else None,
        bits_per_element=best.bits_per_element,
        sqnr_db=best.sqnr_db,
        relative_rmse=best.relative_rmse,
        elements=best.elements,
    )


def _narrowness(record: CompareRecord) -> tuple[float, float]:
    return record.bits_per_element, record.relative_rmse


def _error(record: CompareRecord) -> float:
    return math.inf if math.isnan(record.relative_rmse) else record.relative_rmse
