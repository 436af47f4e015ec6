# bench/cuda/parallel.py: layers of Llama 8B's sizes on several GPUs: tensor parallel with sequence
# parallelism, and fully sharded; tokens and weights gathered in 16 bits or quantized.
# torchrun --nproc-per-node 2 -m bench.cuda.parallel [FILE] writes the records.
from __future__ import annotations

import gc
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import mxkern.torch as mxt
from bench import machine
from mxkern.torch.parallel.sharded_weight import shard_quantized
from mxkern.torch.parallel.tensor_parallel import QuantizedColwiseParallel

sys.path.append(str(Path(__file__).parents[2] / "tests/python/pytorch/parallel"))
from parallel_cases import Wire, World

HIDDEN, BETWEEN, HEADS, KEY_HEADS = 4096, 14336, 32, 8
TOKENS = 8192  # of a tensor-parallel group; half of it on each rank that is fully sharded
BLOCKS = 2
WARM, STEPS = 3, 12
DEVICE = "cuda"
RECIPES = {
    "bfloat16": None,
    "mxfp8": mxt.mxfp8(weight_block="32x32"),
    "nvfp4": mxt.nvfp4(),
}


class Block(nn.Module):  # type: ignore[misc]  # no types there
    """A transformer block: attention with fewer keys than queries, and SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.size = HIDDEN // HEADS
        self.first, self.second = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.qkv = nn.Linear(HIDDEN, HIDDEN + 2 * KEY_HEADS * self.size, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * BETWEEN, bias=False)
        self.down = nn.Linear(BETWEEN, HIDDEN, bias=False)

    def forward(self, x: Any) -> Any:
        tokens = x.shape[1]
        heads = self.qkv(self.first(x)).view(1, tokens, HEADS + 2 * KEY_HEADS, self.size)
        q, k, v = heads.transpose(1, 2).split((HEADS, KEY_HEADS, KEY_HEADS), dim=1)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(seen.transpose(1, 2).reshape(1, tokens, HIDDEN))
        gate, up = self.gate_up(self.second(x)).chunk(2, -1)
        return x + self.down(nn.functional.silu(gate) * up)


class Pair(nn.Module):  # type: ignore[misc]  # no types there
    """A column-parallel layer and a row-parallel one."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(HIDDEN, BETWEEN, bias=False)
        self.down = nn.Linear(BETWEEN, HIDDEN, bias=False)

    def forward(self, x: Any) -> Any:
        return self.down(nn.functional.gelu(self.up(x), approximate="tanh"))


def run(world: World) -> Iterator[dict[str, Any]]:
    """One record a model, recipe and way of gathering."""
    for name, recipe in RECIPES.items():
        for quantized in (False,) if recipe is None else (False, True):
            gather = "quantized" if quantized else "16 bits"
            for model, made in (("linear", _linear), ("pair", _pair), ("blocks", _blocks)):
                step = made(world, recipe, quantized)
                yield {"model": model, "recipe": name, "gather": gather, **_measure(step)}
                del step
                gc.collect()
                torch.cuda.empty_cache()


def _quantized(model: Any, recipe: Any) -> Any:
    return model if recipe is None else mxt.quantize_(model, mxt.Training(recipe))


def _column(quantized: bool) -> Any:
    return QuantizedColwiseParallel() if quantized else ColwiseParallel(input_layouts=Shard(1))


def _tokens(world: World, rows: int) -> Any:
    generator = torch.Generator(DEVICE).manual_seed(world.rank)
    shape = (1, rows, HIDDEN)
    return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16, generator=generator)


def _step(model: Any, x: Any) -> Callable[[], None]:
    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        y = model(x.requires_grad_())
        y = y.to_local() if isinstance(y, DTensor) else y
        y.backward(torch.ones_like(y))

    return step


def _linear(world: World, recipe: Any, quantized: bool) -> Callable[[], None]:
    layer = nn.Sequential(nn.Linear(HIDDEN, BETWEEN, bias=False)).to(DEVICE, torch.bfloat16)
    layer = parallelize_module(_quantized(layer, recipe), world.mesh(), {"0": _column(quantized)})
    return _step(layer, _tokens(world, TOKENS // world.size))


def _pair(world: World, recipe: Any, quantized: bool) -> Callable[[], None]:
    with torch.device(DEVICE):
        pair = Pair().to(torch.bfloat16)
    plan = {"up": _column(quantized), "down": RowwiseParallel(output_layouts=Shard(1))}
    pair = parallelize_module(_quantized(pair, recipe), world.mesh(), plan)
    return _step(pair, _tokens(world, TOKENS // world.size))


def _blocks(world: World, recipe: Any, quantized: bool) -> Callable[[], None]:
    with torch.device(DEVICE):
        model = nn.Sequential(*(Block() for _ in range(BLOCKS))).to(torch.bfloat16)
    _quantized(model, recipe)
    if quantized:
        shard_quantized(model)
    for block in model:
        fully_shard(block, mesh=world.mesh())
    fully_shard(model, mesh=world.mesh())
    return _step(model, _tokens(world, TOKENS // world.size))


def _measure(step: Callable[[], None]) -> dict[str, Any]:
    for _ in range(WARM):
        step()
    with Wire() as wire:
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(STEPS):
        dist.barrier()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return {
        "seconds": statistics.median(times),
        "bytes_sent_to_gathers": wire.bytes,
        "gathers": wire.calls,
        "peak_bytes": torch.cuda.max_memory_allocated(),
    }


def main() -> None:
    """Prints the records on rank 0, and writes them where a file is named."""
    world = World("nccl")
    records = []
    for r in run(world):
        records.append(r)
        if world.rank == 0:
            named = f"{r['model']:7} {r['recipe']:9} gathered {r['gather']:10}"
            sent = f"{r['bytes_sent_to_gathers'] / 1e6:8.1f} MB in {r['gathers']:2}"
            print(
                f"{named} {r['seconds'] * 1e3:8.2f} ms {sent} peak {r['peak_bytes'] / 1e9:.2f} GB",
                flush=True,
            )
    if world.rank == 0 and len(sys.argv) > 1:
        described = machine.describe() | {
            "gpu": torch.cuda.get_device_name(),
            "ranks": world.size,
        }
        with open(sys.argv[1], "w") as file:
            json.dump({"machine": described, "records": records}, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
