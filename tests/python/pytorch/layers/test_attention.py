# tests/python/pytorch/layers/test_attention.py: attention of quantized operands beside PyTorch's.
from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import decibels, normal  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as plain  # noqa: E402

import mxkern  # noqa: E402
import mxkern.torch as mxt  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

# In dB, by the schemes of the left and of the right operands: the bars of TorchMX's own tests.
BARS = {
    ("mxfp8_e4m3", "mxfp6_e3m2"): 17,
    ("mxfp8_e4m3", "mxfp4"): 11,
    ("mxfp6_e3m2", "mxfp6_e3m2"): 16,
    ("mxfp6_e3m2", "mxfp4"): 12,
    ("mxfp6_e2m3", "mxfp6_e3m2"): 17,
    ("mxfp6_e2m3", "mxfp4"): 12,
    ("mxfp4", "mxfp6_e3m2"): 12,
    ("mxfp4", "mxfp4"): 8,
}


def operands(tokens: int = 64, seen: int = 64, heads: int = 4, groups: int = 4) -> tuple[Any, ...]:
    q = normal(2, heads, tokens, 64, grad=False)
    return q, *(normal(2, groups, seen, 64, seed=seed, grad=False) for seed in (1, 2))


@pytest.mark.parametrize(("left", "right"), BARS)
def test_bars(left: Any, right: Any) -> None:
    q, k, v = operands()
    y = mxt.attention(q, k, v, left=left, right=right)
    assert y.dtype == q.dtype and y.shape == q.shape
    assert decibels(plain(q.float(), k.float(), v.float()), y) >= BARS[left, right]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("tokens", "seen", "groups"), [(40, 40, 4), (17, 50, 2), (1, 33, 1)])
def test_what_it_computes(tokens: int, seen: int, groups: int, causal: bool) -> None:
    q, k, v = operands(tokens, seen, groups=groups)
    y = mxt.attention(q, k, v, left="mxint8", right="mxint8", causal=causal)
    mask = torch.ones(tokens, seen, dtype=torch.bool).tril(seen - tokens) if causal else None
    wide = [t.float().repeat_interleave(4 // groups, 1) for t in (k, v)]
    assert decibels(plain(q.float(), *wide, attn_mask=mask), y) > 30


def test_it_is_the_composition_of_functions() -> None:
    q, k, v = operands(7, 19)
    y = mxt.attention(q, k, v, left="nvfp4", right="mxfp4", scale=0.3)
    scores = mxkern.gemm(mxkern.quantize(q, "nvfp4"), mxkern.quantize(k, "mxfp4"), alpha=0.3)
    weights = mxkern.quantize(scores.softmax(-1), "nvfp4")
    wanted = mxkern.gemm(weights, mxkern.quantize_columns(v, "mxfp4"), dtype=q.dtype)
    assert torch.equal(y, wanted)


def test_refusals() -> None:
    q, k, v = operands()
    with pytest.raises(ValueError, match=r"k has shape .*where G divides 4"):
        mxt.attention(q, k[:, :3], v[:, :3])
    with pytest.raises(ValueError, match=r"expected \[B, H, T, D\]"):
        mxt.attention(q[0], k, v)
    with pytest.raises(TypeError, match="left is 8"):
        mxt.attention(q, k, v, left=8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="requires grad"):
        mxt.attention(q.requires_grad_(), k, v)
