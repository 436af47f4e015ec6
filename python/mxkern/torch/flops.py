# mxkern/torch/flops.py: what PyTorch's FlopCounterMode counts of the products of mxkern.torch.
from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from mxkern.scheme import Shape


def _of_product(
    a: Any,
    a_kind: str,
    a_shape: Shape,
    b: Any,
    b_kind: str,
    b_shape: Shape,
    *rest: Any,
    **options: Any,
) -> int:
    """Of groups as though each row, or column, belonged to one: nobody reads the ends for it."""
    return 2 * math.prod(a_shape) * b_shape[-2]


def teach_the_counter() -> None:
    """Once the operators are defined."""
    products = [torch.ops.mxkern.gemm, torch.ops.mxkern.grouped_gemm]
    register_flop_formula(products, get_raw=True)(_of_product)
