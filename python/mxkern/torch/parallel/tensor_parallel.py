# mxkern/torch/parallel/tensor_parallel.py: the style of tensor parallelism that gathers quantized.
"""PyTorch's own ColwiseParallel and RowwiseParallel, with sequence parallelism or without, work on
mxkern.torch.Linear as they are. QuantizedColwiseParallel gathers tokens after they are quantized.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel

from mxkern.torch.layers.linear import Linear
from mxkern.values import errors


class QuantizedColwiseParallel(ColwiseParallel):  # type: ignore[misc]  # no types there
    """PyTorch's ColwiseParallel for an mxkern.torch.Linear whose input is sharded over tokens:
    codes and scales are gathered, half of bfloat16's bytes and less, and the layer keeps those of
    its own tokens for backward, which gathers them once more. Results are the same to the bit.

    input_layouts  by default Shard(1), tokens of [batch, tokens, features]

    Where shards are uneven or end inside of blocks, tokens are gathered in 16 bits.
    Raises TypeError for other modules.
    """

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        output_layouts: Any = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(
            input_layouts=Shard(1) if input_layouts is None else input_layouts,
            output_layouts=output_layouts,
            use_local_output=use_local_output,
        )
        self.desired_input_layouts = self.input_layouts

    def _apply(self, module: Any, device_mesh: Any) -> Any:
        if not isinstance(module, Linear):
            raise TypeError(
                f"QuantizedColwiseParallel: module is {errors.described(module)}; expected an "
                "mxkern.torch.Linear; make one with mxkern.torch.Linear.from_linear"
            )
        return super()._apply(module, device_mesh)
