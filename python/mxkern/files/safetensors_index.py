# mxkern/files/safetensors_index.py: the tensors of a model in several safetensors files, by its
# index.
from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy.typing as npt

from mxkern.files.json_object import json_object, shown
from mxkern.files.regular_file import RegularFile, named_errors, read_regular
from mxkern.files.safetensors import SafetensorsFile, open_safetensors
from mxkern.files.safetensors_header import MAX_HEADER_BYTES


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
    """Reads the index at `path` and checks the headers of the safetensors files that it names,
    which lie beside it. A file is mapped while there are arrays of it, and may not change until
    the last one was asked for.

    Returns a mapping from tensor name to read-only NumPy array; no tensor is read until used.
    Raises ValueError, naming index, tensor and file, for an index that contradicts itself or a
    file, for a file that is not beside it, and as read_safetensors; OSError for what cannot be
    opened.

    >>> model = read_safetensors_index("model.safetensors.index.json")  # doctest: +SKIP
    >>> model["model.norm.weight"].shape  # doctest: +SKIP
    (4096,)
    """
    source = os.fsdecode(path)
    folder = os.path.dirname(source)
    return open_index(
        RegularFile(source), lambda name: open_safetensors(RegularFile(os.path.join(folder, name)))
    )


def open_index(index: RegularFile, open_file: Callable[[str], SafetensorsFile]) -> SafetensorsIndex:
    """The model of an index, whose files are opened by their names."""
    source = index.path

    def fail(found: str, wanted: str) -> NoReturn:
        raise ValueError(
            f"{source}: {found}; expected {wanted}; the index is damaged or of other files"
        )

    with named_errors(source):
        said = json_object(
            read_regular(index, MAX_HEADER_BYTES), "it", "a weight_map and metadata", fail
        )
    file_names = said.get("weight_map")
    if not isinstance(file_names, dict):
        fail(f"weight_map is {shown(file_names)}", "an object, with the file of each tensor")
    metadata = said.get("metadata", {})
    if not isinstance(metadata, dict):
        fail(f"metadata is {shown(metadata)}", "an object")

    files: dict[str, SafetensorsFile] = {}
    for tensor, name in file_names.items():
        if not _is_beside(name):
            fail(f"tensor {shown(tensor)} is in {shown(name)}", "the name of a file beside it")
        if name not in files:
            try:
                files[name] = open_file(name)
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
