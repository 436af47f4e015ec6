# mxkern/torch/shared_amax.py: NVFP4's amax over the ranks of a process group.
from __future__ import annotations

from typing import Any

import torch


def shared_amax(
    call: Any, rows: Any, columns: Any, transform: dict[str, Any], group: Any
) -> tuple[Any, Any]:
    """The largest magnitudes of rows, and of what columns are after their transform, over all ranks
    of the group, in one collective. columns None: of rows alone."""
    own = [call.tensor_amax(rows)]
    if columns is not None and transform:
        own.append(call.tensor_amax(columns, columns=True, **transform))
    both = torch.stack(own)
    if torch.compiler.is_compiling():
        from torch.distributed._functional_collectives import all_reduce

        both = all_reduce(both, "max", group)
    else:
        torch.distributed.all_reduce(both, torch.distributed.ReduceOp.MAX, group)
    return both[0], both[-1]
