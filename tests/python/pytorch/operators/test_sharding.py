# tests/python/pytorch/operators/test_sharding.py: DTensor's rules of sharding take the operators.
from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torch.distributed.tensor", reason="PyTorch has no DTensor")


def test_one_rank(tmp_path: Path) -> None:
    from torch_sharding_cases import run

    run(0, 1, str(tmp_path / "meeting"))


@pytest.mark.slow
def test_two_ranks(tmp_path: Path) -> None:
    from torch_sharding_cases import run

    torch.multiprocessing.spawn(run, (2, str(tmp_path / "meeting")), nprocs=2)
