# tests/python/pytorch/quantized/quantized_cases.py: weights that are stored quantized, and their
# comparison.
from __future__ import annotations

from typing import Any

import torch

from mxkern.torch import QuantizedTensor
from support import assert_same_parts

N, K = 48, 96
DTYPE = torch.bfloat16


def plain(*shape: int, dtype: Any = DTYPE, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), device="cpu").to(
        torch.get_default_device(), dtype
    )


def stored(scheme: str = "mxfp4", *shape: int, **options: Any) -> Any:
    return QuantizedTensor.from_float(plain(*(shape or (N, K))), scheme, **options)


def parameter(scheme: str = "mxfp4", **options: Any) -> Any:
    return torch.nn.Parameter(stored(scheme, **options), requires_grad=False)


def on_bytes(q: Any) -> Any:
    return q.map(lambda part: part.cpu().view(torch.uint8) if part.dim() else part.cpu())


def same(got: Any, want: Any) -> None:
    """Two QuantizedTensors, whose memory may be on any device."""
    assert type(got) is QuantizedTensor
    assert (got.shape, got.dtype, got.facts) == (want.shape, want.dtype, want.facts)
    assert_same_parts(on_bytes(got.quantized), on_bytes(want.quantized), "rows")
    assert (got.columns is None) == (want.columns is None)
    if want.columns is not None:
        assert_same_parts(on_bytes(got.columns), on_bytes(want.columns), "columns")


def addresses(q: Any) -> list[int]:
    return [part.data_ptr() for part in q.parts if part is not None]
