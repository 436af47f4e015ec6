# mxkern/values/operand_options.py: a recipe's operand as arguments of the functions that quantize.
from __future__ import annotations

from typing import Any

from mxkern.scheme import schemes
from mxkern.values.recipe import Operand, Recipe
from mxkern.values.seeds import operand_seed


def is_stochastic(recipe: Recipe) -> bool:
    """Whether results depend on seed and step."""
    operands = (recipe.input, recipe.weight, recipe.gradient)
    return any(operand.rounding == "stochastic" for operand in operands)


def options_of_operand(operand: Operand, name: str, seed: int, offset: Any) -> dict[str, Any]:
    """What quantize takes of an operand beside its transform. name: "input", "weight" or
    "gradient"; seed: the layer's."""
    options: dict[str, Any] = {"block": operand.block}
    if schemes[operand.scheme].has_tensor_scale:
        options["four_over_six"] = operand.four_over_six
    else:
        options["scale_rule"] = operand.scale_rule
    if operand.rounding == "stochastic":
        options |= {"rounding": "stochastic", "seed": operand_seed(seed, name), "offset": offset}
    return options


def transform_of(operand: Operand) -> dict[str, Any]:
    """What quantize_columns and quantize_both take of its transform, which is one of columns."""
    if operand.hadamard is None:
        return {}
    return {"hadamard": operand.hadamard, "sign_mask": operand.sign_mask}
