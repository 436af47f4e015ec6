# tests/python/pytorch/parallel/fsdp_cases.py: fully sharded layers, gathered in 16 bits and
# quantized.
from __future__ import annotations

import functools
import gc
import shutil
import tempfile
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from parallel_cases import Wire, World, case, case_of_four, refused, same, slow_case
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint as checkpointed

import mxkern.torch as mxt
from mxkern.torch.layers.gathered_weight import GatheredWeight
from mxkern.torch.parallel.sharded_weight import ShardedWeight, shard_quantized
from mxkern.torch.parallel.tensor_parallel import QuantizedColwiseParallel

SQUARE = {
    "mxfp8": mxt.mxfp8(weight_block="32x32"),
    "nvfp4": mxt.nvfp4(),
    "mxfp4": mxt.mxfp4(weight_block="32x32"),
    "e3m2": mxt.mx("mxfp6_e3m2").with_(weight=mxt.Operand("mxfp6_e3m2", block="32x32")),
    "qat": mxt.mxfp8(weight_block="32x32", backward="dequantized"),
}
OTHERS = {"mxfp8": mxt.mxfp8(), "nvfp4": mxt.nvfp4(), "mxfp4": mxt.mxfp4(save_weight="requantize")}


def model_of(
    world: World,
    recipe: Any,
    width: int = 128,
    inner: int = 0,
    bias: bool = True,
    dtype: Any = None,
) -> Any:
    """Two blocks of two layers, with the same values on all ranks."""
    inner = inner or 2 * width
    dtype = dtype or torch.bfloat16
    blocks = [
        torch.nn.Sequential(
            mxt.Linear(width, inner, bias, recipe=recipe, seed=4 * i),
            torch.nn.GELU(),
            mxt.Linear(inner, width, bias, recipe=recipe, seed=4 * i + 1),
        )
        for i in range(2)
    ]
    model = torch.nn.Sequential(*blocks).to(world.device, dtype)
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.copy_(world.normal(*parameter.shape, seed=i, dtype=dtype) * 0.1)
    return model


def sharded(model: Any, quantized: bool = False, **options: Any) -> Any:
    if quantized:
        shard_quantized(model)
    for block in model:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def trained(
    world: World, model: Any, optimizer: Any, steps: int = 3, start: int = 0, clip: bool = True
) -> list[float]:
    """The losses of this rank, whose data are its own."""
    width = model[0][0].in_features
    losses = []
    for step in range(start, start + steps):
        for module in model.modules():
            if isinstance(module, mxt.Linear):
                module.step.set(step)
        x = world.normal(32, width, seed=100 * step + world.rank)
        loss = (model(x).float() - x.float()).square().mean()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def adam(model: Any, **options: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, **options)


def whole(model: Any) -> dict[str, Any]:
    return {
        name: p.full_tensor() if isinstance(p, DTensor) else p
        for name, p in model.state_dict().items()
    }


class Replicated(torch.nn.Module):
    """A model whose gradients are averaged over ranks."""

    def __init__(self, model: Any, world: World) -> None:
        super().__init__()
        self.model = model
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self._average)
        self.ranks = world.size

    def _average(self, parameter: Any) -> None:
        dist.all_reduce(parameter.grad)
        parameter.grad /= self.ranks

    def __getitem__(self, i: int) -> Any:
        return self.model[i]

    def forward(self, x: Any) -> Any:
        return self.model(x)


@case
def sharded_trains_as_replicated(world: World) -> None:
    for name, recipe in OTHERS.items():
        for inner in (256, 33):  # 33: uneven shards
            plain = Replicated(model_of(world, recipe, inner=inner), world)
            want = trained(world, plain, adam(plain), clip=False)
            model = sharded(model_of(world, recipe, inner=inner))
            got = trained(world, model, adam(model), clip=False)
            if world.size <= 2 and world.type == "cpu":
                assert want == got, (name, inner, want, got)
            # Sums of more ranks add up in another order.
            for left, right in zip(want, got, strict=True):
                assert abs(left - right) < 0.02 * left, (name, inner, want, got)


@case
def quantized_gather_is_the_default(world: World) -> None:
    for name, recipe in SQUARE.items():
        results = []
        for quantized in (False, True):
            model = sharded(model_of(world, recipe), quantized)
            if quantized:
                local = model[0][0].weight._local_tensor
                assert type(local) is ShardedWeight
            foreach = {"foreach": True} if name == "mxfp8" else {"fused": True}
            results.append((trained(world, model, adam(model, **foreach)), whole(model)))
        assert results[0][0] == results[1][0], (name, results[0][0], results[1][0])
        for key, value in results[0][1].items():
            same(value, results[1][1][key], f"{name} {key}")


@case
def gathered_bytes(world: World) -> None:
    for name, recipe, share in (
        ("mxfp8", SQUARE["mxfp8"], (1 + 1 / 32) / 2),
        ("nvfp4", SQUARE["nvfp4"], (1 / 2 + 1 / 16) / 2),
    ):
        sent = []
        for quantized in (False, True):
            model = sharded(model_of(world, recipe, bias=False), quantized)
            x = world.normal(32, 128)
            model(x).sum().backward()  # the first one sets up
            with Wire() as wire:
                model(x).sum().backward()
            sent.append(wire.bytes)
        # Forward gathers each block, and backward each again, but the last one that is still there.
        weights = 2 * 2 * 128 * 256 * 2 / world.size
        assert sent[0] in (2 * weights, 1.5 * weights), (name, sent, weights)
        assert sent[1] == share * sent[0], (name, sent, share)


@case
def mixed_precision_and_offload(world: World) -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    offload = CPUOffloadPolicy(pin_memory=world.type == "cuda")
    for options in ({"mp_policy": policy}, {"mp_policy": policy, "offload_policy": offload}):
        results = []
        for quantized in (False, True):
            made = model_of(world, SQUARE["nvfp4"], dtype=torch.float32)
            model = sharded(made, quantized, **options)
            results.append(trained(world, model, adam(model)))
        assert results[0] == results[1], (options, results)


@case
def recomputed_blocks_are_the_same(world: World) -> None:
    for quantized in (False, True):
        results = []
        for recomputed in (False, True):
            model = model_of(world, SQUARE["nvfp4"])
            for block in model if recomputed else ():
                block.forward = functools.partial(checkpointed, block.forward, use_reentrant=False)
            sharded(model, quantized)
            results.append(trained(world, model, adam(model)))
        assert results[0] == results[1], (quantized, results)


@case
def cached_weights_hear_of_steps(world: World) -> None:
    results = []
    for cached in (False, True):
        model = model_of(world, mxt.mxfp8())
        caches = [mxt.WeightCache() for _ in range(4)] if cached else []
        for layer, cache in zip((b[i] for b in model for i in (0, 2)), caches, strict=False):
            layer.cache = cache
        sharded(model)
        results.append(trained(world, model, adam(model)))
        # The gathered weight may come to lie where it lay before, and its version stays.
        assert all(cache._seen == () and cache._made for cache in caches)
    assert results[0] == results[1]


@case
def meta_models_get_memory(world: World) -> None:
    results = []
    for on_meta in (False, True):
        model = model_of(world, SQUARE["mxfp8"])
        model = sharded(model.to("meta") if on_meta else model, quantized=True)
        if on_meta:
            model.to_empty(device=world.device)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(0.01)
        with Wire() as wire:
            results.append((trained(world, model, adam(model)), wire.bytes))
    assert results[0] == results[1], results


@case
def one_rank_is_no_sharding(world: World) -> None:
    mesh = world.mesh(world.size, 1, names=("data", "shard"))["shard"]
    for quantized in (False, True):
        plain = model_of(world, SQUARE["mxfp8"])
        want = trained(world, plain, adam(plain))
        model = sharded(model_of(world, SQUARE["mxfp8"]), quantized, mesh=mesh)
        got = trained(world, model, adam(model))
        assert want == got, (quantized, want, got)


@case
def memory_does_not_grow(world: World) -> None:
    model = sharded(model_of(world, SQUARE["mxfp8"]), quantized=True)
    optimizer, live = adam(model), []
    for step in range(5):
        trained(world, model, optimizer, 1, step)
        gc.collect()
        held = {}
        for thing in gc.get_objects():
            if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.device == world.device:
                storage = thing.untyped_storage()
                held[storage._cdata] = storage.nbytes()
            elif type(thing) is GatheredWeight:
                assert thing.codes.untyped_storage().nbytes() == 0, "kept after its use"
        live.append(sum(held.values()))
    assert max(live[1:]) - min(live[1:]) < 100, live  # counters of steps
    assert any(type(thing) is GatheredWeight for thing in gc.get_objects())


@case
def checkpoints_are_plain(world: World) -> None:
    made: list[Any] = [tempfile.mkdtemp() if world.rank == 0 else None]
    dist.broadcast_object_list(made)
    folder = made[0]
    recipe = SQUARE["mxfp8"]
    first = sharded(model_of(world, recipe), quantized=True)
    optimizer = adam(first)
    trained(world, first, optimizer)
    values, states = get_state_dict(first, optimizer)
    checkpoint.save({"model": values, "optimizer": states}, checkpoint_id=folder)
    want = trained(world, first, optimizer, start=3)
    for quantized in (True, False):  # an ordinary model reads it as well
        again = sharded(model_of(world, recipe), quantized)
        with torch.no_grad():
            for parameter in again.parameters():
                parameter.zero_()
        optimizer = adam(again)
        values, states = get_state_dict(again, optimizer)
        checkpoint.load({"model": values, "optimizer": states}, checkpoint_id=folder)
        set_state_dict(again, optimizer, model_state_dict=values, optim_state_dict=states)
        assert trained(world, again, optimizer, start=3) == want, quantized
    whole_values = get_model_state_dict(again, options=StateDictOptions(full_state_dict=True))
    for value in whole_values.values():
        assert type(value) is torch.Tensor, type(value)
    torch.save(first[0][0].weight.to_local(), f"{folder}/shard{world.rank}.pt")
    loaded = torch.load(f"{folder}/shard{world.rank}.pt", weights_only=True)
    assert type(loaded) is torch.Tensor and loaded.shape == (256 // world.size, 128)
    dist.barrier()
    if world.rank == 0:
        shutil.rmtree(folder)


@case
def what_cannot_be_gathered_is_refused(world: World) -> None:
    def shard(recipe: Any, inner: int = 256, **options: Any) -> Any:
        return sharded(model_of(world, recipe, inner=inner), quantized=True, **options)

    square = SQUARE["mxfp8"]
    refused(ValueError, lambda: shard(mxt.mxfp8()), "'0.0'", "weight_block='32x32'")
    refused(ValueError, lambda: shard(square.with_(dgrad="plain")), "in 16 bits")
    refused(ValueError, lambda: shard(None), "no mxkern.torch.Linear")
    refused(TypeError, lambda: shard_quantized(torch.nn.Linear(4, 4), "mxfp8"), "expected a Recipe")
    refused(ValueError, lambda: shard(square, 48 * world.size), "'0.0'", "whole squares of 32")
    refused(ValueError, lambda: shard(square, 32 * world.size + 32), "as many for each")
    if world.size == 4:
        refused(ValueError, lambda: shard(square, reshard_after_forward=2), "True or False")
    model = shard(square)
    x = world.normal(4, 128)
    for other in (mxt.mxfp8(), mxt.nvfp4()):
        with mxt.autocast(other):
            refused(ValueError, lambda: model[0](x), "expected the recipe of shard_quantized")
    model = shard(square)
    with mxt.autocast(enabled=False):
        refused(TypeError, lambda: model[0](x), "only mxkern.torch.linear reads it")


@slow_case
def blocks_compiled_one_by_one(world: World) -> None:
    for quantized in (False, True):
        losses = []
        for compiles in (False, True):
            torch._dynamo.reset()
            model = model_of(world, SQUARE["mxfp8"])
            if quantized:
                shard_quantized(model)
            for block in model:
                if compiles:
                    block.compile(backend="aot_eager", fullgraph=True)
                fully_shard(block)
            fully_shard(model)
            losses.append(trained(world, model, adam(model)))
        assert losses[0] == losses[1], (quantized, losses)


@case_of_four
def tensor_parallel_blocks_are_sharded(world: World) -> None:
    both = world.mesh(world.size // 2, 2, names=("data", "tensor"))
    plan = {
        "0": QuantizedColwiseParallel(input_layouts=Shard(0)),
        "2": RowwiseParallel(output_layouts=Shard(0)),
    }
    for recipe in (mxt.mxfp8(), mxt.nvfp4()):
        losses = []
        for parallel in (False, True):
            model = model_of(world, recipe)
            if parallel:
                for block in model:
                    parallelize_module(block, both["tensor"], plan, src_data_rank=None)
            sharded(model, mesh=both["data"])
            optimizer, own = adam(model), []
            for step in range(3):
                # Tokens are sharded over "tensor" too.
                x = world.normal(64, 128, seed=10 * step + both.get_local_rank("data"))
                if parallel:
                    x = x.chunk(2)[both.get_local_rank("tensor")]
                loss = (model(x).float() - x.float()).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                summed = loss.detach().clone()
                dist.all_reduce(summed)
                own.append(float(summed) / world.size)
            losses.append(own)
        for left, right in zip(*losses, strict=True):
            assert abs(left - right) < 0.05 * left, losses
    refused(
        TypeError,
        lambda: shard_quantized(
            parallelize_module(model_of(world, SQUARE["mxfp8"])[0], both["tensor"], plan)
        ),
        "is a DTensor",
    )
