# mxkern/analysis/block_figures.py: what quantization does to each block of a piece of a tensor.
from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from mxkern.analysis.error_sums import SATURATION_TOLERANCE

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass
class BlockFigures:
    """Figures of blocks. As `figures_of` gives them they are arrays of [rows, blocks of a row]."""

    elements: Counts
    poisoned: Counts  # elements that decode to NaN; they count in nothing below
    signal: Floats  # sum of x^2
    noise: Floats  # sum of (x - decoded)^2
    max_error: Floats
    saturated: Counts
    flushed: Counts
    bits_used: Floats

    @property
    def sqnr_db(self) -> Floats:
        """10 log10(signal / noise): inf where nothing was lost, NaN where no element counts."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = 10 * np.log10(self.signal / self.noise)
        found[self.noise == 0] = np.inf
        found[np.isinf(self.noise)] = -np.inf
        found[self.poisoned == self.elements] = np.nan
        return found


def figures_of(
    x: npt.NDArray[np.float32],
    decoded: npt.NDArray[np.float32],
    codes: npt.NDArray[Any],
    largest: npt.NDArray[np.float32],
    block: int,
) -> BlockFigures:
    """The figures of a piece of a tensor, whose blocks begin at its first column.

    x, decoded, codes  [rows, K]; codes are one an element
    largest            [rows, ceil(K / block)]: the largest magnitude that each block can hold
    """
    whole = x.shape[1] // block
    split = whole * block
    parts = []
    if whole:
        shape = (x.shape[0], whole, block)
        first = (array[:, :split].reshape(shape) for array in (x, decoded, codes))
        parts.append(_of_equal_blocks(largest[:, :whole, np.newaxis], *first))
    if split < x.shape[1]:
        last = (array[:, np.newaxis, split:] for array in (x, decoded, codes))
        parts.append(_of_equal_blocks(largest[:, whole:, np.newaxis], *last))
    joined = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts], axis=1)
        for field in fields(BlockFigures)
    }
    return BlockFigures(**joined)


def _of_equal_blocks(
    largest: npt.NDArray[np.float32],
    x: npt.NDArray[Any],
    decoded: npt.NDArray[Any],
    codes: npt.NDArray[Any],
) -> BlockFigures:
    """Of [rows, blocks, elements of a block]."""
    counts = ~np.isnan(decoded)
    values = np.where(counts, x, np.float32(0))
    error = np.where(counts, x - decoded, np.float32(0))
    limit = largest * np.float32(1 + SATURATION_TOLERANCE)
    magnitudes = np.abs(error)
    return BlockFigures(
        elements=np.full(x.shape[:2], x.shape[2], np.int64),
        poisoned=np.count_nonzero(~counts, axis=2),
        signal=_sums_of_squares(values),
        noise=_sums_of_squares(error),
        max_error=magnitudes.max(axis=2).astype(np.float64),
        saturated=np.count_nonzero(counts & (np.abs(values) > limit), axis=2),
        flushed=np.count_nonzero((values != 0) & (decoded == 0), axis=2),
        bits_used=entropies(codes, counts),
    )


def _sums_of_squares(values: npt.NDArray[np.float32]) -> Floats:
    wide = values.astype(np.float64)
    found: Floats = np.einsum("rbi,rbi->rb", wide, wide)
    return found


def entropies(codes: npt.NDArray[Any], counts: npt.NDArray[np.bool_]) -> Floats:
    """The entropy of the codes of each block that count, in bits an element.

    Codes of a block are sorted, so that equal ones are a run: the entropy follows from the lengths
    of the runs, whatever the number of codes a format has.
    """
    rows, blocks, length = codes.shape
    beyond = 1 << 16  # a code that no format has
    ordered = np.where(counts, codes.astype(np.int32), beyond).reshape(-1, length)
    ordered.sort(axis=1)
    begins = np.ones(ordered.shape, bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=ordered.size).astype(np.float64)
    lengths[ordered.reshape(-1)[starts] == beyond] = 1  # contributes 1 * log2(1)
    weighted = lengths * np.log2(lengths)
    sums = np.bincount(starts // length, weighted, minlength=ordered.shape[0])
    total = np.count_nonzero(counts, axis=2).reshape(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(total > 0, np.log2(total) - sums / total, 0.0)
    return np.maximum(found, 0.0).reshape(rows, blocks)


def entropy_of_counts(counts: Counts) -> float:
    """The entropy of codes that occur so many times, in bits an element; 0 for no codes."""
    present = counts[counts > 0].astype(np.float64)
    total = present.sum()
    if total == 0:
        return 0.0
    return max(0.0, float(np.log2(total) - (present * np.log2(present)).sum() / total))
