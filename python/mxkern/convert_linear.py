# mxkern/convert_linear.py: the linear layers of a checkpoint, as compressed-tensors stores them.
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

import mxkern
from mxkern.compressed_tensors import arrays_of, plans_of, quantization_config
from mxkern.convert_form import FLOATS, Form
from mxkern.errors import printable
from mxkern.safetensors import SafetensorsFile
from mxkern.safetensors_writer import TensorPlan
from mxkern.scheme import Scheme

VISION = "(vision|visual|vision_tower|vision_model|multi_modal_projector)"
TOWER = rf"(^|\.){VISION}(\.|$)"
# Modules that lose much, or are no linear layers of those that programs quantize.
LEFT_AS_THEY_ARE = (
    r"(^|\.)lm_head$",
    r"embed|(^|\.)(wte|wpe|shared)$",
    r"(^|\.)decoder$",  # a head, where a matrix has that name
    r"(^|\.)(gate|router|shared_expert_gate)$|router\.",
    r"norm",
    TOWER,
)
# Modules to ignore by patterns of compressed-tensors: heads that share the embedding, and are in no
# file, and vision towers, which transformers gives other prefixes.
IGNORED_HEADS = r"re:(.*\.)?(lm_head|decoder)$"
IGNORED_TOWERS = rf"re:(.*\.)?{VISION}(\..*)?$"
# Linear layers that programs multiply at once, and that have one tensor scale then.
TOGETHER = (
    r"\b(q|k|v)_proj$",
    r"\b(gate|up)_proj$",
    r"\bw[13]$",
    r"\b(q_a_proj|kv_a_proj_with_mqa)$",
)
# One of a layer's experts. transformers joins all of them. In some schemes it does not (5.23): it
# takes no blocks of mxfp8, and forgets nvfp4's tensor scales without a word.
EXPERT = re.compile(r"(^|\.)experts\.\d+\.")
NOT_JOINED, JOINED_WRONG = "mxfp8_e4m3", "nvfp4"
# What is stored is one over nvfp4's tensor scale, amax / 2688, which is to be finite.
LEAST_AMAX = 2688 * 2.0**-126


class LinearLayers(Form):
    """What convert_checkpoint makes of tensors NAME.weight [N, K]."""

    def __init__(
        self,
        files: Mapping[str, SafetensorsFile],
        scheme: Scheme,
        scale_rule: str,
        ignore: Sequence[re.Pattern[str]],
        activations: Scheme | None,
        experts: bool,
    ) -> None:
        super().__init__(scheme, scale_rule)
        self.activations = activations
        for file in files.values():
            for name, entry in file.entries.items():
                self._sort(name, file, entry.dtype, entry.shape, ignore)
        self._leave_experts(experts)
        if not self.files:
            reasons = ", ".join(sorted(set(self.left.values())))
            raise ValueError(
                "convert: no matrix is left to quantize; expected tensors NAME.weight [N, K] of "
                f"linear layers; {len(self.left)} others stay"
                + (f", {printable(reasons)}" if reasons else "")
            )
        self._groups: dict[str, list[str]] = {}
        for module in self.files:
            self._groups.setdefault(_group_of(module), []).append(module)
        self._amax: dict[str, float] = {}

    def takes(self, name: str) -> bool:
        return _module_of(name) in self.files

    def plans(self, name: str) -> list[TensorPlan]:
        module = _module_of(name)
        rows, columns = self.files[module].entries[name].shape
        return plans_of(module, self.scheme, rows, columns)

    def arrays(self, name: str) -> list[npt.NDArray[Any]]:
        module = _module_of(name)
        options: dict[str, Any] = {"scale_rule": self.scale_rule}
        if self.scheme.has_tensor_scale:
            options = {"amax": self._amax_of(_group_of(module))}
        q = mxkern.quantize(self._weights(module), self.scheme, **options)
        self.count_poisoned(module, q)
        return arrays_of(q)

    def config(self) -> dict[str, Any]:
        ignored = sorted({"lm_head", *self.left}) + [IGNORED_HEADS]
        if any(re.search(TOWER, module) for module in self.left):
            ignored.append(IGNORED_TOWERS)
        return quantization_config(self.scheme, ignored, activations=self.activations)

    def _sort(
        self,
        name: str,
        file: SafetensorsFile,
        dtype: str,
        shape: tuple[int, ...],
        ignore: Sequence[re.Pattern[str]],
    ) -> None:
        """Whether a tensor is quantized, or why not."""
        module = _module_of(name)
        if len(shape) == 3 and dtype in FLOATS:
            self.left[module or name] = "as they are stacks of matrices"
        if not module or len(shape) != 2:
            return
        if any(pattern.search(module) for pattern in ignore):
            self.left[module] = "as asked"
        elif any(re.search(pattern, module) for pattern in LEFT_AS_THEY_ARE):
            self.left[module] = "as they lose much or are no linear layers"
        elif dtype not in FLOATS:
            self.left[module] = "as their elements are none to quantize"
        elif shape[1] % self.scheme.block or 0 in shape:
            self.left[module] = f"as their rows are no multiples of {self.scheme.block}"
        else:
            self.files[module] = file

    def _leave_experts(self, wanted: bool) -> None:
        """All experts are quantized or none."""
        experts = [module for module in self.files if EXPERT.search(module)]
        if experts and self.scheme.name == JOINED_WRONG and not wanted:
            raise ValueError(
                f"convert: {printable(experts[0])} is an expert, and transformers would load it "
                f"without the tensor scale that {JOINED_WRONG} has; expected another scheme, or "
                "--experts (experts=True) for other programs"
            )
        if self.scheme.name == NOT_JOINED and not wanted:
            reason = f"as transformers loads no experts of {NOT_JOINED}"
        elif any(EXPERT.search(module) for module in self.left):
            reason = "as others of the experts do"
        else:
            return
        for module in experts:
            del self.files[module]
            self.left[module] = reason

    def _weights(self, module: str) -> npt.NDArray[Any]:
        return self.files[module][f"{module}.weight"]

    def _amax_of(self, group: str) -> float:
        """Of all layers that share a tensor scale, in whatever files they are."""
        if group not in self._amax:
            each = (mxkern.tensor_amax(self._weights(module)) for module in self._groups[group])
            amax = max(float(amax) for amax in each)
            self._amax[group] = max(amax, LEAST_AMAX) if amax > 0 else amax
        return self._amax[group]


def _module_of(tensor: str) -> str:
    """The module whose weights the tensor is; "" for another one."""
    return tensor.removesuffix(".weight") if tensor.endswith(".weight") else ""


def _group_of(module: str) -> str:
    """The same for layers that share a tensor scale, and for no others."""
    for number, pattern in enumerate(TOGETHER):
        shared = re.sub(pattern, f"<{number}>", module)
        if shared != module:
            return shared
    return module
