# bench/cuda/rivals.py: a straightforward PyTorch implementation under torch.compile, beside ours.
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import mxkern
from bench.cuda.timing import copy_bytes_per_second, median_seconds

SHAPE = (16384, 8192)


def mxfp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """MXFP8 E4M3 with the scale rule of OCP, row-major scales."""
    blocks = x.float().reshape(x.shape[0], -1, 32)
    amax = blocks.abs().amax(-1)
    exponent = (amax.view(torch.int32) >> 23) & 0xFF
    scale = (exponent - 8).clamp(0, 254)
    multiplier = ((254 - scale) << 23).view(torch.float32)
    codes = (blocks * multiplier[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.reshape(x.shape), scale.to(torch.uint8)


def nvfp4(x: torch.Tensor, amax: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """NVFP4 with an amax that is known, row-major scales."""
    blocks = x.float().reshape(x.shape[0], -1, 16)
    encode = 2688.0 / amax
    scale = (blocks.abs().amax(-1) * (encode * (1.0 / 6.0))).clamp(max=448).to(torch.float8_e4m3fn)
    inverse = 1.0 / (scale.float() * (1.0 / encode))
    magnitude = (blocks * inverse[..., None]).abs().clamp(max=6)
    code = (magnitude > 0.25).to(torch.uint8)
    for step, inclusive in (
        (0.75, True),
        (1.25, False),
        (1.75, True),
        (2.5, False),
        (3.5, True),
        (5.0, False),
    ):
        code = code + ((magnitude >= step) if inclusive else (magnitude > step)).to(torch.uint8)
    code = code | (torch.signbit(blocks).to(torch.uint8) << 3)
    pairs = code.reshape(x.shape[0], -1, 2)
    return pairs[..., 0] | (pairs[..., 1] << 4), scale


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme: results first, then the time of both."""
    x = torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16)
    copy = copy_bytes_per_second()
    amax = mxkern.tensor_amax(x)
    q = mxkern.quantize(x, "mxfp8", scale_rule="floor")
    ours: Callable[[], object] = lambda: mxkern.quantize(x, "mxfp8", scale_rule="floor", out=q)  # noqa: E731
    compiled = torch.compile(mxfp8, fullgraph=True)
    yield _record("mxfp8_e4m3", q, compiled(x), lambda: compiled(x), ours, copy)

    p = mxkern.quantize(x, "nvfp4", amax=amax)
    ours = lambda: mxkern.quantize(x, "nvfp4", amax=amax, out=p)  # noqa: E731
    compiled_nvfp4 = torch.compile(nvfp4, fullgraph=True)
    yield _record("nvfp4", p, compiled_nvfp4(x, amax), lambda: compiled_nvfp4(x, amax), ours, copy)


def _record(
    scheme: str,
    q: mxkern.BlockScaled,
    theirs: tuple[torch.Tensor, torch.Tensor],
    rival: Callable[[], object],
    ours: Callable[[], object],
    copy: float,
) -> dict[str, Any]:
    # A compiled division may round differently, which moves a code now and then.
    different = max(
        (a.view(torch.uint8) != b.view(torch.uint8)).float().mean().item()
        for a, b in zip(theirs, q[:2], strict=True)
    )
    assert different < 1e-2, f"{scheme}: {different:.1%} of the rival's bytes differ"
    return {
        "scheme": scheme,
        "rival": f"torch.compile, PyTorch {torch.__version__}",
        "shape": list(SHAPE),
        "rival_seconds": median_seconds([rival]),
        "seconds": median_seconds([ours]),
        "bytes": SHAPE[0] * SHAPE[1] * 2 + q.nbytes,
        "different": different,
        "copy_bytes_per_second": copy,
    }
