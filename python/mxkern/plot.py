# mxkern/plot.py: a picture of error against bits.
from __future__ import annotations

import errno
import os
from typing import Any

from mxkern.comparison import CompareRecord, Comparison

MARKERS = {"rceil": "o", "floor": "v", "ceil": "^", "even": "s", None: "D"}


def check_plot_path(path: str) -> None:
    """Raises where a picture could not be written: RuntimeError without matplotlib, ValueError for
    an ending that it does not know, OSError for a folder that is not there."""
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
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)


def save_plot(comparison: Comparison, path: str, title: str) -> None:
    """Writes the picture of a comparison; the ending of path says the kind: .png, .svg, .pdf."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    _draw(figure.add_subplot(), comparison, title)
    figure.savefig(path)


def _draw(axes: Any, comparison: Comparison, title: str) -> None:
    shown = [r for r in comparison if 0 < r.relative_rmse < float("inf")]
    names = list(dict.fromkeys(record.scheme for record in shown))
    rules = list(dict.fromkeys(record.scale_rule for record in shown))
    for index, name in enumerate(names):
        records = [record for record in shown if record.scheme == name]
        color = f"C{index}"
        for record in records:
            axes.plot(
                record.bits_per_element,
                record.relative_rmse,
                MARKERS.get(record.scale_rule, "o"),
                color=color,
                markersize=7,
                markerfacecolor="none" if record.scale_rule else color,
                markeredgewidth=1.5,
            )
        middle = sorted(records, key=_error)[len(records) // 2]
        axes.annotate(
            name,
            (middle.bits_per_element, middle.relative_rmse),
            xytext=(10, 0),
            textcoords="offset points",
            verticalalignment="center",
            color=color,
            fontsize=11,
        )
    for rule in rules:
        label = f"scale rule {rule}" if rule else "the scheme's own scale rule"
        face = "none" if rule else "gray"
        axes.plot([], [], MARKERS.get(rule, "o"), color="gray", markerfacecolor=face, label=label)
    axes.set_yscale("log")
    axes.margins(x=0.15, y=0.12)
    axes.set_xlabel("bits per element, scales included")
    axes.set_ylabel("relative RMSE")
    axes.set_title(title)
    axes.grid(True, which="both", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if rules:
        axes.legend(frameon=False)


def _error(record: CompareRecord) -> float:
    return record.relative_rmse
