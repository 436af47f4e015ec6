# mxkern/torch/quantized/tensor.py: QuantizedTensor, a weight that is stored quantized.
"""A tensor of PyTorch whose memory is codes and scales, for frozen weights.

    weight = QuantizedTensor.from_float(linear.weight, "mxfp4")
    linear.weight = torch.nn.Parameter(weight, requires_grad=False)

Operations that keep whole rows work on codes and scales, and products are those of mxkern.gemm. All
others are refused: no operation gives decoded values, except dequantize().
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal, NamedTuple, Self

import torch

from mxkern import functions as eager
from mxkern.arrays.torch_functions import dispatch_modes, transforms_active
from mxkern.torch import operators
from mxkern.torch.operators.checks import check_quantized
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.names import AskedForm, Dtype, ScaleLayout, SchemeName
from mxkern.values.options import dtype_position
from mxkern.values.recipe import Operand
from mxkern.values.scheme import Scheme, scheme_of

_ROWS = ("codes", "scales", "tensor_scale")
PARTS = (*_ROWS, *[f"column_{name}" for name in _ROWS])
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_OF_OPERANDS = ("scale_rule", "block", "four_over_six")
_MOST_FEW = 2048  # rows of a product that reads the form "few_tokens"


class Facts(NamedTuple):
    """What a QuantizedTensor knows beside its parts and its shape.

    operand     how copy_ quantizes
    transposed  whether it stands for the transpose of what is stored
    partial     whether it is a view of some rows, which share their tensor scale with the others
    """

    operand: Operand
    scale_layout: ScaleLayout
    dtype: torch.dtype
    transposed: bool = False
    partial: bool = False


def functions(*tensors: Any) -> Any:
    """mxkern's functions, or its operators, where PyTorch looks on or a tensor has no memory."""
    if torch.compiler.is_compiling() or dispatch_modes() or transforms_active():
        return operators
    plain = all(type(t) in (torch.Tensor, torch.nn.Parameter) and not t.is_meta for t in tensors)
    return eager if plain else operators


def transposed_shape(shape: Any) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2])


# Functions, as torch.compile does not look into methods of a tensor.
def stored_shape(weight: Any) -> tuple[int, ...]:
    """The shape of what is stored, whose transpose weight may stand for."""
    return transposed_shape(weight.shape) if weight.facts.transposed else tuple(weight.shape)


def rows_of(weight: Any) -> BlockScaled:
    """Codes and scales, without a copy."""
    facts = (weight.scheme, stored_shape(weight), weight.scale_layout)
    return BlockScaled(weight.codes, weight.scales, weight.tensor_scale, *facts)


def columns_of(weight: Any) -> BlockScaled | None:
    """Codes and scales with blocks along N, of the shape [..., K, N], or None."""
    if weight.column_codes is None:
        return None
    facts = (weight.scheme, transposed_shape(stored_shape(weight)), weight.scale_layout)
    parts = (weight.column_codes, weight.column_scales, weight.column_tensor_scale)
    return BlockScaled(*parts, *facts)


class QuantizedTensor(torch.Tensor):  # type: ignore[misc]  # no types there
    """A weight [N, K], or weights of experts [E, N, K], as codes and scales. Made by from_float and
    from_quantized, and held by torch.nn.Parameter(weight, requires_grad=False).

    shape, dtype, device  of the tensor that it stands for; `.to(dtype)` changes no codes
    codes, scales         uint8; tensor_scale: float32, or None
    column_codes, ...     blocks along N, as mxkern.quantize_both gives them; None if not kept
    scheme, scale_layout  as a BlockScaled has them
    """

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __new__(cls, parts: Any, shape: Any, facts: Facts) -> Self:
        *batch, n, k = shape
        strides = (*[n * k] * len(batch), *((1, k) if facts.transposed else (k, 1)))
        outward = transposed_shape(shape) if facts.transposed else tuple(shape)
        # A view that is made under inference_mode, of a tensor from outside, is as that one is.
        with torch.inference_mode(parts[0].is_inference()):
            made: Self = torch.Tensor._make_wrapper_subclass(
                cls, outward, strides=strides, dtype=facts.dtype, device=parts[0].device
            )
        return made

    def __init__(self, parts: Any, shape: Any, facts: Facts) -> None:
        for name, part in zip(PARTS, parts, strict=True):
            setattr(self, name, part)
        self.facts = facts
        self.scheme, self.scale_layout = facts.operand.scheme, facts.scale_layout
        self._ready: dict[
            str, Any
        ] = {}  # what is prepared; shared with views, whose copy_ drops it

    @classmethod
    def from_float(
        cls,
        w: torch.Tensor,
        scheme: SchemeName | Scheme | Operand,
        *,
        columns: bool = False,
        **options: Any,
    ) -> Any:
        """Quantizes w, and stands for a tensor of its dtype.

        w        [N, K] or [E, N, K], float32, float16 or bfloat16; also on the meta device
        scheme   a name in mxkern.schemes, or an Operand: what copy_ quantizes with, too
        columns  whether to keep blocks along N too, which the gradient of an input is made with
        options  of mxkern.quantize

        Raises TypeError and ValueError as mxkern.quantize does.
        """
        function = "QuantizedTensor.from_float"
        if not isinstance(w, torch.Tensor):
            raise TypeError(
                f"{function}: w is {errors.described(w)}; expected a torch.Tensor; convert it with "
                "torch.as_tensor(w)"
            )
        errors.flag(function, "columns", columns)
        operand = (
            scheme if isinstance(scheme, Operand) else Operand(scheme_of(function, scheme).name)
        )
        own = {name: options.pop(name) for name in _OF_OPERANDS if name in options}
        operand = operand.with_(**own)
        if operand.rounding != "nearest" or operand.hadamard is not None:
            raise ValueError(
                f"{function}: scheme has rounding {operand.rounding!r} and hadamard "
                f"{operand.hadamard}; expected 'nearest' and None; pass an Operand of these"
            )
        call, w = functions(w), w.detach()
        keywords = operand.options | options
        if not columns:
            return wrapped(call.quantize(w, operand.scheme, **keywords), None, operand, w.dtype)
        rows, across = call.quantize_both(w, operand.scheme, **keywords)
        return wrapped(rows, across, operand, w.dtype)

    @classmethod
    def from_quantized(
        cls, q: BlockScaled, dtype: Dtype = "bfloat16", *, columns: BlockScaled | None = None
    ) -> Any:
        """Wraps what mxkern.quantize or BlockScaled.from_parts returns, without a copy.

        q        [N, K] or [E, N, K], of PyTorch's tensors
        dtype    that it stands for
        columns  what mxkern.quantize_both returns beside q

        copy_ quantizes with q's scheme and the rule "rceil". Raises TypeError and ValueError where
        q and columns do not fit each other.
        """
        function = "QuantizedTensor.from_quantized"
        check_quantized(function, "q", q)
        if columns is not None:
            check_quantized(function, "columns", columns)
            wanted = (q.scheme, transposed_shape(q.shape), q.scale_layout)
            if columns.facts != wanted:
                raise ValueError(
                    f"{function}: columns have {columns.facts}; expected {wanted}; make both with "
                    "mxkern.quantize_both"
                )
        if not isinstance(dtype, torch.dtype):
            dtype = DTYPES[dtype_position(function, dtype)]
        return wrapped(q, columns, Operand(q.scheme), checked_dtype(dtype))

    @property
    def parts(self) -> tuple[Any, ...]:
        """Its tensors, in the order of PARTS, None for what there is not."""
        return tuple([getattr(self, name) for name in PARTS])

    stored_shape = property(stored_shape)
    quantized = property(rows_of)
    columns = property(columns_of)

    def dequantize(self, dtype: Dtype | None = None) -> torch.Tensor:
        """Its values as a plain tensor, in its own dtype unless another one is named."""
        wanted = self.facts.dtype if dtype is None else dtype
        values = functions(self.codes).dequantize(self.quantized, dtype=wanted)
        return values.mT if self.facts.transposed else values

    def prepare(self, form: AskedForm | Literal["auto"] = "auto") -> Self:
        """Keeps mxkern.prepare_operand of it, which eager products read from then on instead of
        codes and scales. Products of few rows on a CUDA device make theirs themselves; on a CPU
        those of up to 48 rows add in another order than without, and than compiled ones. It is
        dropped where codes are written or moved, and is in no file and no copy."""
        ready = eager.prepare_operand(self.quantized, form=form)
        self._ready.update(operand=ready, versions=self._versions())
        return self

    def _versions(self) -> list[int]:
        """What PyTorch counts up where somebody writes to codes and scales."""
        return [0 if p is None or p.is_inference() else p._version for p in self.parts[:3]]

    def operand_for(self, rows: int) -> Any:
        """The right operand of a product with so many rows: codes and scales, or prepared."""
        if self.facts.partial:
            return self.quantized
        if self._ready.get("versions") != self._versions():
            self._ready.clear()
            is_plain = type(self.codes) is torch.Tensor and not dispatch_modes()
            if not (is_plain and self.codes.is_cuda and rows <= _MOST_FEW):
                return self.quantized
            self.prepare("few_tokens")
        ready = self._ready["operand"]
        return self.quantized if ready.form == "few_tokens" and rows > _MOST_FEW else ready

    def mapped(
        self, function: Callable[[Any], Any], shape: Any = None, **changes: Any
    ) -> QuantizedTensor:
        """One of function(part) for each of its parts."""
        parts = [None if part is None else function(part) for part in self.parts]
        shape = self.stored_shape if shape is None else shape
        return QuantizedTensor(parts, shape, self.facts._replace(**changes))

    def viewed(self, *arguments: Any, **changes: Any) -> QuantizedTensor:
        """mapped, where the parts are views."""
        made = self.mapped(*arguments, **changes)
        made._ready = self._ready
        return made

    def __repr__(self, **options: Any) -> str:
        words = [str(self.facts.dtype).removeprefix("torch."), str(self.device)]
        words += ["transposed"] * self.facts.transposed
        words += ["swizzled"] * (self.scale_layout == "swizzled")
        words += ["with columns"] * (self.column_codes is not None)
        size = sum(part.nbytes for part in self.parts if part is not None)
        shape = tuple(self.shape)
        return f"QuantizedTensor({self.scheme}, {shape}, {', '.join(words)}, {size} bytes)"

    def __tensor_flatten__(self) -> tuple[list[str], Facts]:
        return [name for name in PARTS if getattr(self, name) is not None], self.facts

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, facts: Facts, shape: Any, strides: Any) -> Self:
        shape = transposed_shape(shape) if facts.transposed else tuple(shape)
        return cls([inner.get(name) for name in PARTS], shape, facts)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = self.mapped(lambda part: copy.deepcopy(part, memo))
        memo[id(self)] = made = _kept(made, *_kind(self))
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        operand = self.facts.operand
        own = {field.name: getattr(operand, field.name) for field in fields(operand) if field.init}
        facts = (own, *self.facts[1:])
        return unpickled, (self.parts, self.stored_shape, facts, _kind(self))

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (handler := HANDLERS.get(op)) is not None:
            return handler(op, *args, **kwargs or {})
        # Under inference_mode, for example, PyTorch has not taken F.linear apart.
        result = op.decompose(*args, **kwargs or {})
        return refuse(op) if result is NotImplemented else result


def operand_of(weight: Any, rows: int) -> Any:
    """weight.operand_for(rows)"""
    return rows_of(weight) if torch.compiler.is_compiling() else weight.operand_for(rows)


def wrapped(rows: BlockScaled, columns: Any, operand: Operand, dtype: Any) -> QuantizedTensor:
    """A QuantizedTensor of what was quantized. It holds bytes: not all of PyTorch knows how to move
    8-bit floats."""
    if len(rows.shape) not in (2, 3):
        raise ValueError(
            f"QuantizedTensor: shape is {tuple(rows.shape)}; expected [N, K] or [E, N, K]; reshape "
            "what is quantized"
        )
    parts = [
        part if part is None or part.itemsize != 1 else part.view(torch.uint8)
        for part in (*rows.parts, *((None,) * 3 if columns is None else columns.parts))
    ]
    return QuantizedTensor(parts, rows.shape, Facts(operand, rows.scale_layout, dtype))


HANDLERS: dict[Any, Callable[..., Any]] = {}  # by operation: operations.py


def refuse(op: Any, why: str = "it has no form of codes and scales") -> Any:
    # No TypeError, as Tensor.__add__ and the like would make another one of it.
    raise NotImplementedError(
        f"QuantizedTensor: {op} was called, and {why}; call it with weight.dequantize()"
    )


def checked_dtype(dtype: Any) -> Any:
    """A dtype that a QuantizedTensor may stand for."""
    if dtype in DTYPES:
        return dtype
    raise TypeError(
        f"QuantizedTensor: dtype is {dtype}; expected float32, float16 or bfloat16, which codes "
        "and scales stand for; convert weight.dequantize()"
    )


def _kind(tensor: Any) -> tuple[bool, bool]:
    return tensor.requires_grad, getattr(tensor, "_is_param", False)


def _kept(made: Any, requires_grad: bool, is_parameter: bool) -> Any:
    return torch.nn.Parameter(made, requires_grad) if is_parameter else made


def unpickled(parts: Any, shape: Any, facts: Any, kind: Any) -> Any:
    """A QuantizedTensor of what __reduce_ex__ gives."""
    operand, *others = facts
    return _kept(QuantizedTensor(parts, shape, Facts(Operand(**operand), *others)), *kind)


torch.serialization.add_safe_globals([unpickled])
