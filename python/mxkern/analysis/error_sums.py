# mxkern/analysis/error_sums.py: what quantization does to values, summed over chunks of a tensor.
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

# The largest value of an NVFP4 block is a product of three rounded factors; a magnitude this close
# above it was not cut off.
SATURATION_TOLERANCE = 2.0**-20


class Values(NamedTuple):
    """A chunk of a tensor, [rows, K], with what all cases need of it."""

    x: npt.NDArray[np.float32]
    signal: float
    nonzero: int

    @classmethod
    def of(cls, x: npt.NDArray[np.float32]) -> Values:
        return cls(x, _sum_of_squares(x), int(np.count_nonzero(x != 0)))


@dataclass
class ErrorSums:
    """Sums over elements; those of poisoned blocks count only as `poisoned`."""

    elements: int = 0
    stored_bytes: int = 0
    signal: float = 0.0  # sum of x^2
    noise: float = 0.0  # sum of (x - decoded)^2
    max_error: float = 0.0
    saturated: int = 0
    flushed: int = 0
    poisoned: int = 0

    def add(
        self,
        values: Values,
        decoded: npt.NDArray[np.float32],
        largest: npt.NDArray[np.float32],
        block: int,
    ) -> None:
        """Adds a chunk. decoded: [rows, K]; largest: [rows, ceil(K / block)], the largest magnitude
        that each block can hold."""
        x = values.x
        self.elements += x.size
        limits = np.repeat(largest * np.float32(1 + SATURATION_TOLERANCE), block, axis=1)
        limits = limits[:, : x.shape[1]]
        poison = np.isnan(decoded)
        if poison.any():
            self.poisoned += int(np.count_nonzero(poison))
            values = Values.of(x[~poison])
            x, decoded, limits = values.x, decoded[~poison], limits[~poison]
        error = x - decoded
        self.signal += values.signal
        self.noise += _sum_of_squares(error)
        magnitude = np.abs(error, out=error)
        self.max_error = max(self.max_error, float(magnitude.max(initial=0.0)))
        self.saturated += int(np.count_nonzero(np.abs(x) > limits))
        # A zero decodes to zero, so what decodes to zero beyond the zeros was flushed.
        self.flushed += values.nonzero - int(np.count_nonzero(decoded != 0))

    def merge(self, other: ErrorSums) -> None:
        """Adds the sums of another tensor, as if it were a part of this one."""
        self.elements += other.elements
        self.stored_bytes += other.stored_bytes
        self.signal += other.signal
        self.noise += other.noise
        self.max_error = max(self.max_error, other.max_error)
        self.saturated += other.saturated
        self.flushed += other.flushed
        self.poisoned += other.poisoned

    @property
    def bits_per_element(self) -> float:
        return 8 * self.stored_bytes / self.elements if self.elements else math.nan

    @property
    def has_values(self) -> bool:
        """Whether any element counts: not all of them are poisoned."""
        return self.elements == 0 or self.poisoned < self.elements

    @property
    def relative_rmse(self) -> float:
        if not self.has_values:
            return math.nan
        if self.noise == 0:
            return 0.0
        return math.sqrt(self.noise / self.signal) if self.signal else math.inf

    @property
    def sqnr_db(self) -> float:
        if not self.has_values:
            return math.nan
        if self.noise == 0:
            return math.inf
        if self.signal == 0 or math.isinf(self.noise):
            return -math.inf
        return 10 * math.log10(self.signal / self.noise)

    def figures(self) -> dict[str, Any]:
        """The figures that records have, by their names."""
        return {
            "bits_per_element": self.bits_per_element,
            "sqnr_db": self.sqnr_db,
            "relative_rmse": self.relative_rmse,
            "max_error": self.max_error if self.has_values else math.nan,
            "saturated": self._share(self.saturated),
            "flushed": self._share(self.flushed),
            "poisoned": self._share(self.poisoned),
            "elements": self.elements,
        }

    def _share(self, count: int) -> float:
        return count / self.elements if self.elements else 0.0


def _sum_of_squares(values: npt.NDArray[Any]) -> float:
    # Not a BLAS product: its threads cost more than they save on a chunk.
    wide = values.astype(np.float64).reshape(-1)
    return float(np.einsum("i,i->", wide, wide))
