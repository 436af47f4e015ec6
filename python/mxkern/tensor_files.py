# mxkern/tensor_files.py: the tensors of .safetensors and .npy files that can be quantized.
from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mxkern import errors
from mxkern.safetensors import check_mappable, read_safetensors
from mxkern.safetensors_index import SafetensorsIndex, read_safetensors_index

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)


@dataclass(frozen=True)
class Selection:
    """The chosen tensors by name, how many of those asked for were left out, by reason, and the
    paths of all files that are read."""

    tensors: dict[str, npt.NDArray[Any]]
    left_out: dict[str, int]
    files: list[str]


def read_tensors(path: str) -> Mapping[str, npt.NDArray[Any]]:
    """Every tensor of the file, or of those that an index names, mapped. Raises ValueError or
    OSError."""
    check_mappable(path)
    if path.endswith(".safetensors"):
        return read_safetensors(path)
    if path.endswith(".safetensors.index.json"):
        return read_safetensors_index(path)
    if path.endswith(".npy"):
        return {os.path.basename(path): _read_npy(path)}
    raise ValueError(
        f"{path}: the name ends in neither .safetensors nor .npy, nor .safetensors.index.json; "
        "write such a file with numpy.save or safetensors.numpy.save_file"
    )


def select_tensors(path: str, pattern: str | None = None) -> Selection:
    """The floating-point matrices of the file, or all floating-point tensors, vectors too, whose
    name has a match for `pattern`. Raises ValueError where there is none, and as read_tensors.
    """
    try:
        expression = re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"--tensor {pattern!r} is no regular expression: {error}") from None
    available = read_tensors(path)
    matched = {name: array for name, array in available.items() if expression.search(name)}
    if not available:
        raise ValueError(f"{path}: there is no tensor in the file")
    if not matched:
        raise ValueError(
            f"{path}: no tensor name has a match for {pattern!r}; names are such as "
            f"{', '.join(map(errors.printable, list(available)[:3]))}"
        )
    floats = {name: array for name, array in matched.items() if array.dtype in FLOATS}
    least_rank = 1 if pattern is not None or path.endswith(".npy") else 2
    chosen = {
        name: array for name, array in floats.items() if array.ndim >= least_rank and array.size
    }
    if not chosen and len(floats) == len(matched):
        way_out = "; a --tensor pattern takes vectors too" if least_rank > 1 else ""
        raise ValueError(
            f"{path}: nothing to quantize among {len(floats)} tensors, all of which are empty or "
            f"of fewer than {least_rank} dimensions{way_out}"
        )
    if not chosen:
        dtypes = sorted({str(array.dtype) for array in matched.values()})
        raise ValueError(
            f"{path}: nothing to quantize among {len(matched)} tensors of {', '.join(dtypes)}; "
            f"expected float64, float32, float16 or bfloat16 of {least_rank} dimensions or more, "
            "not empty. Codes and scales are quantized already"
        )
    left_out = {
        "of fewer dimensions or empty": len(floats) - len(chosen),
        "of another dtype": len(matched) - len(floats),
    }
    files = [path]
    if isinstance(available, SafetensorsIndex):
        files += [os.path.join(os.path.dirname(path), name) for name in available.files]
    return Selection(chosen, left_out, files)


def _read_npy(path: str) -> npt.NDArray[Any]:
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # NumPy's reader raises what its parser of the header meets
        raise ValueError(f"{path}: no valid .npy file ({error})") from None
    if array.dtype == np.dtype("V2"):  # how NumPy stores what it has no name for
        array = array.view(ml_dtypes.bfloat16)
    if not array.dtype.isnative:
        raise ValueError(
            f"{path}: dtype is {array.dtype}, of the other byte order; save it again with "
            "x.astype(x.dtype.newbyteorder('='))"
        )
    return array
