# mxkern/safetensors_writer.py: a safetensors file, written one tensor after the other.
from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mxkern.safetensors import element_bits, shown


class TensorPlan(NamedTuple):
    """A tensor that will be written."""

    name: str
    dtype: str  # the format's name, such as "BF16"
    shape: tuple[int, ...]  # in elements

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * element_bits(self.dtype) // 8


def write_safetensors(
    path: str | os.PathLike[str],
    plans: Sequence[TensorPlan],
    tensors: Iterable[npt.NDArray[Any]],
    metadata: Mapping[str, str],
) -> None:
    """Writes the tensors, which come in the order of their plans, each when the one before it is
    written: no more than one is in memory. Under another name first, so that the file is whole
    where it is there. Raises ValueError for a tensor that is not as planned, and OSError."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for plan in plans:
        if plan.name in header:
            raise ValueError(f"{os.fsdecode(path)}: two tensors have the name {shown(plan.name)}")
        begin, end = end, end + plan.bytes
        header[plan.name] = {
            "dtype": plan.dtype,
            "shape": list(plan.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    unfinished = f"{os.fsdecode(path)}.unfinished"
    try:
        with open(unfinished, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for plan, tensor in zip(plans, tensors, strict=True):
                if tensor.nbytes != plan.bytes:
                    raise ValueError(
                        f"{os.fsdecode(path)}: tensor {shown(plan.name)} has {tensor.nbytes} "
                        f"bytes; expected {plan.bytes} for {plan.dtype} of shape {plan.shape}"
                    )
                file.write(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)
        os.replace(unfinished, path)
    except BaseException as error:
        if os.path.exists(unfinished):
            os.remove(unfinished)
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, error.strerror, os.fsdecode(path)) from error
        raise
