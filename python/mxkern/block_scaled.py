# mxkern/block_scaled.py: BlockScaled, a quantized tensor.
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mxkern.scheme import Scheme, schemes


class BlockScaled(NamedTuple):
    """A quantized tensor: codes, their scales, and what they mean. Immutable; the arrays are not.

    codes         one element each, or 4- and 6-bit codes packed in uint8, blocks along the last
                  axis: [..., K], or [..., ceil(K / block) * block * bits / 8] where packed
    scales        block scales. row_major: [..., ceil(K / block)]; swizzled: a flat run a matrix,
                  [*batch, roundup(rows, 128) * roundup(ceil(K / block), 4)]
    tensor_scale  nvfp4: the float32 that decoded values are multiplied with, 0-d; else None
    scheme        "mxfp8_e4m3", ...: a name in mxkern.schemes
    shape         of the tensor that was quantized
    scale_layout  "row_major" or "swizzled"

    It unpacks as a tuple: `codes, scales = q[:2]`.

    >>> import mxkern, numpy as np
    >>> q = mxkern.quantize(np.ones((2, 64), np.float32), "mxfp4")
    >>> q.codes.shape, q.scales.shape, q.nbytes, q.bits_per_element
    ((2, 32), (2, 2), 68, 4.25)
    """

    codes: Any
    scales: Any
    tensor_scale: Any
    scheme: str
    shape: tuple[int, ...]
    scale_layout: str

    @classmethod
    def from_parts(
        cls,
        codes: Any,
        scales: Any,
        *,
        scheme: str | Scheme,
        tensor_scale: Any = None,
        shape: tuple[int, ...] | None = None,
        scale_layout: str = "row_major",
    ) -> BlockScaled:
        """A BlockScaled of codes and scales from elsewhere, checked. No copy is made.

        codes, scales  arrays of one framework, of the dtypes that quantize gives or uint8; 4-bit
                       codes of PyTorch also float4_e2m1fn_x2
        tensor_scale   nvfp4: a float32 array of one element, of any value, which becomes 0-d, or a
                       number, finite and not negative
        shape          of the tensor, a tuple or a list; by default what the codes hold, padding
                       included

        Raises TypeError and ValueError where the parts do not fit the scheme and the shape.

        >>> import mxkern, numpy as np
        >>> codes = np.full((1, 32), 0x38, np.uint8)
        >>> q = mxkern.BlockScaled.from_parts(codes, np.uint8([[128]]), scheme="mxfp8_e4m3")
        >>> float(mxkern.dequantize(q)[0, 0])
        2.0
        """
        from mxkern.operands import made_from_parts

        return made_from_parts(codes, scales, scheme, tensor_scale, shape, scale_layout)

    def map(self, function: Callable[[Any], Any]) -> BlockScaled:
        """The same tensor with function(part) for each of its arrays: codes, scales, and the tensor
        scale where there is one. So it goes to a device: `q.map(lambda part: part.to("cuda"))`.

        What function returns is not checked here, but by the operations that it is given to.

        >>> import mxkern, numpy as np
        >>> q = mxkern.quantize(np.ones((2, 64), np.float32), "mxfp4")
        >>> copy = q.map(np.copy)
        >>> copy.codes is q.codes, copy.shape
        (False, (2, 64))
        """
        parts = [None if part is None else function(part) for part in self[:3]]
        return self._replace(codes=parts[0], scales=parts[1], tensor_scale=parts[2])

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and tensor scale, padding included."""
        return self._block_bytes() + (4 if schemes[self.scheme].has_tensor_scale else 0)

    @property
    def bits_per_element(self) -> float:
        """Bits that are stored for an element of the tensor, padding and scales included, the
        tensor scale left out; that of the scheme where the tensor is empty."""
        size = _product(_plain(self.shape))
        if size == 0:
            return schemes[self.scheme].bits_per_element
        return 8 * self._block_bytes() / size

    def _block_bytes(self) -> int:
        """Of codes and scales, which are a byte each whatever type of array they are in."""
        scheme, shape = schemes[self.scheme], _plain(self.shape)
        codes = _product(scheme.codes_shape(shape))
        return codes + _product(scheme.scales_shape(shape, self.scale_layout))

    def __repr__(self) -> str:
        from mxkern.summary import summary

        return summary(self)


def _plain(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Without NumPy's integers, which may be of 8 bits; symbols stay."""
    return tuple(n.item() if hasattr(n, "item") else n for n in shape)


def _product(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size
