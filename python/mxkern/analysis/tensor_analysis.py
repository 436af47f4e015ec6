# mxkern/analysis/tensor_analysis.py: what one scheme does to a tensor and to each of its blocks.
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from mxkern import _core
from mxkern.analysis.comparison import Stored, Tensor, as_numpy
from mxkern.analysis.measured_blocks import MeasuredBlocks
from mxkern.analysis.pieces import amax_of, block_of, pieces_of, quantized
from mxkern.values import errors
from mxkern.values.custom_scheme import any_scheme_of
from mxkern.values.names import ScaleRule, SchemeName
from mxkern.values.options import SCALE_RULES, position
from mxkern.values.scheme import Scheme
from mxkern.values.table import format_table

BAR = 40  # characters of the longest bar of a histogram

Histogram = dict[float, int]


@dataclass(frozen=True, repr=False)
class Analysis:
    """The figures of one scheme on one tensor; `analyze` defines each. Prints as tables."""

    scheme: str
    scale_rule: ScaleRule | None
    shape: tuple[int, ...]
    dtype: str
    block: int
    elements: int
    blocks: int
    nan: int
    infinite: int
    poisoned: float
    bits_per_element: float
    bits_used: float
    sqnr_db: float
    relative_rmse: float
    max_error: float
    saturated: float
    flushed: float
    scale_exponents: Histogram
    block_sqnr_db: Histogram
    records: npt.NDArray[Any]

    def to_dict(self) -> dict[str, Any]:
        """The figures of the tensor, without histograms and records: a row of a data frame."""
        left_out = ("scale_exponents", "block_sqnr_db", "records")
        names = [field.name for field in fields(self) if field.name not in left_out]
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        rule = f", scale rule {self.scale_rule}" if self.scale_rule else ""
        shape = "x".join(map(str, self.shape))
        head = f"{self.scheme}{rule}: {self.dtype} [{shape}], {self.elements:,} elements in "
        head += f"{self.blocks:,} blocks of {self.block}"
        if self.elements == 0:
            return f"{head}: there is nothing to measure"
        tables = [head, format_table(("figure", "value"), self._rows(), left=("figure",))]
        if self.scale_exponents:
            tables.append(_bars("scale exponent", self.scale_exponents))
        return "\n\n".join(tables)

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("bits per element", f"{self.bits_per_element:.2f}"),
            ("bits used by codes", f"{self.bits_used:.2f}"),
            ("SQNR dB", f"{self.sqnr_db:.2f}"),
            ("relative RMSE", f"{self.relative_rmse:.3e}"),
            ("max error", f"{self.max_error:.3e}"),
            ("saturated", f"{self.saturated:.3%}"),
            ("flushed", f"{self.flushed:.3%}"),
        ]
        if self.block_sqnr_db:
            low, middle = min(self.block_sqnr_db), _median(self.block_sqnr_db)
            rows.append(("block SQNR dB, lowest and median", f"{low:g}, {middle:g}"))
        if self.nan or self.infinite:
            rows.append(("NaN, infinite", f"{self.nan:,}, {self.infinite:,}"))
            rows.append(("poisoned", f"{self.poisoned:.3%}"))
        return rows


def _median(histogram: Histogram) -> float:
    half, seen = sum(histogram.values()) / 2, 0
    for value in sorted(histogram):
        seen += histogram[value]
        if seen >= half:
            return value
    return math.nan


def _bars(name: str, histogram: Histogram) -> str:
    most = max(histogram.values())
    rows = [
        (f"{value:g}", f"{histogram[value]:,}", "#" * math.ceil(BAR * histogram[value] / most))
        for value in sorted(histogram)
    ]
    return format_table((name, "blocks", ""), rows, left=("",))


def analyze(
    x: Any,
    scheme: SchemeName | Scheme,
    *,
    scale_rule: ScaleRule | None = None,
    per_block: bool = True,
) -> Analysis:
    """Quantizes x in one scheme and measures what that does to it and to each of its blocks.

    x           a NumPy, torch or JAX array on the CPU, float32, float16 or bfloat16, [..., K];
                blocks run along K, and the last one of a row may be short
    scale_rule  of the MX schemes; by default "rceil". NVFP4 has a rule of its own
    per_block   whether to keep the figures of each block, which take 48 bytes

    Works piece by piece: beside x there are its pieces, the histograms and the figures of blocks.

    Figures of the tensor, where d is x quantized and dequantized to float32:
      bits_per_element  bytes of codes, scales and tensor scale, times 8, over the elements
      bits_used         entropy of the codes, -sum p log2 p, where p is the share of a code among
                        the codes of elements: what an ideal coder would store an element in
      sqnr_db           10 log10(sum x^2 / sum (x - d)^2); inf where nothing was lost
      relative_rmse     sqrt(sum (x - d)^2 / sum x^2)
      max_error         max |x - d|
      saturated         share of elements with |x| > 1.000001 times the largest code's magnitude
                        times its scales
      flushed           share of elements with x != 0 and d = 0
      nan, infinite     how many elements of x are NaN, and how many are infinite
      poisoned          share of elements in a block with a NaN or Inf: they decode to NaN and
                        count in none of the figures above but bits_per_element
      scale_exponents   {floor(log2(scale)): blocks} of the stored block scales, a tensor scale left
                        out; -inf for scales of 0. Poisoned blocks are in none of both histograms.
                        A block of zeros has E8M0's smallest scale, 2^-127
      block_sqnr_db     {floor(sqnr_db): blocks}; inf for blocks that lost nothing

    `records` is a NumPy array with a record for each block, in the order of x: row (of x as
    [rows, K]), block (in its row), elements, scale, scale_exponent, and sqnr_db, max_error,
    saturated, flushed, poisoned and bits_used as above, of the block alone.
    pandas.DataFrame(result.records) takes it. The codes of a block of n elements use at most
    log2(n) bits.

    An x without elements has no blocks: its errors are 0, its SQNR is inf, bits_per_element NaN.
    Where all elements are poisoned, errors are NaN. Raises TypeError and ValueError as quantize
    does.

    >>> import mxkern, numpy as np
    >>> x = np.float32([[8, 4, 2, 1] * 8, [1, 0.75, 0.5, 0.01] * 8])
    >>> found = mxkern.analyze(x, "mxfp4")
    >>> found.scale_exponents, found.flushed
    ({-2: 1, 1: 1}, 0.125)
    >>> found.records["sqnr_db"] > 30
    array([ True,  True])
    """
    record = any_scheme_of("analyze", scheme)
    errors.flag("analyze", "per_block", per_block)
    array = as_numpy("analyze", x)
    if array.dtype == np.float64:
        raise TypeError(
            "analyze: x has dtype float64; expected float32, float16 or bfloat16; convert with "
            "x.astype(numpy.float32)"
        )
    return analyzed(array, record, rule_of(record, scale_rule), per_block)


def rule_of(scheme: Scheme, scale_rule: Any) -> ScaleRule | None:
    """The scale rule to quantize with; None for a scheme whose scales have a rule of their own."""
    own = scheme.has_tensor_scale or not scheme.scale_format.startswith("e")
    if scale_rule is None:
        return None if own else "rceil"
    position("analyze", "scale_rule", scale_rule, SCALE_RULES)
    if own:
        raise ValueError(
            f"analyze: scale_rule is {scale_rule!r}, but {scheme.name} has one rule of its own; "
            "leave scale_rule out"
        )
    rule: ScaleRule = scale_rule
    return rule


def analyzed(
    x: Tensor | Stored,
    scheme: Scheme,
    rule: ScaleRule | None,
    per_block: bool,
    advance: Callable[[int], None] = lambda amount: None,
) -> Analysis:
    """What analyze returns, of what may lie in a file and be float64; calls advance with the
    elements done."""
    found = MeasuredBlocks(x.shape, scheme, per_block)
    with np.errstate(all="ignore"):  # x is measured as it is, whatever the caller has set
        _core.in_float_environment(lambda: _measure(x, scheme, rule, found, advance))
    return Analysis(
        scheme=scheme.name,
        scale_rule=rule,
        shape=tuple(x.shape),
        dtype=str(x.dtype),
        block=block_of(scheme, x.shape[-1]),
        blocks=found.blocks,
        nan=found.nan,
        infinite=found.infinite,
        bits_used=found.bits_used,
        scale_exponents=_sorted(found.scale_exponents),
        block_sqnr_db=_sorted(found.block_sqnr_db),
        records=found.records,
        **found.sums.figures(),
    )


def _sorted(histogram: Counter[float]) -> Histogram:
    return {value: histogram[value] for value in sorted(histogram)}


def _measure(
    x: Tensor | Stored,
    scheme: Scheme,
    rule: ScaleRule | None,
    found: MeasuredBlocks,
    advance: Callable[[int], None],
) -> None:
    amax = amax_of(x, scheme)
    for piece in pieces_of(x, scheme):
        found.add(piece, quantized(piece, scheme, rule, amax))
        advance(piece.size)
