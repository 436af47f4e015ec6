# tests/python/checkpoints/interrupted.py: a little model whose conversion is disturbed at one of
# its weights.
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxkern
from mxkern.checkpoints.convert import convert_checkpoint

CONFIG = {"model_type": "llama", "torch_dtype": "bfloat16"}
JOURNAL = "mxkern-convert.json"
FILES = 4  # with two weights each


def weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    names = [
        f"model.layers.{i}.mlp.{name}_proj.weight" for i in range(4) for name in ("up", "down")
    ]
    return {name: generator.standard_normal((32, 64), np.float32) for name in names}


WEIGHTS = weights()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def at_call(patch: pytest.MonkeyPatch, call: int, act: Callable[[], None]) -> list[Any]:
    """Has something happen when that weight is quantized; returns a list of all calls to come."""
    quantize, calls = mxkern.quantize, []

    def acting(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == call:
            act()
        return quantize(*arguments, **options)

    patch.setattr(mxkern.functions, "quantize", acting)
    return calls


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def interrupt(source: str, target: Path | str, call: int = 6, scheme: str = "mxfp4") -> None:
    """A conversion that ends while the file of that weight is written."""
    with pytest.MonkeyPatch.context() as patch:
        at_call(patch, call, raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            convert_checkpoint(source, target, scheme)
