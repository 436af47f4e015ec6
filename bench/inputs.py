# bench/inputs.py: the random tensors of the benchmarks, and the check before the clock starts.
from __future__ import annotations

import ml_dtypes
import numpy as np

from bench.shapes import COLUMNS

NUMPY_DTYPES = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


def random_matrix(dtype: str, megabytes: int) -> np.ndarray:
    """Normal random values, [rows, COLUMNS], of that many 2^20 bytes."""
    rows = (megabytes << 20) // (COLUMNS * NUMPY_DTYPES[dtype].itemsize)
    return random_values((rows, COLUMNS), dtype)


def random_values(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Normal random values."""
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return values.astype(NUMPY_DTYPES[dtype], copy=False)


def check_equal(what: str, found: np.ndarray, wanted: np.ndarray) -> None:
    """Refuses to time a wrong result."""
    assert found.shape == wanted.shape, f"{what}: shape {found.shape}, expected {wanted.shape}"
    different = np.argwhere(found != wanted)
    if len(different):
        at = tuple(different[0])
        raise AssertionError(
            f"{what}: {len(different)} values differ, the first at {at}: {found[at]} and "
            f"{wanted[at]}"
        )


def check_close(what: str, found: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    """The same for a relative L2 distance."""
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert error <= tolerance, f"{what}: relative L2 error {error:.2e} exceeds {tolerance:.0e}"
