# tests/zoo/stacks.py: Llama 4's stacks of experts, and the layers of them in a quantized model.
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

STACK = re.compile(r"(.*\.experts)\.(gate_up_proj|down_proj)")


def layers_of(name: str, stack: Any) -> Iterator[tuple[str, Any]]:
    """The layers [N, K] of a stack [E, K, N], or [E, K, 2N] of gate and up, by their names."""
    match = STACK.fullmatch(name)
    assert match is not None
    parts = ["gate_proj", "up_proj"] if match[2] == "gate_up_proj" else ["down_proj"]
    rows = stack.shape[2] // len(parts)
    for expert in range(stack.shape[0]):
        for i, part in enumerate(parts):
            columns = stack[expert][:, i * rows : (i + 1) * rows]
            yield f"{match[1]}.{expert}.{part}.weight", columns.T


def as_layers(tensors: Mapping[str, Any], wanted: Any) -> dict[str, Any]:
    """The tensors with layers in the place of stacks, where some of these are wanted."""
    found: dict[str, Any] = {}
    for name, tensor in tensors.items():
        layers = dict(layers_of(name, tensor)) if STACK.fullmatch(name) else {}
        found |= layers if layers.keys() & wanted else {name: tensor}
    return found


def as_stacks(layers: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """The other way round: tensors of the same names as others."""
    found = {name: tensor for name, tensor in layers.items() if name in like}
    for name in like.keys() - found.keys():
        stack = np.array(like[name])
        for layer, view in layers_of(name, stack):
            view[...] = layers[layer]
        found[name] = stack
    return found
