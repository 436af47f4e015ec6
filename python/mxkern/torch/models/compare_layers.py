# mxkern/torch/models/compare_layers.py: schemes compared on a model's weights and activations.
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

import torch

from mxkern.analysis.advice import Advice, Threshold, advise
from mxkern.analysis.comparison import as_numpy, measure, select_cases
from mxkern.analysis.model_comparison import ModelComparison
from mxkern.values import errors
from mxkern.values.names import ScaleRule, SchemeName
from mxkern.values.scheme import Scheme

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


class LayerComparison:
    """What `compare_layers` finds: `weights` and `inputs`, each a ModelComparison by the names of
    layers. `inputs` has the layers that ran. Prints as the tables of both."""

    weights: ModelComparison
    inputs: ModelComparison

    def __init__(
        self,
        model: Any,
        filter_fn: Callable[[Any, str], bool] | None,
        schemes: Any,
        rules: Any,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(
                f"compare_layers: model is {errors.described(model)}; expected a torch.nn.Module"
            )
        cases = select_cases("compare_layers", schemes, rules)
        self._layers = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear)
            and (filter_fn is None or filter_fn(module, name))
        }
        if not self._layers:
            raise ValueError(
                "compare_layers: the model has no linear layer to compare; expected one or more "
                "torch.nn.Linear, which filter_fn takes"
            )
        self.weights, self.inputs = ModelComparison(cases), ModelComparison(cases)
        self._hooks: list[Any] = []

    def __enter__(self) -> Self:
        for name, module in self._layers.items():
            if name not in self.weights:
                self._add(self.weights, name, module.weight)
            hook = self._hook_of(name)
            self._hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        return self

    def __exit__(self, *raised: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _hook_of(self, name: str) -> Callable[[Any, Any, Any], None]:
        def measure_input(module: Any, given: Any, keywords: Any) -> None:
            self._add(self.inputs, name, given[0] if given else keywords["input"])

        return measure_input

    def _add(self, found: ModelComparison, name: str, tensor: Any) -> None:
        if tensor.dtype not in _FLOATS or tensor.numel() == 0:
            return
        plain = tensor.detach().cpu()
        plain = plain.float() if plain.dtype == torch.float64 else plain
        found.add(name, measure(as_numpy("compare_layers", plain), found.cases))

    @property
    def records(self) -> list[dict[str, Any]]:
        """A plain dict for each layer, operand ("weight" or "input"), scheme and rule: for a data
        frame."""
        operands = {"weight": self.weights, "input": self.inputs}
        return [
            {"layer": record.pop("tensor"), "operand": operand, **record}
            for operand, found in operands.items()
            for record in found.records
        ]

    def advice(self, *, sqnr_db: float | None = None, relative_rmse: float | None = None) -> Advice:
        """The narrowest scheme and rule that each layer's weight and inputs bear, as
        ModelComparison.advice defines it; tensors are "NAME.weight" and "NAME.input"."""
        operands = {"weight": self.weights, "input": self.inputs}
        comparisons = {
            f"{name}.{operand}": found[name]
            for name in self._layers
            for operand, found in operands.items()
            if name in found
        }
        return advise(comparisons, Threshold.of("advice", sqnr_db, relative_rmse))

    def __repr__(self) -> str:
        return f"weights: {self.weights}\n\ninputs: {self.inputs}"


def compare_layers(
    model: Any,
    filter_fn: Callable[[Any, str], bool] | None = None,
    schemes: SchemeName | Scheme | Iterable[SchemeName | Scheme] | None = None,
    rules: ScaleRule | Iterable[ScaleRule] | None = None,
) -> LayerComparison:
    """Compares schemes on the weights of a model's linear layers and on the inputs that they get
    while the model runs.

        with mxkern.torch.compare_layers(model, rules="rceil") as found:
            model(batch)                            # as many batches as are wanted
        print(found.advice(sqnr_db=25))             # the narrowest scheme of each weight and input

    model      a torch.nn.Module, on any device, not compiled; it computes what it always does
    filter_fn  filter_fn(module, name) says which of the torch.nn.Linear layers; by default all
    schemes, rules  as for mxkern.compare

    Returns a context manager, a LayerComparison: `weights` and `inputs` map the names of layers to
    Comparisons, `records` are for a data frame, and `advice(sqnr_db=...)` says which schemes are
    borne. Figures of inputs are those of all calls inside of `with` as if they were one tensor;
    NVFP4 has a tensor scale for each call. Blocks run along K, the axis that products sum over.
    Nothing of an input is kept; those on a device are copied to the CPU and measured there, which
    waits for the device. Layers that did not run, as in torch.nn.MultiheadAttention, are in
    `weights` alone; tensors that are no plain floats are left out.

    The error of a product is about the root of the sum of the squares of both relative errors.
    Raises TypeError and ValueError.
    """
    return LayerComparison(model, filter_fn, schemes, rules)
