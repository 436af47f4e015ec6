# mxkern/files/tensor_files.py: the tensors of .safetensors and .npy files that can be quantized.
from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import ml_dtypes
import numpy as np

from mxkern.files.file_tensor import FileTensor, Tensor
from mxkern.files.npy_file import open_npy
from mxkern.files.regular_file import RegularFile
from mxkern.files.safetensors import open_safetensors
from mxkern.files.safetensors_index import read_safetensors_index
from mxkern.values import errors

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)


INDEX_ENDING = ".safetensors.index.json"
ENDINGS = (INDEX_ENDING, ".safetensors", ".npy")  # by which a folder's file is proposed


@dataclass(frozen=True)
class Selection:
    """The chosen tensors by name, how many of those asked for were left out, by reason, and the
    paths of all files that are read."""

    tensors: dict[str, FileTensor | Tensor]
    left_out: dict[str, int]
    files: list[str]


def open_tensors(path: str) -> tuple[dict[str, FileTensor | Tensor], list[str]]:
    """Every tensor of the file, or of those that an index names, and the paths of these files.
    Raises ValueError or OSError."""
    if os.path.isdir(path):
        _refuse_folder(path)
    if path.endswith(".safetensors"):
        file = open_safetensors(RegularFile(path))
        return {name: file.on_file(name) for name in file}, [path]
    if path.endswith(INDEX_ENDING):
        model = read_safetensors_index(path)
        tensors: dict[str, FileTensor | Tensor] = {
            name: model.files[place].on_file(name) for name, place in model.file_names.items()
        }
        return tensors, [path, *(file.file.path for file in model.files.values())]
    if path.endswith(".npy"):
        return {os.path.basename(path): open_npy(RegularFile(path))}, [path]
    raise ValueError(
        f"{path}: the name ends in neither .safetensors nor .npy, nor .safetensors.index.json; "
        "write such a file with numpy.save or safetensors.numpy.save_file"
    )


class TensorsRead(Mapping[str, Tensor]):
    """Every tensor of the file, or of those that an index names, read when it is asked for."""

    def __init__(self, path: str) -> None:
        self._tensors, _ = open_tensors(path)

    def __getitem__(self, name: str) -> Tensor:
        return in_memory(self._tensors[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def in_memory(tensor: FileTensor | Tensor) -> Tensor:
    return tensor.read() if isinstance(tensor, FileTensor) else tensor


def _refuse_folder(path: str) -> NoReturn:
    names = sorted(os.listdir(path))
    found = [name for ending in ENDINGS for name in names if name.endswith(ending)]
    way_out = f"pass {os.path.join(path, found[0])}" if found else "there is none of these in it"
    raise ValueError(
        f"{path}: it is a folder; expected a file .safetensors.index.json, .safetensors or .npy; "
        f"{way_out}"
    )


def select_tensors(path: str, pattern: str | None = None, exact_first: bool = False) -> Selection:
    """The floating-point matrices of the file, or all floating-point tensors, vectors too, whose
    name has a match for `pattern`; with exact_first the one whose name it is, where there is one.
    Raises ValueError where there is none, and as open_tensors.
    """
    if exact_first and pattern is not None and pattern in open_tensors(path)[0]:
        pattern = f"^{re.escape(pattern)}$"
    try:
        expression = re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"--tensor {pattern!r} is no regular expression: {error}") from None
    available, files = open_tensors(path)
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
    return Selection(chosen, left_out, files)
