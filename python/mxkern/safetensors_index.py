# mxkern/safetensors_index.py: the tensors of a model in several safetensors files, by its index.
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy.typing as npt

from mxkern.safetensors import (
    MAX_HEADER_BYTES,
    SafetensorsFile,
    check_mappable,
    json_object,
    read_safetensors,
    shown,
)


class SafetensorsIndex(Mapping[str, "npt.NDArray[Any]"]):
    """Files that an index names, all checked: a mapping from tensor name to a read-only NumPy
    array, as SafetensorsFile gives it, for the tensors that the index names, in its order.

    `file_names` holds the file of each tensor, `files` the files by name, and `metadata` what else
    the index says.
    """

    def __init__(
        self,
        file_names: dict[str, str],
        files: dict[str, SafetensorsFile],
        metadata: dict[str, Any],
    ) -> None:
        self.file_names = file_names
        self.files = files
        self.metadata = metadata

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.files[self.file_names[name]][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.file_names)

    def __len__(self) -> int:
        return len(self.file_names)


def read_safetensors_index(path: str | os.PathLike[str]) -> SafetensorsIndex:
    """Maps the safetensors files that the index at `path` names, which lie beside it, and checks
    their headers.

    Returns a mapping from tensor name to read-only NumPy array; no tensor is read until used.
    Raises ValueError, naming index, tensor and file, for an index that contradicts itself or a
    file, for a file that is not beside it, and as read_safetensors; OSError for what cannot be
    opened.

    >>> model = read_safetensors_index("model.safetensors.index.json")  # doctest: +SKIP
    >>> model["model.norm.weight"].shape  # doctest: +SKIP
    (4096,)
    """
    source = os.fsdecode(path)

    def fail(found: str, wanted: str) -> NoReturn:
        raise ValueError(
            f"{source}: {found}; expected {wanted}; the index is damaged or of other files"
        )

    check_mappable(source)
    with open(path, "rb") as file:
        data = file.read(MAX_HEADER_BYTES + 1)
    if len(data) > MAX_HEADER_BYTES:
        fail(f"it has more than {MAX_HEADER_BYTES} bytes", "as many or less")
    index = json_object(data, "it", "a weight_map and metadata", fail)
    file_names = index.get("weight_map")
    if not isinstance(file_names, dict):
        fail(f"weight_map is {shown(file_names)}", "an object, with the file of each tensor")
    metadata = index.get("metadata", {})
    if not isinstance(metadata, dict):
        fail(f"metadata is {shown(metadata)}", "an object")

    files: dict[str, SafetensorsFile] = {}
    for tensor, name in file_names.items():
        if not _is_beside(name):
            fail(f"tensor {shown(tensor)} is in {shown(name)}", "the name of a file beside it")
        if name not in files:
            try:
                files[name] = read_safetensors(os.path.join(os.path.dirname(source), name))
            except FileNotFoundError:
                fail(
                    f"tensor {shown(tensor)} is in {shown(name)}, which is not there",
                    "all files of the model beside the index",
                )
        if tensor not in files[name].entries:
            fail(f"{shown(name)} has no tensor {shown(tensor)}", "what weight_map says")
    return SafetensorsIndex(file_names, files, metadata)


def _is_beside(name: object) -> bool:
    if not isinstance(name, str) or "\0" in name or "\\" in name:
        return False
    return name not in ("", ".", "..") and os.path.basename(name) == name
