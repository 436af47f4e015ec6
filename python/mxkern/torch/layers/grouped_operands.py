# mxkern/torch/layers/grouped_operands.py: the operands of grouped products: groups of tokens,
# filled to whole blocks where blocks run along the tokens, and the weights of experts.
from __future__ import annotations

from typing import Any, NamedTuple

import torch

from mxkern.torch.recipes.operand_calls import functions, precision_of, quantized
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.recipe import Operand, Recipe
from mxkern.values.scheme import schemes
from mxkern.values.seeds import mixed

_GROUPED_MULTIPLE = 32  # of grouped_gemm's ends where groups have columns


class Filled(NamedTuple):
    """Groups of tokens, each filled with rows of zeros to whole blocks. All of it lies on the
    device, and shapes depend on the numbers of tokens and groups alone: nothing waits for ends."""

    token: Any  # [P] of each row
    held: Any  # [P, 1] whether the row holds a token
    ends: Any  # [G] of the filled groups

    def rows_of(self, x: Any) -> Any:
        """x [T, K] as [P, K]. What lies behind the last end is not among it."""
        if x.shape[0] == 0:
            return x.new_zeros((self.token.shape[0], x.shape[1]))
        return torch.where(self.held, x[self.token], x.new_zeros(()))


def filled(ends: Any, tokens: Any, recipe: Recipe) -> Filled:
    """The groups of a recipe's wgrad: no block, and no Hadamard transform, sees two experts."""
    multiple = _GROUPED_MULTIPLE
    for operand in (recipe.input, recipe.gradient):
        multiple = max(multiple, schemes[operand.scheme].block, operand.hadamard or 0)
    groups = ends.shape[0]
    starts = torch.nn.functional.pad(ends, (1, -1))
    extents = (ends - starts + (multiple - 1)) // multiple * multiple
    filled_ends = extents.cumsum(0, dtype=torch.int32)
    places = (tokens + groups * (multiple - 1)) // multiple * multiple
    place = torch.arange(places, dtype=torch.int32, device=ends.device)
    group = torch.searchsorted(filled_ends, place, right=True).clamp(max=groups - 1)
    token = place + (starts - filled_ends + extents)[group]
    held = token < ends[group]
    return Filled(token.clamp(0, max(tokens - 1, 0)), held[:, None], filled_ends)


def token_rows(x: Any, ends: Any, operand: Operand, name: str, **options: Any) -> Any:
    """The rows of x [T, K] as an operand of a recipe."""
    if schemes[operand.scheme].has_tensor_scale:  # the one scale of all tokens that have an expert
        place = torch.arange(x.shape[0], dtype=torch.int32, device=x.device)
        x = torch.where((place < ends[-1])[:, None], x, x.new_zeros(()))
    return quantized(x, operand, name, rows=True, columns=False, **options)[0]


def token_columns(x: Any, groups: Filled, operand: Operand, name: str, **options: Any) -> Any:
    """The columns of x [T, K], filled, as an operand of a recipe: [K, P]."""
    rows = groups.rows_of(x)
    return quantized(rows, operand, name, rows=False, columns=True, **options)[1]


def is_transposed(weight: Any) -> bool:
    """Whether a weight [G, N, K] is a view of one that lies as [G, K, N], as that of gpt-oss."""
    return not weight.is_contiguous() and weight.mT.is_contiguous()


def quantized_weights(
    weight: Any, operand: Operand, *, rows: bool, columns: bool, seed: int, step: Any
) -> tuple[Any, Any]:
    """weight [G, N, K] as an operand of a recipe: (rows [G, N, K], columns [G, K, N]), None for
    what is not wanted. Schemes with a tensor scale have one for each matrix, [G]."""
    if is_transposed(weight):
        ways = {"rows": columns, "columns": rows}
        turned = quantized_weights(weight.mT, operand, **ways, seed=seed, step=step)
        return turned[1], turned[0]
    ways = {"rows": rows, "columns": columns}
    if not schemes[operand.scheme].has_tensor_scale or not (rows or columns):
        return quantized(weight, operand, "weight", **ways, seed=seed, step=step)
    each = [
        quantized(one, operand, "weight", **ways, seed=mixed(seed, g), step=step)
        for g, one in enumerate(weight.unbind(0))
    ]
    return _stacked([one for one, _ in each]), _stacked([other for _, other in each])


def _stacked(matrices: list[Any]) -> Any:
    first = matrices[0]
    if first is None:
        return None
    codes, scales, tensor_scales = (
        torch.stack(parts) for parts in zip(*(q.parts for q in matrices), strict=True)
    )
    shape = (len(matrices), *first.shape)
    return BlockScaled(codes, scales, tensor_scales, first.scheme, shape, first.scale_layout)


def _without_scales(q: BlockScaled) -> BlockScaled:
    """Matrices whose tensor scales are applied elsewhere."""
    one = torch.ones((), dtype=torch.float32, device=q.codes.device)
    return BlockScaled(q.codes, q.scales, one, q.scheme, q.shape, q.scale_layout)


def _scales_of(q: BlockScaled) -> Any:
    scale = q.tensor_scale
    return scale if scale is not None and scale.dim() == 1 else None


def decoded_weights(q: BlockScaled, dtype: Any) -> Any:
    """quantized_weights decoded, in a dtype."""
    if (scales := _scales_of(q)) is None:
        return functions().dequantize(q, dtype=dtype)
    plain = functions().dequantize(_without_scales(q), dtype="float32")
    return (plain * scales[:, None, None]).to(dtype)


def grouped_product(
    pair: tuple[BlockScaled, BlockScaled], ends: Any, dtype: Any, precision: str, **more: Any
) -> Any:
    """grouped_gemm of a pair with the precision of a recipe; "auto" is exact, as nothing looks
    whether scales lie close together."""
    left, right = pair
    precision = precision_of(precision, left, right)
    precision = "exact" if precision == "auto" else precision
    if (scales := _scales_of(right)) is not None:
        right, more = _without_scales(right), {**more, "factors": scales}
    if torch.compiler.is_compiling():  # defaults become symbols, on which PyTorch 2.11 fails
        more = {"alpha": 1.0, "beta": 0.0, **more}
    call = functions().grouped_gemm
    return call(left, right, ends, dtype=dtype, precision=precision, **more)
