# mxkern/torch/operators/keywords.py: keyword arguments that functions under torch.compile do not
# take.
from __future__ import annotations

from inspect import isfunction, signature
from typing import Any

from mxkern import functions as eager

_KEYWORDS = {
    name: frozenset(signature(function).parameters)
    for name, function in vars(eager).items()
    if isfunction(function)
}


def refuse_others(function: str, options: dict[str, Any]) -> None:
    """What mxkern's function has no keyword argument for, or compiled code no use."""
    # A list: PyTorch 2.11 does not compile the difference of a dictionary's keys and a set.
    unknown = [name for name in options if name not in _KEYWORDS[function]]
    if unknown:
        raise TypeError(f"{function}() got an unexpected keyword argument {min(unknown)!r}")
    for name in ("out", "stream"):
        if options.pop(name, None) is not None:
            raise TypeError(
                f"{function}: {name} is given; expected none, as compiled code "
                f"has memory and a stream of its own; leave {name} out"
            )
