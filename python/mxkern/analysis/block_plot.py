# mxkern/analysis/block_plot.py: a picture of the blocks of a tensor: their scales and their errors.
from __future__ import annotations

import math
from typing import Any

from mxkern.analysis.tensor_analysis import Analysis, Histogram


def draw_blocks(figure: Any, analysis: Analysis, title: str | None) -> None:
    """How many blocks have which exponent of the scale, and which SQNR."""
    rule = f", {analysis.scale_rule}" if analysis.scale_rule else ""
    text = f"{analysis.scheme}{rule}: {analysis.blocks:,} blocks, SQNR {analysis.sqnr_db:.2f} dB"
    left, right = figure.subplots(1, 2)
    _bars(left, analysis.scale_exponents, "exponent of the block's scale")
    _bars(right, analysis.block_sqnr_db, "SQNR of the block in dB, rounded down")
    left.set_ylabel("blocks")
    figure.suptitle(title or text, fontsize=11, parse_math=False)  # a name may hold dollars


def _bars(axes: Any, histogram: Histogram, label: str) -> None:
    finite = {value: count for value, count in histogram.items() if math.isfinite(value)}
    axes.bar(list(finite), list(finite.values()), width=1.0, edgecolor="white", linewidth=0.5)
    beyond = {value: count for value, count in histogram.items() if not math.isfinite(value)}
    notes = [f"{value:g}: {count:,} blocks" for value, count in beyond.items()]
    if notes:
        axes.set_title("; ".join(notes), fontsize=9)
    axes.set_xlabel(label)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(True, axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
