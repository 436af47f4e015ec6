# mxkern/analysis/plot.py: pictures as files; that of error against bits.
from __future__ import annotations

import errno
import math
import os
import statistics
from typing import Any

from mxkern.analysis.block_plot import draw_blocks
from mxkern.analysis.code_plot import draw_codes
from mxkern.analysis.comparison import Comparison
from mxkern.analysis.model_comparison import ModelComparison
from mxkern.analysis.tensor_analysis import Analysis
from mxkern.values import errors
from mxkern.values.code_table import CodeTable

MARKERS = {"rceil": "o", "floor": "v", "ceil": "^", "even": "s", None: "D"}
RULE_SPACING = 0.07  # bits between the marks of one scheme's rules


def check_plot_path(path: str, argument: str = "--plot") -> None:
    """Raises where a picture could not be written: RuntimeError without matplotlib, ValueError for
    an ending that it does not know, OSError for a folder that is not there or may not be written
    to."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise RuntimeError(
            f"{argument} needs matplotlib, which is not installed; pip install matplotlib"
        ) from None
    endings = FigureCanvasBase.get_supported_filetypes()
    if os.path.splitext(path)[1][1:] not in endings:
        raise ValueError(f"{argument} {path}: expected a name that ends in .{', .'.join(endings)}")
    folder = os.path.dirname(path) or "."
    place = f"{argument} {path}: {folder}"
    if not os.path.exists(folder):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), f"{argument} {path}")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"{argument} {path}")


def save_plot(result: Any, path: str, title: str | None = None) -> None:
    """Writes a picture; the ending of path says the kind: .png, .svg, .pdf. It needs matplotlib.

    result  of `compare` and of whole models: error against bits; of `analyze`: how many blocks have
            which scale and which error; of `table`: the values of the format
    title   above the picture; by default a line about the result

    Raises TypeError for other results, ValueError for an ending that matplotlib does not know,
    RuntimeError without matplotlib, and OSError.
    """
    check_plot_path(path, "save_plot: path")
    if isinstance(result, ModelComparison):
        result = result.total
    if not isinstance(result, (Comparison, Analysis, CodeTable)):
        raise TypeError(
            f"save_plot: result is {errors.described(result)}; expected what compare, analyze or "
            "table returns"
        )
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = 2.5 if isinstance(result, CodeTable) else 5
    figure = Figure(figsize=(8, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    if isinstance(result, CodeTable):
        draw_codes(figure, result, title)
    elif isinstance(result, Analysis):
        draw_blocks(figure, result, title)
    else:
        elements = f"{result[0].elements:,} elements" if result else ""
        _draw(figure.add_subplot(), result, elements if title is None else title)
    figure.savefig(path)


def _draw(axes: Any, comparison: Comparison, title: str) -> None:
    shown = [r for r in comparison if 0 < r.relative_rmse < math.inf]
    names = list(dict.fromkeys(record.scheme for record in shown))
    rules = list(dict.fromkeys(record.scale_rule for record in shown))
    for index, name in enumerate(names):
        records = [record for record in shown if record.scheme == name]
        middle = statistics.median_low(record.relative_rmse for record in records)
        for place, record in enumerate(records):
            shift = RULE_SPACING * (place - (len(records) - 1) / 2)
            axes.plot(
                record.bits_per_element + shift,
                record.relative_rmse,
                MARKERS.get(record.scale_rule, "o"),
                color=f"C{index}",
                markersize=7,
            )
        axes.annotate(
            name,
            (records[0].bits_per_element + RULE_SPACING * len(records) / 2, middle),
            xytext=(6, 0),
            textcoords="offset points",
            verticalalignment="center",
            color=f"C{index}",
            fontsize=11,
        )
    for rule in rules:
        label = f"scale rule {rule}" if rule else "scale rule of its own"
        axes.plot([], [], MARKERS.get(rule, "o"), color="gray", label=label)
    _label(axes, title)
    if rules:
        axes.legend(frameon=False)


def _label(axes: Any, title: str) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    axes.margins(x=0.08, y=0.12)
    left, right = axes.get_xlim()
    axes.set_xlim(left, right + 0.17 * (right - left))  # room for the names
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("bits per element, scales included (scale rules of a scheme side by side)")
    axes.set_ylabel("relative error (RMSE)")
    axes.set_title(title, fontsize=11, parse_math=False)  # a name may hold dollars
    axes.grid(True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
