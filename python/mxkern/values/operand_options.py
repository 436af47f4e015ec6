# mxkern/values/operand_options.py: a recipe's operand as arguments of the functions that quantize.
from __future__ import annotations

from typing import Any

from mxkern.values.recipe import Operand
from mxkern.values.seeds import operand_seed


def options_of_operand(operand: Operand, name: str, seed: int, offset: Any) -> dict[str, Any]:
    """What quantize takes of an operand beside its transform. name: "input", "weight" or
    "gradient"; seed: the layer's."""
    if operand.rounding == "nearest":
        return operand.options
    random = {"rounding": operand.rounding, "seed": operand_seed(seed, name), "offset": offset}
    return {**operand.options, **random}


def transform_of(operand: Operand) -> dict[str, Any]:
    """What quantize_columns and quantize_both take of its transform, which is one of columns."""
    if operand.hadamard is None:
        return {}
    return {"hadamard": operand.hadamard, "sign_mask": operand.sign_mask}
