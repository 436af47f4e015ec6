# mxkern/torch/recipes/random_bits.py: which random bits a layer rounds with: of its seed and of the
# step.
"""A layer's random bits are a function of (seed of the layer and the rank, step, element), and of
nothing else: recomputed, compiled and captured layers draw the same ones.
"""

from __future__ import annotations

from typing import Any

import torch

from mxkern.values.seeds import mixed


class Step:
    """Counts the micro-batches of a model on its device: other random bits for each.

    All layers of a model share one; quantize_ advances it at each forward of the model. Where no
    model does that, call advance() once a micro-batch. It is in no state dict: set(n) after a
    checkpoint was loaded.
    """

    def __init__(self, value: int = 0) -> None:
        self._counter = torch.tensor(value, dtype=torch.int64, device="cpu")
        self.value = self._counter.clone()

    def set(self, value: int) -> None:
        """Goes to a step, in place."""
        self._counter.fill_(value)
        self.value = self._counter.clone()

    def advance(self) -> None:
        """Goes to the next step. What layers have saved of the last one stays as it is."""
        self._counter.add_(1)
        self.value = self._counter.clone()

    def to(self, device: Any) -> None:
        """Moves to a device, where it is not there yet; not to meta, which forgets values."""
        if self._counter.device != device and device.type != "meta":
            self._counter = self._counter.to(device)
            self.value = self._counter.clone()

    def on(self, device: Any) -> Any:
        """The step as a tensor on a device."""
        value = self.value
        return value if value.device == device else value.to(device)

    def __repr__(self) -> str:
        return f"Step({int(self.value)})"


def advance_step(module: Any, inputs: Any) -> None:
    """A model's hook ahead of its forward; not where a backward recomputes that."""
    if not torch.is_grad_enabled() or not module.training:
        return
    if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
        return
    module._mxkern_step.advance()


def rank_seed(seed: int, rank: int | None) -> int:
    """The seed of a layer on a rank: rank None is the process's own, if there are several."""
    if rank is None:
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank = torch.distributed.get_rank() if distributed else 0
    return mixed(seed, rank) if rank else seed
