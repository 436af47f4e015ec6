# mxkern/checkpoints/form.py: which weights of a checkpoint are quantized, and how they are stored.
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mxkern.files.safetensors import SafetensorsFile
from mxkern.files.safetensors_writer import TensorPlan
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.names import ScaleRule
from mxkern.values.scheme import Scheme

FLOATS = ("F32", "F16", "BF16")  # what is quantized, as safetensors names it


class Form(ABC):
    """What convert_checkpoint makes of the tensors of a checkpoint."""

    def __init__(self, scheme: Scheme, scale_rule: ScaleRule) -> None:
        self.scheme, self.scale_rule = scheme, scale_rule
        self.files: dict[str, SafetensorsFile] = {}  # that weights to quantize are in
        self.left: dict[str, str] = {}  # other weights: why
        self.poisoned: dict[str, int] = {}  # weights with NaN or infinity: in how many blocks
        self.heads: list[str] = []  # of those to quantize: heads, which may lose more
        self.apart: list[str] = []  # of those left: programs multiply them with quantized ones

    @property
    def quantized(self) -> list[str]:
        return sorted(self.files)

    @property
    def loads_with(self) -> str:
        """The programs that were seen to load it."""
        return "transformers 5.23 and 5.24 with compressed-tensors 0.20"

    @abstractmethod
    def takes(self, name: str) -> bool:
        """Whether it is a tensor to quantize."""

    @abstractmethod
    def plans(self, name: str) -> list[TensorPlan]:
        """The tensors that take its place."""

    @abstractmethod
    def parts(self, name: str) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Their contents, in parts: a tensor's name, and what comes next of it."""

    def count_poisoned(self, name: str, q: BlockScaled) -> None:
        """Notes how many blocks of a part are NaN, as something in them is not finite."""
        count = int(np.count_nonzero(q.scales.view(np.uint8) == self.scheme.nan_scale))
        if count:
            self.poisoned[name] = self.poisoned.get(name, 0) + count

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """quantization_config of config.json."""
