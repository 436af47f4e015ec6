# mxkern/checkpoints/split.py: stacks of experts that transformers takes apart in a quantized model.
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mxkern.files.json_object import shown
from mxkern.files.safetensors import SafetensorsFile

STACK = re.compile(r"(?P<experts>(.*\.)?experts)\.(?P<stack>gate_up_proj|down_proj)", re.DOTALL)
LAYERS = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}


class SplitStack(NamedTuple):
    """A tensor ...experts.gate_up_proj [E, K, 2N] or ...experts.down_proj [E, K, N] of Llama 4,
    whose experts are linear layers [N, K] of their own once the model is quantized."""

    file: SafetensorsFile
    name: str
    experts: str
    layers: tuple[str, ...]  # of an expert, side by side
    dtype: str
    shape: tuple[int, int]  # [N, K] of a layer

    def modules(self) -> Iterator[str]:
        """The layers in the order of their weights."""
        for expert in range(self.file.entries[self.name].shape[0]):
            for layer in self.layers:
                yield f"{self.experts}.{expert}.{layer}"

    def weights(self) -> Iterator[list[npt.NDArray[Any]]]:
        """The weights [N, K] of each expert's layers."""
        for stacks in self.file.on_file(self.name).slices():
            for stack in stacks:
                parts = np.split(stack, len(self.layers), axis=1)
                yield [np.ascontiguousarray(part.T) for part in parts]


def split_stack(file: SafetensorsFile, name: str) -> SplitStack | None:
    """The stack that a tensor of such a model is; None for another tensor."""
    match, entry = STACK.fullmatch(name), file.entries[name]
    if match is None:
        return None
    layers = LAYERS[match["stack"]]
    if len(entry.shape) != 3 or entry.shape[2] % len(layers):
        raise ValueError(
            f"convert: tensor {shown(name)} has the shape {list(entry.shape)}; expected "
            f"[E, K, {'2N' if len(layers) == 2 else 'N'}], the stack of a layer's experts"
        )
    shape = (entry.shape[2] // len(layers), entry.shape[1])
    return SplitStack(file, name, match["experts"], layers, entry.dtype, shape)
