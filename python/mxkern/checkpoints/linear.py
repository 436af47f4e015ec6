# mxkern/checkpoints/linear.py: the linear layers of a checkpoint, as compressed-tensors stores
# them.
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from mxkern import functions
from mxkern.checkpoints.compressed_tensors import arrays_of, plans_of, quantization_config
from mxkern.checkpoints.form import FLOATS, Form
from mxkern.checkpoints.rules import (
    EXPERT,
    IN_A_TOWER,
    TASK_HEAD,
    TOWER,
    group_of,
    may_be_linear,
    why_left,
)
from mxkern.checkpoints.split import SplitStack, split_stack
from mxkern.checkpoints.transformers_names import TransformersNames
from mxkern.files.safetensors import SafetensorsFile
from mxkern.files.safetensors_writer import TensorPlan
from mxkern.values.errors import printable
from mxkern.values.names import ScaleRule
from mxkern.values.scheme import Scheme

# Layers to ignore by patterns: heads that share the embedding, and are in no file, towers, which
# programs give other prefixes, and experts, which are too many to name.
IGNORED_HEADS = r"re:(.*\.)?(lm_head|decoder)$"
IGNORED_TOWERS = rf"re:(.*\.)?({TOWER})(\..*)?$"
IGNORED_EXPERTS = r"re:(.*\.)?experts\.\d+\..*$"
# transformers joins a layer's experts in one tensor, and there reads neither the blocks of mxfp8
# nor nvfp4's tensor scales.
NOT_JOINED = ("mxfp8_e4m3", "nvfp4")
# What is stored is one over nvfp4's tensor scale, amax / 2688, which is to be finite.
LEAST_AMAX = 2688 * 2.0**-126


class LinearLayers(Form):
    """What convert_checkpoint makes of tensors NAME.weight [N, K]."""

    def __init__(
        self,
        files: Mapping[str, SafetensorsFile],
        scheme: Scheme,
        scale_rule: ScaleRule,
        ignore: Sequence[re.Pattern[str]],
        activations: Scheme | None,
        experts: bool,
        config: Mapping[str, Any],
    ) -> None:
        super().__init__(scheme, scale_rule)
        self.activations = activations
        self._names = TransformersNames(config, [name for file in files.values() for name in file])
        if self._names.refused:
            raise ValueError(
                f"convert: a model, or a part of it, has the type {self._names.refused[0]}; "
                f"expected another: transformers {self._names.version} raises an error for all of "
                "its weights in this form; load the model as it is and quantize its weights with "
                "mxkern.quantize"
            )
        self._joined: set[str] = set()  # experts that transformers makes one tensor of
        self._computes_others = (
            False  # whether it does so with tensors that are quantized in no case
        )
        self._stacks: dict[str, SplitStack] = {}
        for file in files.values():
            for name, entry in file.entries.items():
                self._sort(name, file, entry.dtype, entry.shape, ignore)
        if not self.files:  # a tower is left beside a model, not as one
            for file in files.values():
                for name in file.entries:
                    if self.left.get(_module_of(name)) == IN_A_TOWER:
                        self.files[_module_of(name)] = file
            self.left = {name: why for name, why in self.left.items() if name not in self.files}
        self._leave_experts(experts)
        if not self.files:
            reasons = ", ".join(sorted(set(self.left.values())))
            raise ValueError(
                "convert: no matrix is left to quantize; expected tensors NAME.weight [N, K] of "
                f"linear layers; {len(self.left)} others stay"
                + (f", {printable(reasons)}" if reasons else "")
            )
        self.heads = sorted(name for name in self.files if TASK_HEAD.search(name))
        self._groups: dict[str, list[str]] = {}
        for module in self.files:
            self._groups.setdefault(group_of(module), []).append(module)
        self.apart = sorted(
            name for name in self.left if group_of(name) != name and group_of(name) in self._groups
        )
        self._amax: dict[str, float] = {}

    @property
    def loads_with(self) -> str:
        found = super().loads_with
        if self.scheme.name in NOT_JOINED and any(module in self._joined for module in self.files):
            return f"other programs than {found}, which does not load its experts right"
        return f"{found}; vLLM has no mxfp6" if self.scheme.bits == 6 else found

    def takes(self, name: str) -> bool:
        return name in self._stacks or _module_of(name) in self.files

    def plans(self, name: str) -> list[TensorPlan]:
        if name not in self._stacks:
            module = _module_of(name)
            rows, columns = self.files[module].entries[name].shape
            return plans_of(module, self.scheme, rows, columns)
        stack, plans = self._stacks[name], []
        for module in stack.modules():
            if module in self.files:
                plans += plans_of(module, self.scheme, *stack.shape)
            else:
                plans.append(TensorPlan(f"{module}.weight", stack.dtype, stack.shape))
        return plans

    def parts(self, name: str) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        if name not in self._stacks:
            module = _module_of(name)
            amax = self._amax_of(group_of(module)) if self.scheme.has_tensor_scale else None
            for i, rows in enumerate(self._weights(module)):
                named = self._quantized(module, rows, amax)
                yield from named if i == 0 else named[:2]  # the tensor scale once
            return
        stack = self._stacks[name]
        modules = stack.modules()
        for layers in stack.weights():
            amax = _shared_amax(layers) if self.scheme.has_tensor_scale else None
            for weights, module in zip(layers, modules, strict=False):
                if module in self.files:
                    yield from self._quantized(module, weights, amax)
                else:
                    yield f"{module}.weight", weights

    def _quantized(
        self, module: str, weights: npt.NDArray[Any], amax: float | None
    ) -> list[tuple[str, npt.NDArray[Any]]]:
        """What is stored of rows of a layer's weights, by name."""
        options: dict[str, Any] = {"amax": amax}
        if amax is None:
            options = {"scale_rule": self.scale_rule}
        q = functions.quantize(weights, self.scheme, **options)
        self.count_poisoned(module, q)
        names = [plan.name for plan in plans_of(module, self.scheme, *weights.shape)]
        return list(zip(names, arrays_of(q), strict=True))

    def config(self) -> dict[str, Any]:
        ignored = {"lm_head", *filter(may_be_linear, self._names.tied_heads())}
        patterns = [IGNORED_HEADS]
        for module, why in self.left.items():
            if EXPERT.search(module):
                patterns.append(IGNORED_EXPERTS)
            else:
                ignored |= {module, *filter(may_be_linear, self._names.loaded_modules(module))}
                if why == IN_A_TOWER:
                    patterns.append(IGNORED_TOWERS)
        for module in self.files:
            ignored -= {*self._names.loaded_modules(module)}
        joined_left = bool(self._joined - self.files.keys())
        return quantization_config(
            self.scheme,
            sorted(ignored) + list(dict.fromkeys(patterns)),
            activations=self.activations,
            reads_weights=self._names.reads_weights,
            has_plain_experts=self.scheme.name != "mxfp8_e4m3"
            and (joined_left or self._computes_others),
        )

    def _sort(
        self,
        name: str,
        file: SafetensorsFile,
        dtype: str,
        shape: tuple[int, ...],
        ignore: Sequence[re.Pattern[str]],
    ) -> None:
        """Whether a tensor is quantized, or why not."""
        if self._names.splits_experts and (stack := split_stack(file, name)):
            self._stacks[name] = stack
            for module in stack.modules():
                self._sort_matrix(module, file, dtype, stack.shape, ignore)
            return
        module = _module_of(name)
        if len(shape) == 3 and dtype in FLOATS:
            self.left[module or name] = "as they are stacks of matrices"
        computed = self._names.parameter(name).computed
        self._computes_others |= computed == "weight"
        if module and len(shape) == 2:
            self._sort_matrix(module, file, dtype, shape, ignore)

    def _sort_matrix(
        self,
        module: str,
        file: SafetensorsFile,
        dtype: str,
        shape: tuple[int, ...],
        ignore: Sequence[re.Pattern[str]],
    ) -> None:
        computed = self._names.parameter(f"{module}.weight").computed
        if computed == "join" or (EXPERT.search(module) and not self._names.is_known):
            self._joined.add(module)
        why = why_left(module, self._names)
        if any(p.search(text) for p in ignore for text in self._names.modules(module)):
            self.left[module] = "as asked"
        elif why:
            self.left[module] = why
        elif dtype not in FLOATS:
            self.left[module] = "as their elements are none to quantize"
        elif shape[1] % self.scheme.block or 0 in shape:
            self.left[module] = f"as their rows are no multiples of {self.scheme.block}"
        else:
            self.files[module] = file

    def _leave_experts(self, wanted: bool) -> None:
        """All experts that become one tensor are quantized, or none."""
        if self.scheme.name in NOT_JOINED and not wanted:
            reason = f"as transformers loads no experts of {self.scheme.name}"
        elif any(module in self._joined for module in self.left):
            reason = "as others of the experts do"
        elif self._computes_others and not wanted:
            reason = "as transformers loads no experts beside other weights that it computes"
        else:
            return
        for module in self._joined & self.files.keys():
            del self.files[module]
            self.left[module] = reason

    def _weights(self, module: str) -> Iterator[npt.NDArray[Any]]:
        return self.files[module].on_file(f"{module}.weight").slices()

    def _amax_of(self, group: str) -> float:
        """Of all layers that share a tensor scale, in whatever files they are."""
        if group not in self._amax:
            modules = self._groups[group]
            self._amax[group] = _shared_amax(
                rows for module in modules for rows in self._weights(module)
            )
        return self._amax[group]


def _shared_amax(weights: Iterable[npt.NDArray[Any]]) -> float:
    amax = max(float(functions.tensor_amax(each)) for each in weights)
    return max(amax, LEAST_AMAX) if amax > 0 else amax


def _module_of(tensor: str) -> str:
    """The module whose weights the tensor is; "" for another one."""
    return tensor.removesuffix(".weight") if tensor.endswith(".weight") else ""
