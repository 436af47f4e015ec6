# mxkern/values/dtypes.py: the element types that operations read and write, and all roundings, by
# name.
from __future__ import annotations

from mxkern import _core

PLAIN_DTYPES = _core.names()["dtype"]
BYTE_DTYPES = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int8", "uint8")
# In the order of Element in bindings/readers/array.h.
DTYPES = (*PLAIN_DTYPES, *BYTE_DTYPES, "int32", "uint16", "float64")

# Of schemes that are known at run time, in the library's order.
ROUNDINGS = {name: i for i, name in enumerate(_core.any_names())}
