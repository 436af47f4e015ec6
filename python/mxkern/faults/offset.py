# mxkern/faults/offset.py: an offset of stochastic rounding that is an array, which another run of
# the same CUDA graph or program of JAX may find changed.
from __future__ import annotations

import math
from typing import Any

from mxkern import _core
from mxkern.arrays import Adapter
from mxkern.arrays.adapter import CPU, check_same_device
from mxkern.faults.arrays import enter


def check_offset(function: str, array: Any) -> None:
    if math.prod(array.shape) != 1:
        raise ValueError(
            f"{function}: offset has shape {tuple(array.shape)}; expected an int, or an array of "
            "one element"
        )


def placed(
    function: str, options: _core.QuantizeOptions, adapter: Adapter, x: Any
) -> _core.QuantizeOptions:
    """Options that the library can read, for x: on the CPU with the number, on a CUDA device with
    the place where it lies."""
    if not isinstance(options, _core.OffsetOptions):
        return options
    like = adapter.enter(function, "x", x)
    array = enter(function, "offset", options.array, adapter)
    check_offset(function, array)
    check_same_device(function, "offset", adapter, array, like)
    plain = options.without_array()
    if adapter.device(array) == CPU:
        return plain.with_offset(int(array.reshape(())) % 2**64)
    wide = array if adapter.dtype_name(array).endswith("64") else adapter.as_int64(array)
    return _core.OffsetOptions(plain, wide, adapter.address(wide))


def placed_both(
    function: str,
    rows: _core.QuantizeOptions,
    columns: _core.QuantizeOptions,
    adapter: Adapter,
    x: Any,
) -> tuple[_core.QuantizeOptions, _core.QuantizeOptions]:
    """The same of both directions, with one place for both."""
    rows = placed(function, rows, adapter, x)
    if not isinstance(columns, _core.OffsetOptions):
        return rows, columns
    columns = columns.without_array()
    if not isinstance(rows, _core.OffsetOptions):
        return rows, columns.with_offset(rows.offset)
    return rows, _core.OffsetOptions(columns, rows.array, adapter.address(rows.array))
