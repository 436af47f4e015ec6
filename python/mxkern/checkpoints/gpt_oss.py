# mxkern/checkpoints/gpt_oss.py: the experts of gpt-oss in MXFP4, as they were published.
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mxkern import functions
from mxkern.checkpoints.form import FLOATS, Form
from mxkern.files.json_object import shown
from mxkern.files.safetensors import SafetensorsFile
from mxkern.files.safetensors_writer import TensorPlan
from mxkern.values.names import ScaleRule
from mxkern.values.scheme import Scheme

MODEL_TYPE, SCHEME = "gpt_oss", "mxfp4"
STACK = re.compile(r"(?P<experts>(.*\.)?experts)\.(gate_up_proj|down_proj)", re.DOTALL)
# What its configuration names as not quantized.
NOT_QUANTIZED = (
    "model.layers.*.self_attn",
    "model.layers.*.mlp.router",
    "model.embed_tokens",
    "lm_head",
)


class GptOssExperts(Form):
    """What convert_checkpoint makes of stacks ...experts.gate_up_proj [E, H, 2I] and
    ...experts.down_proj [E, I, H], which have blocks along their second dimension: NAME_blocks, U8
    [E, N, K/32, 16], and NAME_scales, U8 [E, N, K/32]."""

    def __init__(
        self,
        files: Mapping[str, SafetensorsFile],
        scheme: Scheme,
        scale_rule: ScaleRule,
        ignore: Sequence[re.Pattern[str]],
        config: Mapping[str, Any],
    ) -> None:
        super().__init__(scheme, scale_rule)
        stacks = {}
        for file in files.values():
            for name, entry in file.entries.items():
                if STACK.fullmatch(name):
                    stacks[name] = file
                elif name.endswith(".weight") and len(entry.shape) == 2:
                    self.left[name.removesuffix(".weight")] = "as gpt-oss keeps them"
        whys = {name: self._why_not(name, file, ignore, config) for name, file in stacks.items()}
        for name in stacks:
            for other in (
                f"{_experts_of(name)}.{stack}" for stack in ("gate_up_proj", "down_proj")
            ):
                if other not in stacks:
                    raise ValueError(
                        f"convert: tensor {shown(name)} is there and {shown(other)} is not; "
                        "expected both stacks of a layer's experts, not quantized"
                    )
        # Programs take both in one form.
        of_experts = {_experts_of(name): why for name, why in whys.items() if why}
        for name, file in stacks.items():
            if _experts_of(name) in of_experts:
                self.left[name] = of_experts[_experts_of(name)]
            else:
                self.files[name] = file
        if not self.files:
            reasons = ", ".join(sorted(set(of_experts.values())))
            raise ValueError(
                "convert: no experts are left to quantize; expected tensors "
                "...experts.gate_up_proj [E, K, N] and ...experts.down_proj [E, K, N] of a gpt-oss "
                f"model; {len(stacks)} others stay" + (f", {reasons}" if reasons else "")
            )

    @property
    def loads_with(self) -> str:
        return (
            "transformers 5.23 and 5.24 with accelerate, or with "
            "quantization_config=transformers.Mxfp4Config(dequantize=True)"
        )

    def takes(self, name: str) -> bool:
        return name in self.files

    def plans(self, name: str) -> list[TensorPlan]:
        experts, columns, rows = self.files[name].entries[name].shape
        blocks = columns // self.scheme.block
        return [
            TensorPlan(f"{name}_blocks", "U8", (experts, rows, blocks, self.scheme.block // 2)),
            TensorPlan(f"{name}_scales", "U8", (experts, rows, blocks)),
        ]

    def parts(self, name: str) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        for experts in self.files[name].on_file(name).slices():
            q = functions.quantize_columns(experts, self.scheme, scale_rule=self.scale_rule)
            self.count_poisoned(name, q)
            yield f"{name}_blocks", q.codes
            yield f"{name}_scales", q.scales.view(np.uint8)

    def config(self) -> dict[str, Any]:
        left = {_experts_of(name) for name in self.left if STACK.fullmatch(name)}
        return {
            "quant_method": SCHEME,
            "modules_to_not_convert": [*NOT_QUANTIZED, *sorted(left)],
        }

    def _why_not(
        self,
        name: str,
        file: SafetensorsFile,
        ignore: Sequence[re.Pattern[str]],
        config: Mapping[str, Any],
    ) -> str:
        """Why a stack is left as it is; "" for one that is quantized."""
        entry = file.entries[name]
        if any(pattern.search(text) for pattern in ignore for text in (name, _experts_of(name))):
            return "as asked"
        if entry.dtype not in FLOATS:
            return "as their elements are none to quantize"
        expected = _shape_of(name, config)
        if len(entry.shape) != 3 or entry.shape != (expected or entry.shape):
            raise ValueError(
                f"convert: tensor {shown(name)} has the shape {list(entry.shape)}; expected "
                f"{list(expected) if expected else '[E, K, N]'} of a gpt-oss model"
            )
        if entry.shape[1] % self.scheme.block or 0 in entry.shape:
            return f"as their columns are no multiples of {self.scheme.block}"
        return ""


def _experts_of(name: str) -> str:
    match = STACK.fullmatch(name)
    return match["experts"] if match else ""


def _shape_of(name: str, config: Mapping[str, Any]) -> tuple[int, ...] | None:
    """What the model's configuration says of a stack, if it does."""
    keys = ("num_local_experts", "hidden_size", "intermediate_size")
    sizes = [size for size in map(config.get, keys) if type(size) is int]
    if len(sizes) < len(keys):
        return None
    experts, hidden, inner = sizes
    return (experts, inner, hidden) if name.endswith("down_proj") else (experts, hidden, 2 * inner)
