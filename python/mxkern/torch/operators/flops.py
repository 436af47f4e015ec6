# mxkern/torch/operators/flops.py: what PyTorch's FlopCounterMode counts of the products of
# mxkern.torch.
from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from mxkern.torch.operators.expert_library import split_layer
from mxkern.torch.operators.product_library import split_arguments


def _of_product(*arguments: Any, **options: Any) -> int:
    a, b, *_ = split_arguments("gemm", arguments, 0)
    return int(2 * math.prod(a.shape) * b.shape[-2])


def _of_groups(*arguments: Any, **options: Any) -> int:
    """As though each row, or column, belonged to one: nobody reads the ends for it."""
    a, b, *others = split_arguments("grouped_gemm", arguments, 5)
    rows = a.shape[0] if others[4] is None else others[4].numel()
    return int(2 * rows * a.shape[1] * b.shape[-2])


def _of_layer(*arguments: Any, **options: Any) -> int:
    """Of both products of all copies."""
    _, gate_up, down, _, rows, *_ = split_layer(arguments)
    each = math.prod(gate_up.shape[1:]) + math.prod(down.shape[1:])
    return int(2 * rows.numel() * each)


def teach_the_counter() -> None:
    """Once the operators are defined."""
    formulas = {"gemm": _of_product, "grouped_gemm": _of_groups, "expert_layer": _of_layer}
    for name, formula in formulas.items():
        register_flop_formula(getattr(torch.ops.mxkern, name), get_raw=True)(formula)
