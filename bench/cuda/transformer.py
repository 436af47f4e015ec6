# bench/cuda/transformer.py: a transformer's training steps, compiled, in bfloat16, by recipes of
# mxkern.torch and by torchao's float8 training: python -m bench.cuda.transformer FILE [WIDTH...]
# [WAY...]. Blocks are compiled one by one, and the head with the loss; with WHOLE=1 in the
# environment all in one, with WHOLE=reduce-overhead in CUDA graphs.
from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import mxkern.torch as mxt
from bench import machine

# Width: layers, sequences of a batch.
SIZES = {1024: (12, 16), 2048: (12, 16), 4096: (6, 8)}
SEQUENCE = 1024
VOCABULARY = 32768
WARM, STEPS = 5, 12


class Block(nn.Module):  # type: ignore[misc]  # no types there
    """Attention and GELU, four linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 128
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.first(x)).view(batch, tokens, 3, self.heads, 128)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x)), approximate="tanh"))


class Model(nn.Module):  # type: ignore[misc]  # no types there
    """A GPT."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return x  # ahead of norm and head, which are compiled with the loss


def _in_blocks(module: Any, name: str) -> bool:
    return "blocks." in name


def _trained(recipe: Any) -> Callable[[Any], Any]:
    return lambda model: mxt.quantize_(model, mxt.Training(recipe), _in_blocks)


class Checkpointed(nn.Module):  # type: ignore[misc]  # no types there
    """A block of which products are kept, and all else is computed again."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block
        self.context_fn = partial(create_selective_checkpoint_contexts, mxt.keep_products)

    def forward(self, x: Any) -> Any:
        return checkpoint(self.block, x, use_reentrant=False, context_fn=self.context_fn)


def _checkpointed(recipe: Any) -> Callable[[Any], Any]:
    def convert(model: Any) -> Any:
        _trained(recipe)(model)
        model.blocks = nn.ModuleList(map(Checkpointed, model.blocks))
        return model

    return convert


def _torchao(kind: str) -> Callable[[Any], Any]:
    def convert(model: Any) -> Any:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        config = Float8LinearConfig.from_recipe_name(kind)
        return convert_to_float8_training(model, config=config, module_filter_fn=_in_blocks)

    return convert


WAYS: dict[str, Callable[[Any], Any]] = {
    "bfloat16": lambda model: model,
    "mxfp8": _trained(mxt.mxfp8()),
    "mxfp8, requantized weights": _trained(mxt.mxfp8(save_weight="requantize")),
    "mxfp8, products kept": _checkpointed(mxt.mxfp8(save_weight="requantize", save="plain")),
    "float8 tensorwise": _torchao("tensorwise"),
    "float8 rowwise": _torchao("rowwise"),
    "nvfp4": _trained(mxt.nvfp4()),
    "mxfp4": _trained(mxt.mxfp4()),
}


def measure(width: int, way: str) -> dict[str, Any]:
    """Tokens a second, peak memory and the losses of a few steps."""
    gc.collect()
    torch.cuda.empty_cache()
    torch._dynamo.reset()
    torch.manual_seed(0)
    layers, batch = SIZES[width]
    with torch.device("cuda"):
        model = Model(width, layers).bfloat16()
    model = WAYS[way](model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    whole = os.environ.get("WHOLE")  # one program, with CUDA graphs if it says "reduce-overhead"
    for block in () if whole else model.blocks:
        block.compile()

    def loss_of(x: Any, wanted: Any) -> Any:
        logits = model.head(model.norm(x))
        return nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    tokens = torch.randint(VOCABULARY, (batch, SEQUENCE + 1), device="cuda")

    head = loss_of if whole else torch.compile(loss_of)

    def run(tokens: Any) -> Any:
        return head(model(tokens[:, :-1]), tokens[:, 1:])

    if whole:
        run = torch.compile(run, mode=None if whole == "1" else whole)

    def step() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        loss = run(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    losses = [step().detach().clone() for _ in range(WARM)]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        losses.append(step().detach().clone())
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return {
        "width": width,
        "way": way,
        "layers": layers,
        "compiled": whole or "blocks",
        "tokens": batch * SEQUENCE,
        "seconds": statistics.median(times),
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "losses": [float(loss) for loss in losses],
    }


def main() -> None:
    """Each width, and each way or those whose names follow the widths; ways that fail are named."""
    file, *chosen = sys.argv[1:]
    widths = [int(each) for each in chosen if each.isdigit()] or list(SIZES)
    ways = [each for each in chosen if not each.isdigit()] or list(WAYS)
    described = machine.describe() | {"gpu": torch.cuda.get_device_name()}
    records: list[dict[str, Any]] = []
    for width in widths:
        for way in ways:
            try:
                record = measure(width, way)
            except Exception as error:
                print(f"{width} {way}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                continue
            records.append(record)
            plain = next(r["seconds"] for r in records if r["width"] == width)
            print(
                f"{width} {way:30} {record['tokens'] / record['seconds'] / 1e3:8.1f} k tokens/s  "
                f"{plain / record['seconds']:.3f}  {record['peak_bytes'] / 2**30:.1f} GiB  "
                f"loss {record['losses'][-1]:.4f}",
                flush=True,
            )
            with open(file, "w") as target:
                json.dump({"machine": described, "records": records}, target, indent=1)


if __name__ == "__main__":
    main()
