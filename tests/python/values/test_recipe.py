# tests/python/values/test_recipe.py: recipes are values, and refuse what makes no sense.
from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from mxkern.values.recipe import Operand, Recipe, mx, mxfp4, mxfp8, nvfp4

RECIPES = [mxfp8(), mxfp8("hybrid"), mxfp8(weight_block="32x32"), nvfp4(), mxfp4(), mx("mxint8")]


def test_values() -> None:
    assert len(set(RECIPES)) == len(RECIPES) == len({str(recipe) for recipe in RECIPES})
    for recipe in RECIPES:
        assert recipe == copy.deepcopy(recipe) == pickle.loads(pickle.dumps(recipe))
        assert eval(repr(recipe)) == recipe
        with pytest.raises(AttributeError):
            recipe.forward = "plain"  # type: ignore[misc]
    assert mxfp8().with_(forward="plain") == mxfp8(forward="plain") != mxfp8()
    assert mxfp8(weight_block=(32, 32)) == mxfp8(weight_block="32x32")


def test_what_transformer_engine_does() -> None:
    recipe = nvfp4()
    assert (recipe.input.hadamard, recipe.input.rounding) == (16, "nearest")
    assert (recipe.gradient.hadamard, recipe.gradient.rounding) == (16, "stochastic")
    assert (recipe.weight.hadamard, recipe.weight.block) == (None, "16x16")


REFUSED: dict[str, tuple[type[Exception], Callable[[], Any], str]] = {
    "a format": (ValueError, lambda: mxfp8("e4m4"), "format is 'e4m4'.*did you mean 'e4m3'"),
    "a scheme": (ValueError, lambda: Operand("mxfp9"), "scheme is 'mxfp9'"),
    "a rule": (ValueError, lambda: mxfp8(scale_rule="flor"), "did you mean 'floor'"),
    "nvfp4's rule": (
        ValueError,
        lambda: Operand("nvfp4", "floor"),
        "one rule of its own",
    ),
    "nvfp4 as mx": (ValueError, lambda: mx("nvfp4"), r"call nvfp4\(\)"),
    "a block": (ValueError, lambda: mxfp8(weight_block="16x16"), "block is"),
    "a size": (ValueError, lambda: mxfp4(hadamard=24), "hadamard"),
    "a switch": (ValueError, lambda: mxfp8(forward="off"), "forward is 'off'"),
    "a field": (ValueError, lambda: mxfp8().with_(froward="plain"), "did you mean 'forward'"),
    "a name": (TypeError, lambda: Recipe("mxfp8", Operand("mxfp8"), Operand("mxfp8")), "Operand"),
    "one side": (
        ValueError,
        lambda: nvfp4().with_(input=Operand("nvfp4")),
        "gradient.hadamard is 16.*wgrad='plain'",
    ),
    "a weight's transform": (
        ValueError,
        lambda: mxfp4().with_(weight=Operand("mxfp4", hadamard=32)),
        "weight.hadamard is 32",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    error, call, text = REFUSED[name]
    with pytest.raises(error, match=text):
        call()


def test_one_side_of_a_plain_wgrad() -> None:
    assert nvfp4(wgrad="plain").with_(input=Operand("nvfp4")).input.hadamard is None
