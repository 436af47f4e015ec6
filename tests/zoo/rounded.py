# tests/zoo/rounded.py: a checkpoint whose weights the NumPy reference has rounded, as transformers
# is to load those that were quantized.
from __future__ import annotations

from collections.abc import Iterable, Mapping

import ml_dtypes
import numpy as np

import reference
from stacks import as_layers, as_stacks

F32 = np.float32
# Linear layers of one module that programs multiply at once: NVFP4 gives them one tensor scale.
MERGED = [
    "q_proj k_proj v_proj",
    "gate_proj up_proj",
    "w1 w3",
    "q_a_proj kv_a_proj_with_mqa",
    "in_proj_qkv in_proj_z",
    "in_proj_b in_proj_a",
    "query key value",
    "wq wk wv",
]
GROUP_OF = {name: group for group in MERGED for name in group.split()}
# The divisor in the file, 1 / (amax / 2688), is to be finite.
LEAST_AMAX = F32(2688 * 2.0**-126)


def rounded(
    tensors: Mapping[str, np.ndarray], quantized: Iterable[str], scheme: str
) -> dict[str, np.ndarray]:
    """The tensors, with the weights of the modules or the stacks `quantized` rounded."""
    names = {name if name in tensors else f"{name}.weight" for name in quantized}
    stacks, tensors = tensors, as_layers(tensors, names)
    new = dict(tensors)
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        groups.setdefault(_group(name), []).append(name)
    for members in groups.values():
        amax = max(np.abs(tensors[name].astype(F32)).max() for name in members)
        for name in members:
            new[name] = decoded(tensors[name], scheme, amax).astype(ml_dtypes.bfloat16)
    return as_stacks(new, stacks)


def _group(name: str) -> tuple[str, str]:
    parent, _, last = name.removesuffix(".weight").rpartition(".")
    return parent, GROUP_OF.get(last, last)


def decoded(weight: np.ndarray, scheme: str, amax: np.float32) -> np.ndarray:
    """What programs make of the codes of [..., N, K], or, of a stack of experts, of [E, K, N]."""
    columns = weight.ndim == 3
    if scheme == "nvfp4":
        q = reference.quantize(weight, scheme, amax=max(amax, LEAST_AMAX) if amax else amax)
        # compressed-tensors divides the scales by the divisor in the file, and then multiplies.
        scales = reference.e4m3_values(q.scales) / (F32(1) / q.tensor_scale)
    else:
        q = reference.quantize(weight, scheme, columns=columns)
        scales = np.ldexp(F32(1), q.scales.astype(int) - 127)
    format = reference.FORMATS[reference.SCHEMES[scheme][0]]
    values = format.values()[q.codes] * scales[..., None]
    values = values.reshape(*values.shape[:-2], -1)
    return np.swapaxes(values, -1, -2) if columns else values
