# mxkern/torch/operators/compiler.py: what torch.compile is told, once it is loaded.
"""The import of PyTorch's compiler takes longer than that of all else, and only then can it be told
of functions: it is, when somebody has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from mxkern.arrays.later_frameworks import ImportWatch

_COMPILER = "torch._dynamo"
_Function = TypeVar("_Function", bound=Callable[..., Any])
_to_tell: list[Callable[[], Any]] = []


def _tell() -> None:
    while _to_tell:
        _to_tell.pop(0)()


def _once_loaded(action: Callable[[], Any]) -> None:
    _to_tell.append(action)
    if _COMPILER in sys.modules:
        _tell()


def taken_for(original: Any, **options: Any) -> Callable[[_Function], _Function]:
    """A decorator: the compiler traces the function in the place of another one."""

    def taken(function: _Function) -> _Function:
        substitute = torch.compiler.substitute_in_graph
        _once_loaded(lambda: substitute(original, **options)(function))
        return function

    return taken


def constant(function: _Function) -> _Function:
    """A decorator: the compiler calls the function while it traces, and takes what it gives for a
    constant."""
    _once_loaded(lambda: torch.compiler.assume_constant_result(function))
    return function


ImportWatch([_COMPILER], _tell)


def as_dtype(x: Any, dtype: Any) -> Any:
    """x.to(dtype), which is not called for nothing: a function's result that is converted to its
    own dtype gets gradients of zeros where torch.compile of PyTorch 2.11 traces the function."""
    return x if x.dtype == dtype else x.to(dtype)
