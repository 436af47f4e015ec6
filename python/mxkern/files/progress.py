# mxkern/files/progress.py: a progress bar on a terminal, rich's where it is installed.
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]
BAR_WIDTH = 40


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Advance]:
    """Shows how much of `total` is done; yields the function that adds to it.

    Writes to the standard error, and nothing at all unless that is a terminal.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda amount: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        with _plain_bar(title, total) as advance:
            yield advance
        return
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda amount: progress.advance(task, amount)


@contextmanager
def _plain_bar(title: str, total: int) -> Iterator[Advance]:
    done = 0
    shown = -1

    def advance(amount: int) -> None:
        nonlocal done, shown
        done += amount
        filled = BAR_WIDTH * done // max(total, 1)
        if filled != shown:
            shown = filled
            sys.stderr.write(f"\r{title} [{'#' * filled}{' ' * (BAR_WIDTH - filled)}]")
            sys.stderr.flush()

    advance(0)
    try:
        yield advance
    finally:
        sys.stderr.write("\r" + " " * (len(title) + BAR_WIDTH + 3) + "\r")
        sys.stderr.flush()
