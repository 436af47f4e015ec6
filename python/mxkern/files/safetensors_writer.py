# mxkern/files/safetensors_writer.py: a safetensors file, written part by part.
from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from mxkern.files.json_object import shown
from mxkern.files.safetensors_header import element_bits


class TensorPlan(NamedTuple):
    """A tensor that will be written."""

    name: str
    dtype: str  # the format's name, such as "BF16"
    shape: tuple[int, ...]  # in elements

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * element_bits(self.dtype) // 8


def header_of(plans: Sequence[TensorPlan], metadata: Mapping[str, str]) -> bytes:
    """What a file of these tensors begins with. Raises ValueError for two of one name."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for plan in plans:
        if plan.name in header:
            raise ValueError(f"convert: two tensors would have the name {shown(plan.name)}")
        begin, end = end, end + plan.bytes
        header[plan.name] = {
            "dtype": plan.dtype,
            "shape": list(plan.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_safetensors(
    file: BinaryIO,
    header: bytes,
    plans: Sequence[TensorPlan],
    parts: Iterable[tuple[str, npt.NDArray[Any]]],
) -> None:
    """Writes the header and then the tensors, of which parts come by name, in any order of names:
    no more than a part is in memory. Raises OSError, and ValueError for tensors that are not as
    planned."""
    file.write(header)
    places, end = {}, len(header)
    for plan in plans:
        places[plan.name], end = (end, end + plan.bytes), end + plan.bytes
    for name, part in parts:
        begin, until = places[name]
        if begin + part.nbytes > until:
            raise _not_as_planned(name, f"{begin + part.nbytes - until} bytes more")
        if file.tell() != begin:
            file.seek(begin)
        file.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        places[name] = begin + part.nbytes, until
    for name, (begin, until) in places.items():
        if begin != until:
            raise _not_as_planned(name, f"{until - begin} bytes fewer")


def _not_as_planned(name: str, found: str) -> ValueError:
    return ValueError(f"convert: tensor {shown(name)} has {found}; expected what was planned")
