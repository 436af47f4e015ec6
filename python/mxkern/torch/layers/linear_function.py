# mxkern/torch/layers/linear_function.py: a linear layer of a recipe, forward and backward.
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from mxkern.arrays.torch_functions import transforms_active, unwrap_if_dead
from mxkern.ops.linear_forward import linear_forward
from mxkern.torch.operators.compiler import as_dtype
from mxkern.torch.recipes.gathered import (
    TokenShards,
    arrived,
    gathered_columns,
    gathered_rows,
    ready,
    sent,
    summed_shard,
)
from mxkern.torch.recipes.operand_calls import (
    NAMES,
    eager_precision,
    folds_columns,
    functions,
    operand_pair,
    parts_of,
    product,
    quantized,
    ways,
    whole_of,
)
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.recipe import Recipe
from mxkern.values.scheme import schemes


class Facts(NamedTuple):
    """What a layer's call knows beside its tensors."""

    recipe: Recipe
    seed: int
    step: int  # where it is no tensor
    dtype: Any  # of y
    amax_group: Any = None
    cached: tuple[bool, bool] = (False, False)  # rows and columns of the weight that are given
    main_grad: Any = None  # what dW is added to
    differentiable: bool = True  # ctx.needs_input_grad does not know of torch.no_grad
    shards: TokenShards | None = None  # x has a rank's tokens, y and the gradient those of all
    turns: bool = False  # the weight's columns are the transpose of its rows, made in backward
    is_eager: bool = False  # tensors are plain, and nothing observes what happens to them
    is_one_call: bool = False  # so is forward
    weight: tuple[Any, Any] = (None, None)  # eager: its rows and columns that are given


def _plain(a: Any, b: Any, dtype: Any) -> Any:
    """a . b of plain operands, in a's dtype and given in another."""
    return as_dtype(torch.mm(a, b.to(a.dtype)), dtype)


class LinearFunction(torch.autograd.Function):  # type: ignore[misc]  # no types there
    """y [M, N] = x [M, K] . weight [N, K]^T + bias, with the products of a recipe.

    apply(x, weight, bias, step, facts, *cached): step is an int64 tensor or None; cached holds the
    parts of the quantized weight that facts.cached says are there.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Any, weight: Any, bias: Any, step: Any, facts: Facts, *cached: Any
    ) -> Any:
        needs_x, needs_w = ctx.needs_input_grad[:2] if facts.differentiable else (False, False)
        dtypes = x.dtype, weight.dtype, None if bias is None else bias.dtype
        y, saved, folded = _computed(x, weight, bias, step, facts, cached, needs_x, needs_w)
        if step is not None:
            saved.append(step)
        ctx.save_for_backward(*saved)
        ctx.facts, ctx.dtypes, ctx.folded = facts, dtypes, folded
        ctx.others = step is not None, weight.shape[1], len(cached)
        return y

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Any) -> Any:
        facts, recipe, shards = ctx.facts, ctx.facts.recipe, ctx.facts.shards
        needs_x, needs_w, needs_b = ctx.needs_input_grad[:3]
        dgrad, wgrad = ways(recipe, needs_x, needs_w)
        x_dtype, w_dtype, b_dtype = ctx.dtypes
        gradient = ready(gradient).contiguous()  # expanded, as that of a sum: read once
        saved = list(ctx.saved_tensors)
        has_step, features, given = ctx.others
        step = saved.pop() if has_step else facts.step
        tokens, outputs = gradient.shape
        bits = facts.seed, step, facts.amax_group
        if shards is not None and wgrad is not None:  # while G is quantized and dX computed
            count = 3 if schemes[recipe.input.scheme].has_tensor_scale else 2
            own = whole_of(saved[-count:], recipe.input, (features, tokens // shards.ranks))
            on_the_way = sent(own, shards)

        x_folded, w_folded = ctx.folded
        g_rows, g_columns = operand_pair(
            gradient,
            recipe,
            "gradient",
            dgrad == "quantized",
            wgrad == "quantized",
            *bits,
        )
        dx = dw = db = None
        if dgrad == "quantized":
            if facts.turns:
                w_rows = whole_of(saved, recipe.weight, (outputs, features))
                w_columns = functions().transpose_square_blocks(w_rows)
                del w_rows
            elif recipe.save_weight == "columns":
                w_columns = whole_of(saved, recipe.weight, (features, outputs), w_folded)
            else:
                weight = saved.pop(0)
                _, w_columns = quantized(weight, recipe.weight, "weight", False, True, *bits)
            dx = product(g_rows, w_columns, x_dtype, recipe.precision)
            del g_rows, w_columns
        elif dgrad == "dequantized":
            w_rows = whole_of(saved, recipe.weight, (outputs, features))
            decoded = functions().dequantize(w_rows, dtype=gradient.dtype)
            dx = _plain(gradient, decoded, x_dtype)
            del w_rows, decoded
        elif dgrad == "plain":
            dx = _plain(gradient, saved.pop(0), x_dtype)
        if shards is not None and dx is not None:
            dx = summed_shard(dx, shards)  # on its way while dW is computed
        if needs_b:
            db = gradient.sum(0, dtype=torch.float32).to(b_dtype)
        if wgrad == "quantized":
            padded = tokens
            if recipe.input.hadamard is not None:
                padded = tokens + -tokens % recipe.input.hadamard
            if recipe.save == "quantized":
                x_columns = whole_of(saved, recipe.input, (features, padded), x_folded)
                if shards is not None:
                    x_columns = gathered_columns(own, on_the_way, shards)
            else:
                _, x_columns = quantized(saved.pop(0), recipe.input, "input", False, True, *bits)
            if facts.main_grad is not None:
                into = {"out": facts.main_grad, "beta": 1.0}
                product(g_columns, x_columns, facts.main_grad.dtype, recipe.precision, **into)
            else:
                dw = product(g_columns, x_columns, w_dtype, recipe.precision)
        elif wgrad is not None:
            kept = saved.pop(0) if wgrad == "plain" else None
            if kept is None:
                x_rows = whole_of(saved, recipe.input, (tokens, features))
                kept = functions().dequantize(x_rows, dtype=gradient.dtype)
            dw = _plain(gradient.t(), kept, w_dtype)
            if facts.main_grad is not None:
                facts.main_grad.add_(dw)
                dw = None
        if shards is not None and dx is not None:
            dx = arrived(dx)
        return dx, dw, db, None, None, *[None] * given


def _computed(
    x: Any,
    weight: Any,
    bias: Any,
    step: Any,
    facts: Facts,
    cached: tuple[Any, ...],
    needs_x: bool,
    needs_w: bool,
) -> tuple[Any, list[Any], tuple[bool, bool]]:
    """y; what backward takes, in its order: dgrad's operand, then wgrad's; and whether the columns
    of x and of the weight are folded."""
    recipe, shards = facts.recipe, facts.shards
    x_kept, w_kept = recipe.kept[needs_x, needs_w]
    if facts.turns and w_kept is not None:
        w_kept = "rows"
    w_rows, w_columns = facts.weight
    # Zero rows are added where rows fill no group of a transform.
    groups = recipe.input.hadamard if x_kept == "columns" else None
    is_ready = w_rows is None or w_columns is not None or w_kept != "columns"
    if facts.is_one_call and is_ready and (groups is None or x.shape[0] % groups == 0):
        of_rows = weight if w_rows is None else w_rows
        folded = (
            x.is_cuda and folds_columns(x, recipe, "input", x_kept),
            x.is_cuda and w_rows is None and folds_columns(weight, recipe, "weight", w_kept),
        )
        precision = eager_precision(recipe, x)
        y, of_weight, of_x = linear_forward(
            x, of_rows, bias, recipe, NAMES[facts.dtype], precision, x_kept, w_kept, *folded
        )
        if w_rows is not None or w_kept == "itself":
            of_weight = _kept(w_kept, weight, w_rows, w_columns)
        if x_kept == "itself":
            of_x.append(x.detach())
        return y, of_weight + of_x, folded
    x = ready(x)
    forward = recipe.forward == "quantized"
    if not torch.compiler.is_compiling():
        # The bindings read tensors that require grad by a slower way.
        x, weight = x.detach(), weight.detach()
        bias = None if bias is None else bias.detach()
    bits = facts.seed, facts.step if step is None else step, facts.amax_group
    wanted = (forward or x_kept == "rows", x_kept == "columns")
    if shards is None:
        x_rows, x_columns = operand_pair(x, recipe, "input", *wanted, *bits)
    else:
        shared = (*bits[:2], _all_groups(facts.amax_group, shards))
        x_rows, x_columns = quantized(x, recipe.input, "input", *wanted, *shared)
        x_rows = gathered_rows(x_rows, sent(x_rows, shards), shards)
    given = list(cached)
    if facts.cached[0]:
        w_rows = whole_of(given, recipe.weight, tuple(weight.shape))
    if facts.cached[1]:
        w_columns = whole_of(given, recipe.weight, tuple(weight.shape[::-1]))
    made = operand_pair(
        weight,
        recipe,
        "weight",
        w_rows is None and (forward or w_kept == "rows"),
        w_columns is None and w_kept == "columns",
        *bits,
    )
    w_rows = made[0] if w_rows is None else w_rows
    w_columns = made[1] if w_columns is None else w_columns
    saved = _kept(w_kept, weight, w_rows, w_columns) + _kept(x_kept, x, x_rows, x_columns)
    folded = isinstance(x_columns, PreparedOperand), isinstance(w_columns, PreparedOperand)
    if forward:
        return product(x_rows, w_rows, facts.dtype, recipe.precision, bias=bias), saved, folded
    plain = x.to(facts.dtype)
    y = torch.nn.functional.linear(
        plain, weight.to(facts.dtype), None if bias is None else bias.to(facts.dtype)
    )
    return y, saved, folded


def _kept(side: str | None, itself: Any, rows: Any, columns: Any) -> list[Any]:
    """The tensors of a side of an operand."""
    if side is None or side == "itself":
        return [] if side is None else [itself.detach()]
    return parts_of(rows if side == "rows" else columns)


# Without what Function.apply does for torch.func.
_apply = super(torch.autograd.Function, LinearFunction).apply


def apply_linear(x: Any, weight: Any, bias: Any, step: Any, facts: Facts, *cached: Any) -> Any:
    """LinearFunction.apply, or its forward alone where no gradient is wanted."""
    if not facts.is_eager or transforms_active():
        return LinearFunction.apply(x, weight, bias, step, facts, *cached)
    x, weight = unwrap_if_dead(x), unwrap_if_dead(weight)
    bias = None if bias is None else unwrap_if_dead(bias)
    wants = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    if wants and facts.differentiable:
        return _apply(x, weight, bias, step, facts, *cached)
    return _computed(x, weight, bias, step, facts, cached, False, False)[0]


def _all_groups(amax_group: Any, shards: TokenShards) -> Any:
    """Who shares the amax of tokens that are gathered."""
    return shards.group if amax_group is None else (amax_group, shards.group)
