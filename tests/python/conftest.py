# tests/python/conftest.py: settings of the whole suite.
from __future__ import annotations

import os
from typing import Any

# JAX looks for accelerators and warns where it finds none.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pytest
from hypothesis import settings

settings.register_profile("mxkern", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("mxkern")


@pytest.fixture
def torch() -> Any:
    """PyTorch, for tests of CUDA arrays."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return torch
