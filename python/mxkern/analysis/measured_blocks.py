# mxkern/analysis/measured_blocks.py: the figures of a tensor's blocks, gathered piece by piece.
from __future__ import annotations

import math
from collections import Counter

import numpy as np
import numpy.typing as npt

from mxkern.analysis.block_figures import BlockFigures, entropy_of_counts, figures_of
from mxkern.analysis.error_sums import ErrorSums
from mxkern.analysis.pieces import Quantized, block_of
from mxkern.analysis.scale_values import exponents_of
from mxkern.values.scheme import Scheme

RECORD = np.dtype(
    [
        ("row", np.int64),
        ("block", np.int32),
        ("elements", np.int32),
        ("scale", np.float32),
        ("scale_exponent", np.float32),
        ("sqnr_db", np.float32),
        ("max_error", np.float32),
        ("saturated", np.float32),
        ("flushed", np.float32),
        ("poisoned", np.float32),
        ("bits_used", np.float32),
    ]
)


class MeasuredBlocks:
    """Sums, histograms and records of the blocks of a tensor, whose pieces come in its order."""

    def __init__(self, shape: tuple[int, ...], scheme: Scheme, per_block: bool) -> None:
        rows, columns = math.prod(shape[:-1]), shape[-1] if shape else 1
        self._block = block_of(scheme, columns)
        self._row_blocks = -(-columns // self._block)
        blocks = rows * self._row_blocks
        self.records = np.zeros(blocks if per_block else 0, RECORD)
        self._per_block = per_block
        self._codes = np.zeros(1 << scheme.bits, np.int64)
        self.blocks = 0
        self.nan = self.infinite = 0
        self.sums = ErrorSums()
        self.scale_exponents: Counter[float] = Counter()
        self.block_sqnr_db: Counter[float] = Counter()
        if scheme.has_tensor_scale:
            self.sums.stored_bytes += np.dtype(np.float32).itemsize

    def add(self, piece: npt.NDArray[np.generic], made: Quantized) -> None:
        """Adds a piece [rows, columns] that begins at a whole block."""
        x = piece.astype(np.float32)
        self.nan += int(np.count_nonzero(np.isnan(x)))
        self.infinite += int(np.count_nonzero(np.isinf(x)))
        counts = ~np.isnan(made.decoded)
        self._codes += np.bincount(made.codes[counts], minlength=self._codes.size)
        figures = figures_of(x, made.decoded, made.codes, made.largest, self._block)
        self._add_sums(figures, made.stored_bytes)
        exponents, decibels = exponents_of(made.scales), figures.sqnr_db
        _count(self.scale_exponents, exponents)
        _count(self.block_sqnr_db, np.floor(decibels))
        if self._per_block:
            self._put_records(figures, made.scales, exponents, decibels)
        self.blocks += made.scales.size

    @property
    def bits_used(self) -> float:
        return entropy_of_counts(self._codes)

    def _add_sums(self, figures: BlockFigures, stored_bytes: int) -> None:
        self.sums.merge(
            ErrorSums(
                elements=int(figures.elements.sum()),
                stored_bytes=stored_bytes,
                signal=float(figures.signal.sum()),
                noise=float(figures.noise.sum()),
                max_error=float(figures.max_error.max(initial=0.0)),
                saturated=int(figures.saturated.sum()),
                flushed=int(figures.flushed.sum()),
                poisoned=int(figures.poisoned.sum()),
            )
        )

    def _put_records(
        self,
        figures: BlockFigures,
        scales: npt.NDArray[np.float32],
        exponents: npt.NDArray[np.float32],
        decibels: npt.NDArray[np.float64],
    ) -> None:
        records = self.records[self.blocks : self.blocks + scales.size]
        place = np.arange(self.blocks, self.blocks + scales.size)
        nothing = figures.poisoned == figures.elements
        errors = np.where(nothing, np.nan, figures.max_error)
        records["row"], records["block"] = np.divmod(place, self._row_blocks)
        records["elements"] = figures.elements.reshape(-1)
        records["scale"], records["scale_exponent"] = scales.reshape(-1), exponents.reshape(-1)
        records["sqnr_db"] = decibels.reshape(-1)
        records["max_error"] = errors.reshape(-1)
        records["saturated"] = (figures.saturated / figures.elements).reshape(-1)
        records["flushed"] = (figures.flushed / figures.elements).reshape(-1)
        records["poisoned"] = (figures.poisoned / figures.elements).reshape(-1)
        records["bits_used"] = figures.bits_used.reshape(-1)


def _count(histogram: Counter[float], values: npt.NDArray[np.floating]) -> None:
    """Adds values that are whole or infinite; NaN is not counted."""
    found, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    for value, count in zip(found.tolist(), counts.tolist(), strict=True):
        histogram[int(value) if math.isfinite(value) else value] += count
