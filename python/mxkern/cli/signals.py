# mxkern/cli/signals.py: signals that end the command line as an error would: what is unfinished
# goes.
from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

ENDING = (signal.SIGTERM, signal.SIGHUP)  # Ctrl-C is an exception of Python's own


class Interrupted(KeyboardInterrupt):
    """A signal came."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def ending_signals() -> Iterator[None]:
    """Raises Interrupted for signals that would end the process, unless they are ignored, as nohup
    does. Only the main thread may ask for signals; in others nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler == signal.SIG_DFL:
                signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)
