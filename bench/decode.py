# bench/decode.py: codes and scales decoded with ml_dtypes, to check results before they are timed.
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import mxkern


def unpacked_codes(q: mxkern.BlockScaled) -> np.ndarray:
    """The codes of q, one a byte; q holds NumPy arrays."""
    bits = mxkern.schemes[q.scheme].bits
    codes = q.codes.view(np.uint8)
    if bits == 4:
        codes = np.stack([codes & 15, codes >> 4], axis=-1)
    elif bits == 6:
        groups = codes.reshape(*codes.shape[:-1], -1, 3).astype(np.uint32)
        words = groups[..., 0] | groups[..., 1] << 8 | groups[..., 2] << 16
        codes = (words[..., np.newaxis] >> np.array([0, 6, 12, 18], np.uint32) & 63).astype(
            np.uint8
        )
    return codes.reshape(*q.codes.shape[:-1], -1)


def decoded(q: mxkern.BlockScaled) -> np.ndarray:
    """code * scale * tensor scale in float32; row_major scales."""
    scheme = mxkern.schemes[q.scheme]
    codes = unpacked_codes(q)
    if scheme.format == "int8":
        values = codes.view(np.int8).astype(np.float32) / 64
    else:
        ending = "" if scheme.format == "e5m2" else "fn"
        dtype: Any = getattr(ml_dtypes, f"float{scheme.bits}_{scheme.format}{ending}")
        values = codes.view(dtype).astype(np.float32)
    scales = np.repeat(q.scales.astype(np.float32), scheme.block, axis=-1)
    values *= scales[..., : values.shape[-1]]
    return values if q.tensor_scale is None else values * np.float32(q.tensor_scale)
