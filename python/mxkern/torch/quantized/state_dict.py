# mxkern/torch/quantized/state_dict.py: QuantizedTensors in state dicts, where they are plain
# tensors.
"""What a file has of a parameter `weight` that is a QuantizedTensor, by the hooks of install:

    weight.codes, weight.scales    uint8
    weight.tensor_scale            float32, where the scheme has one
    weight.column_codes, ...       the same of the other direction, where it is kept
    weight.scheme                  uint8: {"scheme": ..., "shape": ..., "scale_layout": ...} as JSON

Loading takes these, a plain weight, which it quantizes, and the names of torchao and of
compressed-tensors. What does not fit the parameter is refused.
"""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

import torch

from mxkern import functions as eager
from mxkern.torch.quantized.tensor import PARTS, QuantizedTensor, transposed_shape, wrapped
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.names import Dtype
from mxkern.values.scheme import schemes

_Module = TypeVar("_Module", bound="torch.nn.Module")
_COMPRESSED = ("mxfp8_e4m3", "mxfp6_e2m3", "mxfp4", "nvfp4")  # schemes in compressed-tensors' files


def install(module: _Module) -> _Module:
    """Lets state dicts of a module have plain tensors for those of its own parameters that are
    QuantizedTensors, and load them. Once or more often. Copies of the module do the same."""
    if not any(hook is _write for hook in module._state_dict_hooks.values()):
        module.register_state_dict_post_hook(_write)
        module.register_load_state_dict_pre_hook(_read)
    return module


def plain_state_dict(
    state: dict[str, torch.Tensor], dtype: Dtype = "bfloat16"
) -> dict[str, torch.Tensor]:
    """The state dict of a model that is not quantized: what install wrote, decoded to dtype."""
    result = dict(state)
    for name in [key.removesuffix(".scheme") for key in state if key.endswith(".scheme")]:
        rows, _ = _own(result, name)
        result[name] = eager.dequantize(rows, dtype=dtype)
    return result


def _plain(key: str, weight: QuantizedTensor) -> dict[str, torch.Tensor]:
    """The tensors of a state dict; the large ones share the weight's memory."""
    parts = zip(PARTS, weight.parts, strict=True)
    found = {f"{key}.{name}": part.detach() for name, part in parts if part is not None}
    facts = {
        "scheme": weight.scheme,
        "shape": [int(n) for n in weight.shape],
        "scale_layout": weight.scale_layout,
    }
    text = list(json.dumps(facts).encode())
    return found | {f"{key}.scheme": torch.tensor(text, dtype=torch.uint8, device="cpu")}


def _write(module: Any, state: Any, prefix: str, metadata: Any) -> None:
    for name, parameter in module._parameters.items():
        if isinstance(parameter, QuantizedTensor) and prefix + name in state:
            del state[prefix + name]
            state.update(_plain(prefix + name, parameter))


def _read(
    module: Any, state: Any, prefix: str, metadata: Any, strict: Any, missing: Any, *others: Any
) -> None:
    assign = metadata.get("assign_to_params_buffers", False)
    for name, parameter in module._parameters.items():
        if not isinstance(parameter, QuantizedTensor):
            continue
        try:
            found = _found(state, prefix, name, parameter, assign)
        except (KeyError, TypeError, ValueError) as error:
            others[-1].append(f"{prefix}{name}: {error}")
            found = parameter.detach()  # so that it is not called missing, too
        if found is not None:
            state[prefix + name] = found


def _found(state: Any, prefix: str, name: str, parameter: QuantizedTensor, assign: bool) -> Any:
    """A QuantizedTensor of what a state dict has for a parameter; None to leave that to PyTorch."""
    key, operand, dtype = prefix + name, parameter.facts.operand, parameter.facts.dtype
    if f"{key}.codes" in state or f"{key}.scheme" in state:
        rows, columns = _own(state, key)
        found, wanted = (rows.scheme, rows.shape), (parameter.scheme, tuple(parameter.shape))
        if found != wanted:
            raise ValueError(
                f"the state dict has {found}; expected {wanted}, as the module's parameter is; "
                "quantize the module to this scheme, or load plain_state_dict(state)"
            )
        return wrapped(rows, columns, operand, dtype)
    if (q := _foreign(state, prefix, name, parameter)) is not None:
        return wrapped(q, None, operand, dtype)
    plain = state.get(key)
    if not assign or type(plain) not in (torch.Tensor, torch.nn.Parameter):
        return None
    keep, layout = parameter.column_codes is not None, parameter.scale_layout
    return QuantizedTensor.from_float(plain.to(dtype), operand, columns=keep, scale_layout=layout)


def _own(state: Any, key: str) -> tuple[BlockScaled, BlockScaled | None]:
    """Rows and columns of what _plain wrote, which is taken out."""
    for name in ("scheme", "codes", "scales"):
        if f"{key}.{name}" not in state:
            raise ValueError(f"{key}.{name} is missing; expected it beside the other parts")
    facts = json.loads(bytes(state.pop(f"{key}.scheme").tolist()))
    parts: Any = [state.pop(f"{key}.{name}", None) for name in PARTS]
    shape = tuple(facts.pop("shape"))

    def side(held: Any, shape: Any) -> Any:
        codes, scales, scale = held
        return BlockScaled.from_parts(codes, scales, tensor_scale=scale, shape=shape, **facts)

    columns = None if parts[3] is None else side(parts[3:], transposed_shape(shape))
    return side(parts[:3], shape), columns


def _foreign(state: Any, prefix: str, name: str, parameter: QuantizedTensor) -> Any:
    """Codes and scales under the names of other tools, which are taken out, or None."""
    key, scheme, shape = prefix + name, parameter.scheme, tuple(parameter.shape)
    names = ("qdata", "scale", "per_tensor_scale")
    if hasattr(held := state.get(key), "qdata"):  # a tensor of torchao itself
        return _of_torchao(scheme, shape, *[getattr(held, part, None) for part in names])
    for start in (f"{prefix}_{name}_", f"{key}."):
        if f"{start}qdata" in state:
            return _of_torchao(scheme, shape, *[state.pop(start + part, None) for part in names])
    codes_key = f"{key}_packed" if f"{key}_packed" in state else key
    if codes_key not in state or f"{key}_scale" not in state:
        return None
    if scheme not in _COMPRESSED:
        raise ValueError(
            f"{key}_scale is of compressed-tensors or ModelOpt, and the module's parameter is "
            f"{scheme}; expected {errors.listed(_COMPRESSED)}; quantize the module to the file's "
            "scheme"
        )
    codes, scales = state.pop(codes_key), state.pop(f"{key}_scale")
    scale = state.pop(f"{key}_scale_2", None)
    if (divisor := state.pop(f"{key}_global_scale", None)) is not None:
        scale = 1 / divisor.to(torch.float32)  # compressed-tensors stores what divides
    return BlockScaled.from_parts(codes, scales, scheme=scheme, tensor_scale=scale, shape=shape)


def _of_torchao(scheme: Any, shape: Any, codes: Any, scales: Any, scale: Any) -> BlockScaled:
    """6-bit codes lie one a byte there. Swizzled scales have another shape, never that of others,
    and are those of all matrices as though they were one."""
    record = schemes[scheme]
    if record.bits == 6 and tuple(codes.shape) == shape:
        codes = eager.pack_codes(codes.view(torch.uint8), scheme)
    wanted, rows = record.scales_shape(shape, "row_major"), math.prod(shape[:-1])
    swizzled = record.scales_shape((rows, shape[-1]), "swizzled")
    if tuple(scales.shape) != wanted and (scales.numel(),) == swizzled:
        flat = scales.contiguous().view(torch.uint8).flatten()
        plain = eager.unswizzle_scales(flat, rows, wanted[-1]).reshape(wanted)
        scales = plain.view(scales.dtype)  # for a check of it
    if record.has_tensor_scale and scale is None:
        scale = 1.0
    return BlockScaled.from_parts(codes, scales, scheme=scheme, tensor_scale=scale, shape=shape)
