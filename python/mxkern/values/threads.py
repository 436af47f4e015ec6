# mxkern/values/threads.py: how many threads operations on the CPU use: the one setting of the
# process.
from __future__ import annotations

from mxkern import _core
from mxkern.values import errors


def get_num_threads() -> int:
    """How many threads a call on the CPU may use, the caller's own among them.

    set_num_threads says it; else the environment variable MXKERN_NUM_THREADS, at the first call.
    Without either there is one for each processor that the process may run on, or fewer in a
    container with a smaller CPU quota. mxkern.info() says which of these it is.
    Raises ValueError where MXKERN_NUM_THREADS is no whole number from 1 to 4096.

    >>> import mxkern
    >>> mxkern.get_num_threads() == mxkern.info().threads
    True
    """
    return _core.num_threads()


def set_num_threads(n: int) -> None:
    """Sets how many threads calls on the CPU use, from 1 to 4096, for the whole process.

    The number changes no result. Any thread may call this at any time, while other calls are under
    way too. Products divide their work for the number at the first product of the process: later
    ones may use fewer threads, never more.

    >>> import mxkern
    >>> before = mxkern.get_num_threads()
    >>> mxkern.set_num_threads(1)
    >>> mxkern.get_num_threads()
    1
    >>> mxkern.set_num_threads(before)
    """
    _core.set_num_threads(errors.integer("set_num_threads", "n", n, 1, _core.most_threads))
