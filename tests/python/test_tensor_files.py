# tests/python/test_tensor_files.py: arrays of NumPy's own files, as they are read.
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mxkern.tensor_files import TensorsRead
from support import assert_same, random_values, refused

X = random_values((4, 64), "float32")


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8"])
def test_the_other_byte_order_is_refused(dtype: str, tmp_path: Path) -> None:
    path = str(tmp_path / "x.npy")
    other = np.dtype(dtype).newbyteorder()
    np.save(path, X.astype(other))
    parts = (f"{path}: dtype is {other}, of the other byte order", "newbyteorder('='))")
    refused(ValueError, lambda: TensorsRead(path), *parts)


def test_the_way_out(tmp_path: Path) -> None:
    x, path = X.astype(X.dtype.newbyteorder()), str(tmp_path / "x.npy")
    np.save(path, x.astype(x.dtype.newbyteorder("=")))
    assert_same(TensorsRead(path)["x.npy"], X, path)
