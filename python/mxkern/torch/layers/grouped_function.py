# mxkern/torch/layers/grouped_function.py: the linear layers of experts, forward and backward.
from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from mxkern.torch.layers.grouped_operands import (
    decoded_weights,
    filled,
    grouped_product,
    is_transposed,
    quantized_weights,
    token_columns,
    token_rows,
)
from mxkern.torch.layers.grouped_plain import group_sums, plain_columns, plain_rows
from mxkern.torch.layers.linear_function import Facts
from mxkern.torch.recipes.operand_calls import functions, parts_of, ways, whole_of


class GroupedFunction(torch.autograd.Function):  # type: ignore[misc]  # no types there
    """y [T, N]: x [T, K] . weight[g]^T + bias[g] for the rows of each group g, with the products of
    a recipe.

    apply(x, weight, ends, bias, step, facts): LinearFunction's arguments, and ends [G].
    """

    @staticmethod
    def forward(
        ctx: Any, x: Any, weight: Any, ends: Any, bias: Any, step: Any, facts: Facts
    ) -> Any:
        recipe = facts.recipe
        needs_x, needs_w = ctx.needs_input_grad[:2] if facts.differentiable else (False, False)
        dgrad, wgrad = ways(recipe, needs_x, needs_w)
        forward = recipe.forward == "quantized"
        ctx.dtypes = x.dtype, weight.dtype, None if bias is None else bias.dtype
        if not torch.compiler.is_compiling():  # what asks for a gradient is read slowly
            x, weight = x.detach(), weight.detach()
            bias = None if bias is None else bias.detach()
        random = {"seed": facts.seed, "step": facts.step if step is None else step}
        options = {**random, "amax_group": facts.amax_group}
        x_rows: Any = None
        w_rows: Any = None
        w_columns: Any = None
        if forward or wgrad == "dequantized":
            x_rows = token_rows(x, ends, recipe.input, "input", **options)
        keeps_columns = dgrad == "quantized" and recipe.save_weight == "columns"
        if forward or dgrad is not None:
            w_rows, w_columns = quantized_weights(
                weight,
                recipe.weight,
                rows=forward or dgrad == "dequantized",
                columns=keeps_columns,
                **random,
            )
        # backward takes these off in order: dgrad's operand, then wgrad's.
        saved: list[Any] = []
        if dgrad == "dequantized":
            saved += parts_of(w_rows)
        elif keeps_columns:
            saved += parts_of(w_columns)
        elif dgrad is not None:
            saved.append(weight)
        if wgrad == "dequantized":
            saved += parts_of(x_rows)
        elif wgrad == "quantized" and recipe.save == "quantized":
            groups = filled(ends, x.shape[0], recipe)
            saved += parts_of(token_columns(x, groups, recipe.input, "input", **options))
        elif wgrad is not None:
            saved.append(x)
        ctx.has_step = step is not None
        ctx.save_for_backward(*saved, ends, *([step] if ctx.has_step else []))
        ctx.facts = facts
        ctx.shape = weight.shape
        ctx.transposed = is_transposed(weight)
        if forward:
            return grouped_product((x_rows, w_rows), ends, facts.dtype, recipe.precision, bias=bias)
        return plain_rows(x.to(facts.dtype), weight, ends, facts.dtype, bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Any) -> Any:
        facts, recipe = ctx.facts, ctx.facts.recipe
        needs_bias = ctx.needs_input_grad[3]
        dgrad, wgrad = ways(recipe, *ctx.needs_input_grad[:2])
        x_dtype, w_dtype, b_dtype = ctx.dtypes
        gradient = gradient.contiguous()  # expanded, as that of a sum: read once
        saved = list(ctx.saved_tensors)
        step = saved.pop() if ctx.has_step else facts.step
        ends = saved.pop()
        groups, outputs, features = ctx.shape
        random = {"seed": facts.seed, "step": step}
        options = {**random, "amax_group": facts.amax_group}

        dx = dw = db = None
        if dgrad == "quantized":
            g_rows = token_rows(gradient, ends, recipe.gradient, "gradient", **options)
            if recipe.save_weight == "columns":
                w_columns = whole_of(saved, recipe.weight, (groups, features, outputs))
            else:
                _, w_columns = quantized_weights(
                    saved.pop(0), recipe.weight, rows=False, columns=True, **random
                )
            dx = grouped_product((g_rows, w_columns), ends, x_dtype, recipe.precision)
            del g_rows, w_columns
        elif dgrad == "dequantized":
            w_rows = whole_of(saved, recipe.weight, (groups, outputs, features))
            weight = decoded_weights(w_rows, gradient.dtype)
            dx = plain_rows(gradient, weight.mT, ends, x_dtype)
            del w_rows, weight
        elif dgrad == "plain":
            dx = plain_rows(gradient, saved.pop(0).mT, ends, x_dtype)
        if needs_bias:
            db = group_sums(gradient, ends).to(b_dtype)
        if wgrad == "quantized":
            places = filled(ends, gradient.shape[0], recipe)
            if recipe.save == "quantized":
                shape = (features, places.token.shape[0])
                x_columns = whole_of(saved, recipe.input, shape)
            else:
                x_columns = token_columns(saved.pop(0), places, recipe.input, "input", **options)
            g_columns = token_columns(gradient, places, recipe.gradient, "gradient", **options)
            pair = (x_columns, g_columns) if ctx.transposed else (g_columns, x_columns)
            if facts.main_grad is not None:
                into: Any = facts.main_grad
                more = {"out": into, "beta": 1.0}
                grouped_product(pair, places.ends, into.dtype, recipe.precision, **more)
            else:
                dw = grouped_product(pair, places.ends, w_dtype, recipe.precision)
        elif wgrad is not None:
            if wgrad == "plain":
                kept = saved.pop(0).to(gradient.dtype)
            else:
                x_rows = whole_of(saved, recipe.input, (gradient.shape[0], features))
                kept = functions().dequantize(x_rows, dtype=gradient.dtype)
            left, right = (kept, gradient) if ctx.transposed else (gradient, kept)
            dw = plain_columns(left, right, ends, w_dtype)
            if facts.main_grad is not None:
                facts.main_grad.add_(dw)
                dw = None
        if dw is not None and ctx.transposed:
            dw = dw.mT
        return dx, dw, None, db, None, None
