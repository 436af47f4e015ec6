# tests/python/files/test_tensor_files.py: arrays of NumPy's own files, as they are read.
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mxkern.analysis import comparison
from mxkern.files.npy_file import open_npy
from mxkern.files.regular_file import RegularFile
from mxkern.files.tensor_files import TensorsRead
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


@pytest.mark.parametrize(
    "shape",
    [(3,), (67,), (128,), (7, 32), (9, 5), (3, 64), (3, 96), (2, 135), (4, 5, 32), (2, 3, 65)],
)
def test_what_is_read_comes_in_the_pieces_of_an_array(
    shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "CHUNK", 64)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.save(tmp_path / "x.npy", x)
    on_file = open_npy(RegularFile(str(tmp_path / "x.npy")))
    pieces = list(comparison.chunks_of(x))
    read = [piece.copy() for piece in comparison.chunks_of(on_file)]
    assert [piece.shape for piece in read] == [piece.shape for piece in pieces]
    assert all(np.array_equal(a, b) for a, b in zip(read, pieces, strict=True))
