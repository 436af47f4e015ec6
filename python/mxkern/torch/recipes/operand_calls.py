# mxkern/torch/recipes/operand_calls.py: the operands of a layer's products, one call each.
from __future__ import annotations

from typing import Any

import torch

from mxkern import functions as eager
from mxkern.arrays.torch_functions import dispatch_modes
from mxkern.torch import operators
from mxkern.torch.operators.compiler import constant
from mxkern.torch.recipes.available import folds
from mxkern.torch.recipes.shared_amax import shared_amax
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.operand_options import options_of_operand, transform_of
from mxkern.values.options import DTYPES
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.recipe import Operand, Recipe
from mxkern.values.scheme import schemes

_FOLDS: dict[int, bool] = {}  # by CUDA device
_precisions: dict[tuple[Any, ...], str] = {}
_may_folds: dict[tuple[int, int], tuple[Recipe, Operand, bool]] = {}  # by their addresses
# Names are read faster than PyTorch's objects.
NAMES = {getattr(torch, name): name for name in DTYPES}


def functions() -> Any:
    """mxkern's functions; as operators where something has to see them: a compiler, and modes as
    selective checkpointing and FlopCounterMode."""
    return operators if torch.compiler.is_compiling() or dispatch_modes() else eager


def ways(recipe: Recipe, needs_x: bool, needs_w: bool) -> tuple[str | None, str | None]:
    """How dX and dW are made: "quantized", "dequantized", "plain", or None where nobody asks."""
    dgrad = "plain" if recipe.dgrad == "plain" else recipe.backward
    wgrad = "plain" if recipe.wgrad == "plain" else recipe.backward
    return dgrad if needs_x else None, wgrad if needs_w else None


def parts_of(q: BlockScaled | PreparedOperand) -> list[Any]:
    """The tensors of an operand, as they are saved for backward."""
    if isinstance(q, PreparedOperand):
        return [q.data]
    return [part for part in q.parts if part is not None]


def whole_of(
    parts: list[Any], operand: Operand, shape: tuple[Any, ...], folded: bool = False
) -> Any:
    """An operand of its parts, which are taken off the front of the list."""
    if folded:
        return PreparedOperand("folded", parts.pop(0), None, operand.scheme, shape)
    count = 3 if schemes[operand.scheme].has_tensor_scale else 2
    codes, scales, *rest = parts[:count]
    del parts[:count]
    return BlockScaled(codes, scales, rest[0] if rest else None, operand.scheme, shape, "row_major")


def quantized(
    x: Any,
    operand: Operand,
    name: str,
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
    options = options_of_operand(operand, name, seed, 0 if step is None else step)
    transform = transform_of(operand) if columns else {}
    whole = x
    if transform and (missing := -x.shape[0] % operand.hadamard):
        whole = torch.nn.functional.pad(x, (0, 0, 0, missing))
    amaxes: tuple[Any, Any] = (None, None)
    if amax_group is not None and schemes[operand.scheme].has_tensor_scale:
        seen = whole if columns else None
        amaxes = shared_amax(call, x, seen, transform, amax_group)
    if rows and columns and whole is x:
        amax = None if amaxes[0] is None else amaxes
        both: tuple[Any, Any] = call.quantize_both(
            x, operand.scheme, amax=amax, **transform, **options
        )
        return both
    row_side = call.quantize(x, operand.scheme, amax=amaxes[0], **options) if rows else None
    if not columns:
        return row_side, None
    return row_side, call.quantize_columns(
        whole, operand.scheme, amax=amaxes[1], **transform, **options
    )


def operand_pair(
    x: Any, recipe: Recipe, name: str, rows: bool, columns: bool, *bits: Any
) -> tuple[Any, Any]:
    """quantized, for products alone: where these are folded, and so are both results already.

    bits  seed, step and amax_group
    """
    operand = getattr(recipe, name)
    if rows and columns and prepares_both(x, recipe, operand):
        both = functions().prepare_both(x, operand.scheme, scale_rule=operand.scale_rule)
        return both.rows, both.columns
    return quantized(x, operand, name, rows, columns, *bits)


def prepares_both(x: Any, recipe: Recipe, operand: Operand) -> bool:
    """Whether all products of a recipe are folded, and both directions of x can be in one call that
    is faster than quantizing them: 16-bit elements in MXFP8 E4M3."""
    if x.device.type != "cuda" or x.dtype == torch.float32 or x.numel() == 0:
        return False
    if torch.compiler.is_compiling():
        return _may_fold(recipe, operand) and _device_folds(x.device.index)
    found = _may_folds.get((id(recipe), id(operand)))
    if found is None or found[0] is not recipe or found[1] is not operand:
        if len(_may_folds) >= 256:
            _may_folds.clear()
        found = recipe, operand, _may_fold(recipe, operand)
        _may_folds[id(recipe), id(operand)] = found
    return found[2] and _device_folds(x.device.index)


def _may_fold(recipe: Recipe, operand: Operand) -> bool:
    plain = operand.block is None and operand.hadamard is None and operand.rounding == "nearest"
    if not plain or recipe.precision not in ("fast", "folded"):
        return False
    if not (folds(operand.scheme) and schemes[operand.scheme].format == "e4m3"):
        return False
    return all(folds(other.scheme) for other in (recipe.input, recipe.weight, recipe.gradient))


def folds_columns(x: Any, recipe: Recipe, name: str, kept: str | None) -> bool:
    """Whether the columns of an operand that backward takes are folded ones."""
    return kept == "columns" and prepares_both(x, recipe, getattr(recipe, name))


@constant
def _device_folds(index: int) -> bool:
    """Whether a CUDA device has the folded path: Hopper's FP8 tensor cores."""
    if index not in _FOLDS:
        _FOLDS[index] = torch.cuda.get_device_capability(index) == (9, 0)
    return _FOLDS[index]


def precision_on(device: Any, recipe_precision: str, left: str, right: str) -> str:
    """What gemm is asked for: "fast" is folded on Hopper, where both schemes fold, else exact."""
    if recipe_precision != "fast":
        return recipe_precision
    if device.type != "cuda" or not (folds(left) and folds(right)):
        return "auto"
    return "folded" if _device_folds(device.index) else "auto"


def eager_precision(recipe: Recipe, x: Any) -> str:
    """precision_on of the product of a recipe's forward, where no compiler looks."""
    key = (x.get_device(), recipe.precision, recipe.input.scheme, recipe.weight.scheme)
    found = _precisions.get(key)
    if found is None:
        found = _precisions[key] = precision_on(x.device, *key[1:])
    return found


def precision_of(recipe_precision: str, left: Any, right: Any) -> str:
    """precision_on of two operands."""
    codes: Any = right.codes if isinstance(right, BlockScaled) else right.data
    return precision_on(codes.device, recipe_precision, left.scheme, right.scheme)


def product(left: Any, right: Any, dtype: Any, precision: str, **more: Any) -> Any:
    """left [M, K] . right [N, K]^T in dtype, with the precision of a recipe."""
    precision = precision_of(precision, left, right)
    dtype = NAMES[dtype]
    if torch.compiler.is_compiling():
        # Defaults become symbols under dynamic=True, and PyTorch 2.11 fails on them; literals not.
        more = {"alpha": 1.0, "beta": 0.0, **more}
    return functions().gemm(left, right, dtype=dtype, precision=precision, **more)
