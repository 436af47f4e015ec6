# mxkern/analysis/pieces.py: a tensor in pieces of whole blocks, and what a scheme makes of a piece.
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mxkern.analysis.comparison import CHUNK, Stored, Tensor, chunks_of
from mxkern.analysis.scale_values import scale_values
from mxkern.ops.dequantize import dequantize
from mxkern.ops.quantize import quantize, tensor_amax
from mxkern.values.names import ScaleRule
from mxkern.values.scheme import Scheme


class Quantized(NamedTuple):
    """What a scheme makes of a piece [rows, K]."""

    decoded: npt.NDArray[np.float32]
    codes: npt.NDArray[Any]  # [rows, K], one an element, unsigned
    scales: npt.NDArray[np.float32]  # [rows, blocks of a row], without the tensor scale
    largest: npt.NDArray[np.float32]  # the largest magnitude that each block can hold
    stored_bytes: int  # of codes and block scales


def pieces_of(x: Tensor | Stored, scheme: Scheme) -> Iterator[Tensor]:
    """x as pieces [rows, columns] that begin and end where blocks do, in the order of x."""
    cuts_rows = scheme.block != 0 and CHUNK % scheme.block == 0 and not _has_row_scales(scheme)
    for piece in chunks_of(x) if cuts_rows else _whole_rows(x):
        # quantize takes no float64, which a file may have.
        yield piece.astype(np.float32) if piece.dtype == np.float64 else piece


def _whole_rows(x: Tensor | Stored) -> Iterator[Tensor]:
    """Pieces of whole rows, however long these are."""
    columns = x.shape[-1] if x.shape else 1
    rows = max(CHUNK // max(columns, 1), 1)
    if not isinstance(x, np.ndarray):
        yield from (part.reshape(-1, columns) for part in x.parts(rows * columns))
        return
    if x.size == 0:
        return
    if x.ndim > 2 and not x.flags.c_contiguous:
        for part in x:
            yield from _whole_rows(part)
        return
    flat = x.reshape(-1, columns)
    yield from (flat[row : row + rows] for row in range(0, flat.shape[0], rows))


def amax_of(x: Tensor | Stored, scheme: Scheme) -> float | None:
    """The largest finite magnitude of x, where the scheme's tensor scale follows from it."""
    if not scheme.has_tensor_scale or _has_row_scales(scheme):
        return None
    return max((float(tensor_amax(piece)) for piece in pieces_of(x, scheme)), default=0.0)


def quantized(
    piece: Tensor, scheme: Scheme, rule: ScaleRule | None, amax: float | None
) -> Quantized:
    """A piece in a scheme. rule and amax are None where the scheme takes none."""
    options: dict[str, Any] = {} if rule is None else {"scale_rule": rule}
    options |= {} if amax is None else {"amax": amax}
    q = quantize(piece, scheme, **options)
    scales = scale_values(scheme, q.scales)
    if scales.shape[0] != piece.shape[0]:
        raise ValueError(
            f"analyze: {scheme.name} has scales that several rows share; expected blocks of one "
            "row; compare(x, scheme) has the figures of the tensor"
        )
    factor = np.float32(1) if q.tensor_scale is None else np.asarray(q.tensor_scale, np.float32)
    return Quantized(
        decoded=dequantize(q),
        codes=_codes_of(q, scheme, piece.shape[1]),
        scales=scales,
        # A limit beyond float32 is no limit.
        largest=scales * np.float32(scheme.max_value) * factor,
        stored_bytes=q.codes.nbytes + q.scales.nbytes,
    )


def _has_row_scales(scheme: Scheme) -> bool:
    """Whether each row has a tensor scale of its own, which quantize finds from the whole row."""
    return scheme.tensor_scale_of == "row"


def block_of(scheme: Scheme, columns: int) -> int:
    """Elements of a row of so many columns that share a scale. A scheme's block of 0 is the row."""
    return scheme.block or max(columns, 1)


def _codes_of(q: Any, scheme: Scheme, columns: int) -> npt.NDArray[Any]:
    if scheme.bits < 8:  # a stream of bits, the lowest first
        bits = np.unpackbits(q.codes, axis=-1, count=columns * scheme.bits, bitorder="little")
        places = np.uint8(1) << np.arange(scheme.bits, dtype=np.uint8)
        codes: npt.NDArray[Any] = bits.reshape(-1, columns, scheme.bits) @ places
        return codes
    return q.codes.view(np.uint8 if scheme.bits == 8 else np.uint16)  # type: ignore[no-any-return]
