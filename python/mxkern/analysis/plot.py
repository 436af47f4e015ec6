# mxkern/analysis/plot.py: a picture of error against bits.
from __future__ import annotations

import errno
import math
import os
import statistics
from typing import Any

from mxkern.analysis.comparison import Comparison

MARKERS = {"rceil": "o", "floor": "v", "ceil": "^", "even": "s", None: "D"}


RULE_SPACING = 0.07  # bits between the marks of one scheme's rules


def check_plot_path(path: str) -> None:
    """Raises where a picture could not be written: RuntimeError without matplotlib, ValueError for
    an ending that it does not know, OSError for a folder that is not there or may not be written
    to."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise RuntimeError(
            "--plot needs matplotlib, which is not installed; pip install matplotlib"
        ) from None
    endings = FigureCanvasBase.get_supported_filetypes()
    if os.path.splitext(path)[1][1:] not in endings:
        raise ValueError(f"--plot {path}: expected a name that ends in .{', .'.join(endings)}")
    folder = os.path.dirname(path) or "."
    place = f"--plot {path}: {folder}"
    if not os.path.exists(folder):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), f"--plot {path}")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"--plot {path}")


def save_plot(comparison: Comparison, path: str, title: str) -> None:
    """Writes the picture of a comparison; the ending of path says the kind: .png, .svg, .pdf."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    _draw(figure.add_subplot(), comparison, title)
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
