# mxkern/convert.py: a model's checkpoint with quantized weights, a tensor at a time.
from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

import mxkern
from mxkern.compressed_tensors import arrays_of, plans_of, quantization_config, scheme_to_store
from mxkern.errors import printable
from mxkern.progress import Advance, progress_bar
from mxkern.safetensors import SafetensorsFile, json_object, read_safetensors
from mxkern.safetensors_index import read_safetensors_index
from mxkern.safetensors_writer import TensorPlan, write_safetensors
from mxkern.scheme import Scheme

ONE_FILE, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
FLOATS = ("F32", "F16", "BF16")

# Modules that lose much, or are no linear layers of those that programs quantize.
LEFT_AS_THEY_ARE = (
    r"(^|\.)lm_head$",
    r"embed|(^|\.)(wte|wpe)$",
    r"(^|\.)(gate|router|shared_expert_gate)$|router\.",
    r"norm",
    r"(^|\.)(vision|visual|vision_tower|vision_model|multi_modal_projector)(\.|$)",
)
# Linear layers that programs multiply at once, and that have one tensor scale then.
TOGETHER = (
    r"\b(q|k|v)_proj$",
    r"\b(gate|up)_proj$",
    r"\bw[13]$",
    r"\b(q_a_proj|kv_a_proj_with_mqa)$",
)
# Their layers keep weights as [K, N].
TRANSPOSED_MODELS = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".safetensors")


class Conversion(NamedTuple):
    """What convert_checkpoint did."""

    scheme: Scheme
    quantized: list[str]  # modules
    left: dict[str, str]  # other modules with matrices, and stacks of these: why
    bytes_before: int  # of all tensors
    bytes_after: int
    not_copied: list[str]  # files

    def __str__(self) -> str:
        before, after = (count / 1e6 for count in (self.bytes_before, self.bytes_after))
        count = len(self.quantized)
        lines = [
            f"{count} of {count + len(self.left)} matrices quantized to {self.scheme.name}; "
            f"{before:,.1f} MB of tensors are {after:,.1f} MB"
        ]
        reasons: dict[str, list[str]] = {}
        for module, reason in self.left.items():
            reasons.setdefault(reason, []).append(printable(module))
        for reason, modules in reasons.items():
            more = f" and {len(modules) - 3} more" if len(modules) > 3 else ""
            lines.append(f"left as they are, {reason}: {', '.join(modules[:3])}{more}")
        if self.not_copied:
            lines.append(f"not copied: {', '.join(map(printable, self.not_copied))}")
        return "\n".join(lines)


def convert_checkpoint(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    scheme: str | Scheme,
    *,
    scale_rule: str = "rceil",
    ignore: Sequence[str] = (),
) -> Conversion:
    """Writes a checkpoint whose linear layers have quantized weights, as compressed-tensors stores
    them and as transformers loads it. Activations are not quantized.

    source      a folder as Hugging Face has it: config.json, and model.safetensors or the files
                that model.safetensors.index.json names
    target      a folder that is not there, or empty
    scheme      "nvfp4", "mxfp4", "mxfp6_e2m3" or "mxfp8_e4m3"
    scale_rule  of the MX schemes: "rceil", "floor", "ceil", "even"
    ignore      regular expressions: modules with a match in their names stay as they are too

    Quantized is every matrix NAME.weight of float32, float16 or bfloat16, but those of embeddings,
    norms, routers, vision towers and lm_head, and those whose rows are no whole blocks. Query, key
    and value, and gate and up, share nvfp4's tensor scale. Files are read and written a tensor at
    a time; other files are copied, but for weights in other formats, and folders.
    Returns a Conversion. Raises ValueError, before anything is written, for a checkpoint that is
    damaged, quantized already, or of layers that keep their weights transposed; and OSError.
    """
    source, target = os.fsdecode(source), os.fsdecode(target)
    kind = scheme_to_store("convert", scheme)
    block = np.zeros((1, kind.block), np.float32)
    mxkern.quantize(block, kind, scale_rule=scale_rule)  # for its errors
    config = _config(os.path.join(source, CONFIG))
    files, has_index = _files(source)
    chosen, left = _chosen(files, kind, ignore)
    _make_folder(target)
    work = _Work(files, kind, scale_rule, chosen)
    map_of_weights: dict[str, str] = {}
    total = 0
    with progress_bar("quantizing", sum(work.sizes.values())) as advance:
        for name, file in files.items():
            plans = work.plans(file)
            path = os.path.join(target, name)
            write_safetensors(path, plans, work.arrays(file, advance), {"format": "pt"})
            map_of_weights |= {plan.name: name for plan in plans}
            total += sum(plan.bytes for plan in plans)
    if has_index:
        index = {"metadata": {"total_size": total}, "weight_map": map_of_weights}
        _write_json(os.path.join(target, INDEX), index)
    config["quantization_config"] = quantization_config(kind, sorted({"lm_head", *left}))
    _write_json(os.path.join(target, CONFIG), config)
    not_copied = _copy_others(source, target, files)
    quantized = sorted(chosen)
    return Conversion(kind, quantized, left, sum(work.sizes.values()), total, not_copied)


class _Work:
    """The tensors of the new files, of those of the old ones."""

    def __init__(
        self,
        files: dict[str, SafetensorsFile],
        scheme: Scheme,
        scale_rule: str,
        chosen: dict[str, tuple[SafetensorsFile, tuple[int, ...]]],
    ) -> None:
        self.scheme, self.scale_rule, self.chosen = scheme, scale_rule, chosen
        entries = [file.entries for file in files.values()]
        self.sizes = {name: e.end - e.begin for each in entries for name, e in each.items()}
        self.groups: dict[str, list[str]] = {}
        for module in chosen:
            self.groups.setdefault(_group_of(module), []).append(module)
        self._amax: dict[str, float] = {}

    def plans(self, file: SafetensorsFile) -> list[TensorPlan]:
        plans = []
        for name, entry in file.entries.items():
            module = _module_of(name)
            if module in self.chosen:
                plans += plans_of(module, self.scheme, *entry.shape)
            else:
                plans.append(TensorPlan(name, entry.dtype, entry.shape))
        return plans

    def arrays(self, file: SafetensorsFile, advance: Advance) -> Iterator[npt.NDArray[Any]]:
        for name in file.entries:
            module = _module_of(name)
            if module in self.chosen:
                yield from arrays_of(self._quantized(module))
            else:
                yield file[name]
            advance(self.sizes[name])

    def _quantized(self, module: str) -> mxkern.BlockScaled:
        weights = self._weights(module)
        if not self.scheme.has_tensor_scale:
            return mxkern.quantize(weights, self.scheme, scale_rule=self.scale_rule)
        return mxkern.quantize(weights, self.scheme, amax=self._amax_of(_group_of(module)))

    def _weights(self, module: str) -> npt.NDArray[Any]:
        return self.chosen[module][0][f"{module}.weight"]

    def _amax_of(self, group: str) -> float:
        """Of all layers that share a tensor scale, in whatever files they are."""
        if group not in self._amax:
            each = (mxkern.tensor_amax(self._weights(module)) for module in self.groups[group])
            self._amax[group] = max(float(amax) for amax in each)
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


def _chosen(
    files: dict[str, SafetensorsFile], scheme: Scheme, ignore: Sequence[str]
) -> tuple[dict[str, tuple[SafetensorsFile, tuple[int, ...]]], dict[str, str]]:
    """The modules that are quantized, with their files and shapes, and why others are not."""
    try:
        asked = [re.compile(pattern) for pattern in ignore]
    except re.error as error:
        raise ValueError(f"convert: {error.pattern!r} is no regular expression: {error}") from None
    chosen: dict[str, tuple[SafetensorsFile, tuple[int, ...]]] = {}
    left: dict[str, str] = {}
    for file in files.values():
        for name, entry in file.entries.items():
            module = _module_of(name)
            if len(entry.shape) == 3 and entry.dtype in FLOATS:
                left[module or name] = "as they are stacks of matrices"
            if not module or len(entry.shape) != 2:
                continue
            if any(pattern.search(module) for pattern in asked):
                left[module] = "as asked"
            elif any(re.search(pattern, module) for pattern in LEFT_AS_THEY_ARE):
                left[module] = "as they lose much or are no linear layers"
            elif entry.dtype not in FLOATS:
                left[module] = "as their elements are none to quantize"
            elif entry.shape[1] % scheme.block or 0 in entry.shape:
                left[module] = f"as their rows are no multiples of {scheme.block}"
            else:
                chosen[module] = file, entry.shape
    if not chosen:
        raise ValueError(
            "convert: no matrix is left to quantize; expected tensors NAME.weight [N, K] of linear "
            f"layers; of {len(left)} others --ignore and the rules left none"
        )
    return chosen, left


def _config(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        data = file.read()

    def fail(found: str, wanted: str) -> NoReturn:
        raise ValueError(f"{path}: {found}; expected {wanted}")

    config = json_object(data, "it", "a model's configuration", fail)
    if "quantization_config" in config:
        fail("quantization_config is there: the model is quantized", "one that is not")
    if config.get("model_type") in TRANSPOSED_MODELS:
        fail(
            f"model_type is {config['model_type']!r}, whose layers keep their weights as [K, N]",
            "a model of linear layers, [N, K]",
        )
    return config


def _files(source: str) -> tuple[dict[str, SafetensorsFile], bool]:
    """The model's files by name, and whether there is an index."""
    index = os.path.join(source, INDEX)
    if not os.path.exists(index):
        return {ONE_FILE: read_safetensors(os.path.join(source, ONE_FILE))}, False
    return read_safetensors_index(index).files, True


def _make_folder(target: str) -> None:
    os.makedirs(target, exist_ok=True)
    if os.listdir(target):
        raise ValueError(f"{target}: it is not empty; expected a folder to make, or an empty one")


def _copy_others(source: str, target: str, files: dict[str, SafetensorsFile]) -> list[str]:
    """Copies what is no model's weight; the names of what it left out."""
    left = []
    for name in sorted(os.listdir(source)):
        path = os.path.join(source, name)
        if name in files or name in (CONFIG, INDEX):
            continue
        if name.endswith(OTHER_WEIGHTS) or not os.path.isfile(path):
            left.append(name)
        else:
            shutil.copyfile(path, os.path.join(target, name))
    return left


def _write_json(path: str, value: Any) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")
