# tests/python/pytorch/parallel/ddp_cases.py: replicas whose gradients are rounded stochastically.
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from parallel_cases import World, case, same, sqnr
from torch.nn.parallel import DistributedDataParallel

import mxkern.torch as mxt


@case
def ranks_draw_other_bits(world: World) -> None:
    for recipe in (mxt.nvfp4(), mxt.mxfp4()):
        layers = [
            mxt.Linear(64, 96, device=world.device, dtype=torch.bfloat16, recipe=recipe, seed=3)
            for _ in range(2)
        ]
        with torch.no_grad():
            for layer in layers:
                for i, parameter in enumerate(layer.parameters()):
                    parameter.copy_(world.normal(*parameter.shape, seed=i))
        alone, inside = layers
        ids = [world.device.index] if world.type == "cuda" else None
        replica = DistributedDataParallel(inside, device_ids=ids)
        optimizer = torch.optim.SGD(replica.parameters(), lr=1e-2)
        for step in range(2):
            x, gradient = world.normal(64, 64, seed=5), world.normal(64, 96, seed=6)
            for layer in layers:
                layer.step.set(step)
                layer.zero_grad()
            own = [x.clone().requires_grad_() for _ in range(2)]
            alone(own[0]).backward(gradient)
            replica(own[1]).backward(gradient)
            same(own[0].grad, own[1].grad, "dx is of this rank")
            local: list[Any] = [None] * world.size
            reduced: list[Any] = [None] * world.size
            dist.all_gather_object(local, alone.weight.grad.cpu())
            dist.all_gather_object(reduced, inside.weight.grad.cpu())
            for i in range(1, world.size):
                assert not torch.equal(local[i], local[0]), "the data are the same, the bits not"
                same(reduced[i], reduced[0], "after the sum")
            mean = torch.stack(local).double().mean(0)
            assert sqnr(mean, reduced[0]) > 40
            optimizer.step()
            with torch.no_grad():
                for mine, other in zip(alone.parameters(), inside.parameters(), strict=True):
                    mine.copy_(other)


@case
def a_given_rank_is_for_replicas(world: World) -> None:
    """Ranks that see the same data, as plain layers of a tensor-parallel group, draw the same."""
    layer = mxt.Linear(64, 64, device=world.device, recipe=mxt.nvfp4(), seed=3, rank=7)
    with torch.no_grad():
        layer.weight.copy_(world.normal(64, 64))
    layer(world.normal(32, 64, dtype=torch.float32)).backward(
        world.normal(32, 64, seed=1, dtype=torch.float32)
    )
    ranks: list[Any] = [None] * world.size
    dist.all_gather_object(ranks, layer.weight.grad.cpu())
    for other in ranks:
        same(other, ranks[0])
