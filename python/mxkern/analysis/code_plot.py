# mxkern/analysis/code_plot.py: a picture of the values of an element format.
from __future__ import annotations

import math
from typing import Any

from mxkern.values.code_table import CodeTable


def draw_codes(figure: Any, codes: CodeTable, title: str | None) -> None:
    """All finite values on a line, and below it the positive ones on a line of octaves."""
    finite = [value for value in codes.values if math.isfinite(value)]
    positive = [value for value in finite if value > 0]
    whole, octaves = figure.subplots(2, 1)
    for axes, values in ((whole, finite), (octaves, positive)):
        axes.vlines(values, 0, 1, linewidth=0.8)
        axes.set_ylim(0, 1)
        axes.set_yticks([])
        axes.spines[["top", "left", "right"]].set_visible(False)
    octaves.set_xscale("log", base=2)
    whole.set_xlabel("values")
    octaves.set_xlabel("positive values, in octaves")
    count = len(set(finite))
    text = f"{codes.format}: {len(codes)} codes, {count} finite values"
    figure.suptitle(title or text, fontsize=11, parse_math=False)
