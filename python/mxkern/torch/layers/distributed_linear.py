# mxkern/torch/layers/distributed_linear.py: a linear layer's function of DTensors.
from __future__ import annotations

import math
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from mxkern.torch.layers.local_linear import check_arguments, local_linear
from mxkern.torch.operators.compiler import constant
from mxkern.torch.recipes.autocast import chosen
from mxkern.torch.recipes.gathered import TokenShards
from mxkern.torch.recipes.random_bits import rank_seed
from mxkern.values import errors
from mxkern.values.recipe import Recipe
from mxkern.values.scheme import schemes


def distributed_linear(
    x: Any, weight: Any, bias: Any, recipe: Recipe | None, *, seed: int = 0, step: Any = None
) -> Any:
    """linear of DTensors on one mesh, recipe being the one that counts. Returns a DTensor.

    On each dimension of the mesh the weight decides: sharded over N, y is too, and x is gathered:
    codes and scales where tokens are sharded into whole blocks, else x itself; sharded over K,
    x is too, and y is a partial sum, to which one rank adds the bias; replicated, y is sharded over
    tokens as x is. Ranks whose weights or tokens differ draw other random bits; replicas draw the
    same ones.

    Raises TypeError where only some of the arguments are DTensors, ValueError for other meshes.
    """
    _check(x, weight, bias)
    if recipe is None or recipe.is_plain:
        return torch.nn.functional.linear(x, weight, bias)
    mesh, last = weight.device_mesh, x.dim() - 1
    targets: list[Any] = []
    differs, sums = [], []
    for of_x, of_weight in zip(x.placements, weight.placements, strict=True):
        # In turn: x, weight, bias and y, then the gradients of x, weight and bias. PyTorch 2.11's
        # compiler does not know the types of placements that are made here, so nothing asks for
        # them.
        at_outputs, at_features = _shards(of_weight, 0), _shards(of_weight, 1)
        at_tokens = not at_outputs and not at_features and _shards_tokens(of_x, last)
        if at_outputs:
            cut = Shard(0)
            row: Any = (Replicate(), cut, cut, Shard(last), Partial(), cut, cut)
        elif at_features:
            cut, whole = (Shard(last), Shard(1)), Replicate()
            row = (*cut, whole, Partial(), *cut, whole)
        elif at_tokens:
            row = (of_x, Replicate(), Replicate(), of_x, of_x, Partial(), Partial())
        else:
            row = (Replicate(),) * 7
        targets.append(row)
        differs.append(at_outputs or at_features or at_tokens)
        sums.append(at_features)
    x_at, weight_at, bias_at, y_at, dx_at, dw_at, db_at = zip(*targets, strict=True)
    at = _quantized_gather(x, x_at, weight_at, recipe)
    if at is not None:
        dim = x.placements[at].dim
        x_at, dx_at = ((*places[:at], Shard(dim), *places[at + 1 :]) for places in (x_at, dx_at))
    local_bias = None
    if bias is not None:
        local_bias = _local(bias, bias_at, db_at)
        if any(sums):
            place = mesh.get_coordinate()
            first = all(place[i] == 0 for i in range(len(sums)) if sums[i])
            local_bias = _OnOneRank.apply(local_bias, first)
    if recipe.is_stochastic:
        seed = rank_seed(seed, _first_alike(mesh, tuple(differs)))
    local_x, local_weight = _local(x, x_at, dx_at), _local(weight, weight_at, dw_at)
    _, amax_group = chosen(recipe)
    options = {"seed": seed, "step": step, "amax_group": amax_group}
    if at is None:
        y = local_linear(local_x, local_weight, local_bias, recipe, **options)
    else:
        tokens = list(local_x.shape[:-1])
        ranks, name = mesh.size(at), mesh.get_group(at).group_name
        shards = TokenShards(name, ranks, math.prod(tokens[:dim]), math.prod(tokens[dim:]))
        rows = local_x.reshape(math.prod(tokens), local_x.shape[-1])
        y = local_linear(rows, local_weight, local_bias, recipe, shards=shards, **options)
        tokens[dim] *= ranks
        y = y.view(*tokens, y.shape[-1])
    shape = torch.Size((*x.shape[:-1], weight.shape[0]))
    strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return DTensor.from_local(y, mesh, y_at, run_check=False, shape=shape, stride=strides)


def _shards(placement: Any, dim: int) -> bool:
    """Whether a placement is Shard(dim), and none of the kinds that only look like it."""
    return type(placement) is Shard and placement.dim == dim


def _shards_tokens(placement: Any, last: int) -> bool:
    return type(placement) is Shard and placement.dim < last


def _local(tensor: Any, placements: Any, gradient: Any) -> Any:
    """This rank's part under other placements; gradient: those of the gradients of parts."""
    if tuple(tensor.placements) != tuple(placements):
        tensor = tensor.redistribute(placements=placements)
    return tensor.to_local(grad_placements=gradient)


def _quantized_gather(x: Any, x_at: Any, weight_at: Any, recipe: Recipe) -> int | None:
    """The mesh dimension over which codes of tokens are gathered, as it shards them for a weight
    sharded over N. None: they are not, if shards are uneven or end inside of blocks, or what is
    saved for wgrad is no quantized shard."""
    last, mesh = x.dim() - 1, x.device_mesh
    if recipe.forward != "quantized" or recipe.input.rounding != "nearest":
        return None
    if not recipe.quantizes_wgrad or recipe.save != "quantized":
        return None
    found = [
        i
        for i, place in enumerate(x.placements)
        if type(place) is Shard and place.dim < last and _shards(weight_at[i], 0)
    ]
    if len(found) != 1 or mesh.size(found[0]) == 1:
        return None
    at, dim = found[0], x.placements[found[0]].dim
    local = list(x.shape)
    for i, place in enumerate((*x_at[:at], Shard(dim), *x_at[at + 1 :])):
        if type(place) is Shard:
            if local[place.dim] % mesh.size(i) or (i != at and place.dim == dim):
                return None
            local[place.dim] //= mesh.size(i)
    run = math.prod(local[dim:-1])
    block = math.lcm(schemes[recipe.input.scheme].block, recipe.input.hadamard or 1)
    return at if run % block == 0 and math.prod(local) > 0 else None


class _OnOneRank(torch.autograd.Function):  # type: ignore[misc]  # no types there
    """The bias of a partial sum: on the first rank, zero on others. Each has the whole gradient."""

    @staticmethod
    def forward(ctx: Any, bias: Any, first: bool) -> Any:
        return bias.clone() if first else torch.zeros_like(bias)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


@constant
def _first_alike(mesh: Any, differs: tuple[bool, ...]) -> int:
    """The first process with the same weight and the same tokens as this one."""
    place = mesh.get_coordinate()
    at = tuple(place[i] if differs[i] else 0 for i in range(mesh.ndim))
    return int(mesh.mesh[at])


def _check(x: Any, weight: Any, bias: Any) -> None:
    mesh = next(t.device_mesh for t in (weight, x) if isinstance(t, DTensor))
    for argument, value in (("x", x), ("weight", weight), ("bias", bias)):
        if value is None and argument == "bias":
            continue
        if not isinstance(value, DTensor):
            kind = "a plain tensor" if isinstance(value, torch.Tensor) else errors.described(value)
            raise TypeError(
                f"linear: {argument} is {kind}, and another argument a DTensor; expected DTensors "
                f"alone; pass DTensor.from_local({argument}, mesh, placements), as "
                "parallelize_module's styles do"
            )
        if value.device_mesh != mesh:
            raise ValueError(
                f"linear: {argument} is on {value.device_mesh} and another argument on {mesh}; "
                "expected one mesh"
            )
    check_arguments(x, weight, bias)
