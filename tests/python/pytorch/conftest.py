# tests/python/pytorch/conftest.py: tests of layers run on the CPU, and on a GPU where there is one.
from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where PyTorch makes tensors that say nothing else."""
    torch.set_default_device(request.param)
    yield request.param
    torch.set_default_device(None)
