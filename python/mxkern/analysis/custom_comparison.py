# mxkern/analysis/custom_comparison.py: what schemes of the user's own do to values, and any one to
# float64.
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mxkern.analysis.error_sums import ErrorSums, Values
from mxkern.analysis.scale_values import scale_values
from mxkern.ops.dequantize import dequantize
from mxkern.ops.fake_quantize import fake_quantize
from mxkern.ops.quantize import quantize
from mxkern.values.scheme import Scheme

Tensor = npt.NDArray[Any]


def fits_chunks(scheme: Scheme, chunk: int) -> bool:
    """Whether chunks of whole rows, or of so many elements of one, hold whole blocks."""
    return (
        scheme.block_rows == 1
        and scheme.block > 0
        and chunk % scheme.block == 0
        and scheme.tensor_scale_of != "row"
    )


def matrices_of(x: Tensor, scheme: Scheme) -> Iterator[Tensor]:
    """The matrices of x, or all of it as one where it has one scale."""
    if x.size == 0:
        return
    if x.ndim < 3 or scheme.block_rows in (0, 1):
        yield x.reshape(-1, x.shape[-1])
    else:
        yield from x.reshape(-1, *x.shape[-2:])


def add_own(total: ErrorSums, scheme: Scheme, rule: Any, x: Tensor, amax: float | None) -> None:
    """Adds a chunk, or a matrix, in which all blocks are whole."""
    options: dict[str, Any] = {} if rule is None else {"scale_rule": rule}
    if scheme.tensor_scale_of == "tensor" and amax is not None:
        options["amax"] = amax
    wide = x.dtype == np.float64
    narrow = x.astype(np.float32) if wide else x
    q = quantize(narrow, scheme, **options)
    decoded = fake_quantize(x, scheme, **options) if wide else dequantize(q)
    values = Values.of(x if wide else x.astype(np.float32, copy=False))
    scale = 1.0 if q.tensor_scale is None else np.asarray(q.tensor_scale)
    largest = (
        scale_values(scheme, q.scales).astype(np.float64) * scale * np.float64(scheme.max_value)
    )
    if scheme.block_rows == 0:
        largest = np.broadcast_to(largest, (x.shape[0], 1))
    elif scheme.block_rows > 1:
        largest = np.repeat(largest, scheme.block_rows, axis=0)[: x.shape[0]]
    with np.errstate(over="ignore"):  # a limit beyond float32 is no limit
        total.add(values, decoded, largest.astype(np.float32), scheme.block or x.shape[-1])
    total.stored_bytes += q.codes.nbytes + q.scales.nbytes
    if scheme.tensor_scale_of == "row":
        total.stored_bytes += np.asarray(q.tensor_scale).nbytes
