# mxkern/arrays/torch_cuda_calls.py: the ordinary calls on dense CUDA tensors, with as little Python
# as they can do with: launching a kernel takes less time than the general way takes to look at its
# arguments. What is out of the ordinary gives None, and the general way finds and words the errors.
from __future__ import annotations

from typing import Any

import torch

from mxkern import _core
from mxkern.block_scaled import BlockScaled
from mxkern.options import SCALE_LAYOUTS
from mxkern.prepared_operand import PreparedOperand
from mxkern.scheme import schemes, swizzled_size

_new = tuple.__new__
_layout_names = tuple(SCALE_LAYOUTS)
_schemes = tuple(schemes)
_forms = {name: i for i, name in enumerate(_core.prepared_form_names())}
_by_name = {scheme.name: scheme for scheme in schemes}
_dtypes = tuple(getattr(torch, name) for name in _core.dtype_names())
_positions = {dtype: i for i, dtype in enumerate(_dtypes)}
_code_dtypes = tuple(getattr(torch, scheme.codes_dtype) for scheme in schemes)
_scale_dtypes = tuple(getattr(torch, scheme.scales_dtype, torch.uint8) for scheme in schemes)

current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
current_device: Any = getattr(torch._C, "_cuda_getDevice", None)


def _find_empty() -> Any:
    """empty(shape, strides, dtype) on the current device: what compiled PyTorch code allocates
    with, in a third of the time of torch.empty."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, "_empty_strided_cuda", None)


_empty = _find_empty()


def available() -> bool:
    """Whether this PyTorch has the functions that make this way short."""
    return None not in (current_stream, current_device, _empty)


class TorchCudaCalls:
    def quantize(
        self, x: Any, scheme: int, layout: int, options: _core.QuantizeOptions, columns: bool
    ) -> Any:
        if type(x) is not torch.Tensor or not x.is_cuda or x.requires_grad or x.is_neg():
            return None
        dtype = _positions.get(x.dtype)
        device = x.get_device()
        shape = x.shape
        if dtype is None or device != current_device() or len(shape) != 2:
            return None
        try:  # tensors that wrap others, inside of a transform, have no address
            address = x.data_ptr() if x.is_contiguous() else 0
        except RuntimeError:
            return None
        m, k = shape
        if address == 0 and m * k > 0:
            return None
        record = _schemes[scheme]
        rows, extent = (k, m) if columns else (m, k)
        block = record.block
        blocks = -(-extent // block)
        width = extent if record.bits == 8 else blocks * record.block_bytes
        codes = _empty((rows, width), (width, 1), _code_dtypes[scheme])
        if layout == 0:
            scales = _empty((rows, blocks), (blocks, 1), _scale_dtypes[scheme])
        else:
            scales = _empty((swizzled_size(rows, blocks),), (1,), _scale_dtypes[scheme])
        tensor_scale = found = None
        if record.has_tensor_scale:
            tensor_scale, found = (_empty((), (), torch.float32) for _ in range(2))
        try:
            (_core.quantize_columns if columns else _core.quantize)(
                (address, dtype, device, 1, m, k, k, m * k),
                (
                    scheme,
                    layout,
                    device,
                    1,
                    rows,
                    extent,
                    codes.data_ptr(),
                    scales.data_ptr(),
                    None if tensor_scale is None else tensor_scale.data_ptr(),
                ),
                options,
                None,
                None,
                None if found is None else found.data_ptr(),
                current_stream(device),
            )
        except ValueError:
            return None
        fields = (codes, scales, tensor_scale, record.name, (rows, extent), _layout_names[layout])
        return _new(BlockScaled, fields)

    def dequantize(self, q: BlockScaled, dtype: int) -> Any:
        found = _quantized(q)
        if found is None:
            return None
        view, shape, device = found
        if device != current_device():
            return None
        m, k = shape
        out = _empty(shape, (k, 1), _dtypes[dtype])
        _core.dequantize(
            view, (out.data_ptr(), dtype, device, 1, m, k, k, m * k), current_stream(device)
        )
        return out

    def gemm(self, a: Any, b: Any, dtype: int, alpha: float) -> Any:
        right = _prepared(b) if type(b) is PreparedOperand else _quantized(b)
        kind = type(a)
        if kind is BlockScaled:
            left = _quantized(a)
        elif kind is PreparedOperand:
            left = _prepared(a)
        else:
            left = _plain(a)
        if left is None or right is None:
            return None
        left_view, (m, k), device = left
        right_view, (n, depth), other = right
        if depth != k or device != other or device != current_device():
            return None
        out = _empty((m, n), (n, 1), _dtypes[dtype])
        buffer = (out.data_ptr(), dtype, device, 1, m, n, n, m * n)
        try:
            size = _core.gemm_workspace_bytes(left_view, right_view, buffer, 0)
            workspace = _empty((size,), (1,), torch.uint8) if size else None
            _core.gemm(
                left_view,
                right_view,
                buffer,
                alpha,
                0.0,
                None,
                0,
                None if workspace is None else workspace.data_ptr(),
                size,
                current_stream(device),
            )
        except ValueError:
            return None
        return out


# What an operand is to the library, its shape, and its device; None where it is not ordinary.
_Operand = tuple[Any, tuple[int, int], int] | None


def _quantized(q: Any) -> _Operand:
    if type(q) is not BlockScaled:
        return None
    codes, scales, tensor_scale, name, shape, layout_name = q
    if type(codes) is not torch.Tensor or not codes.is_cuda or type(shape) is not tuple:
        return None
    record = _by_name.get(name) if type(name) is str else None
    if record is None or len(shape) != 2 or layout_name not in SCALE_LAYOUTS:
        return None
    device = codes.get_device()
    expected = [
        (codes, record.codes_shape(shape), _code_dtypes[record.id]),
        (scales, record.scales_shape(shape, layout_name), _scale_dtypes[record.id]),
    ]
    if record.has_tensor_scale:
        expected.append((tensor_scale, (), torch.float32))
    elif tensor_scale is not None:
        return None
    for part, part_shape, part_dtype in expected:
        if (
            type(part) is not torch.Tensor
            or part.dtype is not part_dtype
            or part.shape != part_shape
            or not part.is_contiguous()
            or part.get_device() != device
            or part.requires_grad
        ):
            return None
    view = (
        record.id,
        SCALE_LAYOUTS[layout_name],
        device,
        1,
        *shape,
        codes.data_ptr(),
        scales.data_ptr(),
        None if tensor_scale is None else tensor_scale.data_ptr(),
    )
    return view, shape, device


def _prepared(prepared: PreparedOperand) -> _Operand:
    form, data, source, name, shape = prepared
    found = None if source is None else _quantized(source)
    number = _forms.get(form)
    if found is None or source is None or number is None or data is None:
        return None
    view, source_shape, device = found
    if source_shape != shape or source.scheme != name or type(data) is not torch.Tensor:
        return None
    size = _core.prepared_bytes(number, view[0], 1, *shape)
    if (
        data.dtype is not torch.uint8
        or data.shape != (size,)
        or not data.is_contiguous()
        or data.get_device() != device
    ):
        return None
    return (number, view, data.data_ptr(), size), shape, device


def _plain(x: Any) -> _Operand:
    if type(x) is not torch.Tensor or not x.is_cuda or x.requires_grad or x.is_neg():
        return None
    dtype = _positions.get(x.dtype)
    shape = x.shape
    if dtype is None or len(shape) != 2 or not x.is_contiguous():
        return None
    try:  # tensors that wrap others, inside of a transform, have no address
        address = x.data_ptr()
    except RuntimeError:
        return None
    m, k = shape
    if address == 0 and m * k > 0:
        return None
    device = x.get_device()
    return (address, dtype, device, 1, m, k, k, m * k), (m, k), device
