# mxkern/torch/operand_calls.py: the operands of a layer's products, one call each.
from __future__ import annotations

from typing import Any

import torch

import mxkern
from mxkern.arrays.torch_functions import dispatch_modes
from mxkern.block_scaled import BlockScaled
from mxkern.scheme import schemes
from mxkern.torch import operators
from mxkern.torch.available import folds
from mxkern.values.recipe import Operand, Recipe
from mxkern.values.seeds import operand_seed

_FOLDS: dict[int, bool] = {}  # by CUDA device


def functions() -> Any:
    """mxkern's functions; as operators where something has to see them: a compiler, and modes as
    selective checkpointing and FlopCounterMode."""
    return operators if torch.compiler.is_compiling() or dispatch_modes() else mxkern


def is_stochastic(recipe: Recipe) -> bool:
    """Whether results depend on seed and step."""
    operands = (recipe.input, recipe.weight, recipe.gradient)
    return any(operand.rounding == "stochastic" for operand in operands)


def ways(recipe: Recipe, needs_x: bool, needs_w: bool) -> tuple[str | None, str | None]:
    """How dX and dW are made: "quantized", "dequantized", "plain", or None where nobody asks."""
    dgrad = "plain" if recipe.dgrad == "plain" else recipe.backward
    wgrad = "plain" if recipe.wgrad == "plain" else recipe.backward
    return dgrad if needs_x else None, wgrad if needs_w else None


def parts_of(q: BlockScaled) -> list[Any]:
    """The tensors of an operand, as they are saved for backward."""
    return [part for part in q.parts if part is not None]


def whole_of(parts: list[Any], operand: Operand, shape: tuple[Any, ...]) -> BlockScaled:
    """A BlockScaled of its parts, which are taken off the front of the list."""
    count = 3 if schemes[operand.scheme].has_tensor_scale else 2
    codes, scales, *rest = parts[:count]
    del parts[:count]
    return BlockScaled(codes, scales, rest[0] if rest else None, operand.scheme, shape, "row_major")


def _options(operand: Operand, name: str, seed: int, step: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"block": operand.block}
    if schemes[operand.scheme].has_tensor_scale:
        options["four_over_six"] = operand.four_over_six
    else:
        options["scale_rule"] = operand.scale_rule
    if operand.rounding == "stochastic":
        options["rounding"] = "stochastic"
        options["seed"] = operand_seed(seed, name)
        options["offset"] = 0 if step is None else step
    return options


def quantized(
    x: Any,
    operand: Operand,
    name: str,
    *,
    rows: bool,
    columns: bool,
    seed: int = 0,
    step: Any = None,
    amax_group: Any = None,
) -> tuple[Any, Any]:
    """x [M, K] as an operand of a recipe: (rows, columns), None for what is not wanted.

    name is "input", "weight" or "gradient"; amax_group a process group that shares NVFP4's amax.
    """
    if not rows and not columns:
        return None, None
    call = functions()
    options = _options(operand, name, seed, step)
    transform = {}
    if columns and operand.hadamard is not None:
        transform = {"hadamard": operand.hadamard, "sign_mask": operand.sign_mask}
    whole = x
    if transform and x.shape[0] % operand.hadamard != 0:
        missing = -x.shape[0] % operand.hadamard
        whole = torch.nn.functional.pad(x, (0, 0, 0, missing))
    if amax_group is not None and schemes[operand.scheme].has_tensor_scale:
        from mxkern.torch.shared_amax import shared_amax

        row_amax, column_amax = shared_amax(
            call, x, whole if columns else None, transform, amax_group
        )
    else:
        row_amax = column_amax = None
    if rows and columns and whole is x:
        if row_amax is not None:
            options["amax"] = (row_amax, column_amax)
        both: tuple[Any, Any] = call.quantize_both(x, operand.scheme, **transform, **options)
        return both
    own = {} if row_amax is None else {"amax": row_amax}
    other = {} if column_amax is None else {"amax": column_amax}
    return (
        call.quantize(x, operand.scheme, **own, **options) if rows else None,
        call.quantize_columns(whole, operand.scheme, **transform, **other, **options)
        if columns
        else None,
    )


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _device_folds(index: int) -> bool:
    """Whether a CUDA device has the folded path: Hopper's FP8 tensor cores."""
    if index not in _FOLDS:
        _FOLDS[index] = torch.cuda.get_device_capability(index) == (9, 0)
    return _FOLDS[index]


def precision_of(recipe_precision: str, left: BlockScaled, right: BlockScaled) -> str:
    """What gemm is asked for: "fast" is folded on Hopper, where both schemes fold, else exact."""
    if recipe_precision != "fast":
        return recipe_precision
    device = right.codes.device
    if device.type != "cuda" or not (folds(left.scheme) and folds(right.scheme)):
        return "auto"
    return "folded" if _device_folds(device.index) else "auto"


def product(left: BlockScaled, right: BlockScaled, dtype: Any, precision: str, **more: Any) -> Any:
    """left [M, K] . right [N, K]^T in dtype, with the precision of a recipe."""
    precision = precision_of(precision, left, right)
    if torch.compiler.is_compiling():
        # Defaults become symbols under dynamic=True, and PyTorch 2.11 fails on them; literals not.
        more = {"alpha": 1.0, "beta": 0.0, **more}
    return functions().gemm(left, right, dtype=dtype, precision=precision, **more)
