# mxkern/torch/recipes/gathered.py: collectives on quantized operands: codes and scales travel as
# bytes.
"""Operators of PyTorch's functional collectives, which run eager and under torch.compile alike.

Tokens that are sharded over the ranks of a group are [before, run] on each rank and
[before, ranks, run] together, where run is what lies in one piece.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from mxkern.values.block_scaled import BlockScaled

_ops = torch.ops._c10d_functional


class TokenShards(NamedTuple):
    """Whose tokens a layer gathers: the name of a process group, its ranks, and how tokens lie."""

    group: str
    ranks: int
    before: int
    run: int


def ready(tensor: Any) -> Any:
    """The tensor, as soon as a collective that is under way has filled it."""
    if type(tensor) is torch.Tensor or torch.compiler.is_compiling():
        return tensor
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    return tensor.wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor


def reduced_max(numbers: Any, group: Any) -> Any:
    """The largest of each number over the ranks of a process group, or of the group's name."""
    name = group if isinstance(group, str) else group.group_name
    return _ops.wait_tensor(_ops.all_reduce(numbers, "max", name))


def sent(q: BlockScaled, shards: TokenShards) -> list[Any]:
    """Codes and scales of all ranks, one after the other along the first axis, as uint8 and maybe
    still under way, in one collective. The tensor scale is the same on all ranks."""
    own = [part.contiguous().view(torch.uint8) for part in (q.codes, q.scales)]
    gathered: list[Any] = _ops.all_gather_into_tensor_coalesced(own, shards.ranks, shards.group)
    return gathered


def gathered_rows(q: BlockScaled, parts: list[Any], shards: TokenShards) -> BlockScaled:
    """q [tokens, K] of all ranks, of what `sent` has returned."""
    _, ranks, before, run = shards

    def joined(part: Any) -> Any:
        whole = _ops.wait_tensor(part).view(ranks, before, run, part.shape[1])
        return whole.transpose(0, 1).reshape(part.shape)

    return _of_parts(q, [joined(part) for part in parts], (q.shape[0] * ranks, q.shape[1]))


def gathered_columns(q: BlockScaled, parts: list[Any], shards: TokenShards) -> BlockScaled:
    """q [K, tokens] of all ranks, whose runs are whole blocks, of what `sent` has returned."""
    _, ranks, before, _ = shards

    def joined(part: Any) -> Any:
        features = part.shape[0] // ranks
        whole = _ops.wait_tensor(part).view(ranks, features, before, part.shape[1] // before)
        return whole.permute(1, 2, 0, 3).reshape(features, part.shape[1] * ranks)

    return _of_parts(q, [joined(part) for part in parts], (q.shape[0], q.shape[1] * ranks))


def summed_shard(gradient: Any, shards: TokenShards) -> Any:
    """This rank's tokens of the sum of gradients [tokens of all ranks, K]; maybe still under way:
    wait for it with `arrived`."""
    group, ranks, before, run = shards
    apart = gradient.view(before, ranks, run, gradient.shape[1]).transpose(0, 1)
    return _ops.reduce_scatter_tensor(apart.reshape(gradient.shape), "sum", ranks, group)


def arrived(tensor: Any) -> Any:
    """The result of a collective of this file."""
    return _ops.wait_tensor(tensor)


def _of_parts(q: BlockScaled, parts: list[Any], shape: tuple[int, ...]) -> BlockScaled:
    codes, scales = parts
    codes, scales = codes.view(q.codes.dtype), scales.view(q.scales.dtype)
    return BlockScaled(codes, scales, q.tensor_scale, q.scheme, shape, q.scale_layout)
