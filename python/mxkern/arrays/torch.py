# mxkern/arrays/torch.py: PyTorch tensors, on the CPU and on CUDA devices.
from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from operator import mul
from typing import Any

import torch
from torch.autograd import forward_ad

from mxkern import _core
from mxkern.arrays import torch_trees
from mxkern.arrays.adapter import (
    CPU,
    DTYPES,
    LEGACY_STREAM,
    Adapter,
    Shape,
    check_device,
)
from mxkern.arrays.torch_functions import (
    current_device,
    current_stream,
    dispatch_modes,
    empty_on,
    tracing_state,
    transforms_active,
)
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled

# The handle of a device's current stream in a tenth of the time that the object of it takes.
_current_stream = current_stream or (lambda index: torch.cuda.current_stream(index).cuda_stream)

_Tensor, _strided = torch.Tensor, torch.strided  # looked up once

# Two codes a byte, low half first, as PyTorch from 2.8 on may call what everybody keeps as uint8;
# None before.
PACKED_E2M1 = getattr(torch, "float4_e2m1fn_x2", None)

# What torch.save wrote of a BlockScaled torch.load takes: tensors, names and numbers. What was
# prepared is for the kind of GPU it was prepared on, which no file says.
if hasattr(torch.serialization, "add_safe_globals"):  # from PyTorch 2.4 on
    torch.serialization.add_safe_globals([BlockScaled])

# What they return has no derivative to lose.
_GIVE_RECORDS = ("analyze", "compare", "explain_gemm", "explain_grouped_gemm", "plan_gemm")

# How autograd hears that a tensor which it keeps was written to.
_increment_version = getattr(torch.autograd.graph, "increment_version", None)


def _is_recorded() -> bool:
    """Whether a mode of PyTorch writes down what operators do to ordinary tensors."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return get_proxy_mode() is not None


def _has_memory(new: Any) -> bool:
    """Not so where a transform, or a mode of fake tensors, sees to what is made."""
    if type(new) is not _Tensor:
        return False
    try:
        return bool(new.data_ptr() != 0 or new.numel() == 0)
    except RuntimeError:
        return False


def stream_scope(handle: int, device: int) -> AbstractContextManager[Any]:
    """A scope in which the stream of the handle is the current one of the CUDA device."""
    legacy = handle == LEGACY_STREAM
    default, external = torch.cuda.default_stream, torch.cuda.ExternalStream
    scope: AbstractContextManager[Any] = torch.cuda.stream(
        default(device) if legacy else external(handle, device)
    )
    return scope


def has_tangent(array: Any) -> bool:
    """Whether forward-mode differentiation sees to an array."""
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(array).tangent is not None


def check_no_tangent(function: str, argument: str, array: Any) -> None:
    """Forward-mode differentiation: results would have no tangent, which reads as 0."""
    if has_tangent(array):
        raise ValueError(
            f"{function}: {argument} has a tangent, and the result would have none; expected a "
            f"tensor without; pass {argument}.detach(), or call outside of torch.func.jvp"
        )


def distributed(function: str, argument: str) -> TypeError:
    """For a DTensor: what a block needs may be on another device."""
    return TypeError(
        f"{function}: {argument} is a DTensor; expected a plain tensor; pass "
        f"{argument}.to_local(), if shards have whole rows, or {argument}.full_tensor()"
    )


def check_storage(function: str, argument: str, array: Any) -> None:
    """ValueError for a tensor that ends behind its storage, which may be freed and filled again."""
    start = array.storage_offset()
    if array.is_contiguous():
        needed = array.nbytes
        if start:
            needed += start * array.itemsize
    else:
        steps = array.stride()
        last = start + sum(map(mul, array.shape, steps)) - sum(steps)
        needed = (last + 1) * array.itemsize
    if needed > len(array.untyped_storage()) and array.numel() > 0:
        raise ValueError(
            f"{function}: {argument} has shape {tuple(array.shape)} and ends at byte {needed} "
            f"of its storage, which has {len(array.untyped_storage())}; expected a storage "
            f"that holds it; if it was resized, call {argument}.untyped_storage()"
            f".resize_({needed}) and fill it again, or pass a new tensor"
        )


class TorchAdapter(Adapter):
    name = "PyTorch"
    marks_written = True
    namespace = torch
    taking_over = "torch.from_dlpack"

    def __init__(self) -> None:
        # float8_e8m0fnu came with PyTorch 2.7; before, its bytes are uint8.
        others = {"uint16": torch.int16}  # which came with PyTorch 2.3
        super().__init__(
            {name: getattr(torch, name, others.get(name, torch.uint8)) for name in DTYPES}
        )
        torch_trees.register()

    def read_by(self, calls: Any) -> None:
        _core.read_torch(
            calls,
            self,
            [torch.empty(1, dtype=dtype, device="cpu") for dtype in self.dtypes.values()],
            tensor_type=torch.Tensor,
            parameter_type=torch.nn.Parameter,
            empty_cpu=empty_on("cpu"),
            empty_cuda=empty_on("cuda") if current_device is not None else None,
            current_device=current_device,
            current_stream=current_stream,
            increment_version=_increment_version,
            forward_ad=forward_ad,
            recorders=[tracing_state, dispatch_modes, transforms_active],
        )

    def enter(self, function: str, argument: str, array: Any) -> Any:
        # Tensors that stand for others (fake, wrapped by a transform, a subclass) have no memory of
        # their own to read, or memory that means something else.
        kind = type(array)
        if kind is not _Tensor and kind is not torch.nn.Parameter:
            if hasattr(array, "to_local"):
                raise distributed(function, argument)
            raise TypeError(
                f"{function}: {argument} is a {kind.__module__}.{kind.__qualname__}, a subclass of "
                f"torch.Tensor; expected a plain tensor; call outside of tracing, trace the "
                f"function of mxkern.torch, or take the tensor it wraps"
            )
        if tracing_state() is not None or (dispatch_modes() and _is_recorded()):
            raise TypeError(
                f"{function}: {argument} is traced (torch.jit.trace or make_fx), and the trace "
                f"would not hold this function; expected an operator; call that of "
                f"mxkern.torch"
            )
        if array.layout is not _strided:
            raise TypeError(
                f"{function}: {argument} has layout {array.layout}; expected a strided tensor; "
                f"convert with {argument}.to_dense()"
            )
        if array.is_nested:
            raise TypeError(
                f"{function}: {argument} is a nested tensor; expected one shape for all; convert "
                f"with torch.nested.to_padded_tensor({argument}, 0.0)"
            )
        if not array.is_cpu:
            if array.is_meta:
                raise ValueError(
                    f"{function}: {argument} is on the meta device and has no values; expected a "
                    f"tensor with memory; make one with torch.empty_like({argument}, device='cpu')"
                )
            check_device(function, argument, array.device.type)
        if array.requires_grad and torch.is_grad_enabled() and function not in _GIVE_RECORDS:
            other = "or call under torch.no_grad()"
            if function == "fake_quantize":
                other = "or call mxkern.torch.fake_quantize, which passes the gradient on"
            raise ValueError(
                f"{function}: {argument} requires grad, and the result would have none; expected "
                f"a tensor without; pass {argument}.detach(), {other}"
            )
        if forward_ad._current_level >= 0 and function not in _GIVE_RECORDS:
            check_no_tangent(function, argument, array)
        try:
            address = array.data_ptr()
        except RuntimeError as error:
            raise TypeError(
                f"{function}: {argument} stands for another tensor and has no memory (inside "
                f"torch.func or torch.compile?); expected a plain tensor; call the function of "
                f"mxkern.torch, or this one outside of the transform: leading dimensions are a "
                f"batch already"
            ) from error
        if address == 0 and array.numel() > 0:
            way_out = f"materialize it with {argument}.clone()"
            if len(array.untyped_storage()) == 0:  # which PyTorch itself does not survive cloning
                way_out = "resize its storage and fill it again, or pass a new tensor"
            raise ValueError(
                f"{function}: {argument} has no memory (a null pointer) for its shape "
                f"{tuple(array.shape)}; expected a tensor with values; {way_out}"
            )
        # What follows is on the way of each call: most tensors start on 16 bytes, at the begin of
        # their storage, and need no look at the size of an element or at strides.
        if address & 15 and address % array.itemsize:
            raise ValueError(
                f"{function}: {argument} is misaligned; expected an address that is a multiple of "
                f"{array.itemsize} bytes; {argument}.clone() has one"
            )
        check_storage(function, argument, array)
        return array.resolve_neg() if array.is_neg() else array

    def packed_e2m1_bytes(self, array: Any) -> Any:
        if array.dtype == PACKED_E2M1:
            return array.view(torch.uint8)
        return array

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype).removeprefix("torch.")

    def is_dense(self, array: Any) -> bool:
        return bool(array.is_contiguous())

    def strides(self, array: Any) -> Shape | None:
        return tuple(array.stride())

    def dense(self, array: Any) -> Any:
        return array.contiguous()

    def address(self, array: Any) -> Any:
        return array.data_ptr()

    def check_out(self, function: str, argument: str, out: Any) -> None:
        if out.is_neg():
            raise ValueError(
                f"{function}: {argument} reads as the negative of its memory (a view of a "
                f"conjugate's imaginary part?); expected a plain tensor; "
                f"{errors.without(argument)} and copy the result"
            )

    def mark_written(self, array: Any) -> None:
        if _increment_version is not None and not array.is_inference():
            _increment_version(array)

    def device(self, array: Any) -> int:
        return array.device.index if array.is_cuda else CPU

    def empty(self, function: str, shape: Shape, dtype: str, like: Any) -> Any:
        new = torch.empty(shape, dtype=self.dtypes[dtype], device=like.device)
        if (dispatch_modes() or transforms_active()) and not _has_memory(new):
            raise TypeError(
                f"{function}: its result would stand for another tensor here and have no memory "
                f"(inside torch.func, or a mode of fake tensors); expected a plain call; call the "
                f"function of mxkern.torch, or this one outside"
            )
        return new

    def scalar(self, bits: int, like: Any) -> Any:
        # Unlike torch.tensor, full does not copy from the host, which would wait for the device.
        return torch.full((), bits, dtype=torch.int32, device=like.device).view(torch.float32)

    def as_int64(self, array: Any) -> Any:
        return array.to(torch.int64)

    def raw_bytes(self, array: Any) -> Any:
        return array.detach().cpu().view(torch.uint8).numpy()

    def stream(self, array: Any) -> int | None:
        return _current_stream(array.device.index) if array.is_cuda else None

    def on_stream(self, handle: int, array: Any) -> AbstractContextManager[Any]:
        return stream_scope(handle, array.device.index) if array.is_cuda else nullcontext()

    def as_bytes(self, argument: str) -> str:
        return f"{argument}.view(torch.uint8)"

    def _way_out_of_dtype(self, argument: str, array: Any, dtype: str) -> str:
        if array.is_quantized:
            return f"; convert with {argument}.dequantize()"
        return super()._way_out_of_dtype(argument, array, dtype)

    def conversion(self, argument: str, dtype: str) -> str:
        return f"{argument}.to(torch.{dtype})"
