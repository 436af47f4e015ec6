# mxkern/torch/operators/expert_library.py: the layer of a mixture of experts, and what it consists
# of beside products, as PyTorch's operators.
from __future__ import annotations

from typing import Any

from mxkern import faults
from mxkern import functions as eager
from mxkern.torch.operators.definition import define, plain_shape, torch_dtype
from mxkern.torch.operators.operands import operand_of_kind
from mxkern.torch.operators.product_library import FIELDS, fields_of_operand
from mxkern.values.names import DtypeName
from mxkern.values.scheme import Shape

_SWIGLU = "float alpha=1.0, float? limit=None, float offset=0.0, bool interleaved=False"
_LAYER = ("x", "gate_up", "down")
_OTHERS = ("weights", "gate_up_bias", "down_bias", "gate_up_factors", "down_factors")
_LAYER_SCHEMA = (
    f"({', '.join(map(fields_of_operand, _LAYER))}, Tensor ends, Tensor rows, "
    f"{', '.join(f'Tensor? {name}=None' for name in _OTHERS)}, *, {_SWIGLU}, str? scheme=None, "
    'str scale_rule="rceil", str precision="exact", str? dtype=None) -> Tensor'
)


def _half(shape: Shape) -> Shape:
    if shape[-1] % 2:
        faults.no_gates("swiglu", "x", shape)
    return (*shape[:-1], shape[-1] // 2)


@define(
    "swiglu",
    f"(Tensor x, *, {_SWIGLU}) -> Tensor",
    lambda x, **options: x.new_empty(_half(plain_shape("swiglu", x))),
)
def swiglu(x: Any, **options: Any) -> Any:
    return eager.swiglu(x, **options)


def _traced_combine(
    y: Any, rows: Any, weights: Any, tokens: int, *, dtype: str | None = None
) -> Any:
    shape = plain_shape("combine", y)
    if len(shape) != 2:
        faults.copies_shape("combine", shape)
    kind = y.dtype if dtype is None else torch_dtype("combine", dtype)
    return y.new_empty((tokens, shape[1]), dtype=kind)


@define(
    "combine",
    "(Tensor y, Tensor rows, Tensor? weights, SymInt tokens, *, str? dtype=None) -> Tensor",
    _traced_combine,
)
def combine(y: Any, rows: Any, weights: Any, tokens: int, *, dtype: DtypeName | None = None) -> Any:
    return eager.combine(y, rows, weights, tokens, dtype=dtype)


def split_layer(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of a layer, ends, rows, and the others, which PyTorch leaves out at the end
    where they are None."""
    operands = [
        operand_of_kind("expert_layer", name, *arguments[i * FIELDS : (i + 1) * FIELDS])
        for i, name in enumerate(_LAYER)
    ]
    rest = arguments[len(_LAYER) * FIELDS :]
    return *operands, *rest, *[None] * (2 + len(_OTHERS) - len(rest))


def layer_shape(x: Shape, gate_up: Shape, down: Shape) -> Shape:
    fits = len(x) == 2 and len(gate_up) == 3 and len(down) == 3 and gate_up[2] == x[1]
    if not fits or gate_up[1] % 2 or down[2] != gate_up[1] // 2 or down[0] != gate_up[0]:
        faults.expert_shapes("expert_layer", x, gate_up, down)
    return (x[0], down[1])


def _traced_layer(*arguments: Any, dtype: str | None = None, **options: Any) -> Any:
    x, gate_up, down, *_ = split_layer(arguments)
    shape = layer_shape(tuple(x.shape), tuple(gate_up.shape), tuple(down.shape))
    is_plain = arguments[4] == "plain - -"
    kind = x.dtype if is_plain else torch_dtype("expert_layer", "bfloat16")
    if dtype is not None:
        kind = torch_dtype("expert_layer", dtype)
    return arguments[FIELDS].new_empty(shape, dtype=kind)


@define("expert_layer", _LAYER_SCHEMA, _traced_layer)
def expert_layer(*arguments: Any, **options: Any) -> Any:
    x, gate_up, down, ends, rows, weights, *others = split_layer(arguments)
    names = [name for name in _OTHERS if name != "weights"]
    options |= dict(zip(names, others, strict=True))
    return eager.expert_layer(x, gate_up, down, ends, rows, weights, **options)
