# tests/python/pytorch/quantized/state_dict_worker.py: one rank of test_distributed_checkpoint.
from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard

from mxkern.torch import QuantizedTensor, frozen_linear
from mxkern.torch.quantized.state_dict import install

rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks
)


class Layer(torch.nn.Linear):
    """A stored base and an adapter that FSDP shards."""

    def __init__(self, seed: int, scheme: str) -> None:
        super().__init__(96, 48, bias=False)
        generator = torch.Generator().manual_seed(seed)
        w = QuantizedTensor.from_float(torch.randn(48, 96, generator=generator), scheme)
        self.weight = torch.nn.Parameter(w, requires_grad=False)
        self.adapter = torch.nn.Parameter(torch.randn(48, 96, generator=generator))
        install(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return frozen_linear(x, self.weight) + torch.nn.functional.linear(x, self.adapter)


x = torch.randn(4, 96, generator=torch.Generator().manual_seed(1))
for scheme in ("mxfp4", "nvfp4"):
    saved, loaded, sharded = (torch.nn.Sequential(Layer(seed, scheme)) for seed in (0, 1, 2))
    want = saved(x)
    path = folder / scheme
    dcp.save(saved.state_dict(), checkpoint_id=path)

    # In place, into the memory of a model that has multiplied before.
    loaded(x)
    dcp.load(loaded.state_dict(), checkpoint_id=path)
    assert torch.equal(loaded(x), want)

    # By the functions that training loops use.
    loaded = torch.nn.Sequential(Layer(3, scheme))
    state = get_model_state_dict(loaded)
    assert "0.weight.codes" in state and "0.weight" not in state
    dcp.load(state, checkpoint_id=path)
    set_model_state_dict(loaded, state)
    assert torch.equal(loaded(x), want)

    # Of a model whose adapters are sharded; the hooks are still there.
    fully_shard(sharded[0], ignored_params={sharded[0].weight})
    state = sharded.state_dict()
    assert "0.weight.scheme" in state and type(state["0.weight.codes"]) is torch.Tensor
    dcp.load(state, checkpoint_id=path)
    sharded.load_state_dict(state)
    torch.testing.assert_close(sharded(x), want)
    sharded(x).sum().backward()
    assert sharded[0].adapter.grad is not None

    # Another scheme.
    other = torch.nn.Sequential(Layer(4, "mxfp8"))
    state = other.state_dict()
    try:
        dcp.load(state, checkpoint_id=path)
    except CheckpointException as error:
        assert "mismatch" in str(error), error
    else:
        raise AssertionError("codes of another scheme were loaded")
dist.barrier()
dist.destroy_process_group()
print("saved and loaded")
