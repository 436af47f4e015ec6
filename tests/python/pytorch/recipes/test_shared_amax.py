# tests/python/pytorch/recipes/test_shared_amax.py: NVFP4's amaxes over a group, those that quantize
# finds.
from __future__ import annotations

from pathlib import Path

import pytest

import mxkern
from support import array_of, random_values

torch = pytest.importorskip("torch", reason="torch is not installed")

from mxkern.torch.recipes.shared_amax import shared_amax  # noqa: E402


def test_amaxes_of_both_directions(tmp_path: Path) -> None:
    """Of one rank they are its own: with them, and without, the same bytes."""
    x = array_of("torch", random_values((48, 40), "bfloat16"))
    torch.distributed.init_process_group(
        "gloo", f"file://{tmp_path / 'meeting'}", rank=0, world_size=1
    )
    try:
        group = torch.distributed.group.WORLD
        for transform in ({"hadamard": 16, "sign_mask": 0x35A7}, {}):
            amaxes = shared_amax(mxkern, x, x, transform, group)
            got = mxkern.quantize_both(x, "nvfp4", amax=amaxes, **transform)
            want = mxkern.quantize_both(x, "nvfp4", **transform)
            for a, b in zip(got, want, strict=True):
                assert a.tensor_scale == b.tensor_scale
                assert a.codes.equal(b.codes)
            assert (amaxes[0] != amaxes[1]) == bool(transform)
        rows = shared_amax(mxkern, x, None, {}, group)
        assert rows[0] == rows[1] == mxkern.tensor_amax(x)
    finally:
        torch.distributed.destroy_process_group()
