# mxkern/torch/layers/attention.py: attention whose two products multiply quantized operands, an
# emulation.
from __future__ import annotations

from typing import Any

import torch

from mxkern.torch.recipes.checks import check_tensors
from mxkern.torch.recipes.operand_calls import functions
from mxkern.values import errors
from mxkern.values.names import SchemeName
from mxkern.values.recipe import Operand


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    left: SchemeName | Operand = "mxfp8",
    right: SchemeName | Operand = "mxfp8",
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """softmax(scale * Q K^T) V, with both products of quantized operands, without gradients.

    q        [B, H, T, D], float32, float16 or bfloat16
    k, v     [B, G, S, D], where G divides H: each head of k and v serves H / G heads of q
    left     how q and the probabilities are quantized: a scheme's name or an Operand
    right    how k and v are
    causal   token t sees the first t + 1 + S - T of k and v
    scale    1 / sqrt(D) by default

    Returns [B, H, T, D] in q's dtype. All scores are in memory at once, in float32: this shows what
    quantized attention does to a model, and is not fast. Raises TypeError and ValueError.
    """
    check_tensors("attention", q, k=k, v=v)
    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape:
        raise ValueError(
            f"attention: q, k and v have shapes {tuple(q.shape)}, {tuple(k.shape)} and "
            f"{tuple(v.shape)}; expected [B, H, T, D] and [B, G, S, D] twice"
        )
    (batch, heads, tokens, width), (others, groups, seen, own) = q.shape, k.shape
    if (others, own) != (batch, width) or groups == 0 or heads % groups != 0:
        raise ValueError(
            f"attention: k has shape {tuple(k.shape)}; expected [{batch}, G, S, {width}], where G "
            f"divides {heads}"
        )
    lefts, rights = _operand("left", left), _operand("right", right)
    call = functions()
    # The heads of q that share one of k are rows of one matrix.
    shape = (batch, groups, heads // groups * tokens, width)
    rows = call.quantize(q.reshape(shape), lefts.scheme, **lefts.options)
    keys = call.quantize(k, rights.scheme, **rights.options)
    scores = call.gemm(rows, keys, alpha=width**-0.5 if scale is None else scale)
    if causal:
        visible = torch.ones(tokens, seen, dtype=torch.bool, device=q.device).tril(seen - tokens)
        scores = scores.masked_fill(~visible.repeat(heads // groups, 1), -torch.inf)
    weights = call.quantize(scores.softmax(-1), lefts.scheme, **lefts.options)
    values = call.quantize_columns(v, rights.scheme, **rights.options)
    return call.gemm(weights, values, dtype=q.dtype).reshape(q.shape)


def _operand(argument: str, given: Any) -> Operand:
    if isinstance(given, str):
        name: Any = given
        return Operand(name)
    if not isinstance(given, Operand):
        raise TypeError(
            f"attention: {argument} is {errors.described(given)}; expected a scheme's name or an "
            "Operand"
        )
    if given.rounding != "nearest" or given.hadamard is not None:
        raise ValueError(
            f"attention: {argument} is {given}; expected rounding 'nearest' and no hadamard"
        )
    return given
