# tests/python/values/another_process.py: what a process does that a test starts: it imports no
# framework, as tests do that look which there are.
from __future__ import annotations

from multiprocessing.connection import Connection

import mxkern


def decode(connection: Connection) -> None:
    """Sends back the BlockScaled that comes, and its values."""
    q = connection.recv()
    connection.send((q, mxkern.dequantize(q)))
