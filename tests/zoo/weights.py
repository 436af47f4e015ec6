# tests/zoo/weights.py: weights for a model that are all different in size, and none of them zero.
from __future__ import annotations

import zlib
from typing import Any


def fill(model: Any) -> None:
    """Matrices have a standard deviation about one over the root of a row's length, other
    parameters move away from what they are. What a parameter gets depends on its name alone."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.is_floating_point():
                continue
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim >= 2:
                size = 0.5 + torch.rand((), generator=generator).item()
                parameter.copy_(noise * size * parameter.shape[-1] ** -0.5)
            else:
                parameter.add_(0.1 * noise)
