# mxkern/files/npy_file.py: the array of a .npy file, which is read in parts where it lies in C
# order.
from __future__ import annotations

import io
import math
from typing import Any

import ml_dtypes
import numpy as np

from mxkern.files.file_tensor import FileTensor, Tensor
from mxkern.files.regular_file import RegularFile

MOST_HEADER_BYTES = 1 << 16  # NumPy itself takes 10,000 of a file that it does not trust


def open_npy(file: RegularFile) -> FileTensor | Tensor:
    """The array of the file; in memory where it lies in Fortran order. ValueError for what is none
    of plain numbers."""
    path = file.path
    shape, is_fortran, dtype, begin = _header(file)
    if dtype == np.dtype("V2"):  # how NumPy stores what it has no name for
        dtype = np.dtype(ml_dtypes.bfloat16)
    if not dtype.isnative:
        raise ValueError(
            f"{path}: dtype is {dtype}, of the other byte order; save it again with "
            "x.astype(x.dtype.newbyteorder('='))"
        )
    if not is_fortran or len(shape) < 2:
        return FileTensor(file, dtype, shape, begin)
    return FileTensor(file, dtype, shape[::-1], begin).read().T


def _header(file: RegularFile) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    stream = io.BytesIO(file.read(0, min(file.size, MOST_HEADER_BYTES)))
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"version {version}, of names that are not in Latin-1")
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
    except Exception as error:  # NumPy's reader raises what its parser of the header meets
        raise ValueError(f"{file.path}: no valid .npy file ({error})") from None
    begin, bytes_of_array = stream.tell(), math.prod(shape) * dtype.itemsize
    if begin + bytes_of_array > file.size:
        raise ValueError(
            f"{file.path}: no valid .npy file (it has {file.size} bytes; expected {begin} of a "
            f"header and {bytes_of_array} of the array)"
        )
    return shape, is_fortran, dtype, begin
