# mxkern/torch/operators/flops.py: what PyTorch's FlopCounterMode counts of the products of
# mxkern.torch.
from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from mxkern.torch.operators.product_library import split_arguments


def _of_product(*arguments: Any, **options: Any) -> int:
    """Of groups as though each row, or column, belonged to one: nobody reads the ends for it."""
    a, b, *_ = split_arguments("gemm", arguments, 0)
    return int(2 * math.prod(a.shape) * b.shape[-2])


def teach_the_counter() -> None:
    """Once the operators are defined."""
    products = [torch.ops.mxkern.gemm, torch.ops.mxkern.grouped_gemm]
    register_flop_formula(products, get_raw=True)(_of_product)
