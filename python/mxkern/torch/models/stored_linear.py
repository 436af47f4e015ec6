# mxkern/torch/models/stored_linear.py: the linear layer of a weight that is stored quantized.
from __future__ import annotations

from typing import Any, Self

import torch

from mxkern.torch.layers.linear import adopted
from mxkern.torch.quantized.linear import frozen_linear
from mxkern.torch.quantized.state_dict import install
from mxkern.torch.quantized.tensor import QuantizedTensor
from mxkern.values.recipe import Operand


class QuantizedLinear(torch.nn.Linear):  # type: ignore[misc]  # no types there
    """A linear layer whose weight is a QuantizedTensor, for inference and for adapters on top.

    input       how inputs are quantized; None: not at all
    input_amax  NVFP4: their amax, a buffer; None: found in each call
    precision   of the products: "auto", or that of the recipe that trained the layer
    """

    input: Operand | None
    precision: Any
    input_amax: Any

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        *,
        weight: Operand,
        input: Operand | None = None,
        input_amax: Any = None,
        precision: Any = "auto",
    ) -> Self:
        """The layer with its weight quantized, and its bias, buffers and hooks."""
        module: Self = adopted(cls, linear)
        module.input, module.precision = input, precision
        module._buffers.pop("input_amax", None)
        module.register_buffer("input_amax", input_amax)
        with torch.no_grad():
            stored = QuantizedTensor.from_float(linear.weight.detach(), weight)
        module.weight = torch.nn.Parameter(stored, requires_grad=False)
        install(module)
        return module

    def forward(self, x: Any) -> Any:
        inputs = {"input": self.input, "amax": self.input_amax, "precision": self.precision}
        return frozen_linear(x, self.weight, self.bias, **inputs)

    def explained(self) -> str:
        """What multiplies, in a line."""
        inputs = "as they are" if self.input is None else str(self.input)
        amax = "" if self.input_amax is None else ", calibrated"
        return f"weight: {self.weight.quantized.scheme}, inputs: {inputs}{amax}"

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self.explained()}"
