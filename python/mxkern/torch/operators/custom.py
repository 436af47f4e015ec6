# mxkern/torch/operators/custom.py: rounding to formats and schemes of the user's own as operators
# with the derivative of the identity.
from __future__ import annotations

from typing import Any

import torch

from mxkern import functions
from mxkern.torch.operators.checks import check_tensor
from mxkern.torch.operators.definition import define, straight_through
from mxkern.values.keywords import DEFAULTS
from mxkern.values.options import ROUNDINGS, SCALE_RULES
from mxkern.values.scheme import NAMES, Scheme

_ops = torch.ops.mxkern
_ROUNDING = (
    'str rounding="nearest", int random_bits=16, bool subnormals=True, bool saturate={}, '
    "int? seed=None, int offset=0"
)
_CUSTOM = ("random_bits", "subnormals", "saturate", "threshold", "axis")
_ARRAYS = ("scales", "block_amax", "amax", "tensor_scale", "out", "stream")


def _like(x: Any, *_: Any, **__: Any) -> Any:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@define(
    "custom_fake_quantize",
    f"(Tensor x, str scheme, *, {_ROUNDING.format('True')}, str scale_rule='rceil', "
    "float? threshold=None, str? block=None, int axis=-1) -> Tensor",
    _like,
)
def _custom_fake_quantize(x: Any, scheme: str, **options: Any) -> Any:
    return functions.fake_quantize(x, scheme, **options)  # type: ignore[arg-type]


@define("round_to", f"(Tensor x, str format, *, {_ROUNDING.format('False')}) -> Tensor", _like)
def _round_to(x: Any, format: str, **options: Any) -> Any:
    return functions.round_to(x, format, **options)


straight_through("custom_fake_quantize")
straight_through("round_to")


def is_custom(scheme: Any, options: dict[str, Any]) -> bool:
    """Whether fake_quantize is the work of code that knows a scheme at run time."""
    name = scheme.name if isinstance(scheme, Scheme) else scheme
    if not isinstance(name, str):
        return False
    return (
        name not in NAMES
        or any(options.get(key, DEFAULTS[key]) != DEFAULTS[key] for key in _CUSTOM)
        or options.get("rounding", "nearest") not in ROUNDINGS
        or options.get("scale_rule", "rceil") not in SCALE_RULES
    )


def fake_quantize(x: Any, scheme: Any, options: dict[str, Any]) -> Any:
    """mxkern.torch.fake_quantize, where is_custom says so."""
    check_tensor("fake_quantize", "x", x)
    for name in _ARRAYS:
        if options.pop(name, None) is not None:
            raise ValueError(
                f"fake_quantize: {name} is given, and the operator for schemes of your own takes "
                "none; leave it out, or call mxkern.fake_quantize with x.detach()"
            )
    if isinstance(options.get("block"), tuple):
        options["block"] = "x".join(map(str, options["block"]))
    name = scheme.name if isinstance(scheme, Scheme) else scheme
    return _ops.custom_fake_quantize(x, name, **options)


def round_to(x: Any, format: str, **options: Any) -> Any:
    """mxkern.round_to as an operator, with the derivative of the identity. torch.compile takes it;
    without out= and stream=."""
    check_tensor("round_to", "x", x)
    return _ops.round_to(x, format, **options)
