# mxkern/arrays/torch_functions.py: what PyTorch does not document, and what a version may lack.
from __future__ import annotations

from typing import Any

import torch

current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
# None unless torch.jit.trace is under way; how many modes see what operators are called with.
tracing_state: Any = getattr(torch._C, "_get_tracing_state", lambda: None)
transforms_active: Any = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
dispatch_modes: Any = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
# Whether torch.autocast is on for some kind of device.
any_autocast: Any = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)
# The tensor in a wrapper that outlived its transform.
unwrap_if_dead: Any = getattr(
    getattr(torch._C, "_functorch", None), "unwrap_if_dead", lambda tensor: tensor
)


def empty_on(device: str) -> Any:
    """empty(shape, strides, dtype) on the CPU, or on the current CUDA device: what compiled PyTorch
    code allocates with, in a third of the time of torch.empty. None where there is no such."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, f"_empty_strided_{device}", None)
