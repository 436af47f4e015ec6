# mxkern/values/block_scaled.py: BlockScaled, a quantized tensor.
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar, overload

from mxkern.values import errors
from mxkern.values.names import Dtype, ScaleLayout, SchemeName
from mxkern.values.scheme import Scheme, schemes
from mxkern.values.value import Array, Array_co, NumPyArray, Part, ValueOf

_Other = TypeVar("_Other")


class Above:
    """What methods of BlockScaled call, and put here when it is imported: it knows arrays and
    operations, and a BlockScaled lies below both."""

    device_of: Callable[..., Any]
    place: Callable[..., Any]
    made_from_parts: Callable[..., Any]
    summary: Callable[..., str]
    html_summary: Callable[..., str]
    dequantize: Callable[..., Any]


above = Above()


class BlockScaled(ValueOf[Array_co]):
    """A quantized tensor: codes, their scales, and what they mean. Immutable; the arrays are not.

    codes         one element each, or 4- and 6-bit codes packed in uint8, blocks along the last
                  axis: [..., K], or [..., ceil(K / block) * block * bits / 8] where packed
    scales        block scales. row_major: [..., ceil(K / block)]; swizzled: a flat run a matrix,
                  [*batch, roundup(rows, 128) * roundup(ceil(K / block), 4)]
    tensor_scale  nvfp4: the float32 that decoded values are multiplied with, 0-d; else None
    scheme        "mxfp8_e4m3", ...: a name in mxkern.schemes
    shape         of the tensor that was quantized
    scale_layout  "row_major" or "swizzled"

    The constructor checks nothing; from_parts does. `==` is identity: compare codes and scales.

    >>> import mxkern, numpy as np
    >>> q = mxkern.quantize(np.ones((2, 64), np.float32), "mxfp4")
    >>> q.codes.shape, q.scales.shape, q.nbytes, q.bits_per_element
    ((2, 32), (2, 2), 68, 4.25)
    """

    __match_args__ = ("codes", "scales", "tensor_scale", "scheme", "shape", "scale_layout")
    __slots__ = __match_args__

    codes: Part[Array_co]
    scales: Part[Array_co]
    tensor_scale: Any
    scheme: SchemeName
    shape: tuple[int, ...]
    scale_layout: ScaleLayout

    def __init__(
        self,
        codes: Array_co,
        scales: Array_co,
        tensor_scale: Any,
        scheme: SchemeName,
        shape: tuple[int, ...],
        scale_layout: ScaleLayout,
    ) -> None:
        # torch.compile sees through this, and not through the descriptors of the slots.
        put = object.__setattr__
        put(self, "codes", codes)
        put(self, "scales", scales)
        put(self, "tensor_scale", tensor_scale)
        put(self, "scheme", scheme)
        put(self, "shape", shape)
        put(self, "scale_layout", scale_layout)

    @classmethod
    def from_parts(
        cls,
        codes: Array,
        scales: Array,
        *,
        scheme: SchemeName | Scheme,
        tensor_scale: Any = None,
        shape: tuple[int, ...] | None = None,
        scale_layout: ScaleLayout = "row_major",
    ) -> BlockScaled[Array]:
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
        made: BlockScaled[Array] = above.made_from_parts(
            codes, scales, scheme, tensor_scale, shape, scale_layout
        )
        return made

    @property
    def parts(self) -> tuple[Any, Any, Any]:
        """Its arrays: codes, scales, and the tensor scale or None."""
        return self.codes, self.scales, self.tensor_scale

    @property
    def facts(self) -> tuple[SchemeName, tuple[int, ...], ScaleLayout]:
        """What it knows beside its arrays: BlockScaled(*q.parts, *q.facts) is q again."""
        return self.scheme, self.shape, self.scale_layout

    @overload
    def map(self, function: Callable[[Array_co], Array_co]) -> Self: ...
    @overload
    def map(self, function: Callable[[Array_co], _Other]) -> BlockScaled[_Other]: ...
    def map(self, function: Callable[[Any], Any]) -> Any:
        """The same tensor with function(part) for each of its arrays: codes, scales, and the tensor
        scale where there is one.

        What function returns is not checked here, but by the operations that it is given to.

        >>> import mxkern, numpy as np
        >>> q = mxkern.quantize(np.ones((2, 64), np.float32), "mxfp4")
        >>> copy = q.map(np.copy)
        >>> copy.codes is q.codes, copy.shape
        (False, (2, 64))
        """
        parts: list[Any] = [None if part is None else function(part) for part in self.parts]
        codes, scales, scale = parts
        return type(self)(codes, scales, scale, *self.facts)

    def to(self, device: Any, *, non_blocking: bool = False) -> Self:
        """The same tensor with its arrays on a device; those that are there already stay.

        device        PyTorch: what Tensor.to takes for a device. JAX: a device, a sharding, or a
                      name as "cpu" and "cuda:1". CuPy: a device, its index, or "cuda:1". Arrays of
                      NumPy are on the "cpu" alone.
        non_blocking  PyTorch: whether copies from pinned memory may still be under way

        Codes and scales keep their dtypes: one for device raises TypeError.

        >>> import mxkern, numpy as np
        >>> q = mxkern.quantize(np.ones((2, 64), np.float32), "mxfp4")
        >>> q.to("cpu").device
        'cpu'
        """
        if device is None or hasattr(device, "itemsize") or hasattr(device, "dtype"):
            raise TypeError(
                f"BlockScaled.to: device is {errors.described(device)}; expected a device; codes "
                "and scales keep their dtypes, and q.dequantize(dtype) has values of another"
            )
        if hasattr(self.codes, "to"):  # PyTorch's, also where torch.compile traces this
            return self._moved(lambda part: part.to(device, non_blocking=non_blocking))
        return self._moved(lambda part: above.place(part, device))

    def pin_memory(self) -> Self:
        """The same tensor in pinned memory: PyTorch's arrays, for its DataLoader."""
        return self._moved(lambda part: part.pin_memory())

    def _moved(self, function: Callable[[Any], Any]) -> Self:
        moved: Self = self.map(function)
        return moved

    @overload
    def dequantize(self: BlockScaled[NumPyArray], dtype: Dtype = ...) -> NumPyArray: ...
    @overload
    def dequantize(self, dtype: Dtype = ...) -> Array_co: ...
    def dequantize(self, dtype: Dtype = "float32") -> Any:
        """mxkern.dequantize(self, dtype=dtype)

        >>> import mxkern, numpy as np
        >>> q = mxkern.quantize(np.ones((1, 4), np.float32), "mxfp4")
        >>> q.dequantize("float16")
        array([[1., 1., 1., 1.]], dtype=float16)
        """
        return above.dequantize(self, dtype=dtype)

    @property
    def device(self) -> Any:
        """Where the codes are, as their framework says it: a torch.device, a device or a sharding
        of JAX, a device of CuPy, "cpu" for NumPy."""
        found = getattr(self.codes, "device", None)
        return above.device_of(self.codes) if found is None else found

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and tensor scale, padding included."""
        scale = schemes[self.scheme].tensor_scale_shape(_plain(self.shape))
        return self._block_bytes() + (0 if scale is None else 4 * _product(scale))

    @property
    def bits_per_element(self) -> float:
        """Bits that are stored for an element of the tensor, padding and scales included, the
        tensor scale left out; that of the scheme where the tensor is empty."""
        size = _product(_plain(self.shape))
        if size == 0:
            return schemes[self.scheme].bits_per_element
        return 8 * self._block_bytes() / size

    def _block_bytes(self) -> int:
        """Of codes and scales, whatever type of array they are in."""
        return schemes[self.scheme].nbytes(_plain(self.shape), self.scale_layout)

    def __repr__(self) -> str:
        return above.summary(self)

    def _repr_html_(self) -> str:
        return above.html_summary(self)


def _plain(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Without NumPy's integers, which may be of 8 bits; symbols stay."""
    return tuple(n if isinstance(n, int) or not hasattr(n, "item") else n.item() for n in shape)


def _product(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size
