"""examples/training_loop.py: a training loop as torchtitan has one, on one device or on several.

    python examples/training_loop.py
    torchrun --nproc-per-node 2 examples/training_loop.py

The model is made without memory, quantized, compiled block by block, sharded if there are several
ranks, and only then filled. Gradients of several micro-batches are accumulated. A second start with
the same --folder goes on where the first one stopped.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from train_gpt import GPT, loss_of, standard_library

import mxkern.torch as mxt

parser = argparse.ArgumentParser(description="Trains a small GPT on one device or on several.")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--micro-batches", type=int, default=4)
parser.add_argument("--backend", default="inductor", help="of torch.compile")
parser.add_argument("--folder", type=Path, help="where the checkpoint is")
options = parser.parse_args()

ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if device.type == "cuda":
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
if ranks > 1:
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

with torch.device("meta"):
    model = GPT()
# One rank keeps quantized weights for all micro-batches; several gather theirs anew.
training = mxt.Training(mxt.nvfp4(), cache_weights=ranks == 1)
mxt.quantize_(model, training, mxt.all_but_last(model))  # the head and the last block stay plain
for block in model.blocks:
    block.compile(backend=options.backend)
    if ranks > 1:
        fully_shard(block)
if ranks > 1:
    fully_shard(model)
model.to_empty(device=device)
torch.manual_seed(0 if device.type == "cuda" else rank)  # a CPU's rank draws its own shard
model.init_weights()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

step, counter = 0, model.blocks[0].qkv.step  # the counter of random bits is the model's
if options.folder and (options.folder / ".metadata").exists():
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": 0}
    dcp.load(state, checkpoint_id=options.folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    step = state["step"]
    counter.set(step * options.micro_batches)

text = standard_library()
while step < options.steps:
    generator = torch.Generator().manual_seed(step * ranks + rank)  # each rank has its own data
    total = torch.zeros((), device=device)
    for _ in range(options.micro_batches):
        loss = loss_of(model, text, 4, generator) / options.micro_batches
        loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if ranks > 1:
        dist.all_reduce(total)
    if rank == 0:
        print(f"step {step:4}   loss {total.item() / ranks:.4f}", flush=True)

if options.folder:
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments, "step": step}, checkpoint_id=options.folder)
if ranks > 1:
    dist.destroy_process_group()
