# mxkern/torch/recipes/shared_amax.py: NVFP4's amax over the ranks of process groups.
from __future__ import annotations

from typing import Any

import torch

from mxkern.torch.recipes.gathered import reduced_max


def shared_amax(
    call: Any, rows: Any, columns: Any, transform: dict[str, Any], groups: Any
) -> tuple[Any, Any]:
    """The largest magnitudes of rows, and of what columns are after their transform, over all ranks
    of the group, or of groups one after the other, in one collective each. columns None: of rows
    alone."""
    own = [call.tensor_amax(rows)]
    if columns is not None and transform:
        own.append(call.tensor_amax(columns, columns=True, **transform))
    both = torch.stack(own)
    for group in groups if isinstance(groups, tuple) else (groups,):
        both = reduced_max(both, group)
    return both[0], both[-1]
