# mxkern/checkpoints/compressed_tensors.py: quantized weights as the package compressed-tensors
# stores them.
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mxkern.files.safetensors_writer import TensorPlan
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.scheme import Scheme, scheme_of


class Convention(NamedTuple):
    """How weights of a scheme are stored."""

    format: str  # its name there
    codes: str  # the tensor's name behind the module's
    codes_dtype: str  # of safetensors
    scales_dtype: str
    activations: str | None  # the scheme that inputs of such layers may have


CONVENTIONS = {
    "mxfp8_e4m3": Convention("mxfp8-quantized", "weight", "F8_E4M3", "U8", "mxfp8_e4m3"),
    "mxfp6_e2m3": Convention("mxfp6-pack-quantized", "weight_packed", "U8", "U8", "mxfp8_e4m3"),
    "mxfp4": Convention("mxfp4-pack-quantized", "weight_packed", "U8", "U8", "mxfp4"),
    "nvfp4": Convention("nvfp4-pack-quantized", "weight_packed", "U8", "F8_E4M3", None),
}

PLAIN_EXPERTS = r"re:(.*\.)?experts$"  # the module of a layer's experts, which is no linear layer


def scheme_to_store(function: str, scheme: str | Scheme) -> Scheme:
    """ValueError for a scheme that has no such form."""
    found = scheme_of(function, scheme)
    if found.name not in CONVENTIONS:
        raise ValueError(
            f"{function}: scheme is {found.name}; expected one of {', '.join(CONVENTIONS)}, which "
            "compressed-tensors has a form for"
        )
    return found


def activations_to_store(
    function: str, weights: Scheme, activations: str | Scheme | None
) -> Scheme | None:
    """ValueError for a scheme that inputs of layers with such weights do not have."""
    if activations is None:
        return None
    found = scheme_of(function, activations, "activations")
    expected = CONVENTIONS[weights.name].activations
    if found.name == expected:
        return found
    if expected is None:
        raise ValueError(
            f"{function}: activations is {found.name}; expected None beside weights of "
            f"{weights.name}: its inputs need a tensor scale, which only data can tell"
        )
    raise ValueError(
        f"{function}: activations is {found.name}; expected {expected} or None beside weights of "
        f"{weights.name}"
    )


def plans_of(module: str, scheme: Scheme, rows: int, columns: int) -> list[TensorPlan]:
    """What is stored of the weights [rows, columns] of a module."""
    form, shape = CONVENTIONS[scheme.name], (rows, columns)
    codes, scales = scheme.codes_shape(shape), scheme.scales_shape(shape, "row_major")
    plans = [
        TensorPlan(f"{module}.{form.codes}", form.codes_dtype, codes),
        TensorPlan(f"{module}.weight_scale", form.scales_dtype, scales),
    ]
    if scheme.has_tensor_scale:
        plans.append(TensorPlan(f"{module}.weight_global_scale", "F32", (1,)))
    return plans


def arrays_of(q: BlockScaled) -> list[npt.NDArray[Any]]:
    """The arrays of these. The tensor scale is stored as what divides."""
    arrays = [q.codes.view(np.uint8), q.scales.view(np.uint8)]
    if q.tensor_scale is not None:
        arrays.append(np.float32(1) / np.asarray(q.tensor_scale, np.float32).reshape(1))
    return arrays


def quantization_config(
    scheme: Scheme,
    left_as_they_are: Sequence[str],
    *,
    activations: Scheme | None = None,
    reads_weights: bool = False,
    has_plain_experts: bool = False,
) -> dict[str, Any]:
    """What config.json says of a model whose linear layers have such weights, except those named or
    matched by a pattern behind `re:`, and inputs that are quantized as they come, or not at all.

    Without activations transformers is told to decode weights when it loads them. It decodes them
    before the first product in any case, and models whose own code reads or shares a layer's weight
    fail where it is packed until then. With activations it would quantize none of those, so only
    such models are decoded then (reads_weights).

    has_plain_experts: experts that are not quantized become one tensor when they are loaded. There
    transformers (5.24) expects what the group says whose targets name experts, and passes on
    weights without scales only for 8-bit floats. So a second group says that of them.
    """
    groups = {"group_0": _group(scheme, "Linear", activations)}
    if has_plain_experts:
        groups["group_1"] = _group(scheme_of("convert", "mxfp8_e4m3"), PLAIN_EXPERTS, None)
    return {
        "quant_method": "compressed-tensors",
        "format": CONVENTIONS[scheme.name].format,
        "quantization_status": "compressed",
        "ignore": list(left_as_they_are),
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
        "config_groups": groups,
    } | ({} if activations and not reads_weights else {"dequantize": True})


def _group(scheme: Scheme, target: str, activations: Scheme | None) -> dict[str, Any]:
    return {
        "targets": [target],
        "format": CONVENTIONS[scheme.name].format,
        "weights": _arguments(scheme, dynamic=False),
        "input_activations": _arguments(activations, dynamic=True) if activations else None,
        "output_activations": None,
    }


def _arguments(scheme: Scheme, *, dynamic: bool) -> dict[str, Any]:
    return {
        "num_bits": scheme.bits,
        "type": "float",
        "symmetric": True,
        "group_size": scheme.block,
        "strategy": "tensor_group" if scheme.has_tensor_scale else "group",
        "dynamic": dynamic,
        "scale_dtype": "torch.float8_e4m3fn" if scheme.has_tensor_scale else "torch.uint8",
    }
