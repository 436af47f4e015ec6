# mxkern/torch/recipes/checkpoint_policy.py: what selective checkpointing keeps of a block of
# layers.
from __future__ import annotations

from typing import Any

from torch.utils.checkpoint import CheckpointPolicy

_KEPT = ("mm", "bmm", "addmm", "baddbmm", "convolution")


def keep_products(ctx: Any, op: Any, *arguments: Any, **options: Any) -> CheckpointPolicy:
    """A policy for torch.utils.checkpoint.create_selective_checkpoint_contexts: outputs of products
    and of attention are kept, and what is cheap is computed again, quantized operands too.

    checkpoint(block, x, use_reentrant=False, context_fn=functools.partial(
        create_selective_checkpoint_contexts, mxkern.torch.keep_products))

    A block of a transformer then keeps about as much as with plain layers in 8 bits whose operands
    are computed again. Compiled blocks lose a few per cent of speed by it.
    """
    name = str(getattr(op, "overloadpacket", op)).rpartition(".")[2]
    kept = name in _KEPT or name.endswith(("gemm", "_mm")) or "attention" in name
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
