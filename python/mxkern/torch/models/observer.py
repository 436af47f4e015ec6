# mxkern/torch/models/observer.py: a linear layer that watches its inputs for static quantization.
from __future__ import annotations

from typing import Any, Self

import torch

from mxkern.torch.layers.linear import adopted
from mxkern.torch.recipes.operand_calls import functions


class ObservedLinear(torch.nn.Linear):  # type: ignore[misc]  # no types there
    """A plain linear layer that keeps the largest magnitude of its inputs, as a buffer."""

    input_amax: Any

    @classmethod
    def from_linear(cls, linear: torch.nn.Linear) -> Self:
        """The same layer, watched."""
        module: Self = adopted(cls, linear)
        zero = torch.zeros((), dtype=torch.float32, device=linear.weight.device)
        module.register_buffer("input_amax", zero)
        return module

    def explained(self) -> str:
        """What multiplies, in a line."""
        return "plain, watching its inputs"

    def forward(self, x: Any) -> Any:
        amax = functions().tensor_amax(x.detach())
        self.input_amax.copy_(torch.maximum(self.input_amax, amax))
        return super().forward(x)
