# mxkern/values/prepared_operand.py: PreparedOperand, an operand of gemm that was made ready ahead.
from __future__ import annotations

from typing import Any

from mxkern.values.block_scaled import BlockScaled
from mxkern.values.names import PreparedForm, SchemeName
from mxkern.values.scheme import schemes
from mxkern.values.value import Array, Array_co, ValueOf, fields_text

_FORMS = {
    "source": "codes and scales alone",
    "folded": "FP8 elements that hold their block scales",
    "expanded": "bfloat16 elements",
    "few_tokens": "codes and scales in the order of products of few rows",
    "panels": "codes and scales in the order of a CPU's vectors",
}
_WITHOUT_SOURCE = {
    "folded": "folded products only",
    "expanded": "exact products only",
    "few_tokens": "products of few rows only",
    "panels": "products on the CPU only",
}


class PreparedOperand(ValueOf[Array_co]):
    """An operand that prepare_operand made ready for gemm. Immutable; the arrays are not.

    form    "folded", "expanded", "few_tokens" or "panels": what data holds; "source": nothing,
            where products read codes and scales
    data    bytes in the library's own layout, or None for "source". A product reads those of
            "few_tokens", and the tensor scale, while the kernel ahead of it in the stream still
            runs: do not write them yourself right before it
    source  the BlockScaled, where gemm falls back to it; None if it was not kept
    scheme  "mxfp8_e4m3", ...
    shape   of the tensor

    >>> import mxkern, numpy as np
    >>> w = mxkern.prepare_operand(mxkern.quantize(np.ones((4, 64), np.float32), "mxfp8"))
    >>> w
    PreparedOperand mxfp8_e4m3, shape (4, 64), 2568 bytes
      panels      codes and scales in the order of a CPU's vectors, 2304 bytes
      source      codes and scales
    """

    __match_args__ = ("form", "data", "source", "scheme", "shape")
    __slots__ = __match_args__

    form: PreparedForm
    data: Any
    source: BlockScaled[Array_co] | None
    scheme: SchemeName
    shape: tuple[int, ...]

    def __init__(
        self,
        form: PreparedForm,
        data: Any,
        source: BlockScaled[Array_co] | None,
        scheme: SchemeName,
        shape: tuple[int, ...],
    ) -> None:
        put = object.__setattr__
        put(self, "form", form)
        put(self, "data", data)
        put(self, "source", source)
        put(self, "scheme", scheme)
        put(self, "shape", shape)

    @property
    def nbytes(self) -> int:
        """Bytes of data and of the source that is kept."""
        data = 0 if self.data is None else int(self.data.nbytes)
        return data + (0 if self.source is None else self.source.nbytes)

    def __repr__(self) -> str:
        if not all(hasattr(self, name) for name in self.__slots__):
            return f"PreparedOperand({fields_text(self)})  # not valid: fields are missing"
        has_data = self.data is None or hasattr(self.data, "nbytes")
        has_source = self.source is None or isinstance(self.source, BlockScaled)
        why = "" if has_data else "data is no array"
        if has_data and not has_source:
            why = "source is no BlockScaled"
        elif has_data and self.source is not None and self.source.scheme not in schemes:
            why = "source has no scheme of mxkern's"
        if why:
            return f"PreparedOperand({fields_text(self)})  # not valid: {why}"
        lines = [f"PreparedOperand {self.scheme}, shape {self.shape}, {self.nbytes} bytes"]
        if self.data is not None:
            what = _FORMS.get(self.form, "")
            lines.append(f"  {self.form:12}{what}, {int(self.data.nbytes)} bytes")
        if self.source is not None:
            lines.append(f"  {'source':12}codes and scales")
            if self.data is None:
                lines[-1] += " alone"
        else:
            lines.append(f"  {'source':12}not kept: {_WITHOUT_SOURCE.get(self.form, '')}")
        return "\n".join(lines)


Operand = BlockScaled[Array] | PreparedOperand[Array]  # of a product, on its right
