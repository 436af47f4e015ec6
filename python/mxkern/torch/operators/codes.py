# mxkern/torch/operators/codes.py: codes of 4 and 6 bits, packed and one a byte, as PyTorch's own
# operations, which compiled code can fuse.
from __future__ import annotations

from typing import Any

import torch

from mxkern.arrays.torch import PACKED_E2M1
from mxkern.ops.pack_codes import codes_held, packed, unpacked
from mxkern.torch.operators.checks import check_tensor, checked_integer, scheme_name
from mxkern.values import errors
from mxkern.values.scheme import Scheme, schemes

_PACKED = {scheme.name: (scheme.bits, scheme.block) for scheme in schemes if scheme.bits < 8}


def pack_codes(codes: Any, scheme: str | Scheme) -> Any:
    """mxkern.pack_codes as PyTorch's own shifts, which compiled code can fuse."""
    array, bits, block = _entered("pack_codes", codes, scheme)
    return packed(torch, array, bits, block)


def unpack_codes(codes: Any, scheme: str | Scheme, columns: int | None = None) -> Any:
    """mxkern.unpack_codes as PyTorch's own shifts, which compiled code can fuse."""
    function = "unpack_codes"
    array, bits, _ = _entered(function, codes, scheme)
    held = codes_held(function, scheme_name(function, scheme), tuple(array.shape), bits)
    if columns is not None:
        columns = checked_integer(function, "columns", columns, held)
    unpacked_codes = unpacked(torch, array, bits)
    return unpacked_codes if columns is None else unpacked_codes[..., :columns].contiguous()


def _entered(function: str, codes: Any, scheme: str | Scheme) -> tuple[Any, int, int]:
    """The codes as uint8, their bits and the block they fill up."""
    check_tensor(function, "codes", codes)
    name = scheme_name(function, scheme)
    if name in schemes.names and name not in _PACKED:
        raise errors.not_packed(function, name)
    if name in _PACKED and _PACKED[name][0] == 4 and codes.dtype == PACKED_E2M1:
        codes = codes.view(torch.uint8)
    if name not in _PACKED or codes.dtype != torch.uint8:
        way_out = "reinterpret bytes with codes.view(torch.uint8)"
        if codes.dtype.itemsize > 1:
            way_out = "convert codes, one a byte, with codes.to(torch.uint8)"
        raise TypeError(
            f"{function}: codes of {name} have dtype {codes.dtype}; expected "
            f"uint8 codes of a scheme of 4 or 6 bits; {way_out}"
        )
    if codes.dim() == 0:
        raise ValueError(f"{function}: codes is 0-d; expected one dimension or more")
    bits, block = _PACKED[name]
    return codes, bits, block
