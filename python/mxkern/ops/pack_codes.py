# mxkern/ops/pack_codes.py: codes of 4 and 6 bits, one a byte and packed.
from __future__ import annotations

from typing import Any, cast

from mxkern.arrays import Adapter, adapter_of
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.names import SchemeName
from mxkern.values.scheme import Scheme, Shape, scheme_of
from mxkern.values.value import Array

# Codes and bytes of a group that ends on a byte, by the bits of a code.
_GROUPS = {4: (2, 1), 6: (4, 3)}


def pack_codes(codes: Array, scheme: SchemeName | Scheme) -> Array:
    """Codes of 4 or 6 bits that lie one a byte, packed as quantize packs them: low bits first.

    codes   [..., K] uint8, each code in the low bits of its byte; the bits above are left out.
            4-bit codes of JAX, and of NumPy with ml_dtypes, also float4_e2m1fn
    scheme  "mxfp4", "nvfp4", "mxfp6_e2m3" or "mxfp6_e3m2"

    Returns uint8 [..., ceil(K / block) * block * bits / 8] of codes' framework, on its device; the
    codes that fill the last block are 0. It is made of the framework's own shifts and so runs
    under jax.jit too. Raises TypeError, ValueError, RuntimeError.

    >>> import mxkern, numpy as np
    >>> packed = mxkern.pack_codes(np.uint8([1, 2, 3, 4]), "mxfp4")
    >>> packed[:2], packed.shape
    (array([33, 67], dtype=uint8), (16,))
    """
    function = "pack_codes"
    record, adapter, array = _entered(function, codes, scheme)
    with adapter.on_device(array):
        result: Array = packed(adapter.namespace, array, record.bits, record.block)
    return result


def unpack_codes(codes: Array, scheme: SchemeName | Scheme, columns: int | None = None) -> Array:
    """The inverse of pack_codes: each code in the low bits of a byte of its own.

    codes    [..., bytes] uint8, as quantize returns them; 4-bit codes of PyTorch also
             float4_e2m1fn_x2
    scheme   "mxfp4", "nvfp4", "mxfp6_e2m3" or "mxfp6_e3m2"
    columns  K of the tensor; by default all codes are returned, padding included

    Returns uint8 [..., columns] of codes' framework, on its device. Raises TypeError, ValueError,
    RuntimeError.

    >>> import mxkern, numpy as np
    >>> q = mxkern.quantize(np.float32([1, -1, 6]), "mxfp4")
    >>> mxkern.unpack_codes(q.codes, q.scheme, 3)
    array([ 2, 10,  7], dtype=uint8)
    """
    function = "unpack_codes"
    record, adapter, array = _entered(function, codes, scheme)
    held = codes_held(function, record.name, tuple(array.shape), record.bits)
    if columns is not None:
        columns = errors.integer(function, "columns", columns, 0, held)
    with adapter.on_device(array):
        result: Array = unpacked(adapter.namespace, array, record.bits)
        if columns is None or columns == held:
            return result
        result = result[..., :columns]
        return result if adapter.converts else cast(Array, adapter.dense(result))


def codes_held(function: str, scheme: str, shape: Shape, bits: int) -> int:
    """Codes in a row of packed bytes, which are whole groups."""
    count, size = _GROUPS[bits]
    if shape[-1] % size:
        raise ValueError(
            f"{function}: codes has shape {shape}; expected a last axis of whole groups of {size} "
            f"bytes for {scheme}"
        )
    return shape[-1] // size * count


def packed(namespace: Any, codes: Any, bits: int, block: int) -> Any:
    """pack_codes of uint8 codes, with the functions of a framework's namespace."""
    padding = -codes.shape[-1] % block
    if padding:
        wanted = (*codes.shape[:-1], padding)
        zeros = namespace.zeros_like(namespace.broadcast_to(codes[..., :1], wanted))
        codes = namespace.concatenate([codes, zeros], -1)
    count, size = _GROUPS[bits]
    code = [codes[..., i::count] for i in range(count)]
    # Bits above a code fall off its byte at the left; the last code of a group is at the left.
    low = [part & (2**bits - 1) for part in code[:-1]]
    if bits == 4:
        filled = [low[0] | code[1] << 4]
    else:
        filled = [low[0] | code[1] << 6, low[1] >> 2 | code[2] << 4, low[2] >> 4 | code[3] << 2]
    return namespace.stack(filled, -1).reshape((*codes.shape[:-1], code[0].shape[-1] * size))


def unpacked(namespace: Any, codes: Any, bits: int) -> Any:
    """unpack_codes of uint8 codes in whole groups, padding included."""
    count, size = _GROUPS[bits]
    byte = [codes[..., i::size] for i in range(size)]
    if bits == 4:
        parts = [byte[0] & 15, byte[0] >> 4]
    else:
        parts = [
            byte[0] & 63,
            byte[0] >> 6 | (byte[1] & 15) << 2,
            byte[1] >> 4 | (byte[2] & 3) << 4,
            byte[2] >> 2,
        ]
    return namespace.stack(parts, -1).reshape((*codes.shape[:-1], byte[0].shape[-1] * count))


def _entered(function: str, codes: Any, scheme: Any) -> tuple[Scheme, Adapter, Any]:
    record = scheme_of(function, scheme)
    if record.bits not in _GROUPS:
        raise errors.not_packed(function, record.name)
    if isinstance(codes, BlockScaled):
        raise TypeError(f"{function}: codes is a BlockScaled; expected its codes; pass q.codes")
    adapter = adapter_of(function, "codes", codes)
    # JAX's arrays stay what they are, tracers too.
    array = codes if adapter.converts else adapter.enter(function, "codes", codes)
    if record.format == "e2m1":
        array = adapter.packed_e2m1_bytes(array)
        if function == "pack_codes":
            array = adapter.e2m1_codes(array)
    if str(array.dtype).removeprefix("torch.") != "uint8":
        # JAX counts a byte for an element of 4 bits, and views two as one.
        is_byte = array.dtype.itemsize == 1 and not str(array.dtype).endswith("int4")
        way_out = f"reinterpret bytes with {adapter.as_bytes('codes')}"
        if str(array.dtype) == "float4_e2m1fn":
            way_out = (
                "its elements lie apart, and mxkern.pack_codes(codes, 'mxfp4') packs them; these "
                "are codes of mxfp4 and nvfp4"
            )
        elif not is_byte:
            way_out = f"convert codes, one a byte, with {adapter.conversion('codes', 'uint8')}"
        raise TypeError(f"{function}: codes has dtype {array.dtype}; expected uint8; {way_out}")
    if not array.shape:
        raise ValueError(f"{function}: codes is 0-d; expected one dimension or more")
    return record, adapter, array
