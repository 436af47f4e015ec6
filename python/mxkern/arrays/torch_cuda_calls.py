# mxkern/arrays/torch_cuda_calls.py: what of PyTorch the short way for CUDA tensors is made of.
from __future__ import annotations

from typing import Any

import torch

from mxkern import _core
from mxkern.block_scaled import BlockScaled
from mxkern.options import SCALE_LAYOUTS
from mxkern.prepared_operand import PreparedOperand
from mxkern.scheme import schemes

current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
# None unless torch.jit.trace is under way; how many modes see what operators are called with.
tracing_state: Any = getattr(torch._C, "_get_tracing_state", lambda: None)
transforms_active: Any = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
dispatch_modes: Any = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def _find_empty() -> Any:
    """empty(shape, strides, dtype) on the current device: what compiled PyTorch code allocates
    with, in a third of the time of torch.empty."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, "_empty_strided_cuda", None)


def torch_cuda_calls() -> _core.TorchCudaCalls | None:
    """The short way, or None where this PyTorch lacks a function that makes it short."""
    empty = _find_empty()
    if None in (current_stream, _current_device, empty):
        return None
    plain = [getattr(torch, name) for name in _core.dtype_names()]
    codes = [getattr(torch, scheme.codes_dtype) for scheme in schemes]
    scales = [getattr(torch, scheme.scales_dtype, torch.uint8) for scheme in schemes]
    dtypes = list(dict.fromkeys([*plain, *codes, *scales, torch.int32]))
    return _core.TorchCudaCalls(
        torch.Tensor,
        empty,
        _current_device if torch.cuda.device_count() > 1 else None,
        current_stream,
        [tracing_state, dispatch_modes],
        [torch.empty(1, dtype=dtype, device="cpu") for dtype in dtypes],
        BlockScaled,
        PreparedOperand,
        [dtypes.index(dtype) for dtype in plain],
        [dtypes.index(dtype) for dtype in codes],
        [dtypes.index(dtype) for dtype in scales],
        dtypes.index(torch.int32),
        [scheme.name for scheme in schemes],
        list(SCALE_LAYOUTS),
        list(_core.prepared_form_names()),
    )
